"""Which files of a models directory have been hashed, when they were what they are now, and against what.

`.checked.json` in the directory. An entry counts as long as size, time and inode of the file are the same: then
`list` can say that a file is verified without reading it again. Losing the file costs hashing, nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

_NAME: Final = ".checked.json"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """`against`: who named the sum that the file matched ("the catalog", "the hub", "--sha256"); "" if nobody did."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str
    against: str


def lookup(path: Path) -> Check | None:
    """What is known of the file as it is now."""
    check = _read(path.parent).get(path.name)
    if check is None:
        return None
    try:
        file = path.stat()
    except OSError:
        return None
    same = (check.size, check.mtime_ns, check.inode) == (file.st_size, file.st_mtime_ns, file.st_ino)
    return check if same else None


def earlier(path: Path) -> Check | None:
    """What was known of a file of this name, even if it has changed since."""
    return _read(path.parent).get(path.name)


def remember(path: Path, sha256: str, against: str) -> None:
    """A directory that cannot be written costs the memory, nothing else."""
    file = path.stat()
    entries = _read(path.parent)
    entries[path.name] = Check(
        size=file.st_size, mtime_ns=file.st_mtime_ns, inode=file.st_ino, sha256=sha256, against=against
    )
    _write(path.parent, entries)


def forget(path: Path) -> None:
    entries = _read(path.parent)
    if entries.pop(path.name, None) is not None:
        _write(path.parent, entries)


def _read(directory: Path) -> dict[str, Check]:
    try:
        return msgspec.json.decode((directory / _NAME).read_bytes(), type=dict[str, Check])
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}


def _write(directory: Path, entries: dict[str, Check]) -> None:
    temporary = directory / f"{_NAME}.{os.getpid()}"
    try:
        temporary.write_bytes(msgspec.json.encode(entries))
        temporary.replace(directory / _NAME)
    except OSError:
        temporary.unlink(missing_ok=True)
