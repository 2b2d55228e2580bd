"""The rows of the fleet as a table for people, or as one object. Pure, but for what the terminal is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from edged.cli.fleet.answers import Row
from edged.cli.happened import local
from edged.cli.table import Column, table
from edged.cli.terminal import coloured
from edged.cli.words import duration

UNKNOWN: Final = "-"
LEAST: Final = 12


def well(rows: Sequence[Row]) -> bool:
    return bool(rows) and all(row.ready for row in rows)


def lines(rows: Sequence[Row], width: int | None) -> list[str]:
    """The table, then what is the matter with those that are not well, then a count."""
    title, *drawn = table(columns(rows), width)
    out = [title, *(_painted(row, text) for row, text in zip(rows, drawn, strict=True))]
    bad = [row for row in rows if not row.ready]
    if bad:
        out += ["", *(f"{row.name}: {row.state}{f': {row.why}' if row.why else ''}" for row in bad)]
    ready = len(rows) - len(bad)
    return [*out, "", f"{ready} of {len(rows)} {'box' if len(rows) == 1 else 'boxes'} ready"]


def _painted(row: Row, text: str) -> str:
    if not row.ready:
        return coloured(text, "red" if row.state in ("unreachable", "no answer", "unavailable") else "yellow")
    return coloured(text, "yellow") if row.state != "ready" else text


def columns(rows: Sequence[Row]) -> list[Column]:
    def column(title: str, cells: list[str], rank: int = 0, *, right: bool = False, least: int = 0) -> Column:
        return Column(title=title, cells=tuple(cells), rank=rank, right=right, least=least)

    return [
        column("box", [row.name for row in rows], least=LEAST),
        column("state", [row.state for row in rows]),
        column("version", [row.version or UNKNOWN for row in rows], 3),
        column("model", [row.model or UNKNOWN for row in rows], 5, least=LEAST),
        column("level", [row.level or UNKNOWN for row in rows]),
        column("°C", [_number(row.temperature_c, 0) for row in rows], right=True),
        column("MB free", [_number(row.available_mb, 0) for row in rows], 2, right=True),
        column("tokens/s", [_number(row.tokens_per_s, 1) for row in rows], 1, right=True),
        column("queue", [_number(row.queue, 0) for row in rows], right=True),
        column("up", [UNKNOWN if row.uptime_s is None else duration(row.uptime_s) for row in rows], 4),
        column("last alarm", [_alarm(row) for row in rows], 6, least=LEAST),
    ]


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def _alarm(row: Row) -> str:
    at = "" if row.last_alarm_time is None else f"{local(row.last_alarm_time, '%d.%m. %H:%M')} "
    return f"{at}{row.last_alarm}" if row.last_alarm else UNKNOWN


def as_object(rows: Sequence[Row], now: float) -> dict[str, Any]:
    return {"time": now, "ok": well(rows), "boxes": msgspec.to_builtins(rows)}
