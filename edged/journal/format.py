"""The journal's bytes. Pure.

    file    = MAGIC, frame(Head), frame(Record)…
    frame   = length, CRC-32 of the payload (both uint32, little endian), payload (msgpack)

A file is good up to the first frame that is cut short or whose checksum is wrong: a write was torn there, and nothing
behind it was ever told. A head of another version, or a payload that cannot be read although its checksum is right, is
a file of another edged: `foreign`.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from edged.broker.record import Record
from edged.broker.results import Time

MAGIC: Final = b"edged journal\n"
VERSION: Final = 1
_FRAME: Final = struct.Struct("<II")
MOST_BYTES: Final = 64 << 20
"""Of one payload; a length beyond it is no length."""


class Head(Struct, frozen=True, array_like=True):
    """`boot`: the kernel's boot id, since CLOCK_MONOTONIC means something within one boot only."""

    version: int
    boot: str
    now: Time


class Contents(Struct, frozen=True):
    """`good`: bytes that can be read. `foreign`: why the file is not ours to read, else ""."""

    head: Head | None
    records: list[Record]
    good: int
    foreign: str = ""


_encoder = msgspec.msgpack.Encoder()
_heads = msgspec.msgpack.Decoder(Head)
_versions = msgspec.msgpack.Decoder(list[msgspec.Raw])
_records = msgspec.msgpack.Decoder(Record)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def frame(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def head(boot: str, now: float) -> bytes:
    return MAGIC + frame(_encoder.encode(Head(VERSION, boot, now)))


def encode(records: Iterable[Record]) -> bytes:
    return b"".join([frame(_encoder.encode(record)) for record in records])


def decode(data: bytes) -> Contents:
    return read(io.BytesIO(data))


def read(file: BinaryIO) -> Contents:
    """Whatever the bytes are, it is what can be read of them, and only that is in memory. Raises OSError."""
    start = file.read(len(MAGIC))
    if start != MAGIC:
        return Contents(None, [], 0, "" if MAGIC.startswith(start) else "it is no journal")
    payload = _next(file)
    if payload is None:
        return Contents(None, [], 0)
    try:
        version = msgspec.msgpack.decode(_versions.decode(payload)[0])
        if version != VERSION:
            return Contents(None, [], 0, f"version {version}, this edged knows {VERSION}")
        first = _heads.decode(payload)
    except (*_UNREADABLE, IndexError):
        return Contents(None, [], 0, "its head cannot be read")
    good = len(MAGIC) + _FRAME.size + len(payload)
    records: list[Record] = []
    while (payload := _next(file)) is not None:
        try:
            records.append(_records.decode(payload))
        except _UNREADABLE:
            return Contents(first, records, good, "a record cannot be read")
        good += _FRAME.size + len(payload)
    return Contents(first, records, good)


def _next(file: BinaryIO) -> bytes | None:
    """The payload of the next frame; None: there is no whole one. Zeros are none: a file system may leave some."""
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        return None
    size, checksum = _FRAME.unpack(frame)
    if not 0 < size <= MOST_BYTES:
        return None
    payload = file.read(size)
    return payload if len(payload) == size and zlib.crc32(payload) == checksum else None
