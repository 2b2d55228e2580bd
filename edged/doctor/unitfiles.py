"""The units of the service: those that are installed, what is laid over them, and those of the release that runs."""

from __future__ import annotations

import os
import sys
from typing import Final

import edged
from edged.doctor.box import Box
from edged.doctor.manager import PLACES, SERVICE, SOCKETS

NAMES: Final = (SERVICE, *SOCKETS)

RELEASES: Final = ("opt/edged/current/deploy/systemd", "opt/edged/current/share/edged/systemd")


def installed(box: Box) -> dict[str, str]:
    """Unit → its path."""
    found = {}
    for name in NAMES:
        path = next((f"/{place}/{name}" for place in PLACES if box.exists(f"{place}/{name}")), None)
        if path is not None:
            found[name] = path
    return found


def laid_over(box: Box) -> list[str]:
    """Drop-ins, of all units."""
    return [path for name in NAMES for place in PLACES for path in box.glob(f"{place}/{name}.d/*.conf")]


def texts(box: Box) -> dict[str, str]:
    """Path → text, of units and drop-ins."""
    paths = [*installed(box).values(), *laid_over(box)]
    return {path: text for path in paths if (text := box.text(path)) is not None}


def shipped(box: Box) -> dict[str, str]:
    """Unit → text, of the release; {} when it brings none along."""
    own = [os.path.join(os.path.dirname(os.path.dirname(edged.__file__)), "deploy/systemd")] if box.here else []
    own += [os.path.join(sys.prefix, "share/edged/systemd")] if box.here else []
    for directory in [*(box.path(place) for place in RELEASES), *own]:
        found = {name: text for name in NAMES if (text := _read(os.path.join(directory, name))) is not None}
        if found:
            return found
    return {}


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return None


def settings(text: str) -> list[str]:
    """The lines that say something, continued ones joined, blanks at `=` taken off."""
    out = []
    for line in text.replace("\\\n", " ").splitlines():
        said = " ".join(line.split())
        if said and said[0] not in "#;":
            name, equals, value = said.partition("=")
            out.append(f"{name.strip()}={value.strip()}" if equals else said)
    return out


def last(all_settings: list[str], name: str) -> str:
    """The value of a setting of which the last counts; "" when it is not set."""
    return next((line.partition("=")[2] for line in reversed(all_settings) if line.startswith(f"{name}=")), "")
