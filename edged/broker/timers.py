"""When something is due for a request, as a heap with lazy deletion. Pure: the clock is an argument."""

from __future__ import annotations

import heapq
from typing import Final

_SLACK: Final = 64
"""Dead entries that may lie in the heap beside one per live number before it is rebuilt."""


class Timers:
    """One time per number, the earliest asked for."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._at: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(self, number: int, at: float) -> None:
        if at < self._at.get(number, float("inf")):
            self._at[number] = at
            heapq.heappush(self._heap, (at, number))
            if len(self._heap) > 2 * len(self._at) + _SLACK:
                self._heap = [(at, number) for number, at in self._at.items()]
                heapq.heapify(self._heap)

    def forget(self, number: int) -> None:
        self._at.pop(number, None)

    def due(self, now: float) -> list[int]:
        """Numbers whose time has come, oldest first; each has to be scheduled again."""
        out: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            at, number = heapq.heappop(self._heap)
            if self._at.get(number) == at:
                del self._at[number]
                out.append(number)
        return out

    def next(self) -> float:
        """Not later than the earliest time that is due; inf when there is none."""
        return self._heap[0][0] if self._heap else float("inf")
