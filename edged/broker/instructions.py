"""What the pure broker tells the daemon to do, in order."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from edged.broker.transcript import Question
from edged.errors import WireError
from edged.messages import Down, Priority

SocketName = Literal["request", "control"]


class Address(Struct, frozen=True):
    """Where a reply goes: the socket, and the frames up to and including the delimiter, to be echoed.

    `bound`: which binding of the socket it came by; routing ids of one mean nothing to the next.
    """

    socket: SocketName
    frames: tuple[bytes, ...]
    bound: int = 0


class Caller(Struct, frozen=True):
    """Who asks, where the answer goes, and what this caller may: the highest priority, and its own share of the queue
    (None: `limits.queue_per_identity`)."""

    identity: str
    to: Address
    max_priority: Priority = "high"
    max_queued: int | None = None


class Reply(Struct, frozen=True):
    """An ok reply: `fields` beside v, ok, id, instance."""

    to: Address
    id: str | None
    fields: dict[str, Any]


class Raw(Struct, frozen=True):
    """A reply that was encoded before: a kept result."""

    to: Address
    body: bytes


class Refuse(Struct, frozen=True):
    """An error reply."""

    to: Address
    id: str | None
    error: WireError


class Emit(Struct, frozen=True):
    """One event of a stream: to the topic (when `topic`) and behind the reply frames (when `to`)."""

    rid: int
    topic: str | None
    to: Address | None
    fields: dict[str, Any]


class Tell(Struct, frozen=True):
    """A message for the worker."""

    message: Down


class Note(Struct, frozen=True):
    """One line of the log: ids, identities, lengths and timings, never text."""

    event: str
    fields: dict[str, Any]


class Ask(Struct, frozen=True):
    """A question for the thread that keeps transcripts."""

    question: Question


Instruction = Reply | Raw | Refuse | Emit | Tell | Note | Ask
