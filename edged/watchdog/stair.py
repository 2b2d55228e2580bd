"""A level with samples to enter it, hysteresis and a hold to leave it. Pure.

* Up, to any level: `samples` in a row that reach it. One sample alone is noise.
* Down, one level at a time: no sample for `hold_s` that keeps the present level, counted from the first such sample,
  and for the next level again.

So, whatever the samples: a step down takes hold_s, and levels gained are at most those come down and three. In a time
T there are at most T/hold_s steps down, so at most 3 + 2·T/hold_s changes of level.
"""

from __future__ import annotations

from edged.level import Level


class Stair:
    def __init__(self, samples: int, hold_s: float) -> None:
        self.level = Level.NORMAL
        self.since: float | None = None  # None: before the first sample
        self._samples = samples
        self._hold_s = hold_s
        self._runs = dict.fromkeys(Level, 0)
        self._calm_since: float | None = None

    def reconfigure(self, samples: int, hold_s: float) -> None:
        """The level stays; it is left by the new rules."""
        self._samples, self._hold_s = samples, hold_s

    def step(self, reached: Level, kept: Level, now: float) -> Level:
        """`reached`: the level that this sample speaks for; `kept`: the highest that it would not leave (≥ reached)."""
        self.since = now if self.since is None else self.since
        for level in Level:
            self._runs[level] = self._runs[level] + 1 if reached >= level else 0
        up = max(level for level in Level if level is Level.NORMAL or self._runs[level] >= self._samples)
        if up > self.level:
            self._become(up, now)
        elif kept >= self.level:
            self._calm_since = None
        else:
            self._calm_since = now if self._calm_since is None else self._calm_since
            if now - self._calm_since >= self._hold_s:
                self._become(Level(self.level - 1), now)
                self._calm_since = now
        return self.level

    def _become(self, level: Level, now: float) -> None:
        self.level = level
        self.since = now
        self._calm_since = None
