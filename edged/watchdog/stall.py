"""Does it get on? Pure: the clock is an argument (design 4).

Progress is a token sampled, read, replayed or embedded, or a request done with or let go; while loading, more of the
file read.
Only time in which there was work counts, and only time in which the daemon looked: after a gap between two looks (the
box was suspended, the daemon itself stopped) the worker had no more of it than the daemon had, so a gap counts as a
part of the bound and no more. A worker that stands still is therefore noticed after `bound_s`, at the latest one
further look later.
"""

from __future__ import annotations

from typing import Final

_LOOKS: Final = 8
"""Looks within the bound while there is work."""

LOADING: Final = 10
"""Loading may stand still so many times `stall_s`: a slow card reads on between two fractions, and checks take long."""


class Stall:
    """`bound_s`: seconds without progress, while there is work."""

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._stood_s = 0.0
        self._looked: float | None = None  # None: no work at the last look
        self._tokens = 0

    def progress(self) -> None:
        self._stood_s = 0.0

    def beat(self, tokens: int) -> None:
        """A count that stays the same is a sign of life and not of progress."""
        if tokens != self._tokens:
            self._tokens = tokens
            self.progress()

    def look(self, now: float, *, work: bool) -> bool:
        """True: it stands still, and has for `bound_s`."""
        if not work:
            self._looked, self._stood_s = None, 0.0
            return False
        if self._looked is not None:
            self._stood_s += min(now - self._looked, 2 * self._bound_s / _LOOKS)
        self._looked = now
        return self._stood_s >= self._bound_s

    def next_look(self) -> float:
        return float("inf") if self._looked is None else self._looked + self._bound_s / _LOOKS
