"""What came of one host as a row of the table. Pure.

A box may be old, broken or hostile: what it says is JSON of any shape, or none, or noise around it. Text is made
harmless and short, numbers are numbers, and the rest is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from edged.cli.past import MEMORY, WRITTEN, Past, Series, known, mean, number, past
from edged.printable import line

TEXT: Final = 48
WHY: Final = 160
LAST_MINUTE_S: Final = 60.0
NOT_INSTALLED: Final = (126, 127)
"""How a shell says that there is no such program."""


class Row(Struct, frozen=True, kw_only=True):
    """`state`: that of `status`, or `unreachable`, `no answer`. `why`: a few words, empty for a box that is well.
    `tokens_per_s`: written, mean of the last minute. `last_alarm`: its text; `last_alarm_time`: Unix seconds.
    """

    name: str
    state: str
    ready: bool = False
    version: str = ""
    model: str = ""
    level: str = ""
    temperature_c: float | None = None
    available_mb: float | None = None
    tokens_per_s: float | None = None
    queue: int | None = None
    uptime_s: float | None = None
    last_alarm: str = ""
    last_alarm_time: float | None = None
    why: str = ""


def row(said: Mapping[str, Any]) -> Row:
    """Of an object of the callback plugin."""
    name = line(str(said.get("host", "?")), TEXT)
    stderr, msg = str(said.get("stderr", "")), str(said.get("msg", ""))
    if said.get("how") == "unreachable":
        return Row(name=name, state="unreachable", why=reason(msg or stderr))
    look = found(str(said.get("stdout", "")))
    if look is not None:
        return _of(name, look)
    if said.get("rc") in NOT_INSTALLED:
        return Row(name=name, state="no answer", why="edged is not installed there")
    told = reason(stderr or str(said.get("stdout", "")) or msg)
    return Row(name=name, state="no answer", why=told or "it said nothing")


def missing(name: str, waited_s: float | None) -> Row:
    """A host of which nothing came. `waited_s` None: Ansible ended without a word of it."""
    why = "Ansible said nothing of it" if waited_s is None else f"nothing came within {waited_s:.0f} s"
    return Row(name=line(name, TEXT), state="unreachable", why=why)


def found(stdout: str) -> dict[str, Any] | None:
    """The last line that is an object with `status` in it: greetings of a login shell may stand around it."""
    for text in reversed(stdout.splitlines()):
        if text.startswith("{"):
            try:
                look = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(look, dict) and isinstance(look.get("status"), dict):
                return look
    return None


def _of(name: str, look: Mapping[str, Any]) -> Row:
    status = look["status"]
    watchdog = _dict(status.get("watchdog"))
    readings = _dict(watchdog.get("readings"))
    history = past(_dict(look.get("history")))
    alarm = _last_alarm(history)
    queue, uptime = number(_dict(status.get("queue")).get("length")), number(status.get("uptime_s"))
    ready = status.get("ready") is True
    alarms = watchdog.get("alarms")
    standing = [text for text in alarms if isinstance(text, str)] if isinstance(alarms, list) else []
    warnings = status.get("warnings")
    reasons = standing or ([text for text in warnings if isinstance(text, str)] if isinstance(warnings, list) else [])
    temperature, available = number(readings.get("temperature_c")), number(readings.get("available_mb"))
    return Row(
        name=name,
        state=_text(status.get("state")) or "?",
        ready=ready,
        version=_text(status.get("version")),
        model=_text(_dict(status.get("model")).get("name")),
        level=_text(watchdog.get("level")),
        temperature_c=temperature,
        available_mb=_newest(history, MEMORY) if available is None else available,
        tokens_per_s=_rate(history),
        queue=None if queue is None else int(queue),
        uptime_s=uptime,
        last_alarm=line(standing[-1], WHY) if standing else alarm[0],
        last_alarm_time=alarm[1],
        why="" if ready else line(reasons[0], WHY) if reasons else _why(watchdog),
    )


def _why(watchdog: Mapping[str, Any]) -> str:
    return line(why, WHY) if isinstance(why := watchdog.get("why"), str) else ""


def _rate(history: Past | None) -> float | None:
    if history is None:
        return None
    rows = max(1, round(LAST_MINUTE_S / history.interval_s))
    values = known(history.of(WRITTEN)[-rows:])
    return mean(values) if values else None


def _newest(history: Past | None, series: Series) -> float | None:
    values = [] if history is None else known(history.of(series))
    return values[-1] if values else None


def _last_alarm(history: Past | None) -> tuple[str, float | None]:
    for event in reversed(history.events if history else []):
        if event.get("event") == "alarm":
            return line(str(event.get("text", "")), WHY), number(event.get("time"))
    return "", None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return line(value, TEXT) if isinstance(value, str) else ""


_SSH: Final = re.compile(r"^(?:.*\bFailed to connect to the host via ssh:\s*)?(?:ssh: )?", re.DOTALL)
_CONNECT: Final = re.compile(r"(?:ssh: )?connect to (?:host|address) \S+ port \d+: ")


def reason(text: str) -> str:
    """The few words that matter of what Ansible, ssh or edgectl said: usually the last line."""
    text = _SSH.sub("", text[-8000:], count=1)
    lines = [each for each in text.splitlines() if each.strip() and "Permanently added" not in each]
    last = lines[-1].strip() if lines else ""
    return line(_CONNECT.sub("", last).removeprefix("edgectl: "), WHY)
