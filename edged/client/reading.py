"""The text of a stream, put together from events that may be lost, repeated or late (protocol 4). Pure.

`seq` is the last event known of, −1 for none. A snapshot stands for all events up to its own `seq`; so does the
`result` of a request that still runs. What is behind is ignored, what is ahead by one is taken, a gap is told to the
caller.

A *run* is a topic. Another topic means that the request was begun anew (the daemon was restarted, or the run before
ended in a retryable error): the text begins anew too, and the reader is told by `Anew`, since what was shown cannot be
taken back. So is a text that does not continue the one at hand, which no daemon should send.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from edged.client.replies import Result
from edged.client.steps import Message

BEFORE_ALL = -1


class Accepted(Struct, frozen=True):
    """The ticket; comes again when the stream was taken up again."""

    topic: str
    state: str
    position: int | None
    endpoint: str
    instance: str


class Queued(Struct, frozen=True):
    position: int


class Prefill(Struct, frozen=True):
    done: int
    total: int


class Piece(Struct, frozen=True):
    """The next piece of text."""

    text: str


class Anew(Struct, frozen=True):
    """The text begins anew: what came so far (`discarded`) does not count. `run` counts from 1."""

    run: int
    discarded: str


class Replaced(Struct, frozen=True):
    """The worker or the daemon was replaced under the request; what was shown stands and it goes on."""

    reason: str


class Postponed(Struct, frozen=True):
    """Refused for the moment: it is sent again after so many seconds, about, with the same id."""

    code: str
    message: str
    after_s: float


class Ended(Struct, frozen=True):
    result: Result


Event = Accepted | Queued | Prefill | Piece | Anew | Replaced | Postponed | Ended


class Reading:
    """Methods return what is to be shown."""

    def __init__(self) -> None:
        self.text = ""
        self.seq = BEFORE_ALL
        self.run = 1
        self.topic: str | None = None

    def ticket(self, topic: str) -> list[Event]:
        known, self.topic = self.topic, topic
        return [] if known in (None, topic) else self._anew()

    def event(self, message: Message) -> list[Event] | None:
        """An event other than `end`. None: some before it are missing, and it was not taken."""
        seq, kind = message.get("seq"), message.get("type")
        if not isinstance(seq, int) or seq <= self.seq:
            return []
        if kind == "snapshot":
            return self.snapshot(seq, message.get("text"))
        if seq != self.seq + 1:
            return None
        self.seq = seq
        if kind == "token":
            return self._add(str(message.get("text", "")))
        return _progress(str(kind), message)

    def snapshot(self, seq: object, text: object) -> list[Event]:
        if not isinstance(seq, int) or seq <= self.seq or not isinstance(text, str):
            return []
        out = self.whole(text)
        self.seq = seq
        return out

    def whole(self, text: str) -> list[Event]:
        """The text as it must be by now."""
        if text.startswith(self.text):
            return self._add(text[len(self.text) :])
        return [*self._anew(), *self._add(text)]

    def _add(self, text: str) -> list[Event]:
        self.text += text
        return [Piece(text)] if text else []

    def _anew(self) -> list[Event]:
        discarded, self.text, self.seq = self.text, "", BEFORE_ALL
        self.run += 1
        return [Anew(self.run, discarded)]


def _progress(kind: str, message: Message) -> list[Event]:
    def number(name: str) -> int:
        value: Any = message.get(name)
        return value if isinstance(value, int) else 0

    if kind == "queued":
        return [Queued(number("position"))]
    if kind == "prefill":
        return [Prefill(number("done"), number("total"))]
    if kind == "restart":
        return [Replaced(str(message.get("reason", "")))]
    return []
