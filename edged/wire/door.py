"""The door: who is let in, what is known of those inside, and putting somebody out.

The rules are in `connections`, `bans` and `edged.system.descriptors`; here they act. The kernel's connections are
looked at when somebody comes, and not more often than every CENSUS_S.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from edged.system import descriptors
from edged.system.barrier import Barrier
from edged.system.links import FDS, Link, Links, cut, unread, unsent
from edged.system.turnstile import Turnstile, Way
from edged.watchdog.spare import Suspect
from edged.wire.auth import Peer, ban_of, peer_of
from edged.wire.bans import ADMISSIONS, LATER, Bans
from edged.wire.connections import COME_IN, OPERATORS, Connections
from edged.wire.floods import Floods
from edged.wire.guests import Guest
from edged.wire.listeners import Listener

CENSUS_S: Final = 0.05
DOUBT_S: Final = 0.005
"""The same, when somebody would be turned away for what the last one found."""
STUCK_BYTES: Final = 65_536
"""As much waits in the kernel only for a peer that sends faster than it is read, or that does not read."""
REMEMBERED: Final = 1024
"""Addresses that were put out."""
SUSPECTS: Final = 8
"""Addresses that are suspected before whole identities are."""

Named = tuple[str, Listener]
"""A listener and the socket that it is for."""


class Offender(Struct, frozen=True):
    """Who sent something; `key`: the public key, where there is one."""

    address: str
    key: str | None
    identity: str


class Deed(Struct, frozen=True):
    """For the log."""

    event: str
    fields: dict[str, object]


class Door:
    """`limit` and `share`: limits.connections, limits.connections_per_identity."""

    def __init__(self, listeners: Sequence[Named], *, limit: int, share: int, ban_s: float) -> None:
        self.bans = Bans(ban_s)
        self.counters: Counter[str] = Counter()
        self.admitted = 0
        self._floods = Floods()
        self._stuck: Counter[str] = Counter()
        self._expelled: dict[str, int] = {}  # addresses, and the newest connection of each that is not heard any more
        self.deeds: list[Deed] = []
        """Not logged yet."""
        self._wanted = limit
        nofile = descriptors.raise_limit()
        self._turnstile = Turnstile(nofile)
        places = {listener.place: name for name, listener in listeners}
        self._links, self._rescue_links = Links(places), Links(places)
        self._rescued: list[str] = []
        self.taking_in = 0.0
        """Since when the loop waits for libzmq to take in subscriptions; 0: it does not."""
        self._open = len(os.listdir(FDS)) + 3 * len(listeners)  # a duplicate and the like of each is to come
        self._budget = descriptors.budget(nofile, self._open, limit)
        self._connections = Connections(self._budget.connections, share, self._budget.handshakes)
        self._barrier = Barrier(
            [listener.path for name, listener in listeners if listener.path and name != OPERATORS],
            [listener.socket for _, listener in listeners if not listener.path],
        )
        self._looked = 0.0
        self._seen = self._full = 0

    def reconfigure(self, *, limit: int, share: int, ban_s: float) -> None:
        self._wanted = limit
        self._budget = descriptors.budget(self._budget.limit, self._open, limit)
        self._connections.limit, self._connections.share = self._budget.connections, share
        self.bans.ban_s = ban_s

    # ---- listeners -------------------------------------------------------------------------------------------

    def opened(self, listeners: Iterable[Named]) -> None:
        """Bound just now, or anew."""
        for name, listener in listeners:
            spare = self._budget.own + (0 if name == OPERATORS else self._budget.operators)
            self._turnstile.opened([Way(listener.fd, listener.given, spare)])

    def closing(self, listeners: Iterable[Named]) -> None:
        """To be closed next."""
        self._turnstile.closing([listener.fd for _, listener in listeners])

    def close(self) -> None:
        self._barrier.lift_all()
        self._turnstile.close()

    def manned(self, yes: bool) -> None:
        """Whether a thread stands there, which calls `wait` again and again."""
        self._turnstile.manned(yes)

    def wait(self, seconds: float) -> None:
        """For the thread that stands there: lets in who comes, for so long."""
        self._turnstile.wait(seconds)

    @property
    def busy(self) -> bool:
        """Somebody came since the last look, or has to wait (any thread may ask)."""
        return self._turnstile.passed + self._turnstile.full != self._seen

    # ---- the rules at work -----------------------------------------------------------------------------------

    def admit(self, peer: Peer, address: str, now: float, *, operator: bool) -> tuple[bytes, str] | None:
        """None: come in. Else the ZAP status and a reason. Operators are always let in."""
        if operator:
            self.admitted += 1
            return None
        held = self.bans.status((peer.key, peer.identity, kin(address)), now)
        if held is not None:
            self.counters["connections_banned"] += 1
            self._strike({kin(address): 1}, now)
            return held, "banned for a while"
        fresh = self.look(now)
        if self._connections.verdict(peer.identity) != COME_IN and (fresh or self._look_again(now)):
            self._connections.arrived(address)
        verdict = self._connections.admit(address, peer.identity, now)
        if verdict.refused is not None:
            self.counters["connections_refused"] += 1
            return LATER, verdict.refused
        if verdict.evict is not None:
            self._cut("connections_evicted", self._connections.settled(verdict.evict, now)[:1])
        self.admitted += 1
        if self.bans.strikes(f"{kin(address)} came", 1, now, ADMISSIONS):
            self._bar(kin(address), now)
        return None

    def stranger(self, address: str, now: float) -> None:
        """Somebody without a key that is known, or of another mechanism: a handshake with CURVE costs a millisecond."""
        self._strike({kin(address): 1}, now)

    def spoke(self, place: tuple[int, int]) -> None:
        """Descriptor and inode of a connection, at its first message or frame."""
        self._connections.spoke(place)

    def heard(self, address: str, connection: str) -> bool:
        """A message or frame. Whether it is to be listened to: what somebody left who was put out is not."""
        expelled = self._expelled.get(address)
        if expelled is not None and int(connection or 0) <= expelled:
            return False
        self._floods.heard(address)
        return True

    def look(self, now: float, *, again: bool = False) -> bool:
        """A census, if one is due or `again` is true, and who is too much in a handshake is cut."""
        if now < self._looked + CENSUS_S and not again:
            return False
        passed, full = self._turnstile.passed, self._turnstile.full
        short = full > self._full
        self._seen, self._full, self._looked = passed + full, full, now
        self._connections.census(self._links.look(now), now)
        idlers = self._connections.idlers(now, kin, short=short)
        self._cut("handshakes_cut", idlers)
        self._strike(Counter(kin(link.address) for link in idlers), now)
        return True

    def _look_again(self, now: float) -> bool:
        """Some of those who are counted may have gone; not for every one of a crowd."""
        return self.look(now, again=now >= self._looked + DOUBT_S)

    def tick(self, now: float) -> None:
        """What is due."""
        if self.busy:
            self.look(now)
        if self._floods.due(now):
            self.look(now, again=True)
            stuck = [link.address for link in self._connections.inside() if unread(link.fd) >= STUCK_BYTES]
            for address in self._floods.look(stuck, now):
                self.put_out(None, Offender(address, None, ""), "flood", now)
        self._barrier.lift(now)

    def _strike(self, who: Mapping[str, int], now: float) -> None:
        """Attempts that came to nothing; from some number on the kernel is asked to keep their maker out."""
        for name, count in who.items():
            if self.bans.strikes(name, count, now):
                self._bar(name, now)

    def _bar(self, identity: str, now: float) -> None:
        done = self._barrier.bar(identity, now + self.bans.ban_s)
        self.counters["peers_barred"] += done
        if done:
            self._tell("peer_barred", identity=identity, seconds=self.bans.ban_s)
        else:
            self._tell("peer_not_barred", identity=identity)

    # ---- putting somebody out --------------------------------------------------------------------------------

    def offence(self, who: Offender, why: str, now: float) -> None:
        """The peer is banned for a while; after some of them the identity is."""
        key, identity = names_of(who, self._connections.identities_at(who.address))
        often = self.bans.offence(key, identity, now)
        self._tell("peer_banned", why=why, peer=who.address, identity=identity, whole_identity=often)

    def put_out(self, fd: int | None, who: Offender, why: str, now: float) -> None:
        """An offence: the connection with that descriptor is cut if it is the offender's, else all of its address."""
        self.look(now, again=True)
        links = self._connections.of([who.address])
        self._cut("connections_cut", [link for link in links if link.fd == fd] or links)
        self._expel([who.address])
        self.offence(who, why, now)

    @property
    def links(self) -> list[Link]:
        """As they were at the last look."""
        return self._connections.links

    def show_out(self, guests: Iterable[Guest], now: float, knows: Callable[[str], bool] = lambda _: True) -> int:
        """Cuts the connections of these, and all of addresses from which only callers came that nobody `knows`."""
        self.look(now, again=True)
        places = {guest.place for guest in guests}
        unknown = set(self._connections.unknown(knows))
        return self._cut(
            "connections_cut",
            [link for link in self.links if (link.fd, link.inode) in places or (link.address in unknown)],
        )

    def watch(self, *, anew: bool = False) -> None:
        """Notes whose bytes wait in the kernel just now, to be called often while there are suspects to be found."""
        if anew:
            self._stuck = Counter()
        for link in self._connections.inside():
            if unread(link.fd) + unsent(link.fd) >= STUCK_BYTES:
                self._stuck[link.address] += 1

    def suspects(self, now: float) -> list[Suspect]:
        """Addresses, then identities, that may be the ones who take the memory; the likeliest first."""
        self.look(now, again=True)
        many = Counter(kin(link.address) for link in self._connections.inside())
        rush = [*self._floods.rush(), *(address for address, _ in self._stuck.most_common(SUSPECTS))]
        first = [Suspect(address, seen=True) for address in dict.fromkeys(rush)]
        return [*first, *(Suspect(who, seen=False) for who, _ in many.most_common())]

    def seize(self, who: str, now: float) -> None:
        """Cuts all connections of an address or identity, and keeps it out for a moment."""
        self.look(now, again=True)
        mine = {link.address for link in self._connections.links if who in (link.address, kin(link.address))}
        self.bans.arrest(_ban_key(who), now)
        self._expel(mine)
        count = self._cut("connections_cut", self._connections.of(mine))
        self._tell("peer_seized", who=who, connections=count)

    def convict(self, who: str, now: float) -> None:
        """It had the memory."""
        if who == kin(who):
            _, identity = names_of(
                Offender(who.removeprefix("ip:"), None, who), self._connections.identities_at(who[3:])
            )
            self.bans.guilty(identity, now)
            self._tell("peer_banned", why="memory", peer=who, identity=identity, whole_identity=True)
        else:
            self.offence(Offender(who, None, ""), "memory", now)

    def release(self, who: str) -> None:
        self.bans.release(_ban_key(who))

    def rescue(self, *, everybody: bool) -> None:
        """For the other thread, while the loop does not come back from libzmq: an XPUB takes in all subscriptions that
        have come before it gives out one, and goes on as long as more come. Who sends so many is cut off; `everybody`:
        all on `stream` are, if nobody stands out. Honest subscribers have no 64 KiB to say, and come back."""
        links = [link for link in self._rescue_links.look(0.0) if link.name == "stream"]
        stuck = [link for link in links if unread(link.fd) >= STUCK_BYTES]
        for link in stuck or (links if everybody else []):
            if cut(link):
                self._rescued.append(link.address if stuck else "")

    @property
    def rescued(self) -> bool:
        """The other thread had to cut somebody off."""
        return bool(self._rescued)

    def take_rescued(self) -> list[str]:
        """Addresses of those who stood out."""
        taken, self._rescued = self._rescued, []
        self.counters["connections_cut"] += len(taken)
        return sorted({address for address in taken if address})

    def _expel(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._expelled.pop(address, None)
            self._expelled[address] = self.admitted
        while len(self._expelled) > REMEMBERED:
            del self._expelled[next(iter(self._expelled))]

    def _cut(self, why: str, links: Sequence[Link]) -> int:
        count = sum(map(cut, links))
        self._connections.gone(links)
        if count:
            self.counters[why] += count
        return count

    def take(self) -> list[Deed]:
        """For the log."""
        taken, self.deeds = self.deeds, []
        return taken

    def _tell(self, event: str, **fields: object) -> None:
        self.deeds.append(Deed(event, fields))

    # ---- what people see -------------------------------------------------------------------------------------

    def counts(self, now: float) -> dict[str, int]:
        self.look(now)
        return self._connections.counts()

    def warnings(self) -> list[str]:
        out = [descriptors.doubt(self._budget, self._wanted)]
        if self._turnstile.blind and self._budget.limit < descriptors.WANTED:
            out.append("libzmq's listeners were not found: many connections at once may use up the file descriptors")
        return [warning for warning in out if warning]


def kin(address: str) -> str:
    """The identity behind an address, as far as an address tells: the user, or the address on the network."""
    peer = peer_of(address, allow_tcp=True)
    return peer.identity if peer is not None and not address.startswith(("uid:", "ip:")) else address


def _ban_key(who: str) -> str:
    """Of an address or an identity."""
    peer = peer_of(who, allow_tcp=True)
    return who if who == kin(who) or peer is None else peer.key


def names_of(who: Offender, there: Collection[str] = ()) -> tuple[str, str]:
    """What a ban names, and the identity behind it: a public key; on ipc the process; else the only identity that was
    admitted from there (`there`); else the address."""
    peer = peer_of(who.address, allow_tcp=True)
    identity = who.identity or kin(who.address)
    if who.key:
        return ban_of(who.key), identity
    if identity.startswith("ip:") and len(there) == 1:
        (identity,) = there
        return identity, identity
    return peer.key if peer else who.address, identity
