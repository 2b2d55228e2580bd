"""Frames on the socketpair between daemon and worker: 4-byte big-endian length, then a msgpack list of structs.

Pure: bytes in, messages out. The daemon and the scripted worker of the tests use it as the real worker does.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from edged.messages import Down, Up

_LENGTH: Final = struct.Struct(">I")
MAX_FRAME: Final = 64 << 20
"""A frame longer than this is a broken peer (the longest honest one is a prompt of 256 KiB or its tokens)."""

_encoder = msgspec.msgpack.Encoder()


class LinkError(Exception):
    """The other end does not speak this protocol."""


def encode(*messages: Up | Down) -> bytes:
    """One frame holding the messages in order."""
    body = _encoder.encode(messages)
    return _LENGTH.pack(len(body)) + body


class _Reader:
    """Collects bytes, yields whole frames. Bounded by MAX_FRAME."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def frames(self, data: bytes) -> list[bytes]:
        self._buffer += data
        out: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > MAX_FRAME:
                raise LinkError(f"frame of {length} bytes")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            out.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return out


class UpReader(_Reader):
    """The daemon's side: bytes from the worker → messages. Raises LinkError."""

    _decoder = msgspec.msgpack.Decoder(list[Up])

    def feed(self, data: bytes) -> list[Up]:
        try:
            return [m for f in self.frames(data) for m in self._decoder.decode(f)]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise LinkError(str(error)) from error


class DownReader(_Reader):
    """The worker's side: bytes from the daemon → messages. Raises LinkError."""

    _decoder = msgspec.msgpack.Decoder(list[Down])

    def feed(self, data: bytes) -> list[Down]:
        try:
            return [m for f in self.frames(data) for m in self._decoder.decode(f)]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise LinkError(str(error)) from error
