"""Data: one look at everything the watchdog watches. None: unknown.

Bits are the *now* bits of the firmware; those that only say "it happened" are never read (they trigger nothing, and
reading them clears them). No figure is counted in pages, so 4 and 16 KiB kernels read alike.
"""

from __future__ import annotations

from msgspec import Struct


class Readings(Struct, frozen=True, kw_only=True):
    """`at`: monotonic seconds of the look. Memory in bytes, temperatures in °C, frequencies in kHz."""

    at: float = 0.0
    zones: dict[str, float] = {}  # type → °C of its hottest zone, plausible ones only
    temperature_c: float | None = None  # the hottest that counts
    throttled: bool | None = None
    soft_limit: bool | None = None
    under_voltage: bool | None = None
    capped: bool | None = None
    frequency_khz: int | None = None
    frequency_max_khz: int | None = None
    memory_total: int | None = None
    memory_available: int | None = None  # MemAvailable: page cache that can be given back counts as available
    swap_total: int | None = None
    swap_free: int | None = None
    psi_some10: float | None = None  # percent of the last 10 s in which somebody waited for memory
    cgroup_current: int | None = None  # of the tightest group on the way up, without its page cache
    cgroup_max: int | None = None
    worker_anon: int | None = None
    worker_swap: int | None = None
    major_faults: int | None = None  # of the worker, since its start
    missing: list[str] = []  # what this kernel has not
    alarms: list[str] = []  # what was there and talks nonsense, vanished, or hangs: in words
