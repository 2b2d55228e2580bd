"""The last hour in a few kilobytes, for plots and for whoever asks what happened (protocol 7, `history`). Pure.

Two rings of the same columns: a row a second for FINE_S, a row each ten seconds for an hour. A row lies where its time
says, in intervals since the boot of the box by a clock that goes on while it is suspended: a suspended box, or a daemon
that was stopped, leaves empty rows, and a clock that is set leaves none. So rows of one daemon and the next can be
joined; what is in them does not outlive the daemon: RAM only, since an SD card wears.

| column | unit | of the looks in a row |
|---|---|---|
| `level` | 0 normal … 3 critical | the worst |
| `temperature_c` | °C | the highest |
| `available_mb` | MiB, of the board | the least |
| `worker_mb` | MiB, RssAnon | the most |
| `tokens_per_s`, `prefill_per_s` | tokens written, tokens of prompts read | per second that was looked at |
| `queue`, `busy` | waiting requests, busy slots | the most |
| `ok`, `errors`, `refused` | requests ended with a result or an error, requests refused | the sum |
| `frequency_mhz` | MHz | the least |
| `duty` | part of the time that is worked | the least |

Unknown is None. 4 bytes a value: 14 × 4 × 660 = 37 kB.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

FINE_S: Final = 300
LONGEST_S: Final = 3600
EVENTS: Final = 200
TEXT_MAX: Final = 240
"""Characters of a text in an event: a ring of the longest ones still fits a reply."""
EARLY_S: Final = 0.05
"""A look may come so much before the full second, by rounding."""

Rule = Callable[[float, float], float]
Value = float | int | None


class Look(Struct, frozen=True, kw_only=True):
    """What is to be seen now, and totals since the daemon's start."""

    level: int | None = None
    temperature_c: float | None = None
    available_mb: float | None = None
    worker_mb: float | None = None
    queue: int = 0
    busy: int = 0
    frequency_mhz: float | None = None
    duty: float = 1.0
    tokens: int = 0
    prefill: int = 0
    ok: int = 0
    errors: int = 0
    refused: int = 0


def _sum(a: float, b: float) -> float:
    return a + b


COLUMNS: Final[Mapping[str, tuple[Rule, int]]] = {
    "level": (max, 0),
    "temperature_c": (max, 1),
    "available_mb": (min, 0),
    "worker_mb": (max, 0),
    "tokens_per_s": (_sum, 2),
    "prefill_per_s": (_sum, 1),
    "queue": (max, 0),
    "busy": (max, 0),
    "ok": (_sum, 0),
    "errors": (_sum, 0),
    "refused": (_sum, 0),
    "frequency_mhz": (min, 0),
    "duty": (min, 2),
}
"""How two looks at the same row make one, and the decimals that are told."""

RATES: Final = ("tokens_per_s", "prefill_per_s")
"""Kept as amounts: divided by the seconds they took when they are told."""


class Ring:
    """Rows of `interval_s` seconds each, the newest `size` of them."""

    def __init__(self, interval_s: int, size: int) -> None:
        self.interval_s = interval_s
        self._size = size
        self._columns = {name: array("f", [math.nan]) * size for name in COLUMNS}
        self._looked = array("f", [0.0]) * size  # seconds that the looks at a row stand for
        self._first = self._last = -1
        self._told: tuple[int, dict[str, list[Value]]] = (-1, {})  # a flood of questions is made into numbers once

    def put(self, second: int, values: Mapping[str, Value], looked_s: float) -> None:
        """A look that stands for the second that begins `second` seconds after the boot."""
        row = second // self.interval_s
        if row < self._last:
            return
        self._advance(row)
        at = row % self._size
        self._looked[at] += looked_s
        for name, (rule, _) in COLUMNS.items():
            value = values.get(name)
            if value is not None:
                column = self._columns[name]
                column[at] = value if math.isnan(column[at]) else rule(column[at], value)
        self._told = (-1, {})

    def _advance(self, row: int) -> None:
        if self._first < 0:
            self._first = self._last = row
        for skipped in range(max(self._last + 1, row - self._size + 1), row + 1):
            at = skipped % self._size
            self._looked[at] = 0.0
            for column in self._columns.values():
                column[at] = math.nan
        self._last = row

    def rows(self, second: int, count: int) -> tuple[int, dict[str, list[Value]]]:
        """The number of the last row that was over when `second` began, and the values of up to `count` rows."""
        last = second // self.interval_s - 1
        if self._first < 0 or last < self._first:
            return last, {name: [] for name in COLUMNS}
        if self._told[0] != last:
            oldest = max(self._first, last - self._size + 1)
            numbers = range(oldest, last + 1)
            self._told = (last, {name: [self._value(name, row) for row in numbers] for name in COLUMNS})
        return last, {name: values[-count:] for name, values in self._told[1].items()}

    def _value(self, name: str, row: int) -> Value:
        at = row % self._size
        if not self._last - self._size < row <= self._last:
            return None
        value = self._columns[name][at]
        if math.isnan(value):
            return None
        if name in RATES:
            value = value / self._looked[at] if self._looked[at] > 0 else 0.0
        decimals = COLUMNS[name][1]
        return round(value, decimals) if decimals else round(value)


class History:
    """`look` once a second or later, `at` in seconds since the boot, `now` in monotonic ones."""

    def __init__(self) -> None:
        self._fine = Ring(1, FINE_S)
        self._coarse = Ring(10, LONGEST_S // 10)
        self._before: tuple[Look, float] | None = None

    def look(self, look: Look, at: float, now: float) -> None:
        """The first one only begins: amounts are differences."""
        before, self._before = self._before, (look, now)
        if before is None:
            return
        second = math.floor(at + EARLY_S) - 1
        values = _row(before[0], look)
        for ring in (self._fine, self._coarse):
            ring.put(second, values, now - before[1])

    def told(self, seconds: int, at: float) -> dict[str, Any]:
        """The last `seconds`, by the second as far as that is kept. `end`: when the last row ended, since the boot."""
        ring = self._fine if seconds <= FINE_S else self._coarse
        last, columns = ring.rows(math.floor(at), math.ceil(seconds / ring.interval_s))
        return {"interval_s": ring.interval_s, "last": last, "end": (last + 1) * ring.interval_s, "columns": columns}


def _row(before: Look, look: Look) -> dict[str, Value]:
    return {
        "level": look.level,
        "temperature_c": look.temperature_c,
        "available_mb": look.available_mb,
        "worker_mb": look.worker_mb,
        "tokens_per_s": look.tokens - before.tokens,
        "prefill_per_s": look.prefill - before.prefill,
        "queue": look.queue,
        "busy": look.busy,
        "ok": look.ok - before.ok,
        "errors": look.errors - before.errors,
        "refused": look.refused - before.refused,
        "frequency_mhz": look.frequency_mhz,
        "duty": look.duty,
    }


class Events:
    """The newest of what `sys/` told, numbered from 0; kept as JSON, which is the smallest."""

    def __init__(self) -> None:
        self._ring: deque[tuple[int, float, bytes]] = deque(maxlen=EVENTS)
        self._count = 0

    def note(self, fields: Mapping[str, Any], at: float) -> dict[str, Any]:
        """The event as it is to be told, with its number `n`."""
        kept = {name: _short(value) for name, value in fields.items()}
        number, self._count = self._count, self._count + 1
        timeless = {name: value for name, value in kept.items() if name != "time"}
        self._ring.append((number, at, msgspec.json.encode(timeless)))
        return kept | {"n": number}

    def newest(self, count: int) -> list[tuple[float, dict[str, Any]]]:
        """Oldest first, each with its time since the boot."""
        found = list(self._ring)[-count:] if count else []
        return [(at, msgspec.json.decode(body, type=dict[str, Any]) | {"n": n}) for n, at, body in found]


def _short(value: Any) -> Any:
    return value[: TEXT_MAX - 1] + "…" if isinstance(value, str) and len(value) > TEXT_MAX else value
