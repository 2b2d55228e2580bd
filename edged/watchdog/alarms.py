"""Which alarms are worth a line in the log. Pure.

An alarm is known by what it is about and of which kind, the text before its last parenthesis: a zone that says another
nonsense each second is one alarm. It is told when it comes, and at most once in AGAIN_S however often it comes and
goes; at most MOST in that time of all together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

AGAIN_S: Final = 600.0
MOST: Final = 16


def kind(text: str) -> str:
    """`thermal zone cpu: says nonsense (999 °C)` → `thermal zone cpu: says nonsense`."""
    return text.rpartition(" (")[0] or text


def bounded(alarms: list[str]) -> list[str]:
    """For `status`."""
    left_out = len(alarms) - MOST
    return alarms if left_out <= 0 else [*alarms[:MOST], f"more alarms ({left_out})"]


class Alarms:
    def __init__(self) -> None:
        self._told: dict[str, float] = {}  # when, at most AGAIN_S ago
        self._standing: set[str] = set()  # told, and there ever since

    def fresh(self, alarms: Iterable[str], now: float) -> list[str]:
        """Those that are to be logged."""
        found: dict[str, str] = {}
        for text in alarms:
            found.setdefault(kind(text), text)
        self._told = {name: at for name, at in self._told.items() if now - at < AGAIN_S}
        self._standing &= found.keys()
        out = []
        for name, text in found.items():
            if name not in self._standing and name not in self._told and len(self._told) < MOST:
                self._standing.add(name)
                self._told[name] = now
                out.append(text)
        return out
