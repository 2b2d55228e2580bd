"""Memory of the board, of our control group and of the worker. The root of /proc and /sys is a parameter.

Only MemAvailable: page cache that fills the memory is no want of it; for the same reason a control group's own page
cache is taken off what it holds. A Pi has neither the memory controller nor PSI by default (the file may be there and
its reading give EOPNOTSUPP), so both are extra. RssAnon + VmSwap is what a process costs: mapped weights are not in it.
"""

from __future__ import annotations

import os
from typing import Any

from edged.system import memory, smallfile


class MemorySensors:
    def __init__(self, root: str) -> None:
        self._root = root
        self._known: set[str] = set()

    def read(self, pid: int | None, missing: list[str], alarms: list[str]) -> dict[str, Any]:
        """Fields of `Readings`; what is amiss is added to the lists."""
        fields = {**self._board(), **self._group(), **self._psi(), **(self._worker(pid) if pid else {})}
        for name, field in (("memory", "memory_available"), ("cgroup memory", "cgroup_current"), ("psi", "psi_some10")):
            if field in fields:
                self._known.add(name)
            elif name in self._known or name == "memory":
                alarms.append(f"{name}: vanished" if name in self._known else f"{name}: the kernel does not say")
            else:
                missing.append(name)
        return fields

    def _path(self, *parts: str) -> str:
        return os.path.join(self._root, *parts)

    def _board(self) -> dict[str, int]:
        info = smallfile.pairs(self._path("proc/meminfo"))
        names = {
            "memory_total": "MemTotal:",
            "memory_available": "MemAvailable:",
            "swap_total": "SwapTotal:",
            "swap_free": "SwapFree:",
        }
        return {field: info[name] * 1024 for field, name in names.items() if name in info}

    def _psi(self) -> dict[str, float]:
        for line in (smallfile.text(self._path("proc/pressure/memory")) or "").splitlines():
            if line.startswith("some "):
                for word in line.split()[1:]:
                    name, _, value = word.partition("=")
                    if name == "avg10":
                        return _percent("psi_some10", value)
        return {}

    # ---- the control group -----------------------------------------------------------------------------------

    def _group(self) -> dict[str, int]:
        """`cgroup_current` and, where there is a limit, `cgroup_max` of the group with the least room on the way up."""
        own: dict[str, int] = {}
        tightest: tuple[int, int] | None = None
        for current, most in memory.groups(self._root):
            own = own or {"cgroup_current": current}
            if most is not None and (tightest is None or most - current < tightest[1] - tightest[0]):
                tightest = (current, most)
        return own if tightest is None else {"cgroup_current": tightest[0], "cgroup_max": tightest[1]}

    # ---- the worker ------------------------------------------------------------------------------------------

    def _worker(self, pid: int) -> dict[str, int]:
        out: dict[str, int] = {}
        status = smallfile.pairs(self._path(f"proc/{pid}/status"))
        if "RssAnon:" in status:
            out["worker_anon"] = status["RssAnon:"] * 1024
        if "VmSwap:" in status:
            out["worker_swap"] = status["VmSwap:"] * 1024
        # the second field, the command's name, may hold blanks and parentheses: the last one closes it
        rest = (smallfile.text(self._path(f"proc/{pid}/stat")) or "").rpartition(")")[2].split()
        if len(rest) > 9 and rest[9].isascii() and rest[9].isdigit():
            out["major_faults"] = int(rest[9])
        return out


def _percent(name: str, text: str) -> dict[str, float]:
    try:
        value = float(text)
    except ValueError:
        return {}
    return {name: value} if 0 <= value <= 100 else {}
