"""How far a download is, in words: share, rate, time left. Pure; the time comes in with each reading.

The rate is that of the last WINDOW_S seconds, so that it follows a network that gets slower, and a resumed download
does not count what was there before.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 10.0
BAR: Final = 24


class Meter:
    def __init__(self, total: int, done: int, now: float) -> None:
        self._total = total
        self._readings: deque[tuple[float, int]] = deque([(now, done)])

    def read(self, done: int, now: float) -> None:
        self._readings.append((now, done))
        while len(self._readings) > 2 and self._readings[1][0] <= now - WINDOW_S:
            self._readings.popleft()

    @property
    def done(self) -> int:
        return self._readings[-1][1]

    @property
    def rate(self) -> float | None:
        """Bytes per second; None as long as there is nothing to go by."""
        (begun, first), (now, last) = self._readings[0], self._readings[-1]
        return (last - first) / (now - begun) if now > begun and last > first else None

    @property
    def left_s(self) -> float | None:
        rate = self.rate
        return (self._total - self.done) / rate if rate else None

    def line(self) -> str:
        """`246 of 491 MB (50 %), 3.1 MB/s, 1:19 left`."""
        share = f"{self.done / 1e6:.0f} of {self._total / 1e6:.0f} MB ({self._share:.0%})".replace("%", " %")
        if self.rate is None or self.left_s is None:
            return share
        return f"{share}, {_rate(self.rate)}, {duration(self.left_s)} left"

    def bar(self, width: int) -> str:
        """The line with a bar before it where it fits."""
        filled = int(self._share * BAR)
        drawn = f"[{'#' * filled}{'.' * (BAR - filled)}] {self.line()}"
        return drawn if len(drawn) < width else self.line()[: max(1, width - 1)]

    @property
    def _share(self) -> float:
        return min(1.0, self.done / self._total) if self._total else 1.0


def _rate(rate: float) -> str:
    return f"{rate / 1e6:.1f} MB/s" if rate >= 1e5 else f"{rate / 1e3:.1f} kB/s"


def duration(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole >= 360_000:
        return "more than 99 h"
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
