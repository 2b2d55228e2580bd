"""The block device below a path, and what it says of its wear. By mountinfo and /sys, nothing is opened."""

from __future__ import annotations

import os
import re
from typing import Final

from msgspec import Struct

from edged.doctor.box import Box
from edged.system import smallfile
from edged.system.mounts import Mount, mount_of
from edged.system.ramdir import MOUNTS

SD, EMMC, NVME, VIRTUAL, DISK = "SD card", "eMMC", "NVMe", "virtual disk", "disk"
_PARTITION: Final = re.compile(r"^(mmcblk\d+|nvme\d+n\d+|[a-z]+)p?\d+$")


class Device(Struct, frozen=True):
    """`life`: eMMC's two estimates of use, in steps of 10 % (11: beyond); `end`: its reserve, 1 good, 2 low, 3 gone."""

    name: str
    kind: str
    life: tuple[int, ...] = ()
    end: int | None = None

    @property
    def flash(self) -> bool:
        return self.kind in (SD, EMMC)


def mount(box: Box, path: str) -> Mount | None:
    try:
        text = smallfile.read(box.path("proc/self/mountinfo"), MOUNTS, "surrogateescape")
    except OSError:
        return None
    return mount_of(text, os.path.realpath(path) if box.here else path)


def on(box: Box, path: str) -> Device | None:
    """None: no device of its own (tmpfs, overlay, a network), or unknown."""
    found = mount(box, path)
    if found is None:
        return None
    named = re.search(r"^DEVNAME=(.+)$", box.text(f"sys/dev/block/{found.number}/uevent") or "", re.MULTILINE)
    source = found.source.rpartition("/")[2] if found.source.startswith("/dev/") else ""
    return disk(box, named[1] if named else source)


def disk(box: Box, name: str) -> Device | None:
    """Of a partition, the device that it is a part of."""
    whole = _PARTITION.match(name)
    if whole and not box.exists(f"sys/class/block/{name}/device"):
        name = whole[1]
    at = f"sys/class/block/{name}"
    if not name or not box.exists(at):
        return None
    kind = _kind(name, box.text(f"{at}/device/type") or "")
    life = tuple(int(word, 16) for word in (box.text(f"{at}/device/life_time") or "").split() if _hexadecimal(word))
    end = box.text(f"{at}/device/pre_eol_info") or ""
    return Device(name, kind, life, int(end, 16) if _hexadecimal(end) else None)


def _kind(name: str, kind: str) -> str:
    if name.startswith("mmcblk"):
        return SD if kind == "SD" else EMMC
    return NVME if name.startswith("nvme") else VIRTUAL if name.startswith(("vd", "xvd")) else DISK


def _hexadecimal(word: str) -> bool:
    return bool(re.fullmatch(r"0x[0-9a-fA-F]{1,4}", word))
