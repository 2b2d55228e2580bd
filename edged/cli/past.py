"""The reply to `history` (protocol 7) as series to be drawn. Pure.

What has another shape than this version knows is left out, as everywhere: a newer daemon may tell more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

Value = float | None
Fold = Callable[[list[float]], float]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


class Series(Struct, frozen=True):
    """`fold`: what stands for several rows. `floor`: where the axis begins, None: below the least. `span`: of the axis
    at least."""

    column: str
    title: str
    unit: str
    fold: Fold
    floor: float | None = 0.0
    span: float = 1.0
    decimals: int = 0


LEVELS: Final = ("normal", "warm", "hot", "critical")

LEVEL: Final = Series("level", "level", "", max, span=3)
HEAT: Final = Series("temperature_c", "heat", "°C", max, floor=None, span=10, decimals=1)
MEMORY: Final = Series("available_mb", "available", "MB", min, span=100)
WRITTEN: Final = Series("tokens_per_s", "tokens/s", "", mean, span=1, decimals=1)
READ: Final = Series("prefill_per_s", "prompt/s", "", mean, span=10, decimals=1)
QUEUE: Final = Series("queue", "queue", "", max, span=4)
BUSY: Final = Series("busy", "slots", "", max, span=4)
SERIES: Final = (LEVEL, HEAT, MEMORY, WRITTEN, READ, QUEUE, BUSY)


class Past(Struct, frozen=True):
    """Rows of `interval_s` seconds; the last one, number `last`, ended at `end_time` (Unix seconds)."""

    interval_s: float
    last: int
    end_time: float
    columns: dict[str, list[Value]]
    events: list[dict[str, Any]]

    @property
    def length(self) -> int:
        return max((len(values) for values in self.columns.values()), default=0)

    def of(self, series: Series) -> list[Value]:
        return self.columns.get(series.column, [])


def past(reply: dict[str, Any]) -> Past | None:
    """None: nothing that could be drawn."""
    interval, last, end = (number(reply.get(name)) for name in ("interval_s", "last", "end_time"))
    columns = reply.get("columns")
    if not interval or interval < 0 or last is None or end is None or not isinstance(columns, dict):
        return None
    events = reply.get("events")
    return Past(
        interval_s=interval,
        last=int(last),
        end_time=end,
        columns={
            str(name): [number(v) for v in values] for name, values in columns.items() if isinstance(values, list)
        },
        events=[event for event in events if isinstance(event, dict)] if isinstance(events, list) else [],
    )


def number(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return None
    return float(value)


def folded(values: Sequence[Value], last: int, per: int, cells: int, fold: Fold) -> list[Value]:
    """The newest `cells` groups of `per` rows. A group begins where its number says, so a plot moves a whole cell at a
    time and what stands in it does not change any more."""
    groups: dict[int, list[float]] = {}
    for index, value in enumerate(values):
        if value is not None:
            groups.setdefault((last - len(values) + 1 + index) // per, []).append(value)
    newest = last // per
    return [fold(groups[at]) if at in groups else None for at in range(newest - cells + 1, newest + 1)]


def known(values: Sequence[Value]) -> list[float]:
    return [value for value in values if value is not None]


def bounds(series: Series, values: Sequence[Value]) -> tuple[float, float]:
    """The ends of the axis."""
    found = known(values)
    if not found:
        return series.floor or 0.0, (series.floor or 0.0) + series.span
    step = series.span / 2
    low = math.floor(min(found) / step) * step if series.floor is None else series.floor
    if series is LEVEL:
        return low, low + series.span
    return low, max(low + series.span, low + _round_up(max(found) - low))


_STEPS: Final = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


def _round_up(value: float) -> float:
    if value <= 0:
        return 0.0
    scale: float = 10 ** math.floor(math.log10(value))
    return next(step * scale for step in _STEPS if step * scale >= value * (1 - 1e-9))


def shown(series: Series, value: Value) -> str:
    """`52.1 °C`, `warm`, `?`."""
    if value is None:
        return "?"
    if series is LEVEL:
        return LEVELS[max(0, min(3, round(value)))]
    return f"{value:.{series.decimals}f}{' ' if series.unit else ''}{series.unit}"


def summary(series: Series, values: Sequence[Value]) -> str:
    """The newest value and what it was within: `52.1 °C (48.0–71.3)`."""
    found = known(values)
    if not found:
        return "unknown"
    now, low, high = shown(series, values[-1]), min(found), max(found)
    if series is LEVEL:
        return now if values[-1] == high else f"{now} (was {shown(series, high)})"
    if series.fold is min:
        return f"{now} (least {low:.{series.decimals}f})"
    if series.floor == 0.0:
        return f"{now} (most {high:.{series.decimals}f})"
    return f"{now} ({low:.{series.decimals}f}–{high:.{series.decimals}f})"
