"""What lies on the disk of a download that is not finished: NAME.part and, beside it, what it is a part of.

The pure half decides how much of the part may be kept. A process that was killed loses nothing: the kernel still has
what was written. After a power cut only what had been flushed is certain, so the record says how much that is and in
which life of the machine (boot id) it was written; in another life the rest is cut off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec

from edged.models.room import mb

FLUSH_EVERY: Final = 32 << 20
"""Bytes between flushes: at most this much is fetched twice after a power cut; and an SD card is not flooded."""

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`validator`: ETag or time of change; `sha256`: what the whole is expected to be."""

    place: str
    size: Bytes
    validator: str | None
    sha256: str | None
    flushed: Bytes
    boot: str


def keep(record: Record | None, length: int | None, *, place: str, sha256: str | None, boot: str) -> int:
    """Bytes of the part that may be kept; 0: begin anew. Pure."""
    if record is None or length is None:
        return 0
    same_sum = sha256 is not None and sha256 == record.sha256
    if not same_sum and (record.place != place or (sha256 is not None and record.sha256 not in (None, sha256))):
        return 0
    if not same_sum and record.sha256 is None and record.validator is None:
        return 0
    certain = length if record.boot == boot else min(length, record.flushed)
    return certain if certain <= record.size else 0


def part_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def record_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.part.json")


def load(target: Path) -> Record | None:
    """None when there is none or it makes no sense."""
    try:
        return msgspec.json.decode(record_path(target).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def save(target: Path, record: Record) -> None:
    """Replaced as a whole; what it says has been flushed before."""
    path = record_path(target)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.chmod(0o600)
    temporary.replace(path)


def length(target: Path) -> int | None:
    try:
        return part_path(target).stat().st_size
    except OSError:
        return None


def discard(target: Path) -> None:
    for path in (part_path(target), record_path(target)):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def kept(target: Path) -> str:
    """How to go on after a failure; "" when nothing is left to go on with."""
    there, record = length(target), load(target)
    if not there or record is None:
        return ""
    name = part_path(target).name
    return f" ({mb(there)} of {mb(record.size)} are kept in {name}: the same command goes on from there)"


class Part:
    """The file that grows, unbuffered, with the digest of what is in it."""

    def __init__(self, target: Path, keep: int, record: Record) -> None:
        """Opens what is there and cuts it to `keep` bytes."""
        path = part_path(target)
        self._target, self._record = target, record
        self._file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        try:
            self._file.truncate(keep)
            self._digest = hashlib.file_digest(self._file, "sha256")
            self._file.seek(0, os.SEEK_END)
            self.done = keep
            self.save()
        except BaseException:
            self._file.close()
            raise

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[self._file.write(view) or 0 :]
        self._digest.update(block)
        self.done += len(block)
        if self.done - self._record.flushed >= FLUSH_EVERY:
            self.save()

    def save(self) -> None:
        """What has arrived is on the disk before the record says so."""
        os.fsync(self._file.fileno())
        self._record = msgspec.structs.replace(self._record, flushed=self.done)
        save(self._target, self._record)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def boot_id() -> str:
    try:
        return Path(BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""
