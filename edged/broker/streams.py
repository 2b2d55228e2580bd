"""Streams of events and who listens to them (protocol 4). Pure.

A stream keeps *text, not events*: the number of the last event sent and the text that `token` events carried. A
`snapshot` made from the two makes a late or returning listener whole.

Listeners of a topic are counted by connection (`X-Conn`, a number of ours for each connection):

* the set of connections that subscribed to exactly this topic, approved or refused;
* an unsubscribe that names its connection removes it from the set;
* an anonymous one (libzmq's own, when a connection goes) counts one departure;
* the stream has listeners while the set is larger than the departures.

Doubt keeps a stream alive: a stranger who subscribes can delay the orphan rule, never trigger it. Binding the socket
anew clears the count, and the grace begins again after SILENCE_S. A `"reply"` stream listens through the connection it
is sent to, a waiting `result` through itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from edged.broker.instructions import Address

TOPIC_PREFIX: Final = "tok/"
SYS_PREFIX: Final = b"sys/"

SILENCE_S: Final = 10.0
"""After that without an event a client asks (protocol 4); a dead daemon may show by nothing else."""
QUEUED_EVERY_S: Final = 4.0
"""Protocol 4 asks for a `queued` event at least every 5 s."""
PREFILL_EVERY_S: Final = 1.0
"""Protocol 4 asks for a `prefill` event at least every 2 s; a chunk takes up to 0.5 s."""


class Listeners:
    """Counts the connections that listen to one topic."""

    def __init__(self) -> None:
        self._connections: set[str] = set()
        self._departures = 0

    def joined(self, connection: str | None) -> None:
        """`None`: the frame did not say which; it counts as one of its own, for its departure will be anonymous too."""
        self._connections.add(connection or f"?{len(self._connections)}")

    def left(self, connection: str | None) -> None:
        """`None`: the frame did not say which."""
        if connection is None:
            self._departures += 1
        else:
            self._connections.discard(connection)

    def clear(self) -> None:
        self._connections.clear()
        self._departures = 0

    @property
    def present(self) -> bool:
        return len(self._connections) > self._departures


@dataclass(slots=True)
class Stream:
    """One request's events. `mode` is the request's `stream` field; `seq` numbers the last event sent (−1: none)."""

    id: str
    topic: str
    mode: Literal[False, "pub", "reply"]
    seq: int = -1
    tokens_since: int = 0
    logprobs_since: list[Any] = field(default_factory=list)
    lagged: bool = False
    last_event: float = 0.0
    pieces: list[str] = field(default_factory=list)
    listeners: Listeners = field(default_factory=Listeners)
    to: Address | None = None  # where a "reply" stream goes
    alone_since: float | None = None

    @property
    def heard(self) -> bool:
        """Somebody listens: on the topic, or behind the reply frames."""
        return self.to is not None or self.listeners.present

    @property
    def queued_due(self) -> float:
        """When the next `queued` event is due while the request waits."""
        return self.last_event + QUEUED_EVERY_S

    @property
    def text(self) -> str:
        """What `token` events carried so far."""
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def event(self, kind: str, now: float, **fields: Any) -> dict[str, Any]:
        """The next event's fields; counts it."""
        self.seq += 1
        self.last_event = now
        return {"id": self.id, "type": kind, "seq": self.seq, **fields}

    def token(self, text: str, tokens: int, now: float, logprobs: Sequence[Any] = ()) -> dict[str, Any] | None:
        """Adds sampled tokens; an event only when there is text to show, its `n` counts those held back before.

        Their `logprobs` come with them.
        """
        self.tokens_since += tokens
        self.logprobs_since += logprobs
        if not text:
            return None
        self.pieces.append(text)
        n, self.tokens_since = self.tokens_since, 0
        told, self.logprobs_since = self.logprobs_since, []
        return self.event("token", now, text=text, n=n, **({"logprobs": told} if told else {}))

    def snapshot(self, state: str) -> dict[str, Any]:
        return snapshot(self.id, self.seq, self.text, state)


def snapshot(request_id: str, seq: int, text: str, state: str) -> dict[str, Any]:
    """Stands for all events up to and including `seq`; not counted itself."""
    return {"id": request_id, "type": "snapshot", "seq": seq, "text": text, "state": state}


def is_system_topic(topic: bytes) -> bool:
    """`sys/…` topics are for anybody."""
    return topic.startswith(SYS_PREFIX)
