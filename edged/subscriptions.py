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

FRAMES_PER_TURN: Final = 1024
"""Read before the other sockets get their turn. libzmq takes in all that has come whenever it is asked, so a flood has
to meet its limit (512 of the longest topics) in the first turn; a frame takes about 10 µs."""

LOOKED_AT: Final = 4096
"""Frames by which the maker of a flood is known: a quarter of them is more than an honest peer has waiting."""

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
            if self._endpoints.door.rescued:
                self._flooded(now)
                return
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
                who = Offender(frame.address, frame.key, frame.identity or "")
                self._rebuild([who], "subscriptions" if kind == SUBSCRIBE else "foreign frame", now)
                return

    def _flooded(self, now: float) -> None:
        """They came so fast that libzmq did not come to an end, and somebody was cut off. Whose they were is told by
        the next ones; the rest is thrown away with the socket."""
        counts: Counter[Offender] = Counter()
        for _ in range(LOOKED_AT):
            frame = self._endpoints.receive_subscription()
            if frame is None:
                break
            if frame.address:
                counts[Offender(frame.address, frame.key, frame.identity or "")] += 1
        who = {offender for offender, count in counts.items() if count >= LOOKED_AT // 4}
        known = {offender.address for offender in who}
        who |= {Offender(at, None, "") for at in self._endpoints.door.take_rescued() if at not in known}
        self._rebuild(sorted(who, key=lambda one: one.address), "subscriptions", now)

    def _rebuild(self, offenders: list[Offender], why: str, now: float) -> None:
        self._counters["tainted"] += 1
        self._log.warning("stream_tainted", why=why, peer=",".join(who.address for who in offenders))
        for who in offenders:
            self._endpoints.door.offence(who, why, now)
        self._endpoints.rebind_stream(now)
        self.cut(now)

    def cut(self, now: float) -> None:
        """The socket was bound anew: nobody is subscribed any more."""
        self._shares.clear()
        self._topics.rebound(now)

    def _subscribe(self, topic: bytes, identity: str | None, connection: str | None, now: float) -> None:
        approved, instructions = self._topics.subscribe(topic, identity, connection, now)
        if approved:
            self._endpoints.approve(topic)
        else:
            self._counters["subscriptions_refused"] += 1
        self._do(instructions, now)
