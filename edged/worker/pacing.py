"""Pauses between steps, so that steps take no more than a part of the time. Pure.

A step that took t is followed by a pause of t·(1/duty − 1), of MOST at most: so the gaps between tokens grow evenly.
What a wait was too long or too short by (it can only be asked for in milliseconds) counts for the next one.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 1.0
LEAST_DUTY: Final = 0.02
_CREDIT: Final = 0.01


class Pacer:
    def __init__(self) -> None:
        self._ratio = 0.0
        self._owed = 0.0

    def set(self, duty: float) -> None:
        self._ratio = 1 / min(max(duty, LEAST_DUTY), 1.0) - 1
        self.cut()

    def worked(self, took: float) -> None:
        self._owed = min(self._owed + took * self._ratio, MOST)

    @property
    def wait_ms(self) -> int:
        """How long to wait now; 0: not at all."""
        return max(0, int(self._owed * 1000))

    def waited(self, seconds: float) -> None:
        self._owed = max(self._owed - seconds, -_CREDIT)

    def cut(self) -> None:
        """Nothing is owed."""
        self._owed = 0.0
