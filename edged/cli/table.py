"""A table that fits: columns that matter least go first, then what may be cut is cut. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from edged.cli.terminal import cells, cut

GAP: Final = 2


class Column(Struct, frozen=True):
    """`rank`: the highest goes first when there is no room, 0 never. `least`: may be cut down to so many columns."""

    title: str
    cells: tuple[str, ...]
    rank: int = 0
    least: int = 0
    right: bool = False

    @property
    def width(self) -> int:
        return max(cells(text) for text in (self.title, *self.cells))


def table(columns: Sequence[Column], width: int | None) -> list[str]:
    """Title and rows; `width` None: nothing is left out."""
    kept = list(columns)
    while width is not None and _total(_widths(kept)) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    widths = _widths(kept)
    for index, column in enumerate(kept):
        missing = 0 if width is None else _total(widths) - width
        if missing > 0 and column.least:
            widths[index] = max(min(column.least, widths[index]), widths[index] - missing)
    rows = zip(*((column.title, *column.cells) for column in kept), strict=True)
    return [_row(row, kept, widths) for row in rows]


def _widths(columns: Sequence[Column]) -> list[int]:
    return [column.width for column in columns]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _row(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    out = []
    for text, column, width in zip(texts, columns, widths, strict=True):
        shown = cut(text, width)
        blanks = " " * (width - cells(shown))
        out.append(blanks + shown if column.right else shown + blanks)
    return (" " * GAP).join(out).rstrip()
