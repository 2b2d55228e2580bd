"""Readings → how hard the board is pressed, and why. Pure; the time comes with the readings.

Each of heat and memory is a stair (`stair`); the worse of the two rules. What a sample speaks for:

* *Heat*: the thresholds; left `hysteresis_c` below. "Throttled" or "soft limit" *now*: hot. A chip that is throttled
  while its supply is too low and it is cooler than warm is throttled for the supply (0x50005), and that is no heat.
  Under-voltage and a capped clock alone are said in `alarms` and nothing more.
* *No temperature*: warm, when there was one before or a zone is there and talks nonsense; normal on a box without any.
* *Memory*: available below the smaller of a percentage of all memory and its megabytes; left `hysteresis_percent`
  points above, the megabytes in proportion (600 MB at 20 % and 5 points: above 750). A control group's limit counts as
  all memory where it is smaller.
* *PSI* from `psi_percent` on: hot, but only with less available than warm: somebody else's thrashing inside a limit of
  its own shows in the board's PSI too, and a smaller model would not help it.
* *Swap* nearly full: what is hot is critical.
* No meminfo: the level stays as it is.

How often a level changes at most is stated in `stair`; of the worse of two, the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from edged.config_watchdog import Watchdog
from edged.level import Level
from edged.watchdog.back import heat_back, memory_back
from edged.watchdog.readings import Readings
from edged.watchdog.stair import Stair
from edged.watchdog.thresholds import (
    MB,
    celsius,
    entering,
    leaving,
    limits,
    memory_room,
    swap_exhausted,
    thrashing,
    throttled,
)

LEVELS: Final = (Level.WARM, Level.HOT, Level.CRITICAL)


class Verdict(Struct, frozen=True, kw_only=True):
    """`why`: what made the level; `back`: what would bring the next better one; both one line for people."""

    level: Level
    heat: Level
    memory: Level
    why: str
    back: str
    since: float
    alarms: list[str]


class Sample(Struct, frozen=True):
    """What one look says of heat or of memory."""

    reached: Level
    kept: Level
    what: str  # "81.0 °C", in words, for why
    plain: bool = True  # what was measured made it, and no bit or the like


class Policy:
    def __init__(self, rules: Watchdog) -> None:
        self._rules = rules
        self._heat = Stair(rules.heat.samples, rules.hold_s)
        self._memory = Stair(rules.memory.samples, rules.hold_s)
        self._had_temperature = False
        self._why = {"heat": "", "memory": ""}
        self._level = Level.NORMAL
        self._since: float | None = None

    def reconfigure(self, rules: Watchdog) -> None:
        """Other rules: a level stays until the board is seen to have left it by them."""
        self._rules = rules
        self._heat.reconfigure(rules.heat.samples, rules.hold_s)
        self._memory.reconfigure(rules.memory.samples, rules.hold_s)

    def observe(self, readings: Readings, now: float) -> Verdict:
        self._had_temperature |= readings.temperature_c is not None
        heat = heat_sample(self._rules, readings, known=self._had_temperature)
        memory = memory_sample(self._rules, readings, self._memory.level)
        self._step("heat", self._heat, heat, self._rules.heat.samples, now)
        self._step("memory", self._memory, memory, self._rules.memory.samples, now)
        level = max(self._heat.level, self._memory.level)
        if self._since is None or level is not self._level:
            self._level, self._since = level, now
        return Verdict(
            level=level,
            heat=self._heat.level,
            memory=self._memory.level,
            why="; ".join(self._why[name] for name in self._worst(level)),
            back=self._back(level, readings),
            since=self._since,
            alarms=[*readings.alarms, *_words(readings)],
        )

    def _step(self, name: str, stair: Stair, sample: Sample, samples: int, now: float) -> None:
        before = stair.level
        after = stair.step(sample.reached, sample.kept, now)
        if after > before:
            times = f" for {samples} samples" if samples > 1 else ""
            self._why[name] = f"{sample.what}{times} ({self._entered(name, after, sample)})"
        elif after < before:
            self._why[name] = f"{sample.what or 'nothing seen'} (left {before.word})"

    def _entered(self, name: str, level: Level, sample: Sample) -> str:
        if not sample.plain:
            return level.word
        if name == "heat":
            return f"{level.word} from {celsius(self._rules.heat, level):g}"
        percent, megabytes = limits(self._rules, level)
        return f"{level.word} below {percent:g} % or {megabytes:g} MB"

    def _worst(self, level: Level) -> list[str]:
        """What makes the level: one of heat and memory, or both."""
        parts = {"heat": self._heat.level, "memory": self._memory.level} if level else {}
        return [name for name, one in parts.items() if one is level]

    def _back(self, level: Level, readings: Readings) -> str:
        words = {"heat": heat_back, "memory": memory_back}
        wanted = [words[name](self._rules, level, readings) for name in self._worst(level)]
        return f"{' and '.join(wanted)} for {self._rules.hold_s:g} s" if wanted else ""


def heat_sample(rules: Watchdog, readings: Readings, *, known: bool) -> Sample:
    """`known`: there was a temperature before."""
    temperature = readings.temperature_c
    if temperature is None:
        unknown = known or "temperature" not in readings.missing
        base = (
            Sample(Level.WARM, Level.WARM, "no temperature", plain=False)
            if unknown
            else Sample(Level.NORMAL, Level.NORMAL, "")
        )
    else:
        heat = rules.heat
        reached = _highest(temperature >= celsius(heat, level) for level in LEVELS)
        kept = _highest(temperature >= celsius(heat, level) - heat.hysteresis_c for level in LEVELS)
        base = Sample(reached, kept, f"{temperature:.1f} °C")
    if readings.soft_limit or throttled(rules, readings):
        said = "throttled by its firmware" if readings.throttled else "at its soft temperature limit"
        what = f"{base.what}, {said}" if base.what else said
        plain = base.plain and base.reached >= Level.HOT
        return Sample(max(base.reached, Level.HOT), max(base.kept, Level.HOT), what, plain)
    return base


def memory_sample(rules: Watchdog, readings: Readings, present: Level) -> Sample:
    room = memory_room(readings)
    if room is None:
        return Sample(Level.NORMAL, present, "memory unknown")
    available, total = room
    reached = _highest(available < entering(rules, level, total) for level in LEVELS)
    kept = _highest(available < leaving(rules, level, total) for level in LEVELS)
    what = f"{available / MB:.0f} MB available"
    plain = True
    if thrashing(rules, readings):
        if reached is Level.WARM:
            what = f"{what}, {readings.psi_some10:.0f} % of the time waited for memory"
            reached, plain = Level.HOT, False
        if kept is Level.WARM:
            kept = Level.HOT
    if swap_exhausted(rules, readings):
        if available < entering(rules, Level.HOT, total):
            plain = reached is Level.CRITICAL
            reached, what = Level.CRITICAL, f"{what}, swap exhausted"
        if available < leaving(rules, Level.HOT, total):
            kept = Level.CRITICAL
    return Sample(reached, max(kept, reached), what, plain)


def _highest(holds: Iterable[bool]) -> Level:
    """The highest level of those that hold (in the order of LEVELS)."""
    return max((level for level, true in zip(LEVELS, holds, strict=True) if true), default=Level.NORMAL)


def _words(readings: Readings) -> list[str]:
    """What is to be told and does nothing."""
    out = []
    if readings.under_voltage:
        out.append("under-voltage: check the power supply")
    elif readings.capped and not readings.throttled and not readings.soft_limit:
        out.append("the firmware holds the clock down")
    return out
