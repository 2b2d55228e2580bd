"""The watchdog's part of `status`, and the figures of its lines in the log. Pure."""

from __future__ import annotations

from typing import Any, Final

from edged.watchdog.ladder import Course
from edged.watchdog.policy import Verdict
from edged.watchdog.readings import Readings

MB: Final = 1 << 20


def fields(readings: Readings, verdict: Verdict | None, course: Course, now: float) -> dict[str, Any]:
    """`level`, `heat` and `memory` in words; `since`: seconds that it has lasted."""
    pace = {"duty": course.pace.duty, "threads": course.pace.threads, "frequency_khz": course.frequency_khz}
    rest = {"readings": known(readings), "missing": readings.missing, "pace": pace}
    if verdict is None:
        return {"level": "normal", "heat": "normal", "memory": "normal", "why": "", "back": "", "alarms": [], **rest}
    return {
        "level": verdict.level.word,
        "heat": verdict.heat.word,
        "memory": verdict.memory.word,
        "why": verdict.why,
        "back": verdict.back,
        "since": round(max(0.0, now - verdict.since), 1),
        "alarms": verdict.alarms,
        **rest,
    }


def unloaded(why: str, due_s: float | None) -> dict[str, Any]:
    """There is no model on purpose. `due_s`: until it is loaded again; None: not at this level."""
    return {"why": why, "seconds": None if due_s is None else round(due_s, 1)}


def known(readings: Readings) -> dict[str, Any]:
    """What was read; what is unknown is left out."""
    found = {
        "temperature_c": readings.temperature_c,
        "zones": readings.zones or None,
        "available_mb": _mb(readings.memory_available),
        "total_mb": _mb(readings.memory_total),
        "swap_free_mb": _mb(readings.swap_free),
        "swap_total_mb": _mb(readings.swap_total),
        "group_mb": _mb(readings.cgroup_current),
        "group_limit_mb": _mb(readings.cgroup_max),
        "psi_some10": readings.psi_some10,
        "frequency_khz": readings.frequency_khz,
        "frequency_max_khz": readings.frequency_max_khz,
        "throttled": readings.throttled,
        "soft_limit": readings.soft_limit,
        "under_voltage": readings.under_voltage,
        "capped": readings.capped,
        "worker_anon_mb": _mb(readings.worker_anon),
        "worker_swap_mb": _mb(readings.worker_swap),
        "major_faults": readings.major_faults,
    }
    return {name: value for name, value in found.items() if value is not None}


def figures(readings: Readings) -> dict[str, Any]:
    """The two that matter, for the log."""
    found = known(readings)
    return {name: found[name] for name in ("temperature_c", "available_mb") if name in found}


def _mb(size: int | None) -> int | None:
    return None if size is None else size // MB
