"""Keys to wishes. Pure.

A request that is to be cancelled is remembered when it is asked about: the list may be another one at the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct

KEY: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
UP: Final = ("k", "\x1b[A", "\x1bOA")
DOWN: Final = ("j", "\x1b[B", "\x1bOB")
QUIT: Final = ("q", "Q", "\x03")

Request = dict[str, Any]


class Ui(Struct):
    """What the person at the keys wants to see."""

    paused: bool = False
    hour: bool = False
    help: bool = False
    chosen: int = 0
    name: tuple[str, str] | None = None  # of the chosen one, wherever it stands
    asked: dict[str, Any] | None = None  # this request is to be cancelled, if the answer is yes
    said: str = ""


class Wish(Enum):
    NOTHING = auto()
    LOOK = auto()  # another span of time is wanted
    CANCEL = auto()  # `ui.asked`
    QUIT = auto()


def pressed(ui: Ui, keys: str, requests: Sequence[Request]) -> list[Wish]:
    """What the keys mean, one after the other; `ui` is changed."""
    return [_pressed(ui, key, requests) for key in KEY.findall(keys)]


def _pressed(ui: Ui, key: str, requests: Sequence[Request]) -> Wish:
    ui.said = ""
    if ui.asked is not None:
        if key in ("y", "Y"):
            return Wish.CANCEL
        ui.asked = None
        return Wish.NOTHING
    if key in QUIT:
        return Wish.QUIT
    if ui.help:
        ui.help = False
        return Wish.NOTHING
    match key:
        case "?":
            ui.help = True
        case "p" | " ":
            ui.paused = not ui.paused
        case "h":
            ui.hour, ui.paused = not ui.hour, False
            return Wish.LOOK
        case "c" if requests:
            ui.asked = requests[min(ui.chosen, len(requests) - 1)]
        case _ if key in UP + DOWN:
            _choose(ui, ui.chosen + (1 if key in DOWN else -1), requests)
    return Wish.NOTHING


def _choose(ui: Ui, index: int, requests: Sequence[Request]) -> None:
    ui.chosen = max(0, min(index, len(requests) - 1))
    ui.name = name_of(requests[ui.chosen]) if requests else None


def settle(ui: Ui, requests: Sequence[Request]) -> None:
    """Other requests are there: the chosen one stays chosen."""
    names = [name_of(request) for request in requests]
    _choose(ui, names.index(ui.name) if ui.name in names else ui.chosen, requests)


def name_of(request: Request) -> tuple[str, str]:
    return str(request.get("identity")), str(request.get("id"))
