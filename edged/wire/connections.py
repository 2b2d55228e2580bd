"""How many connections there may be, whose they are, and who has to go. Pure.

Two kinds of knowledge are put together. The kernel tells which connections exist and who is behind each, handshake or
not (`edged.system.links`). The authenticator tells whom it admitted, and not over which connection. So for each peer
address, which on ipc is a process, there are as many admissions alive as there are connections at most; the oldest
are forgotten first. What exists beyond the admissions is in its handshake, or does not mean to make one.

Rules:

* `limit` admitted on `request` and `stream` together, `share` of one identity. Beyond it a newcomer is turned away for
  now (ZAP 300: libzmq comes back by itself).
* A full house is no reason to turn somebody away who has less than others: the identity with most loses its youngest.
* Unfinished handshakes of one user or address, older than HASTE_S: beyond `handshakes` of them the youngest are cut.
  While descriptors are short, whatever their age and beyond half as many. libzmq cuts the rest after 5 s
  (HANDSHAKE_IVL); so long also does one that was turned away stay, and is no fault of its peer's (as many as `limit`).
* Which ones are unfinished is not known, but who said something (`spoke`) is through, and of the others at an address
  the oldest are taken for the admitted ones. Whoever shares it with somebody who floods it keeps his connection.
* `control` is for operators: it is neither counted nor limited here (its descriptors are, `edged.system.turnstile`).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from edged.system.links import Link

HASTE_S: Final = 0.5
"""A handshake takes a millisecond, and a crowd of one user that comes back at once has them all finished in this."""

HANDSHAKE_S: Final = 5.0
"""libzmq's patience (`edged.wire.sockets`)."""

OPERATORS: Final = "control"


class Verdict(Struct, frozen=True):
    """`refused`: why. `evict`: one connection of this address has to go for it."""

    refused: str | None = None
    evict: str | None = None


COME_IN: Final = Verdict()


class Connections:
    def __init__(self, limit: int, share: int, handshakes: int) -> None:
        self.limit, self.share, self.handshakes = limit, share, handshakes
        self.links: list[Link] = []
        self._turned: deque[tuple[float, str]] = deque(maxlen=limit)
        self._spoke: set[tuple[int, int]] = set()
        self._admitted: dict[str, deque[tuple[float, str]]] = {}

    # ---- what is there ---------------------------------------------------------------------------------------

    def census(self, links: list[Link], began: float) -> None:
        """What the kernel has, looked at from `began` on: admissions of before that have no connection are over."""
        self.links = links
        self._spoke &= {(link.fd, link.inode) for link in links}
        there = Counter(link.address for link in self.inside())
        for address, admitted in list(self._admitted.items()):
            while len(admitted) > there[address] and admitted[0][0] < began:
                admitted.popleft()
            if not admitted:
                del self._admitted[address]

    def inside(self) -> list[Link]:
        """All but the operators'."""
        return [link for link in self.links if link.name != OPERATORS]

    def spoke(self, place: tuple[int, int]) -> None:
        """Descriptor and inode of a connection over which something came: its handshake is over."""
        self._spoke.add(place)

    def gone(self, links: Iterable[Link]) -> None:
        """Cut since the last census."""
        cut = set(links)
        self.links = [link for link in self.links if link not in cut]

    def arrived(self, address: str) -> None:
        """One of the connections that the last census found there is a newcomer's: the others are fewer by one."""
        admitted = self._admitted.get(address, ())
        if admitted and len(admitted) >= sum(link.address == address for link in self.inside()):
            self._admitted[address].popleft()

    def total(self) -> int:
        return sum(map(len, self._admitted.values()))

    def held(self) -> Counter[str]:
        """Identities and how many connections each has."""
        return Counter(identity for admitted in self._admitted.values() for _, identity in admitted)

    def identities_at(self, address: str) -> set[str]:
        """Who was admitted from there and may still be there."""
        return {identity for _, identity in self._admitted.get(address, ())}

    def counts(self) -> dict[str, int]:
        """For `status`."""
        names = Counter(link.name for link in self.links)
        held = self.held()
        return {
            **{name: names[name] for name in ("request", "stream", OPERATORS)},
            "limit": self.limit,
            "per_identity": self.share,
            "identities": len(held),
            "handshakes": sum(self._unfinished().values()),
        }

    def _unfinished(self) -> Counter[str]:
        """Addresses and how many of their connections are not admitted."""
        there = Counter(link.address for link in self.inside())
        return Counter({a: n - len(self._admitted.get(a, ())) for a, n in there.items()}) & there

    # ---- who may come ----------------------------------------------------------------------------------------

    def admit(self, address: str, identity: str, now: float) -> Verdict:
        """Counts it, unless it is refused."""
        verdict = self.verdict(identity)
        if verdict.refused is not None:
            self._turned.append((now, address))
        else:
            if verdict.evict is not None:
                self._admitted[verdict.evict].pop()
            self._admitted.setdefault(address, deque()).append((now, identity))
        return verdict

    def verdict(self, identity: str) -> Verdict:
        held = self.held()
        if held[identity] >= self.share:
            return Verdict("this caller has all the connections that one may have")
        if held.total() < self.limit:
            return COME_IN
        heaviest, most = held.most_common(1)[0]
        if most <= held[identity] + 1:
            return Verdict("too many connections")
        return Verdict(evict=self._place_of(heaviest))

    def _place_of(self, identity: str) -> str:
        """The address with most connections of an identity, rather one that it shares with nobody."""
        rows = [(address, Counter(who for _, who in admitted)) for address, admitted in self._admitted.items()]
        return max(rows, key=lambda row: (len(row[1]) == 1, row[1][identity]) if row[1][identity] else (False, 0))[0]

    # ---- who has to go ---------------------------------------------------------------------------------------

    def of(self, addresses: Iterable[str]) -> list[Link]:
        """Connections of these addresses, `control` apart, the youngest first."""
        wanted = set(addresses)
        return sorted(
            (link for link in self.inside() if link.address in wanted),
            key=lambda link: -link.since,
        )

    def settled(self, address: str, now: float) -> list[Link]:
        """Those of an address that are likely to be admitted, the youngest first; all others behind them."""
        return sorted(self.of([address]), key=lambda link: now - link.since < HASTE_S)

    def unknown(self, knows: Callable[[str], bool]) -> list[str]:
        """Addresses from which only callers came that nobody knows any more."""
        return [
            address
            for address, admitted in self._admitted.items()
            if not any(knows(identity) for _, identity in admitted)
        ]

    def idlers(self, now: float, kin: Callable[[str], str], *, short: bool) -> list[Link]:
        """Connections to be cut for unfinished handshakes. `kin`: the identity behind an address."""
        unfinished = self._unfinished()
        by_kin: dict[str, list[str]] = defaultdict(list)
        for address, _ in unfinished.most_common():
            by_kin[kin(address)].append(address)
        out = []
        turned = Counter(kin(address) for at, address in self._turned if now - at < HANDSHAKE_S)
        most = self.handshakes // 2 if short else self.handshakes
        for who, addresses in by_kin.items():
            beyond = sum(unfinished[address] for address in addresses) - most - (0 if short else turned[who])
            for address in addresses:
                silent = [link for link in self.of([address]) if (link.fd, link.inode) not in self._spoke]
                ripe = [link for link in silent[: unfinished[address]] if short or now - link.since >= HASTE_S]
                taken = ripe[: max(0, beyond)]
                out += taken
                beyond -= len(taken)
        return out
