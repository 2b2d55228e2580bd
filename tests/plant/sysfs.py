"""A root with /proc and /sys of a board, as files that a test writes."""

from __future__ import annotations

import os
from pathlib import Path

MB = 1 << 20


class Root:
    def __init__(self, path: Path, *, zone: str = "cpu-thermal", clocks: tuple[int, int] | None = (600_000, 1_800_000)):
        self.path = path
        self.zone = path / "sys/class/thermal/thermal_zone0"
        self.bits = path / "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled"
        self.policy = path / "sys/devices/system/cpu/cpufreq/policy0"
        self.put(self.zone / "type", zone)
        self.temperature(50.0)
        self.put(self.bits, "0")
        if clocks:
            low, high = clocks
            self.put(self.policy / "cpuinfo_min_freq", low)
            self.put(self.policy / "cpuinfo_max_freq", high)
            self.put(self.policy / "scaling_max_freq", high)
            self.put(self.policy / "scaling_cur_freq", high)
        self.memory(4000, 2000)

    def put(self, path: Path | str, value: object) -> None:
        """As the kernel does: a reader sees the old text or the new one."""
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        part.write_text(f"{value}\n")
        os.replace(part, target)

    def temperature(self, celsius: float) -> None:
        self.put(self.zone / "temp", int(celsius * 1000))

    def throttled(self, bits: int) -> None:
        self.put(self.bits, f"{bits:x}")

    def memory(self, total_mb: int, available_mb: int, *, swap_mb: int = 0, swap_free_mb: int = 0) -> None:
        rows = {"MemTotal": total_mb, "MemFree": 12, "MemAvailable": available_mb}
        rows |= {"SwapTotal": swap_mb, "SwapFree": swap_free_mb}
        self.put("proc/meminfo", "\n".join(f"{name}: {mb * 1024} kB" for name, mb in rows.items()))

    def psi(self, some10: float) -> None:
        self.put("proc/pressure/memory", f"some avg10={some10:.2f} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00")
