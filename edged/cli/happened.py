"""Events of `sys/` in words (protocol 4). Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from edged.cli.output import one_line
from edged.cli.words import words

COLOURS: Final = {"good": "green", "note": "", "warning": "yellow", "error": "red"}
_LEVELS: Final = {"normal": "good", "warm": "warning", "hot": "error", "critical": "error"}
Event = Mapping[str, Any]


class Happened(Struct, frozen=True):
    """`weight`: one of COLOURS."""

    weight: str
    text: str


def _of(event: Event, name: str, otherwise: str = "?") -> str:
    return words(event.get(name)) or otherwise


def _because(event: Event) -> str:
    return f" ({_of(event, 'reason')})" if event.get("reason") else ""


_MODEL: Final[dict[str, tuple[str, Callable[[Event], str]]]] = {
    "ready": ("good", lambda e: f"model {_of(e, 'model')} is ready, profile {_of(e, 'profile')}"),
    "lost": ("error", lambda e: f"the worker died: {_of(e, 'cause')}"),
    "reloading": ("note", lambda e: f"replacing the worker{_because(e)}, profile {_of(e, 'profile')}"),
    "reloaded": ("good", lambda e: f"the worker was replaced{_because(e)}, profile {_of(e, 'profile')}"),
    "kept": ("error", lambda e: f"what was wanted{_because(e)} did not come up, profile {_of(e, 'profile')} stays"),
    "unloaded": ("warning", lambda e: f"the model was unloaded{_because(e)}"),
    "unavailable": ("error", lambda _: "no worker can be kept up: requests are refused"),
}
_SERVICE: Final[dict[str, tuple[str, Callable[[Event], str]]]] = {
    "started": ("note", lambda e: f"the daemon started, edged {_of(e, 'version')}"),
    "stopping": ("warning", lambda _: "the daemon stops"),
    "draining": ("warning", lambda _: "draining: new requests are refused"),
    "resumed": ("good", lambda _: "new requests are taken again"),
    "configuration_applied": ("note", lambda _: "a new configuration is in force"),
    "configuration_refused": ("error", lambda _: "the new configuration was refused, the log says why"),
    "alarm": ("warning", lambda e: _of(e, "text")),
}


def happened(event: Event) -> Happened:
    """One line; what is not known is told as it is."""
    if event.get("type") == "watchdog":
        level = _of(event, "level")
        why = f": {words(event['why'])}" if event.get("why") else ""
        return Happened(_LEVELS.get(level, "note"), one_line(f"level {level}{why}"))
    table = {"model": _MODEL, "service": _SERVICE}.get(str(event.get("type")), {})
    known = table.get(str(event.get("event")))
    if known is None:
        rest = {name: value for name, value in event.items() if name not in ("time", "n", "instance")}
        return Happened("note", one_line(words(rest)))
    return Happened(known[0], one_line(known[1](event)))


def local(at: object, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Unix seconds as the clock on the wall here."""
    try:
        return time.strftime(form, time.localtime(float(at)))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return "?"
