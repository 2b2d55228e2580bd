"""How many subscriptions a connection, a caller, and all together may hold. Pure.

libzmq keeps every subscription of a manual XPUB, approved or refused, until its connection goes. So each is counted,
by its length: a topic of ours has 37 bytes, and one of up to UNIT bytes counts one.

* A topic counts once for a connection, however often it is subscribed to: libzmq keeps one, and cancels once.
* libzmq's own cancels, when a connection goes, do not say whose they are. They change nothing here: before anybody is
  found to hold too much, `living` is asked which connections there still are.
* Beyond PER_CONNECTION or PER_IDENTITY a caller has broken a rule. Beyond IN_ALL nobody has: the caller with most has
  to go, whoever came last, and not as an offender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from msgspec import Struct

UNIT: Final = 64
PER_CONNECTION: Final = 4096
"""A display that subscribes to one stream after the other and never cancels: hours of use, a megabyte."""
PER_IDENTITY: Final = 16_384
"""Half of all: four such displays of one user."""
IN_ALL: Final = 32_768
"""Some 8 MB in libzmq (100,000 were measured at 173 MB before memory was given back, x86-64), and 2 MB here."""


class Excess(Struct, frozen=True):
    """Who holds too much, over which connections. `offence`: beyond its own share."""

    identity: str
    connections: tuple[str, ...]
    offence: bool


class Holding:
    __slots__ = ("cost", "identity", "topics")

    def __init__(self, identity: str) -> None:
        self.identity, self.cost = identity, 0
        self.topics: set[int] = set()  # their hashes: a topic may be long, and one that collides is counted less


class Shares:
    """`living`: of these connections, those that still are."""

    def __init__(self, living: Callable[[Collection[str]], Collection[str]]) -> None:
        self._living = living
        self._of: dict[str, Holding] = {}
        self._identities: Counter[str] = Counter()
        self.total = 0

    def taken(self, connection: str, identity: str, topic: bytes) -> Excess | None:
        """Counts a subscription. Who holds too much then, which need not be this one."""
        holding = self._of.get(connection)
        if holding is None:
            holding = self._of[connection] = Holding(identity)
        name = hash(topic)
        if name in holding.topics:
            return None
        holding.topics.add(name)
        self._add(holding, 1 + len(topic) // UNIT)
        if self._excess(connection) is None:
            return None
        self._forget_the_dead()
        return self._excess(connection)

    def given_back(self, connection: str, topic: bytes) -> None:
        """It was cancelled by its connection."""
        holding, name = self._of.get(connection), hash(topic)
        if holding is not None and name in holding.topics:
            holding.topics.remove(name)
            self._add(holding, -1 - len(topic) // UNIT)

    def forget(self, connections: Collection[str]) -> None:
        """They are gone, or as good as gone."""
        for connection in connections:
            holding = self._of.pop(connection, None)
            if holding is not None:
                self._add(holding, -holding.cost)

    def clear(self) -> None:
        self._of.clear()
        self._identities.clear()
        self.total = 0

    def _add(self, holding: Holding, cost: int) -> None:
        holding.cost += cost
        self.total += cost
        self._identities[holding.identity] += cost
        if not self._identities[holding.identity]:
            del self._identities[holding.identity]

    def _forget_the_dead(self) -> None:
        self.forget(self._of.keys() - set(self._living(list(self._of))))

    def _excess(self, connection: str) -> Excess | None:
        holding = self._of.get(connection)
        if holding is not None and holding.cost > PER_CONNECTION:
            return Excess(holding.identity, (connection,), offence=True)
        if holding is not None and self._identities[holding.identity] > PER_IDENTITY:
            return self._all_of(holding.identity, offence=True)
        if self.total > IN_ALL:
            return self._all_of(self._identities.most_common(1)[0][0], offence=False)
        return None

    def _all_of(self, identity: str, *, offence: bool) -> Excess:
        mine = tuple(connection for connection, holding in self._of.items() if holding.identity == identity)
        return Excess(identity, mine, offence=offence)
