"""What is known of the box, from one look to the next. Pure.

Rows of `history` are kept by their number, which goes on over restarts of the daemon (protocol 7): the plots do too,
with the gap in them. A lower number than before is a box that was booted anew.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from edged.cli.past import SERIES, Past, Series, Value

FINE_S: Final = 300
HOUR_S: Final = 3600
CLOCKS_APART: Final = 5
"""Rows. While nothing answers they are counted by the wall clock here."""
OVERLAP_ROWS: Final = 2
"""Asked for again: the last row may not have been complete."""


class Look(Struct, frozen=True):
    """One look. `why`: nothing answered, in words. `requests` None: they may not be seen, `hidden` says why."""

    at: float
    status: dict[str, Any] | None = None
    past: Past | None = None
    requests: list[dict[str, Any]] | None = None
    why: str = ""
    hidden: str = ""


class Rows:
    """Of one width in time."""

    def __init__(self, interval_s: int, span_s: int) -> None:
        self.interval_s = interval_s
        self.count = span_s // interval_s
        self.last = -1
        self.at = 0.0  # Unix time of the last row's end
        self._rows: dict[int, dict[str, Value]] = {}

    def take(self, past: Past) -> None:
        if past.last < self.last - CLOCKS_APART:
            self._rows.clear()
        self.last, self.at = past.last, past.end_time
        first = past.last - past.length + 1
        for series in SERIES:
            for index, value in enumerate(past.of(series)):
                self._rows.setdefault(first + index, {})[series.column] = value
        for number in [number for number in self._rows if not self.last - self.count < number <= self.last]:
            del self._rows[number]

    def age(self, now: float) -> None:
        """Nothing answers: time goes on without rows."""
        gone = int((now - self.at) / self.interval_s)
        if self.last >= 0 and 0 < gone <= self.count:
            self.last, self.at = self.last + gone, self.at + gone * self.interval_s

    def of(self, series: Series) -> list[Value]:
        """The newest `count` rows."""
        numbers = range(self.last - self.count + 1, self.last + 1)
        return [self._rows.get(number, {}).get(series.column) for number in numbers]


class Box:
    def __init__(self) -> None:
        self.fine = Rows(1, FINE_S)
        self.coarse = Rows(10, HOUR_S)
        self.status: dict[str, Any] = {}
        self.requests: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.hidden = ""
        self.why = ""
        self.away_since: float | None = None

    def take(self, look: Look) -> None:
        self.why = look.why
        if look.why:
            self.away_since = look.at if self.away_since is None else self.away_since
            self.requests = []
            for rows in (self.fine, self.coarse):
                rows.age(look.at)
            return
        self.away_since = None
        self.status = look.status or {}
        self.hidden = look.hidden
        self.requests = look.requests or []
        if look.past is not None:
            (self.fine if look.past.interval_s < self.coarse.interval_s else self.coarse).take(look.past)
            self.events = look.past.events

    def missing_s(self, now: float, *, hour: bool) -> int:
        """Of how many seconds `history` has to be asked."""
        rows = self.coarse if hour else self.fine
        span = HOUR_S if hour else FINE_S
        if rows.last < 0 or not 0 <= now - rows.at < span:
            return span
        least = FINE_S + 1 if hour else 1  # fewer come by the second
        return max(least, min(span, int(now - rows.at) + OVERLAP_ROWS * rows.interval_s))
