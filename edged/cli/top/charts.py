"""The plots of the last minutes, or of the hour. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from rich.text import Text

from edged.cli.past import LEVEL, Series, Value, bounds, folded, summary
from edged.cli.plots import plot
from edged.cli.top.box import Rows
from edged.cli.top.shares import PLOTS

TITLE: Final = 11
SAID: Final = 24
"""Columns for the words behind a plot."""
SHORTEST: Final = 10
PAINTED: Final = {"temperature_c": "red", "available_mb": "cyan", "tokens_per_s": "green", "prefill_per_s": "green"}
LEVEL_COLOURS: Final = ("green", "yellow", "red", "bold red")


class Grid(Struct, frozen=True):
    """`cells` columns of `per` rows of the past each; `said`: there is room for words behind."""

    cells: int
    per: int
    marks: str
    said: bool


def grid(rows: Rows, columns: int, marks: str) -> Grid:
    room = columns - TITLE
    said = SAID if room - SAID >= SHORTEST else 0
    per = max(1, -(-rows.count // max(1, room - said)))
    return Grid(-(-rows.count // per), per, marks, bool(said))


def charts(rows: Rows, at: Grid, heights: dict[str, int], *, axis: bool, away: bool = False) -> Iterator[Text]:
    """`away`: nothing answers, so that nothing is known of now, however wide the newest cell is."""
    for series in PLOTS:
        if series.column in heights:
            yield from _chart(rows, series, at, heights[series.column], away=away)
    if axis:
        begin = f"{rows.count * rows.interval_s // 60} min ago"
        yield Text(f"{'':<{TITLE}}{begin}{'now':>{max(4, at.cells - len(begin))}}", style="dim", no_wrap=True)


def _chart(rows: Rows, series: Series, at: Grid, height: int, *, away: bool) -> Iterator[Text]:
    drawn = folded(rows.of(series), rows.last, at.per, at.cells, series.fold)
    low, high = bounds(series, drawn)
    lines = plot(drawn, low, high, height, at.marks)
    words = f"  {summary(series, [*drawn, None] if away else drawn)}" if at.said else ""
    for index, line in enumerate(lines):
        last = index == height - 1
        top = f"{high:>{TITLE - 1}.{0 if high >= 10 else 1}f}" if not index else ""
        title = Text(f"{series.title if last else top:<{TITLE}}", style="" if last else "dim")
        body = _levels(line, drawn) if series is LEVEL else Text(line, style=PAINTED.get(series.column, ""))
        yield Text.assemble(title, body, words if last else "", no_wrap=True, overflow="ellipsis")


def _levels(line: str, drawn: list[Value]) -> Text:
    out = Text()
    for mark, level in zip(line, drawn, strict=True):
        out.append(mark, LEVEL_COLOURS[max(0, min(3, round(level)))] if level is not None else "")
    return out
