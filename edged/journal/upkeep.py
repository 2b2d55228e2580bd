"""When a journal file is begun afresh, of what is alive. Pure.

* It grew to more than twice what it had been begun with, and GROWN_BYTES.
* It holds text of what is past: a result that was in it is kept no more, so neither its answer nor its prompt should be
  there. At most once in EVERY_S, or in a fifth of `limits.result_ttl_s` where that is longer: a file holds what came in
  one such time, so that each byte is written some five times at most, whatever the load.
* A session was deleted, turns of which are in it: at once, but no more than GROWN_BYTES a second on average.
* It could not be written: at once, then after FIRST_S, and twice as long each time up to LONGEST_S, since each attempt
  writes all there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edged.broker.talk import Key

GROWN_BYTES: Final = 1 << 20
EVERY_S: Final = 60.0
FIRST_S: Final = 2.0
LONGEST_S: Final = 32.0


class Upkeep:
    """Of one file. `gone`: how many results were kept once and are not now (`Results.gone`)."""

    def __init__(self) -> None:
        self._begun = 0  # bytes
        self._at = 0.0
        self._gone = 0
        self._turns: set[Key] = set()  # sessions with turns in the file
        self._purge = False
        self._retry = float("inf")
        self._pause = 0.0

    def handed(self, now: float, size: int, gone: int, turns: Iterable[Key]) -> None:
        """What it is to begin with."""
        self._begun, self._at, self._gone = size, now, gone
        self._turns, self._purge = set(turns), False
        self._retry = float("inf")

    def well(self) -> None:
        """It did."""
        self._pause = 0.0

    def turn(self, key: Key) -> None:
        """One of that session is written to it."""
        self._turns.add(key)

    def deleted(self, keys: Iterable[Key]) -> None:
        self._purge = self._purge or not self._turns.isdisjoint(keys)

    def failed(self, now: float) -> None:
        self._retry = now + self._pause
        self._pause = min(LONGEST_S, max(FIRST_S, 2 * self._pause))

    def due(self, now: float, size: int, gone: int, ttl_s: float) -> bool:
        grown = self._retry == float("inf") and size > 2 * self._begun + GROWN_BYTES
        return grown or self.next_wake(gone, ttl_s) <= now

    def next_wake(self, gone: int, ttl_s: float) -> float:
        if self._retry < float("inf"):
            return self._retry
        if self._purge:
            return self._at + self._begun / GROWN_BYTES
        return self._at + max(EVERY_S, ttl_s / 5) if gone != self._gone else float("inf")
