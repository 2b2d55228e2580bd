"""Peers that send more than anybody needs, for longer than anybody means to. Pure.

A flood of good messages or of ZMTP commands takes nothing but time: a core of it, and that the others share what is
left. So once a second, when the daemon is busy at all, it is looked who rushes: RUSH messages and more came from an
address, or bytes of it wait in the kernel because they come faster than libzmq reads them. LONG times in a row is an
offence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

LOOK_S: Final = 1.0
RUSH: Final = 2000
"""Messages a second of one address. The service answers some ten thousand pings a second and no such number of
prompts; a display that asks for `status` ten times a second asks ten times."""
LONG: Final = 5
_MOST: Final = 4096


class Floods:
    def __init__(self) -> None:
        self._heard: Counter[str] = Counter()
        self._before: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._at = 0.0

    def heard(self, address: str) -> None:
        """A message."""
        self._heard[address] += 1

    def rush(self) -> list[str]:
        """Who sent very much in this second or the one before, most first."""
        both = self._heard + self._before
        return [address for address, count in both.most_common(8) if count >= RUSH]

    def due(self, now: float) -> bool:
        return now >= self._at + LOOK_S

    def look(self, stuck: Iterable[str], now: float) -> list[str]:
        """`stuck`: whose bytes wait. Who has done it too long."""
        seconds = max(LOOK_S, now - self._at)
        rush = {address for address, count in self._heard.items() if count >= RUSH * seconds} | set(stuck)
        if seconds > 2 * LOOK_S:  # it was quiet in between
            self._rows.clear()
        self._rows = Counter({address: self._rows[address] + 1 for address in list(rush)[:_MOST]})
        self._before, self._heard, self._at = self._heard, Counter(), now
        long = [address for address, count in self._rows.items() if count >= LONG]
        for address in long:
            del self._rows[address]
        return long
