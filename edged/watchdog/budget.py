"""How often a worker may die (design 4). Pure: the clock is an argument.

* The first replacement starts at once; the n-th death in a row waits `backoff_s`·2ⁿ⁻¹ (n ≥ 2), at most
  `backoff_max_s`. `n` counts the deaths inside `window_s`; `HEALTHY_S` of health set it to 0, later ones count anew.
* More than `max` deaths inside `window_s`: no more starts, until the oldest of them leaves the window.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from edged.config import Restart

HEALTHY_S: Final = 60.0


class Budget:
    def __init__(self, rules: Restart) -> None:
        self.rules = rules
        self._deaths: deque[float] = deque()
        self._in_a_row = 0

    def death(self, now: float) -> tuple[bool, float]:
        """Counts one. (True, when to start the next) or (False, when the oldest death leaves the window)."""
        self._forget(now)
        self._deaths.append(now)
        self._in_a_row += 1
        if len(self._deaths) > self.rules.max:
            return False, self._deaths[0] + self.rules.window_s
        if self._in_a_row == 1:
            return True, now
        exponent = min(self._in_a_row - 1, 32)
        return True, now + min(self.rules.backoff_max_s, self.rules.backoff_s * 2**exponent)

    def healthy(self) -> None:
        """The worker has been up for `HEALTHY_S`: the next death starts at once again."""
        self._in_a_row = 0

    def recent(self, now: float) -> int:
        """Deaths inside the window."""
        self._forget(now)
        return len(self._deaths)

    def _forget(self, now: float) -> None:
        while self._deaths and self._deaths[0] + self.rules.window_s <= now:
            self._deaths.popleft()
        self._in_a_row = min(self._in_a_row, len(self._deaths))
