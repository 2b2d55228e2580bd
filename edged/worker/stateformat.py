"""One file format for the snapshot of a sequence, in RAM and on the disk. Pure: bytes in, bytes out.

Little endian:

    fixed      magic, version u32, flags u32 (1: of a session), bytes of model, context, build, scope (u32 each),
               tokens u32, public u32, floor u32, bytes of the state u64
    texts      model, context, build, scope in UTF-8
    tokens     u32 each
    checksum   of all that, so that an index can be made from heads alone
    state      as llama.cpp copied it out
    checksum   of everything before it

No number is believed before it is held against the size of the file, no text or token before the checksum. What does
not fit in is *damaged*; a sound file of another model, context, build or format is *foreign*: of no use now, perhaps
later. llama.cpp itself checks little: a state of another model with the same layout is taken (its own files too).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAGIC: Final = b"edgedKV\n"
VERSION: Final = 1
FIXED: Final = struct.Struct("<8s9IQ")
DIGEST: Final = 32
_SESSION: Final = 1

Tokens = NDArray[np.int32]
Data = bytes | bytearray | memoryview


class Fault(StrEnum):
    """Why a file is not taken."""

    TRUNCATED = "truncated"
    TRAILING = "bytes after the end"
    MAGIC = "no state file"
    CHECKSUM = "wrong checksum"
    CONTENT = "impossible content"
    VERSION = "other format"
    MODEL = "other model"
    CONTEXT = "other context"
    BUILD = "other build of llama.cpp"

    @property
    def foreign(self) -> bool:
        return self in (Fault.VERSION, Fault.MODEL, Fault.CONTEXT, Fault.BUILD)


class StateFileError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose states can be used: fingerprint of the model, what of the context matters, the build of llama.cpp."""

    model: str
    context: str
    build: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What a state is of.

    `public`: so many leading tokens are the system block that may be shared. `floor`: the shortest length that the
    state can be trimmed to; 0 for attention, all tokens where nothing can be trimmed.
    """

    tokens: Tokens
    scope: str
    session: bool = False
    public: int = 0
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the head (first checksum included), of the state, and of the whole file."""

    head: int
    state: int

    @property
    def file(self) -> int:
        return self.head + self.state + DIGEST


def digest(parts: Iterable[Data]) -> bytes:
    sum_ = hashlib.blake2b(digest_size=DIGEST)
    for part in parts:
        sum_.update(part)
    return sum_.digest()


def encode(origin: Origin, snapshot: Snapshot, state: Data) -> list[Data]:
    """The file in three parts; the state is not copied."""
    texts = [text.encode() for text in (origin.model, origin.context, origin.build, snapshot.scope)]
    tokens = snapshot.tokens.astype("<u4").tobytes()
    lengths = (*map(len, texts), len(snapshot.tokens), snapshot.public, snapshot.floor, len(state))
    head = FIXED.pack(MAGIC, VERSION, _SESSION if snapshot.session else 0, *lengths) + b"".join(texts) + tokens
    head += digest([head])
    return [head, state, digest([head, state])]


def sizes(fixed: bytes, file_size: int) -> Sizes:
    """From the first bytes. Raises StateFileError unless they fit the file's size exactly."""
    if len(fixed) < FIXED.size:
        raise StateFileError(Fault.TRUNCATED)
    magic, version, _flags, *texts, tokens, _public, _floor, state = FIXED.unpack(fixed[: FIXED.size])
    if magic != MAGIC:
        raise StateFileError(Fault.MAGIC)
    if version != VERSION:
        raise StateFileError(Fault.VERSION)
    found = Sizes(FIXED.size + sum(texts) + 4 * tokens + DIGEST, state)
    if file_size != found.file:
        raise StateFileError(Fault.TRUNCATED if file_size < found.file else Fault.TRAILING)
    return found


def decode_head(head: bytes, origin: Origin) -> Snapshot:
    """A head of the length that `sizes` told. Raises StateFileError."""
    body, checksum = head[:-DIGEST], head[-DIGEST:]
    if digest([body]) != checksum:
        raise StateFileError(Fault.CHECKSUM)
    _, _, flags, *lengths, count, public, floor, _ = FIXED.unpack(body[: FIXED.size])
    texts, at = [], FIXED.size
    for length in lengths:
        texts.append(_text(body[at : at + length]))
        at += length
    model, context, build, scope = texts
    for found, wanted, fault in (
        (model, origin.model, Fault.MODEL),
        (context, origin.context, Fault.CONTEXT),
        (build, origin.build, Fault.BUILD),
    ):
        if found != wanted:
            raise StateFileError(fault)
    tokens = np.frombuffer(body, dtype="<u4", offset=at)
    if not 0 < len(tokens) == count or max(public, floor) > count or tokens.max() > np.iinfo(np.int32).max:
        raise StateFileError(Fault.CONTENT)
    return Snapshot(tokens.astype(np.int32), scope, bool(flags & _SESSION), public, floor)


def check_whole(head: bytes, state: Data, checksum: bytes) -> None:
    """Raises StateFileError."""
    if digest([head, state]) != checksum:
        raise StateFileError(Fault.CHECKSUM)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise StateFileError(Fault.CONTENT) from None
