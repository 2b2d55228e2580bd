"""What would bring the next better level, in words: of everything that holds the present one. Pure."""

from __future__ import annotations

from edged.config_watchdog import Watchdog
from edged.level import Level
from edged.watchdog.readings import Readings
from edged.watchdog.thresholds import MB, celsius, leaving, memory_room, swap_exhausted, thrashing, throttled


def heat_back(rules: Watchdog, level: Level, readings: Readings) -> str:
    """`no longer throttled and below 74 °C`."""
    temperature = readings.temperature_c
    below = celsius(rules.heat, level) - rules.heat.hysteresis_c
    wanted = []
    if level <= Level.HOT:
        if throttled(rules, readings):
            wanted.append("no longer throttled")
        if readings.soft_limit:
            wanted.append("no longer at the soft temperature limit")
    if temperature is None and level is Level.WARM:
        wanted.append(f"a temperature again, below {below:g} °C")
    elif temperature is not None and (temperature >= below or not wanted):
        wanted.append(f"below {below:g} °C")
    return " and ".join(wanted) or "no heat seen"


def memory_back(rules: Watchdog, level: Level, readings: Readings) -> str:
    """`496 MB available`, and what else holds the level."""
    room = memory_room(readings)
    if room is None:
        return "a reading of the memory again"
    available, total = room

    def enough(at: Level) -> str:
        return f"{leaving(rules, at, total) / MB:.0f} MB available"

    memory = rules.memory
    if level is Level.HOT and thrashing(rules, readings):
        other, more = f"less than {memory.psi_percent:g} % of the time waited for memory", Level.WARM
    elif level is Level.CRITICAL and swap_exhausted(rules, readings):
        other, more = f"more than {memory.swap_percent:g} % of the swap free", Level.HOT
    else:
        return enough(level)
    first = f"{enough(level)} and {other}" if available < leaving(rules, level, total) else other
    return f"{first}, or {enough(more)},"
