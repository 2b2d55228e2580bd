"""The last hour as figures: a drawing, its scale, its times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from edged.cli.happened import happened, local
from edged.cli.past import (
    BUSY,
    HEAT,
    LEVEL,
    LEVELS,
    MEMORY,
    QUEUE,
    READ,
    WRITTEN,
    Past,
    Series,
    Value,
    bounds,
    known,
    number,
    summary,
)
from edged.cli.report import svg
from edged.cli.report.markup import Markup, el

LEAST_S: Final = 600
"""A young daemon's few rows do not fill the page."""

WORKER: Final = Series("worker_mb", "worker", "MB", max, span=100)
ENDED: Final = (("ok", "done", "good"), ("errors", "failed", "error"), ("refused", "refused", "warning"))


class Curve(Struct, frozen=True):
    series: Series
    name: str  # of its colour
    label: str


class Scale(Struct, frozen=True):
    low: float
    high: float


class Window(Struct, frozen=True):
    """So many rows of the past, up to `end` (Unix seconds)."""

    rows: int
    interval_s: float
    end: float

    def of(self, values: Sequence[Value]) -> list[Value]:
        """As many as there are rows; what was before the daemon is a gap."""
        return [*[None] * (self.rows - len(values)), *values[-self.rows :]]

    def at(self, when: float) -> float:
        """0…1."""
        return 1 - (self.end - when) / (self.rows * self.interval_s)


def figures(past: Past) -> list[Markup]:
    window = Window(max(past.length, int(LEAST_S / past.interval_s)), past.interval_s, past.end_time)
    found = [
        _lines(past, window, "Heat", (Curve(HEAT, "heat", "hottest zone"),), levels=True),
        _lines(past, window, "Memory", (Curve(MEMORY, "memory", "available"), Curve(WORKER, "second", "worker"))),
        _lines(past, window, "Tokens written per second", (Curve(WRITTEN, "speed", "all requests together"),)),
        _lines(past, window, "Prompt tokens read per second", (Curve(READ, "second", "all requests together"),)),
        _lines(past, window, "Requests", (Curve(BUSY, "speed", "being written"), Curve(QUEUE, "second", "waiting"))),
        _ended(past, window),
    ]
    return [figure for figure in found if figure]


def _lines(past: Past, window: Window, title: str, curves: Sequence[Curve], *, levels: bool = False) -> Markup:
    """Nothing where nothing is known."""
    there = [curve for curve in curves if known(past.of(curve.series))]
    if not there:
        return Markup("")
    ends = [bounds(curve.series, past.of(curve.series)) for curve in there]
    low, high = min(a for a, _ in ends), max(b for _, b in ends)
    parts = [svg.bands(window.of(past.of(LEVEL)), LEVELS)] if levels else []
    parts += [svg.line(window.of(past.of(c.series)), low, high, c.name, filled=c is there[0]) for c in there]
    legend = [
        el("span", el("span", class_=f"key {c.name}"), f"{c.label}: {summary(c.series, past.of(c.series))}")
        for c in there
    ]
    scale = Scale(low, high)
    return _figure(title, legend, [*parts, svg.marks(_marks(past, window))], scale, window)


def _ended(past: Past, window: Window) -> Markup:
    columns = {name: window.of(past.columns.get(name, [])) for name, _, _ in ENDED}
    totals = [sum(v or 0 for v in values) for values in zip(*columns.values(), strict=True)]
    if not any(totals):
        return Markup("")
    high = bounds(QUEUE, [float(total) for total in totals])[1]
    below: list[Value] = [0.0] * window.rows
    parts, legend = [], []
    for name, label, colour in ENDED:
        parts.append(svg.bars(columns[name], below, high, colour))
        below = [(base or 0) + (value or 0) for base, value in zip(below, columns[name], strict=True)]
        count = sum(value or 0 for value in columns[name])
        legend.append(el("span", el("span", class_=f"key {colour}"), f"{label}: {count:.0f}"))
    title = f"Requests ended in each {window.interval_s:.0f} s"
    return _figure(title, legend, [*parts, svg.marks(_marks(past, window))], Scale(0.0, high), window)


def _figure(title: str, legend: Sequence[Markup], parts: Sequence[Markup], scale: Scale, window: Window) -> Markup:
    digits = 0 if scale.high - scale.low >= 4 else 1
    values = (scale.high, (scale.low + scale.high) / 2, scale.low)
    ticks = [el("span", f"{value:.{digits}f}") for value in values]
    span = window.rows * window.interval_s
    times = [el("span", local(window.end - part * span, "%H:%M")) for part in (1, 0.5, 0)]
    return el(
        "figure",
        el("figcaption", el("b", title), *legend),
        el(
            "div",
            el("div", *ticks, class_="scale"),
            svg.drawing(*parts, label=title),
            el("div", *times, class_="times"),
            class_="chart",
        ),
    )


def _marks(past: Past, window: Window) -> list[svg.Mark]:
    """What was worth a warning."""
    out = []
    for event in past.events:
        what, when = happened(event), number(event.get("time"))
        if when is not None and what.weight in ("warning", "error") and 0 <= window.at(when) <= 1:
            out.append(svg.Mark(window.at(when), what.weight, f"{local(when, '%H:%M:%S')} {what.text}"))
    return out
