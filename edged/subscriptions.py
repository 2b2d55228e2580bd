"""Reads the frames on `stream` in order and decides about each before the next is read (protocol 4).

A frame that does not begin with 0x00 or 0x01 is not from a SUB. libzmq 4.3.5 keeps such frames beside the
subscriptions but not beside the connections that those came from: from then on an approval would go to somebody
else's connection, with every `User-Id` looking right. So after one of them nothing more is approved on that socket: it
is closed and bound anew, and the peer is banned for a while. The same is done with a peer that holds more
subscriptions than its share: closing the socket is the only way to get their memory back. Honest subscribers come
back by themselves and are made whole by a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from edged.broker.instructions import Instruction
from edged.broker.shares import Shares
from edged.broker.topics import Topics
from edged.observe.log import Log
from edged.wire.door import Offender
from edged.wire.endpoints import Endpoints
from edged.wire.incoming import Subscription

FRAMES_PER_TURN: Final = 1024
"""Read before the other sockets get their turn. libzmq takes in all that has come whenever it is asked, so a flood has
to meet its limit (512 of the longest topics) in the first turn; a frame takes about 10 µs."""

CANCEL: Final = b"\0"
SUBSCRIBE: Final = b"\1"


class Subscriptions:
    """`do` carries out instructions at once: a snapshot follows its approval before anything else is published."""

    def __init__(
        self,
        endpoints: Endpoints,
        topics: Topics,
        do: Callable[[list[Instruction], float], None],
        log: Log,
        counters: Counter[str],
    ) -> None:
        self._endpoints = endpoints
        self._topics = topics
        self._do = do
        self._log = log
        self._counters = counters
        self._shares = Shares()

    def read(self, now: float) -> None:
        for _ in range(FRAMES_PER_TURN):
            frame = self._endpoints.receive_subscription()
            if frame is None:
                return
            kind, topic = frame.data[:1], frame.data[1:]
            if kind == SUBSCRIBE and self._shares.taken(frame.connection, topic):
                self._subscribe(topic, frame.identity, frame.connection, now)
            elif kind == CANCEL:
                self._shares.given_back(frame.connection, topic)
                self._topics.unsubscribe(topic, frame.connection, now)
                self._endpoints.remove(topic, named=frame.connection is not None)
            else:
                self._rebuild(frame, "subscriptions" if kind == SUBSCRIBE else "foreign frame", now)
                return

    def _rebuild(self, frame: Subscription, why: str, now: float) -> None:
        self._counters["tainted"] += 1
        self._log.warning("stream_tainted", why=why, peer=frame.address, identity=frame.identity)
        self._shares.clear()
        self._endpoints.rebind_stream(Offender(frame.address, frame.key, frame.identity or ""), why, now)
        self._topics.rebound(now)

    def cut(self, now: float) -> None:
        """All sockets were bound anew: nobody is subscribed any more."""
        self._shares.clear()
        self._topics.rebound(now)

    def _subscribe(self, topic: bytes, identity: str | None, connection: str | None, now: float) -> None:
        approved, instructions = self._topics.subscribe(topic, identity, connection, now)
        if approved:
            self._endpoints.approve(topic)
        else:
            self._counters["subscriptions_refused"] += 1
        self._do(instructions, now)
