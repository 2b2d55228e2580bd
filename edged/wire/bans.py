"""Who is refused for a while. Pure.

* An **offence** (a foreign frame, an endless message, memory taken) bans its key, on ipc a process, for `ban_s`. The
  `OFFENCES`th of one identity within that time bans the identity: a user who starts a new process for each offence
  would else keep everybody's streams from being served. ZAP 500: libzmq stays away until a new socket is made.
* A **strike** is an attempt that came to nothing: a handshake that was not finished, a banned peer that comes again.
  `STRIKES` of one user or address within STRIKES_S, or ADMISSIONS that came to something, and the kernel keeps it out
  (`edged.system.barrier`).
* An **arrest** is a short doubt about an identity while it is found out who takes the memory. ZAP 300: libzmq comes
  back by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

OFFENCES: Final = 3
ARREST_S: Final = 2.0
STRIKES: Final = 256
ADMISSIONS: Final = 10_000
"""A thousand new connections a second."""
STRIKES_S: Final = 10.0
"""A banned client of libzmq whose application makes a new socket every second is far below."""
_MOST: Final = 1024
"""Beyond this the oldest ban is lifted: memory is bounded."""

BANNED: Final = b"500"
LATER: Final = b"300"


class Bans:
    """`ban_s` 0: nobody is banned."""

    def __init__(self, ban_s: float) -> None:
        self.ban_s = ban_s
        self._until: dict[str, float] = {}
        self._arrests: dict[str, float] = {}
        self._offences: dict[str, deque[float]] = {}
        self._strikes: dict[str, tuple[float, int]] = {}

    def offence(self, key: str, identity: str, now: float) -> bool:
        """Whether the whole identity is banned for it."""
        if self.ban_s <= 0:
            return False
        self._ban(key, now)
        times = self._offences.pop(identity, deque(maxlen=OFFENCES))
        times.append(now)
        self._offences[identity] = times
        _bound(self._offences)
        often = len(times) == OFFENCES and now - times[0] <= self.ban_s
        if often:
            self._ban(identity, now)
        return often

    def strikes(self, name: str, count: int, now: float, most: int = STRIKES) -> bool:
        """Whether that was too much. They are counted in windows of STRIKES_S."""
        since, before = self._strikes.pop(name, (now, 0))
        if now - since > STRIKES_S:
            since, before = now, 0
        self._strikes[name] = since, before + count
        _bound(self._strikes)
        return self.ban_s > 0 and before < most <= before + count

    def guilty(self, identity: str, now: float) -> None:
        """Beyond doubt: the identity is banned at once."""
        if self.ban_s > 0:
            self._ban(identity, now)

    def arrest(self, name: str, now: float) -> None:
        """Of a key or an identity."""
        self._arrests[name] = now + ARREST_S
        _bound(self._arrests)

    def release(self, name: str) -> None:
        self._arrests.pop(name, None)

    def status(self, names: Sequence[str], now: float) -> bytes | None:
        """The ZAP status for a newcomer with these keys and identities; None: nothing is held against it."""
        if any(_lasts(self._until, name, now) for name in names):
            return BANNED
        return LATER if any(_lasts(self._arrests, name, now) for name in names) else None

    def _ban(self, key: str, now: float) -> None:
        self._until.pop(key, None)
        self._until[key] = now + self.ban_s
        _bound(self._until)


def _lasts(table: dict[str, float], key: str, now: float) -> bool:
    until = table.get(key)
    if until is None:
        return False
    if until <= now:
        del table[key]
        return False
    return True


def _bound(table: dict[str, Any]) -> None:
    while len(table) > _MOST:
        del table[next(iter(table))]
