"""Which part of the screen gets how many rows. Pure.

In this order: the plots (one row each), requests, the axis, events; what is left makes the plots higher, up to TALLEST,
and the lists longer. A small screen loses the prompts' plot first, then those of slots, level, queue, memory and heat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from edged.cli.past import BUSY, HEAT, LEVEL, MEMORY, QUEUE, READ, WRITTEN, Series

PLOTS: Final = (LEVEL, HEAT, MEMORY, WRITTEN, READ, QUEUE, BUSY)
HIGH: Final = (WRITTEN, HEAT, MEMORY)
"""Those that get more rows than one."""
SOONEST: Final = (READ, BUSY, LEVEL, QUEUE, MEMORY, HEAT)
"""Those that a small screen loses, in this order."""
TALLEST: Final = 8
LISTED: Final = 3
"""Rows of either list before plots get higher."""


class Shares(Struct, frozen=True):
    """Rows of each plot by column, of the axis (0 or 1), and of both lists with their titles."""

    plots: dict[str, int]
    axis: int
    requests: int
    events: int


def share(rows: int, there: Sequence[Series], requests: int, events: int) -> Shares:
    """`there`: series that something is known of. `requests`, `events`: rows that both lists would like, untitled."""
    rows, shown = max(0, rows), list(there)
    for left_out in SOONEST:
        if len(shown) + 4 <= rows:
            break
        if left_out in shown:
            shown.remove(left_out)
    shown = shown if len(shown) <= rows else []
    left = rows - len(shown)
    asked = min(left, 1 + max(1, min(requests, LISTED))) if left >= 2 else 0
    left -= asked
    axis = 1 if shown and left >= 1 else 0
    left -= axis
    told = min(left, 1 + max(1, min(events, LISTED))) if left >= 2 else 0
    left -= told
    plots = {series.column: 1 for series in shown}
    wanted = max(0, requests + 1 - asked) if asked else 0
    for height in range(2, TALLEST + 1):
        for series in HIGH:
            if series in shown and left > (0 if height == 2 else wanted):
                plots[series.column], left = height, left - 1
    more = min(left, wanted)
    return Shares(plots, axis, asked + more, told + (left - more if told else 0))
