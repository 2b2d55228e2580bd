"""How far down the list of profiles deaths have led, and when the next better one is tried again. Pure.

* `down`: the worker of a profile died too often, did not fit into memory, or its file was bad: nothing better than the
  next one is run.
* After `window_s` in which the worker stayed up, one step up is tried. If that leads down again, the wait before the
  next try is doubled, up to PATIENCE times the window: a model that does not run here costs a reload an hour or two.
* At the top again for that long, the wait is `window_s` once more.
"""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 32


class Descent:
    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._waits = 1
        self._up_since: float | None = None
        self._tried = False  # a better profile was let run, and it is not known yet whether it does
        self.floor = 0  # index of the best profile that may run

    def down(self, floor: int) -> None:
        if floor > self.floor and self._tried:
            self._waits = min(2 * self._waits, PATIENCE)
        self.floor = max(self.floor, floor)
        self._up_since = None

    def give_up(self) -> None:
        """Nothing runs: the next try begins with the best."""
        self.floor = 0
        self._up_since = None

    def up(self, now: float) -> None:
        """A worker is ready."""
        self._up_since = now

    def lost(self) -> None:
        self._up_since = None

    def look(self, now: float) -> None:
        """Lets one better profile run when it is time."""
        if now < self.next_look() or self._up_since is None:
            return
        self._up_since = now
        if self.floor:
            self.floor -= 1
            self._tried = True
        else:
            self._tried, self._waits = False, 1

    def next_look(self) -> float:
        if self._up_since is None or (not self.floor and not self._tried):
            return float("inf")
        return self._up_since + self._window_s * self._waits
