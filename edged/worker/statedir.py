"""One directory of state files: whole files in, verified files out. No budgets, no index.

* A directory that anybody else could have made or may write to is not used; `problem` says why.
* A file appears under its name when it is complete. A temporary one is locked by its writer: one without a lock is
  left over from a crash and goes when the directory is opened, also while another worker still writes beside it.
* Damaged files are moved to `bad`, which keeps the newest KEPT of them and at most `bad_bytes`; foreign ones stay.
* Nothing raises OSError: a file that cannot be read or has vanished is None, one that cannot be written too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from typing import Final, NamedTuple

from edged.system.owndir import prepare
from edged.worker import stateformat
from edged.worker.stateformat import Data, Fault, Origin, Snapshot, StateFileError

SUFFIX: Final = ".kv"
_PARTIAL: Final = ".partial"
_BAD: Final = "bad"
KEPT: Final = 4
BAD_BYTES: Final = 32 << 20
_PIECE: Final = 1 << 20
_SYNC_BYTES: Final = 4 << 20
"""Written at a time before the disk is waited for: a cheap SD card takes half a second, so a deadline is kept."""


class Found(NamedTuple):
    """A file of the directory; without `snapshot` it is foreign."""

    name: str
    size: int
    mtime: float
    snapshot: Snapshot | None


class Loaded(NamedTuple):
    snapshot: Snapshot
    state: bytearray


@dataclass(frozen=True, slots=True)
class _Head:
    data: bytes
    sizes: stateformat.Sizes


def always() -> bool:
    return True


class StateDir:
    """`durable`: a file is on the medium before it has its name."""

    def __init__(self, path: str, origin: Origin, *, durable: bool, bad_bytes: int = BAD_BYTES) -> None:
        self._path = path
        self._origin = origin
        self._durable = durable
        self._bad_bytes = bad_bytes
        self.set_aside = 0
        self.problem = prepare(path)

    def remove_empty(self) -> None:
        """The directory, when nothing is left in it."""
        for path in (os.path.join(self._path, _BAD), self._path):
            with contextlib.suppress(OSError):
                os.rmdir(path)

    def scan(self) -> Iterator[Found]:
        """Every file, judged by its head; what is left over or damaged is dealt with on the way."""
        for name in self._names(self._path):
            if name.endswith(_PARTIAL):
                self._remove_left_over(name)
            elif name.endswith(SUFFIX):
                found = self._look(name)
                if found:
                    yield found

    def write(
        self, name: str, parts: Iterable[Data], *, going_on: Callable[[], bool] = always, mtime_ns: int | None = None
    ) -> bool:
        """False: it could not be written, or `going_on` said no before the end; then nothing is left of it."""
        partial = os.path.join(self._path, name + _PARTIAL)
        complete = False
        try:
            with open(self._create(partial), "wb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._fill(file.fileno(), parts, going_on):
                    if mtime_ns is not None:
                        os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
                    os.rename(partial, os.path.join(self._path, name))
                    complete = True
        except OSError:
            pass
        if not complete:
            self.remove(name + _PARTIAL)
        elif self._durable:
            _sync(self._path)
        return complete

    def read(self, name: str) -> Loaded | None:
        """None: gone, unreadable, or not sound; then it was set aside."""
        try:
            with self._open(name) as file:
                size = os.fstat(file.fileno()).st_size
                head = _read_head(file.fileno(), size)
                snapshot = stateformat.decode_head(head.data, self._origin)
                state = bytearray(head.sizes.state)
                checksum = _read_tail(file.fileno(), state)
                stateformat.check_whole(head.data, state, checksum)
                return Loaded(snapshot, state)
        except StateFileError as error:
            self._reject(name, error.fault)
        except OSError:
            pass
        return None

    def pieces(self, name: str) -> Iterator[bytes]:
        """The file as it is, to be copied. Raises OSError."""
        with self._open(name) as file:
            while piece := os.read(file.fileno(), _PIECE):
                yield piece

    def mtime_ns(self, name: str) -> int | None:
        try:
            return os.stat(os.path.join(self._path, name)).st_mtime_ns
        except OSError:
            return None

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._path, name))

    def touch(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.utime(os.path.join(self._path, name))

    # ---- inside

    def _create(self, partial: str) -> int:
        """Raises OSError. A directory that went away (the end of a login may empty /dev/shm) is made again."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(partial, flags, 0o600)
        except FileNotFoundError:
            if prepare(self._path):
                raise
            return os.open(partial, flags, 0o600)

    def _fill(self, fd: int, parts: Iterable[Data], going_on: Callable[[], bool]) -> bool:
        unsynced = 0
        for part in parts:
            rest = memoryview(part)
            while rest:
                if not going_on():
                    return False
                written = os.write(fd, rest[:_PIECE])
                rest = rest[written:]
                unsynced += written
                if self._durable and unsynced >= _SYNC_BYTES:
                    os.fdatasync(fd)
                    unsynced = 0
        if self._durable:
            os.fsync(fd)
        return True

    def _open(self, name: str) -> FileIO:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = FileIO(os.open(os.path.join(self._path, name), flags), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError("not a file")
        return file

    def _look(self, name: str) -> Found | None:
        try:
            with self._open(name) as file:
                status = os.fstat(file.fileno())
                try:
                    head = _read_head(file.fileno(), status.st_size)
                    snapshot = stateformat.decode_head(head.data, self._origin)
                except StateFileError as error:
                    self._reject(name, error.fault)
                    return Found(name, status.st_size, status.st_mtime, None) if error.fault.foreign else None
                return Found(name, status.st_size, status.st_mtime, snapshot)
        except OSError:
            return None

    def _reject(self, name: str, fault: Fault) -> None:
        if fault.foreign:
            return
        self.set_aside += 1
        bad = os.path.join(self._path, _BAD)
        try:
            os.makedirs(bad, mode=0o700, exist_ok=True)
            os.rename(os.path.join(self._path, name), os.path.join(bad, name))
            os.utime(os.path.join(bad, name))
        except OSError:
            self.remove(name)
        self._prune(bad)

    def _prune(self, bad: str) -> None:
        files = []
        for name in self._names(bad):
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(bad, name), follow_symlinks=False)
                files.append((status.st_mtime_ns, name, status.st_size))
        room = self._bad_bytes
        for place, (_, name, size) in enumerate(sorted(files, reverse=True)):
            if place < KEPT and size <= room:
                room -= size
            else:
                self.remove(os.path.join(_BAD, name))

    def _remove_left_over(self, name: str) -> None:
        path = os.path.join(self._path, name)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # somebody writes it
        except OSError:
            pass
        self.remove(name)

    def _names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []


def _read_head(fd: int, size: int) -> _Head:
    """Raises OSError, StateFileError."""
    fixed = _read(fd, stateformat.FIXED.size)
    sizes = stateformat.sizes(fixed, size)
    return _Head(fixed + _read(fd, sizes.head - len(fixed)), sizes)


def _read_tail(fd: int, state: bytearray) -> bytes:
    """Fills `state` and returns the checksum behind it. Raises OSError, StateFileError."""
    rest = memoryview(state)
    while rest:
        count = os.readv(fd, [rest])
        if not count:
            raise StateFileError(Fault.TRUNCATED)
        rest = rest[count:]
    return _read(fd, stateformat.DIGEST)


def _read(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := os.read(fd, size - len(data))):
        data += piece
    if len(data) < size:
        raise StateFileError(Fault.TRUNCATED)
    return data


def _sync(path: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
