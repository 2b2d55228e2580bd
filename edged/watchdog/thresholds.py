"""Where each level of heat and of memory begins and is left. Pure."""

from __future__ import annotations

from typing import Final

from edged.config_watchdog import Heat, Watchdog
from edged.level import Level
from edged.watchdog.readings import Readings

MB: Final = 1 << 20


def memory_room(readings: Readings) -> tuple[int, int] | None:
    """Bytes available, and of how many: the board's or, where it has less room, the control group's."""
    available, total = readings.memory_available, readings.memory_total
    if available is None or total is None:
        return None
    most, current = readings.cgroup_max, readings.cgroup_current
    if most is not None and current is not None and most < total:
        return min(available, max(0, most - current)), most
    return available, total


def celsius(heat: Heat, level: Level) -> float:
    return {Level.WARM: heat.warm_c, Level.HOT: heat.hot_c, Level.CRITICAL: heat.critical_c}[level]


def entering(rules: Watchdog, level: Level, total: int) -> float:
    """Bytes: the level begins below."""
    percent, megabytes = limits(rules, level)
    return min(percent / 100 * total, megabytes * MB)


def leaving(rules: Watchdog, level: Level, total: int) -> float:
    """Bytes: the level is left from here on."""
    percent, _ = limits(rules, level)
    return entering(rules, level, total) * (1 + rules.memory.hysteresis_percent / percent) if percent else 0.0


def limits(rules: Watchdog, level: Level) -> tuple[float, float]:
    """Percent of all memory, and megabytes."""
    memory = rules.memory
    return {
        Level.WARM: (memory.warm_percent, memory.warm_mb),
        Level.HOT: (memory.hot_percent, memory.hot_mb),
        Level.CRITICAL: (memory.critical_percent, memory.critical_mb),
    }[level]


def supply_only(rules: Watchdog, readings: Readings) -> bool:
    """Throttled for its supply, if it is (0x50005): cooler than warm, with too low a voltage."""
    temperature = readings.temperature_c
    return readings.under_voltage is True and temperature is not None and temperature < rules.heat.warm_c


def throttled(rules: Watchdog, readings: Readings) -> bool:
    """For heat."""
    return readings.throttled is True and not supply_only(rules, readings)


def thrashing(rules: Watchdog, readings: Readings) -> bool:
    return readings.psi_some10 is not None and readings.psi_some10 >= rules.memory.psi_percent


def swap_exhausted(rules: Watchdog, readings: Readings) -> bool:
    swap, free = readings.swap_total, readings.swap_free
    return swap is not None and free is not None and 0 <= free < swap * rules.memory.swap_percent / 100
