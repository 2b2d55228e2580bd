"""The watchdog's sections of the configuration, and the rules that tie their keys together."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from edged.config_types import Celsius, Natural, Percent, Seconds, SecondsOrNone, Section, Text
from edged.errors import ConfigError

Knob = Literal["frequency", "threads", "duty"]


class Restart(Section, frozen=True):
    """Design 4: at most `max` deaths in `window_s`, `backoff_s`·2ⁿ up to `backoff_max_s` between starts."""

    max: Natural = 3
    window_s: Seconds = 300
    backoff_s: SecondsOrNone = 0.5
    backoff_max_s: SecondsOrNone = 5


class Heat(Section, frozen=True):
    """Degrees Celsius. `samples` in a row make a level; `zones`: types of thermal zones, empty: all."""

    warm_c: Celsius = 70
    hot_c: Celsius = 80
    critical_c: Celsius = 84
    hysteresis_c: Annotated[float, Meta(ge=0, le=50)] = 5
    samples: Annotated[int, Meta(ge=1, le=1000)] = 3
    zones: list[Text] = msgspec.field(default_factory=list)


class Memory(Section, frozen=True):
    """A level begins below the smaller of its percentage of all memory and its megabytes (2²⁰ bytes)."""

    warm_percent: Percent = 20
    warm_mb: Natural = 600
    hot_percent: Percent = 12
    hot_mb: Natural = 350
    critical_percent: Percent = 6
    critical_mb: Natural = 200
    hysteresis_percent: Percent = 5
    samples: Annotated[int, Meta(ge=1, le=1000)] = 3
    psi_percent: Percent = 20
    swap_percent: Percent = 5


class Pacing(Section, frozen=True):
    """Less heat by working less hard; `target_c` is what it aims at, in the course of `settle_s`."""

    knobs: list[Knob] = msgspec.field(default_factory=lambda: ["frequency", "threads", "duty"])
    target_c: Celsius = 77
    settle_s: Seconds = 60
    least_duty: Annotated[float, Meta(ge=0.05, le=1)] = 0.3


class Watchdog(Section, frozen=True):
    """Design 4. `root`: where /proc and /sys are looked for, for tests."""

    root: Annotated[str, Meta(pattern=r"^/")] = "/"
    interval_s: Annotated[float, Meta(ge=0.005, le=60)] = 1
    stall_s: Seconds = 20
    hold_s: SecondsOrNone = 30
    reload_s: SecondsOrNone = 60
    heat: Heat = Heat()
    memory: Memory = Memory()
    pacing: Pacing = Pacing()
    restart: Restart = Restart()


def check(watchdog: Watchdog, name: str) -> None:
    """Raises ConfigError. Levels that lie the wrong way round would be entered and left in one breath."""
    heat, memory, pacing = watchdog.heat, watchdog.memory, watchdog.pacing
    for keys, values, rising in (
        (("heat.warm_c", "heat.hot_c", "heat.critical_c"), (heat.warm_c, heat.hot_c, heat.critical_c), True),
        (
            ("memory.warm_percent", "memory.hot_percent", "memory.critical_percent"),
            (memory.warm_percent, memory.hot_percent, memory.critical_percent),
            False,
        ),
        (
            ("memory.warm_mb", "memory.hot_mb", "memory.critical_mb"),
            (memory.warm_mb, memory.hot_mb, memory.critical_mb),
            False,
        ),
    ):
        for i in (1, 2):
            if not (values[i] > values[i - 1] if rising else values[i] <= values[i - 1]):
                than = "more than" if rising else "at most"
                expected = f"{than} watchdog.{keys[i - 1]} ({values[i - 1]:g})"
                raise ConfigError(name, f"watchdog.{keys[i]}", expected, f"{values[i]:g}")
    if pacing.target_c >= heat.hot_c:
        expected = f"less than watchdog.heat.hot_c ({heat.hot_c:g})"
        raise ConfigError(name, "watchdog.pacing.target_c", expected, f"{pacing.target_c:g}")
    for knob in pacing.knobs:
        if pacing.knobs.count(knob) > 1:
            raise ConfigError(name, "watchdog.pacing.knobs", "knobs that differ", f"{knob!r} twice")
