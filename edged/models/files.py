"""Files in the models directory: one writer at a time, and nothing half-written under a final name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


class BusyError(Exception):
    """Another process has the file in hand."""


class UnwritableError(Exception):
    """The directory is not there and cannot be made, or must not be written; the message says what to do."""


def prepare(directory: Path) -> None:
    """Makes the directory if need be. Raises UnwritableError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError(f"{directory}: {error.strerror or error}: it is to hold the models") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        owner = _owner(directory)
        raise UnwritableError(f"{directory}: not writable for this user: use sudo, or do it as {owner}, whose it is")


def _owner(directory: Path) -> str:
    try:
        return directory.owner()
    except (KeyError, OSError):
        return "its owner"


@contextlib.contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Holds the lock of one model file. Raises BusyError at once when another process has it."""
    path = target.with_name(f".{target.name}.lock")
    fd = _lock(path, target.name)
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: who opens it later makes a new one
        os.close(fd)


def _lock(path: Path, name: str) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and path.stat().st_ino == os.fstat(fd).st_ino:
                return fd
        except BlockingIOError:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            who = f"process {pid}" if pid.isdigit() else "another process"
            raise BusyError(f"{name}: {who} is fetching it or has it in hand: wait for that") from None
        os.close(fd)  # its last holder has removed it in between


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


def sync_directory(directory: Path) -> None:
    """A rename is only on the disk when its directory is."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def settle(part: Path, target: Path) -> None:
    """The finished file gets its name. It has been flushed; whoever has the old one open keeps it."""
    part.chmod(0o644)
    part.replace(target)
    sync_directory(target.parent)
