"""Reads the frames on `stream` in order and decides about each before the next is read (protocol 4).

A frame that does not begin with 0x00 or 0x01 is not from a SUB. libzmq 4.3.5 keeps such frames beside the
subscriptions but not beside the connections that those came from: from then on an approval would go to somebody
else's connection, with every `User-Id` looking right. So after one of them nothing more is approved on that socket: it
is closed and bound anew, and the peer is banned for a while. Honest subscribers come back by themselves and are made
whole by a snapshot. Who holds more subscriptions than its share is cut, for libzmq frees them with the connection;
what it had sent until then is still read, and refused.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from edged.broker.instructions import Instruction
from edged.broker.shares import Excess, Shares
from edged.broker.topics import Topics
from edged.observe.log import Log
from edged.wire.door import Offender
from edged.wire.endpoints import Endpoints
from edged.wire.incoming import Subscription

FRAMES_PER_TURN: Final = 1024
"""Read before the other sockets get their turn. libzmq takes in all that has come whenever it is asked, so a flood has
to meet its limit (512 of the longest topics) in the first turn; a frame takes about 10 µs."""

OUT: Final = 256
"""Connections that were cut for too much, of which frames may still lie here: as many as there may be at a time."""

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
        self._now = 0.0
        self._shares = Shares(lambda connections: endpoints.living(connections, self._now))
        self._out: deque[str] = deque(maxlen=OUT)

    def read(self, now: float) -> None:
        self._now = now
        for _ in range(FRAMES_PER_TURN):
            frame = self._endpoints.receive_subscription(now)
            if self._endpoints.door.rescued:
                self._flooded(now)
                return
            if frame is None:
                return
            kind, topic = frame.data[:1], frame.data[1:]
            if kind == SUBSCRIBE:
                self._count(frame, topic, now)
                self._subscribe(topic, frame, now)
            elif kind == CANCEL:
                self._shares.given_back(frame.connection or "", topic)
                self._topics.unsubscribe(topic, frame.connection, now)
                self._endpoints.remove(topic, named=frame.connection is not None)
            else:
                who = Offender(frame.address, frame.key, frame.identity or "")
                self._rebuild([who], "foreign frame", now)
                return

    def _flooded(self, now: float) -> None:
        """They came so fast that libzmq did not come to an end, and somebody was cut off. Whose they were is told by
        the next ones; the rest is thrown away with the socket."""
        counts: Counter[Offender] = Counter()
        for _ in range(LOOKED_AT):
            frame = self._endpoints.receive_subscription(now)
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
        """All sockets were bound anew: nobody is subscribed any more, and no reply stream has its connection."""
        self._shares.clear()
        self._topics.rebound(now, replies=True)

    def _count(self, frame: Subscription, topic: bytes, now: float) -> None:
        """One more; who holds too much now is put out."""
        if frame.identity is None or frame.connection is None or frame.connection in self._out:
            return
        excess = self._shares.taken(frame.connection, frame.identity, topic)
        if excess is not None:
            self._put_out(excess, now)

    def _put_out(self, excess: Excess, now: float) -> None:
        self._counters["subscribers_cut"] += len(excess.connections)
        self._log.warning("subscriptions", identity=excess.identity, offence=excess.offence)
        self._endpoints.put_out(excess.connections, "subscriptions", now, offence=excess.offence)
        self._shares.forget(excess.connections)
        self._out.extend(excess.connections)

    def _subscribe(self, topic: bytes, frame: Subscription, now: float) -> None:
        """A refused one counts as a listener too: its departure will not say whose it is."""
        out = frame.connection in self._out
        identity = None if out else frame.identity
        approved, instructions = self._topics.subscribe(topic, identity, frame.connection, now)
        if approved and not out:
            self._endpoints.approve(topic)
        else:
            self._counters["subscriptions_refused"] += 1
        self._do(instructions, now)
