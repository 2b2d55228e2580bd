"""The words between the rules and the sockets: what is to be done, what has happened, how long things may take. Pure.

A *line* is one socket, used for one try and named by a number that is never used again: whatever comes late, on a line
that was closed, can be taken for nothing else.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Message = dict[str, Any]
"""One JSON object, as it came."""


class Ask(Struct, frozen=True):
    """Open a DEALER to `endpoint` and send `body`."""

    line: int
    endpoint: str
    body: bytes


class Listen(Struct, frozen=True):
    """Open a SUB to `endpoint` and subscribe to exactly `topic`."""

    line: int
    endpoint: str
    topic: str


class Say(Struct, frozen=True):
    """Send one more body on an open DEALER: it arrives after the first."""

    line: int
    body: bytes


class Close(Struct, frozen=True):
    line: int


Action = Ask | Listen | Say | Close


class Heard(Struct, frozen=True):
    """A message came."""

    line: int
    message: Message


class Lost(Struct, frozen=True):
    """The connection was cut, or refused in the handshake: only a new socket helps.

    `reason`: of `errors.REASONS`, where it is known that there is no use in more of the same.
    """

    line: int
    reason: str | None = None


class Unreachable(Struct, frozen=True):
    """Nobody listens there at the moment. The socket goes on trying by itself."""

    line: int


class Reached(Struct, frozen=True):
    """The connection stands: what was asked is on its way, and may be accepted from here on."""

    line: int


Input = Heard | Lost | Unreachable | Reached


class Pace(Struct, frozen=True):
    """How long things may take, in seconds. The defaults suit a Pi on a busy day."""

    deadline_s: float = 120.0
    """Assumed for `generate` until the ticket says what is in force (protocol 11, `defaults.deadline_ms`)."""
    answer_s: float = 5.0
    """For everything that is answered at once: `ping`, `status`, `cancel` …"""
    grace_s: float = 2.0
    """A request ends no later than its deadline plus one second (protocol 10); one more for the way."""
    first_try_s: float = 2.0
    """A ticket is sent on receipt. Sending again is safe, so this may be short; each further try gets twice as long."""
    try_max_s: float = 10.0
    silence_s: float = 10.0
    """Protocol 4: after this long without an event the client asks `result`."""
    backoff_s: float = 0.1
    """After a cut connection, or a refusal that names no time; doubled each time."""
    backoff_max_s: float = 5.0
    avoid_s: float = 5.0
    """An endpoint that did not answer comes last for this long, in every call of the same client; doubled each time."""
    avoid_max_s: float = 120.0
    stay_s: float = 15.0
    """A box that may have accepted a request keeps it until it has said nothing for so long (protocol 3: over a restart
    of the daemon it goes on); then another is asked. One whose text was shown keeps it to the end."""
    leave_s: float = 1.0
    """For the cancel of a caller who leaves."""
