"""Counts of a measure in fixed buckets, as Prometheus has them. Pure; kept always, so that looking costs nothing."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

FIRST_TOKEN_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""From a cached prompt on a PC to a long one on a Pi 4 in a queue."""

INTERVAL_S: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""From 200 tokens a second to a stream that stands while a model is reloaded."""


class Histogram:
    """`counts[i]`: values up to `bounds[i]` and above the one before; the last of them: above all."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
