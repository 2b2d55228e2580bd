"""Who may hear what (protocol 4), and who is listening. Pure.

A subscription is approved only if it is the exact topic of a live or kept request of the same identity, or begins
with `sys/`. Everything else, the empty prefix included, receives nothing; a refused one still counts as a listener.
"""

from __future__ import annotations

from edged.broker.instructions import Emit, Instruction
from edged.broker.lives import Lives
from edged.broker.streams import SILENCE_S, is_system_topic
from edged.broker.table import Request


class Topics:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    def subscribe(
        self, topic: bytes, identity: str | None, connection: str | None, now: float
    ) -> tuple[bool, list[Instruction]]:
        """Whether to approve, and what follows. `connection`: the `X-Conn` of the frame."""
        if is_system_topic(topic):
            return True, []
        name = topic.decode("ascii", "replace")
        request = self._lives.table.on_topic(name)
        if request is not None:
            return self._live(request, identity, connection, now)
        kept = self._lives.results.on_topic(name)
        if kept is None or kept.identity != identity:
            return False, []
        return True, self._lives.ledger.behind(name, [Emit(0, name, None, fields) for fields in kept.story()])

    def _live(
        self, request: Request, identity: str | None, connection: str | None, now: float
    ) -> tuple[bool, list[Instruction]]:
        request.stream.listeners.joined(connection)
        self._lives.watch(request, now)
        if request.identity != identity:
            return False, []
        topic = request.stream.topic
        return True, [Emit(request.rid, topic, None, request.stream.snapshot(request.shown))]

    def unsubscribe(self, topic: bytes, connection: str | None, now: float) -> None:
        request = self._lives.table.on_topic(topic.decode("ascii", "replace"))
        if request is not None:
            request.stream.listeners.left(connection)
            self._lives.watch(request, now)

    def rebound(self, now: float, *, replies: bool = False) -> None:
        """The stream socket was bound anew, with `replies` those of requests too: nobody listens. Every grace begins
        again, after the time that a client may wait before it notices (protocol 4, *Silence*)."""
        for request in self._lives.table:
            stream = request.stream
            stream.listeners.clear()
            stream.to = None if replies else stream.to
            stream.alone_since = now + SILENCE_S
            self._lives.watch(request, now)

    def unreachable(self, rid: int, now: float) -> None:
        """The connection behind a reply stream is gone."""
        request = self._lives.table.get(rid)
        if request is not None and request.stream.to is not None:
            request.stream.to = None
            self._lives.watch(request, now)

    def lagged(self, rid: int) -> None:
        """An event could not be taken by the topic or the connection."""
        request = self._lives.table.get(rid)
        self._lives.pace.counters["events_dropped"] += 1
        if request is not None:
            request.stream.lagged = True
