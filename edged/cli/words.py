"""Numbers and shapes of any kind as words. Pure."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 4 s`, `1 h 2 min`, `2 d 3 h`; `?` for what is no number."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def times(n: object) -> str:
    return "once" if n == 1 else f"{n} times"


def words(value: object) -> str:
    """A value of any shape in a line: `busy 1, waiting 0`."""
    if isinstance(value, dict):
        pairs = ((str(key).replace("_", " "), words(inner)) for key, inner in value.items() if inner is not None)
        return ", ".join(f"{key} {said}" for key, said in pairs if said)
    if isinstance(value, list):
        return ", ".join(words(inner) for inner in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
