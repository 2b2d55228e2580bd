"""Was it the kernel's OOM killer? The counters that it leaves, read while the worker lives and after its death.

A process that is killed for want of memory ends by SIGKILL like one that an operator killed. The kernel counts its
kills per control group (v2: `oom_kill` of memory.events, v1: of memory.oom_control) and, in newer kernels, for the
whole box (`oom_kill` of /proc/vmstat). A dead process has no group any more (v1), so the group is looked up while it
lives, and again at each look: somebody may have moved it. The marks of two looks are kept, since the count rises before
the dying process is gone.

The root of /proc and /sys is a parameter. Nothing here raises. The files may hang, so all this is done aside.
"""

from __future__ import annotations

import os
from typing import Final

from edged.system import smallfile
from edged.system.aside import Aside

SIGKILL: Final = "SIGKILL"
OOM: Final = "oom"
STALLED: Final = "stalled"
ILLEGAL: Final = "SIGILL"
WRONG_BUILD: Final = (
    "the engine's build does not fit this processor: an illegal instruction (edgectl doctor --check cpu-features)"
)
"""Why a worker that ends by SIGILL before it is ready is not tried again at once."""


ANSWER_S: Final = 0.1
"""How long a death waits for the counters."""


class Witness:
    """Looks at the counters for one process, by a thread that others share. Nothing here blocks for long."""

    def __init__(self, aside: Aside, root: str, pid: int) -> None:
        self._aside = aside
        self._root = root
        self._pid = pid
        self._counters: OomCounters | None = None
        self.look()

    def look(self) -> None:
        self._aside.do(self._look)

    def rose(self) -> bool:
        """Also False when the counters do not answer."""
        return self._aside.ask(lambda: self._counters is not None and self._counters.rose(), ANSWER_S, otherwise=False)

    def _look(self) -> None:
        if self._counters is None:
            self._counters = OomCounters(self._root, self._pid)
        else:
            self._counters.look()


class OomCounters:
    """`look` now and then while the process lives, `rose` when it is dead."""

    def __init__(self, root: str, pid: int) -> None:
        self._root = root
        self._pid = pid
        self._older: dict[str, int] = {}
        self._newer = self._counts()

    def look(self) -> None:
        """Reads two or three small files of the kernel."""
        self._older, self._newer = self._newer, self._counts()

    def rose(self) -> bool:
        marks = self._newer | self._older
        return any((_kills(path) or 0) > count for path, count in marks.items())

    def _counts(self) -> dict[str, int]:
        counts = ((path, _kills(path)) for path in (*self._groups(), os.path.join(self._root, "proc/vmstat")))
        return {path: count for path, count in counts if count is not None}

    def _groups(self) -> list[str]:
        out = []
        for line in (smallfile.text(os.path.join(self._root, f"proc/{self._pid}/cgroup")) or "").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            group = path.strip("/").replace("..", "")
            if not controllers:
                out.append(os.path.join(self._root, "sys/fs/cgroup", group, "memory.events"))
            elif "memory" in controllers.split(","):
                out.append(os.path.join(self._root, "sys/fs/cgroup/memory", group, "memory.oom_control"))
        return out


def _kills(path: str) -> int | None:
    for line in (smallfile.text(path) or "").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip().isdigit():
            return int(count)
    return None
