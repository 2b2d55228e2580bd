"""A /proc and /sys of our own: what a board's sensors say is what a test writes."""

from __future__ import annotations

import os
from pathlib import Path

MB_KB = 1024


class FakeRoot:
    """`board` has a Pi's files: one thermal zone, the firmware's throttle bits, meminfo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.zone = path / "sys/class/thermal/thermal_zone0"
        self.bits = path / "sys/devices/platform/soc/soc:firmware/get_throttled"
        self.meminfo = path / "proc/meminfo"
        for file in (self.zone / "temp", self.bits, self.meminfo):
            file.parent.mkdir(parents=True, exist_ok=True)
        write(self.zone / "type", "cpu-thermal\n")
        self.heat(45.0)
        self.throttled(0)
        self.memory(3000)

    def heat(self, celsius: float) -> None:
        write(self.zone / "temp", f"{round(1000 * celsius)}\n")

    def nonsense(self, text: str) -> None:
        write(self.zone / "temp", text)

    def throttled(self, bits: int) -> None:
        write(self.bits, f"{bits:x}\n")

    def memory(self, available_mb: int, *, total_mb: int = 4000, free_mb: int | None = None) -> None:
        free = available_mb if free_mb is None else free_mb
        rows = {"MemTotal": total_mb, "MemFree": free, "MemAvailable": available_mb, "SwapTotal": 0, "SwapFree": 0}
        write(self.meminfo, "".join(f"{name}: {size * MB_KB} kB\n" for name, size in rows.items()))


def write(path: Path, text: str) -> None:
    """At once: nobody reads half of it."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)
