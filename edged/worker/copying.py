"""When which cells of a running request are copied out. Pure.

* Due are 32 new tokens, and a pause of SHARE times what the last copy took: copying is at most 1 % of the time then,
  whatever the model and the board, and whoever runs: the pause holds for all requests together.
* At most `most` tokens at a time, a multiple of the prefill chunk: a long prompt that was cached is caught up in parts,
  each of which ends where a piece of the prompt would; and at most a sliding window, of which a copy has the last one
  only (a hole would change the place of what comes after it, and with it the last bits).
* Memory that cannot be cut in pieces (`whole`) is copied from 0 each time, under the same rule.
* The request that has the most to lose comes first.
* What fails (no room, no file system), and `Shrink`, hold everything for HOLD_S.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

LEAST: Final = 32
MOST: Final = 128
SHARE: Final = 100
HOLD_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Due:
    rid: int
    seq: int
    start: int
    stop: int


@dataclass(slots=True)
class Copying:
    chunk: int
    whole: bool
    window: int = 0
    not_before: float = float("-inf")
    copied: dict[int, int] = field(default_factory=dict)

    @property
    def most(self) -> int:
        return max(min(MOST, self.window or MOST) // self.chunk, 1) * self.chunk

    def begin(self, rid: int, at: int = 0) -> None:
        self.copied[rid] = at

    def forget(self, rid: int) -> None:
        self.copied.pop(rid, None)

    def due(self, running: Iterable[tuple[int, int, int]], now: float, least: int = LEAST) -> Due | None:
        """`running`: request, sequence, cells in it."""
        if now < self.not_before:
            return None
        new, rid, seq, filled = max(
            ((filled - self.copied[rid], rid, seq, filled) for rid, seq, filled in running if rid in self.copied),
            default=(0, 0, 0, 0),
        )
        return self._piece(rid, seq, filled) if new >= least else None

    def left(self, rid: int, seq: int, filled: int) -> Due | None:
        """What is missing of one request, whenever the last copy was: before the worker leaves."""
        return self._piece(rid, seq, filled) if self.copied.get(rid, filled) < filled else None

    def _piece(self, rid: int, seq: int, filled: int) -> Due:
        if self.whole:
            return Due(rid, seq, 0, filled)
        start = self.copied[rid]
        return Due(rid, seq, start, min(filled, start + self.most))

    def taken(self, due: Due, now: float, took: float) -> None:
        self.copied[due.rid] = due.stop
        self.not_before = max(self.not_before, now + SHARE * took)

    def kept(self, rid: int, stop: int) -> None:
        """So far the file goes: less than was given to it when that could not be written."""
        if rid in self.copied:
            self.copied[rid] = stop

    def hold(self, now: float) -> None:
        self.not_before = max(self.not_before, now + HOLD_S)
