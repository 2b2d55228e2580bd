"""One journal file: opened for this daemon alone, appended to, begun afresh. Every function raises OSError.

`write` leaves whole writes only: one that fails half way is cut off again. `renew` writes a new file and puts it in the
place of the old one, which stays as it is when that fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from edged.journal.format import MOST_BYTES

NAME: Final = "journal"
_ASIDE: Final = "journal.bad"
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE: Final = 1 << 20


class JournalFile:
    """In a directory that was checked (`edged.system.owndir`). `synced`: what `write` and `renew` wrote is on the disk
    when they return."""

    def __init__(self, directory: str, *, synced: bool) -> None:
        self.path = os.path.join(directory, NAME)
        self.size = 0
        self._directory = directory
        self._synced = synced
        self._file = -1
        self._lock = -1

    def lock(self) -> bool:
        """The directory, for as long as it is open. False: another daemon has it."""
        self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = -1
            return False
        return True

    def read(self) -> bytes:
        """All of it; empty when there is none, or when it is larger than any journal of ours."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        with open(file, "rb") as reader:
            return reader.read(4 * MOST_BYTES)

    def set_aside(self) -> None:
        """For people to look at; the one before goes."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, os.path.join(self._directory, _ASIDE))

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
        new = self.path + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        file = os.open(new, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            self._all(file, data)
            if self._synced:
                os.fsync(file)
            os.replace(new, self.path)
        except OSError:
            os.close(file)
            raise
        self._close_file()
        self._file, self.size = file, len(data)
        if self._synced:
            self._sync_directory()

    def remove(self) -> None:
        """Nothing is recorded any more, rather than half of it."""
        self._close_file()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

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
