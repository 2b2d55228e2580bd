"""Series drawn with characters. Pure, but for `ramp`, which asks what the terminal can show.

A gap is a blank; the least value still is a mark, so that nothing and zero look different.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from edged.cli.past import Value

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII: Final = "_.:-=+*#"
"""For encodings and fonts without the eighths of a block."""

PLAIN_TERMINALS: Final = ("linux", "dumb", "unknown", "")
"""The kernel's console has 512 glyphs and none of these; of the others nothing is known."""


def ramp(encoding: str | None = None, term: str | None = None) -> str:
    """What stdout can show."""
    found = encoding or getattr(sys.stdout, "encoding", None) or "ascii"
    kind = os.environ.get("TERM", "") if term is None else term
    try:
        BLOCKS.encode(found)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return ASCII if kind in PLAIN_TERMINALS or kind.startswith("vt") else BLOCKS


def plot(values: Sequence[Value], low: float, high: float, height: int, marks: str) -> list[str]:
    """`height` lines, the top one first, a column for each value."""
    steps = height * len(marks)
    filled = [_filled(value, low, high, steps) for value in values]
    return ["".join(_cell(fill, row, marks) for fill in filled) for row in reversed(range(height))]


def sparkline(values: Sequence[Value], low: float, high: float, marks: str) -> str:
    return plot(values, low, high, 1, marks)[0]


def _filled(value: Value, low: float, high: float, steps: int) -> int:
    """Of `steps`; 0 is a gap."""
    if value is None:
        return 0
    part = (value - low) / (high - low) if high > low else 0.0
    return 1 + round(max(0.0, min(1.0, part)) * (steps - 1))


def _cell(fill: int, row: int, marks: str) -> str:
    here = fill - row * len(marks)
    return " " if here <= 0 else marks[min(here, len(marks)) - 1]
