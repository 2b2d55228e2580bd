"""Which cores compute, and what the kernel made of it. The root of /proc and /sys is a parameter.

Rules (design 3): compute threads = physical cores allowed by affinity (which holds the cpuset, the kernel keeps them
in step) and by the CPU quota of the control group (rounded down, at least one), less the reserve; biggest cores
first, one thread per physical core. A barrier waits for the slowest thread: an oversubscribed core, or a sibling of
a busy one, stalls all. Only a count written in the configuration goes beyond: first to the reserve, then to siblings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edged.system import smallfile


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU; `core` names its physical core, `capacity` compares cores (any unit, bigger is faster)."""

    number: int
    core: tuple[int, int]
    capacity: int


@dataclass(frozen=True, slots=True)
class Cores:
    """The choice. `spare`: CPUs for threads that do not compute (all allowed ones when none can be spared)."""

    decode: tuple[int, ...]
    prefill: tuple[int, ...]
    spare: frozenset[int]
    warnings: tuple[str, ...] = ()


def choose(
    cpus: Iterable[Cpu], allowed: set[int], quota: float | None, *, reserve: int, threads: int, prefill_threads: int
) -> Cores:
    """Pure. `quota` in CPUs; `reserve` -1 and counts of 0 are chosen here."""
    usable = sorted((c for c in cpus if c.number in allowed), key=lambda c: (-c.capacity, c.number))
    known = {c.number for c in usable}
    usable += [Cpu(n, (-1, n), 0) for n in sorted(allowed - known)]
    first: dict[tuple[int, int], Cpu] = {}
    for cpu in usable:
        first.setdefault(cpu.core, cpu)
    physical = [c.number for c in first.values()]
    order = physical + [c.number for c in usable if c.number not in physical]

    kept = reserve if reserve >= 0 else int(len(physical) >= 4)
    automatic = max(1, len(physical) - kept)
    if quota is not None:
        automatic = max(1, min(automatic, int(quota)))
    warnings = [
        f"{key}: {count} asked for, {len(order)} CPUs allowed"
        for key, count in (("threads", threads), ("prefill_threads", prefill_threads))
        if count > len(order)
    ]
    decode = order[: threads or automatic]
    prefill = order[: prefill_threads or len(decode)]
    busy_cores = {c.core for c in usable if c.number in {*decode, *prefill}}
    spare = frozenset(c.number for c in usable if c.core not in busy_cores)
    return Cores(tuple(decode), tuple(prefill), spare or frozenset(allowed), tuple(warnings))


def read_cpus(root: str = "/") -> list[Cpu]:
    """The online CPUs of the machine."""
    base = os.path.join(root, "sys/devices/system/cpu")
    online = parse_list(_read(os.path.join(base, "online")) or "")
    return [_cpu(os.path.join(base, f"cpu{n}"), n) for n in sorted(online)]


def _cpu(path: str, number: int) -> Cpu:
    package = _number(os.path.join(path, "topology/physical_package_id"), -1)
    core = _number(os.path.join(path, "topology/core_id"), -1)
    capacity = _number(os.path.join(path, "cpu_capacity"), 0)
    if capacity <= 0:
        capacity = _number(os.path.join(path, "cpufreq/cpuinfo_max_freq"), 0)
    return Cpu(number, (package, core) if core >= 0 else (-1, number), max(0, capacity))


def read_quota(root: str = "/") -> float | None:
    """CPUs that the control groups allow, the tightest of the way up; None: no limit."""
    limits: list[float] = []
    for line in (_read(os.path.join(root, "proc/self/cgroup")) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            limits += _up(os.path.join(root, "sys/fs/cgroup"), path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in ("cpu,cpuacct", "cpu"):
                limits += _up(os.path.join(root, "sys/fs/cgroup", mount), path, _quota_v1)
    return min(limits, default=None)


def _up(mount: str, path: str, read: Callable[[str], float | None]) -> list[float]:
    """Reads every level from `path` up to the mount; a namespace may hide the upper ones."""
    parts = [p for p in path.split("/") if p and p != ".."]
    levels = [os.path.join(mount, *parts[:n]) for n in range(len(parts), -1, -1)]
    return [limit for level in levels if (limit := read(level)) is not None]


def _quota_v2(level: str) -> float | None:
    quota, _, period = (_read(os.path.join(level, "cpu.max")) or "").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.strip().isdigit() and int(period) else None


def _quota_v1(level: str) -> float | None:
    quota = _number(os.path.join(level, "cpu.cfs_quota_us"), -1)
    period = _number(os.path.join(level, "cpu.cfs_period_us"), -1)
    return quota / period if quota > 0 and period > 0 else None


def tasks(root: str = "/") -> set[int]:
    """The threads of this process."""
    return {int(name) for name in os.listdir(os.path.join(root, "proc/self/task")) if name.isdigit()}


def affinity_of(tid: int, root: str = "/") -> list[int]:
    """The CPUs that a thread of this process may run on, as the kernel reports it; [] if it is gone."""
    for line in (_read(os.path.join(root, f"proc/self/task/{tid}/status")) or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return sorted(parse_list(line.partition(":")[2]))
    return []


def parse_list(text: str) -> set[int]:
    """ "0-2,5" → {0, 1, 2, 5}."""
    out: set[int] = set()
    for part in text.strip().split(","):
        low, _, high = part.strip().partition("-")
        if low.isdigit() and (high or low).isdigit():
            out.update(range(int(low), int(high or low) + 1))
    return out


def _read(path: str) -> str | None:
    try:
        return smallfile.read(path)
    except OSError:
        return None


def _number(path: str, default: int) -> int:
    try:
        return int((_read(path) or "").strip())
    except ValueError:
        return default
