"""One journal file: opened for this daemon alone, appended to, begun afresh. Every function raises OSError.

`write` leaves whole writes only: one that fails half way is cut off again. `renew` writes a new file and puts it in the
place of the old one, which stays as it is, and can be appended to, when that fails. A directory that was removed
meanwhile is made and locked again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import BinaryIO, Final

from edged.system import owndir

NAME: Final = "journal"
_NEW: Final = "journal.new"
_ASIDE: Final = "journal.bad"
NAMES: Final = (NAME, _NEW, _ASIDE)
ASIDE_BYTES: Final = 16 << 20
"""More is not kept for people to look at."""
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE: Final = 1 << 20


class JournalFile:
    """In a directory that was checked (`edged.system.owndir`). `synced`: what `write` and `renew` wrote is on the disk
    when they return."""

    def __init__(self, directory: str, *, synced: bool) -> None:
        self.path = os.path.join(directory, NAME)
        self.size = 0
        self._new, self._aside = os.path.join(directory, _NEW), os.path.join(directory, _ASIDE)
        self._directory = directory
        self._synced = synced
        self._file = -1
        self._lock = -1

    def lock(self) -> bool:
        """The directory, for as long as it is open. False: another daemon has it."""
        lock = os.open(self._directory, _DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = lock
        return True

    def reader(self) -> BinaryIO | None:
        """None: there is none."""
        try:
            file = os.open(self.path, _READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(error.errno, "it is a link") from None
            raise
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "it is no plain file")
        return open(file, "rb")

    def set_aside(self) -> bool:
        """For people to look at, in place of the one before. False: what is large or no plain file is removed."""
        status = os.lstat(self.path)
        if stat.S_ISREG(status.st_mode) and status.st_size <= ASIDE_BYTES:
            os.replace(self.path, self._aside)
            return True
        os.unlink(self.path)
        return False

    def is_aside(self) -> bool:
        return os.path.lexists(self._aside)

    def there(self) -> bool:
        """Whether what is appended to is what the next daemon will find."""
        return _same(self._file, self.path) and _same(self._lock, self._directory)

    def write(self, data: bytes) -> None:
        try:
            self._all(self._file, data)
            if self._synced:
                os.fdatasync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def renew(self, data: bytes) -> None:
        self._mend()
        _gone(self._new)
        file = os.open(self._new, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            self._all(file, data)
            if self._synced:
                os.fsync(file)
            os.replace(self._new, self.path)
        except OSError:
            os.close(file)
            with contextlib.suppress(OSError):
                _gone(self._new)
            raise
        self._close_file()
        self._file, self.size = file, len(data)
        if self._synced:
            try:
                self._sync_directory()
            except OSError:
                self._close_file()  # which of the two is there after a power cut is not known
                raise

    def remove(self) -> None:
        """Nothing is recorded any more, rather than half of it."""
        self._close_file()
        _gone(self.path)

    def clear(self) -> None:
        """Nothing with text in it is left."""
        self._close_file()
        for path in (self._new, self._aside, self.path):
            _gone(path)

    def last(self, data: bytes) -> None:
        """Only this is left; `data` empty: nothing."""
        if not data:
            return self.clear()
        _gone(self._aside)
        return self.renew(data)

    def shut(self) -> None:
        """No more is appended until it was renewed; what is there stays."""
        self._close_file()

    def close(self) -> None:
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def open(self) -> bool:
        return self._file >= 0

    def _mend(self) -> None:
        if _same(self._lock, self._directory):
            return
        wrong = owndir.prepare(self._directory)
        if wrong:
            raise OSError(errno.EACCES, wrong)
        if not self.lock():
            raise OSError(errno.EBUSY, "another daemon has it")

    @staticmethod
    def _all(file: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest[:_PIECE]) :]

    def _sync_directory(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _gone(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _same(file: int, path: str) -> bool:
    """The open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except OSError:
        return False
