"""The last hour as lines below `status`. Pure."""

from __future__ import annotations

from typing import Final

from edged.cli.glance import LABEL
from edged.cli.past import HEAT, LEVEL, MEMORY, QUEUE, WRITTEN, Past, bounds, folded, known, summary
from edged.cli.plots import sparkline
from edged.cli.terminal import cut

SHOWN: Final = (LEVEL, HEAT, MEMORY, WRITTEN, QUEUE)
TITLE: Final = 11
SAID: Final = 26
"""Columns for the words behind a line."""
WIDEST: Final = 72
NARROWEST: Final = 12
HOUR_S: Final = 3600


def last_hour(past: Past, columns: int, marks: str) -> list[str]:
    """A line a series that something is known of."""
    room = columns - LABEL - TITLE
    said = SAID if room - SAID >= NARROWEST else 0
    rows = round(HOUR_S / past.interval_s)
    per = max(1, -(-rows // max(NARROWEST, min(WIDEST, room - said))))
    out: list[str] = []
    for series in SHOWN:
        values = past.of(series)
        if not known(values):
            continue
        drawn = folded(values, past.last, per, -(-rows // per), series.fold)
        line = f"{series.title:<{TITLE}}{sparkline(drawn, *bounds(series, drawn), marks)}"
        label = "" if out else "last hour"
        told = f"  {summary(series, values)}" if said else ""
        out.append(cut(f"{label:<{LABEL}}{line}{told}", columns))
    return out
