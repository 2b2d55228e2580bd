"""Messages as they come: frames read one by one, and what they say of their sender.

A message has at most a handful of frames that anybody wants, and as many as its sender likes: libzmq counts messages.
Taken in whole, a million empty frames (2 MB on the wire) would cost the loop a second and half a gigabyte. So what is
beyond KEPT is thrown away as it is read, TURN frames at a time, and a sender of more than ENDLESS is put out.
"""

from __future__ import annotations

from typing import Final

import zmq
from msgspec import Struct

from edged.broker.instructions import Address
from edged.messages import Priority

KEPT: Final = 16
ENDLESS: Final = 4096
"""Frames of one message; none that is meant has more than six. What has fewer is told why it is refused."""
TURN: Final = 10_000
"""Frames thrown away before the other sockets get their turn: 15 ms."""

PREFIX_FRAMES: Final = 4
PREFIX_BYTES: Final = 512
"""What a peer may put before the delimiter (routing id, REQ's 4 bytes, one frame of its own), since it is echoed."""

_FD: Final = "__fd"
"""libzmq's name for the connection's descriptor (ZMQ_SRCFD)."""


class Incoming(Struct, frozen=True):
    """One message on `request` or `control`. `wrong`: why its framing cannot be accepted, to be told to `to`.

    `max_queued`: this caller's own share of the queue, if it has one.
    """

    to: Address
    identity: str
    max_priority: Priority
    max_queued: int | None
    socket_type: str
    wrong: str | None
    body: bytes


class Subscription(Struct, frozen=True):
    """One frame on `stream`; the metadata is None where libzmq made the frame itself."""

    data: bytes
    identity: str | None
    connection: str | None
    address: str
    key: str | None = None  # the peer's public key


class Framed(Struct, frozen=True):
    """A message of ours to be: `echo` is what an answer begins with, `body` empty when `wrong` says why."""

    last: zmq.Frame
    routing_id: bytes
    echo: tuple[bytes, ...]
    body: bytes
    wrong: str | None


class Endless(Struct, frozen=True):
    """A message without end, of which the rest is thrown away; `last` is the frame that was one too many."""

    last: zmq.Frame


class Reader:
    """For one ROUTER, as long as it lives."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._kept: list[zmq.Frame] = []
        self._count = 0

    def read(self) -> Framed | Endless | None:
        """The next message; None: there is none, or the turn is over. Once begun a message is there as a whole."""
        for _ in range(TURN):
            try:
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            self._count += 1
            if len(self._kept) < KEPT:
                self._kept.append(frame)
            if not frame.more:
                kept, count = self._kept, self._count
                self._kept, self._count = [], 0
                if count <= ENDLESS:
                    return framed(kept, count)
            elif self._count == ENDLESS:
                self._count += 1
                return Endless(frame)
        return None


def framed(frames: list[zmq.Frame], count: int) -> Framed:
    """Protocol 2. `count`: of the whole message, of which `frames` may be the beginning."""
    sizes = [len(frame) for frame in frames]
    delimiter = sizes.index(0, 1) if 0 in sizes[1:] else 0
    prefix, rest = frames[: delimiter + 1], frames[delimiter + 1 :]
    addressable = 0 < delimiter < PREFIX_FRAMES and sum(sizes[:delimiter]) <= PREFIX_BYTES
    routing_id = frames[0].bytes
    wrong = None
    if not addressable or len(rest) != 1 or count > len(frames):
        wrong = "a message is: an empty frame, then one body frame"
    elif not given_by_libzmq(routing_id):
        wrong = "set no routing id on your socket: whoever takes it after you would get your answers"
    return Framed(
        last=frames[-1],
        routing_id=routing_id,
        echo=tuple(frame.bytes for frame in prefix) if addressable else (routing_id, b""),
        body=b"" if wrong else rest[0].bytes,
        wrong=wrong,
    )


def given_by_libzmq(routing_id: bytes) -> bool:
    """A ROUTER names a peer that brings no id by a zero byte and a number of its own, which no other peer ever has."""
    return len(routing_id) == 5 and routing_id[0] == 0


def metadata(frame: zmq.Frame, name: str) -> str | None:
    try:
        value = frame.get(name)
    except (zmq.ZMQError, UnicodeDecodeError):
        return None
    return str(value) if value else None


def descriptor(frame: zmq.Frame) -> int | None:
    """Of the connection that it came over; it may be another's by now."""
    text = metadata(frame, _FD)
    return int(text) if text and text.isdigit() else None
