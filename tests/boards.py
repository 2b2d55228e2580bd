"""Boards as `edgectl doctor` sees them: trees of /proc, /sys, /etc that a test lays out. Contents as the kernels write
them (Raspberry Pi OS 6.12), from their sources and documentation; no file was copied from a board."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from harness import tiny_gguf

MIB_KB = 1024
AT_PAGESZ, AT_HWCAP, AT_HWCAP2 = 6, 16, 26
A72 = 0x8FF  # fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
A76 = 0x119FFF  # the same, atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
LINE = "console=tty1 root=PARTUUID=1-02 rootfstype=ext4 rootwait"
MOUNTS = "25 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw\n26 25 0:22 / /run rw,nosuid - tmpfs tmpfs rw\n"


class Board:
    """A directory that stands for `/`; `put` writes a file of it, `drop` takes one away."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, name: str, content: str | bytes = "", *, mode: int = 0o644) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        file.chmod(mode)
        return file

    def drop(self, name: str) -> None:
        (self.path / name).unlink()

    def link(self, name: str, to: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(to, file)

    # ---- parts ---------------------------------------------------------------------------------------------------

    def kernel(self, *, arch: str, page: int, hwcap: int = 0, hwcap2: int = 0, cmdline: str = LINE) -> None:
        entries = [(AT_PAGESZ, page), (AT_HWCAP, hwcap), (AT_HWCAP2, hwcap2), (0, 0)]
        self.put("proc/self/auxv", b"".join(struct.pack("@NN", *entry) for entry in entries))
        self.put("proc/sys/kernel/arch", arch + "\n")
        self.put("proc/sys/kernel/osrelease", "6.12.34+rpt-rpi\n")
        self.put("proc/cmdline", cmdline + "\n")
        self.put("boot/firmware/cmdline.txt", LINE + "\n")
        self.put("etc/os-release", 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n')
        self.put("proc/self/mountinfo", MOUNTS)

    def memory(self, total_mb: int, available_mb: int) -> None:
        rows = {"MemTotal": total_mb, "MemAvailable": available_mb, "SwapTotal": 0, "SwapFree": 0}
        self.put("proc/meminfo", "".join(f"{name}: {size * MIB_KB} kB\n" for name, size in rows.items()))
        self.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")

    def clock(self, *, now: int, most: int, governor: str = "ondemand") -> None:
        at = "sys/devices/system/cpu/cpufreq/policy0"
        self.put(f"{at}/scaling_governor", governor)
        self.put(f"{at}/scaling_driver", "cpufreq-dt")
        self.put(f"{at}/scaling_max_freq", str(now))
        self.put(f"{at}/cpuinfo_max_freq", str(most))

    def heat(self, celsius: float, kind: str = "cpu-thermal") -> None:
        self.put("sys/class/thermal/thermal_zone0/type", kind)
        self.put("sys/class/thermal/thermal_zone0/temp", str(round(1000 * celsius)))

    def throttled(self, bits: int) -> None:
        self.put("sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled", f"{bits:x}\n")

    def groups(self, *controllers: str) -> None:
        self.put("sys/fs/cgroup/cgroup.controllers", " ".join(controllers) + "\n")

    def card(self, kind: str = "SD", *, life: str = "", end: str = "") -> None:
        at = "sys/class/block/mmcblk0"
        self.put(f"{at}/device/type", kind)
        if life:
            self.put(f"{at}/device/life_time", life)
            self.put(f"{at}/device/pre_eol_info", end)
        self.put("sys/dev/block/179:2/uevent", "MAJOR=179\nMINOR=2\nDEVNAME=mmcblk0p2\nDEVTYPE=partition\n")
        (self.path / "sys/class/block/mmcblk0p2").mkdir(parents=True, exist_ok=True)

    def model(self, path: str = "var/lib/edged/models/SmolLM2-135M-Instruct.Q4_1.gguf") -> Path:
        self.put(path)
        (self.path / "var/lib/edged").mkdir(parents=True, exist_ok=True)
        (self.path / "var/lib/edged").chmod(0o750)
        return tiny_gguf(self.path / path)

    def service(self, unit: str) -> None:
        self.put("etc/systemd/system/edged.service", unit)
        self.put("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nedged:x:990:990::/var/lib/edged:/usr/sbin/nologin\n")
        self.put("etc/group", "root:x:0:\nedged:x:990:pi\n")
        (self.path / "var/lib/edged").mkdir(parents=True, exist_ok=True)
        (self.path / "etc/edged/keys").mkdir(parents=True, exist_ok=True)
        self.put("opt/edged/current/venv/bin/edged", "#!/bin/sh\n")


def pi5(path: Path) -> Board:
    """Healthy, as it comes: pages of 16 KiB, a fan, no memory controller, no PSI."""
    board = Board(path)
    board.kernel(arch="aarch64", page=16384, hwcap=A76)
    board.put("proc/device-tree/model", b"Raspberry Pi 5 Model B Rev 1.0\0")
    board.memory(8000, 6500)
    board.clock(now=2_400_000, most=2_400_000)
    board.heat(48.2)
    board.throttled(0)
    board.groups("cpuset", "cpu", "io", "pids")
    board.card()
    board.put("sys/class/thermal/cooling_device0/type", "pwm-fan")
    board.put("sys/class/thermal/cooling_device0/cur_state", "1")
    board.put("sys/class/thermal/cooling_device0/max_state", "4")
    board.put("sys/class/hwmon/hwmon2/fan1_input", "2980")
    board.put("sys/class/rtc/rtc0/name", "rpi-rtc")
    board.put("run/systemd/timesync/synchronized")
    board.model()
    return board


def pi4(path: Path) -> Board:
    """Healthy: pages of 4 KiB, no fan, no RTC."""
    board = Board(path)
    board.kernel(arch="aarch64", page=4096, hwcap=A72)
    board.put("proc/device-tree/model", b"Raspberry Pi 4 Model B Rev 1.5\0")
    board.memory(3800, 3000)
    board.clock(now=1_800_000, most=1_800_000)
    board.heat(51.0)
    board.throttled(0)
    board.groups("cpuset", "cpu", "io", "pids")
    board.card()
    board.put("run/systemd/timesync/synchronized")
    board.model()
    return board
