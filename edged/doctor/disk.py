"""The disk: room, wear, and how it is mounted. What edged writes, and how much: docs/operations.md, *On the disk*.

An eMMC tells its wear (JEDEC 84-B51: life time in steps of 10 %, the reserve of blocks), an SD card does not, an NVMe
does to `smartctl` only. A file system that became read-only is how a dying card shows itself.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from edged.config import Config
from edged.doctor import block, finding
from edged.doctor.block import EMMC, NVME, SD, Device
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.models import room

SPACE: Final = "disk-space"
WEAR: Final = "disk-wear"
MOUNTED: Final = "file-system"

FULL_SHARE: Final = 0.05
"""Of all blocks: below it file systems get slow, and an SD card has no room to spread its wear."""


class Place(Struct, frozen=True):
    """A directory that is written: bytes free, and what edged may still put there."""

    path: str
    free: int
    total: int
    wanted: int


def check_space(box: Box) -> list[Finding]:
    places = [_place(box, box.state_dir, _budget(box.config)), _place(box, "/var/log", 0)]
    models = _place(box, os.path.dirname(box.config.model_path), 0)
    return judge_space([place for place in (*places, models) if place is not None])


def _budget(config: Config) -> int:
    """What the state directory may grow to by the configuration; transcripts beside it are their callers' affair."""
    return config.cache.disk_bytes if config.cache.disk != "off" else 0


def _place(box: Box, path: str, wanted: int) -> Place | None:
    """The directory, or what is there of the way to it."""
    at = box.path(path)
    while not os.path.isdir(at) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    try:
        found = os.statvfs(at)
    except OSError:
        return None
    left = max(0, wanted - _held(os.path.join(at, "kv")))
    return Place(box.shown(at), found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, left)


def _held(directory: str) -> int:
    try:
        return sum(file.stat().st_size for file in os.scandir(directory) if file.is_file())
    except OSError:
        return 0


def judge_space(places: list[Place]) -> list[Finding]:
    out: list[Finding] = []
    do = "make room: edgectl model list, edgectl model remove NAME, sudo journalctl --vacuum-size=100M, sudo apt clean"
    for place in places:
        what = f"{place.path}: {room.mb(place.free)} free of {room.mb(place.total)}"
        if any(what == told.what for told in out):
            continue
        if place.free < room.SPARE_DISK:
            why = "sessions, snapshots and the journal cannot be written"
            out.append(finding.error(SPACE, what, why, do))
        elif place.free < place.wanted + room.SPARE_DISK:
            why = f"snapshots may take {room.mb(place.wanted)} more (cache.disk_bytes)"
            out.append(finding.warning(SPACE, what, why, f"{do}; or a smaller cache.disk_bytes"))
        elif place.free < FULL_SHARE * place.total:
            out.append(finding.warning(SPACE, what, "a disk this full gets slow, and a card wears sooner", do))
    least = min(places, key=lambda place: place.free, default=None)
    if out:
        return out
    if least is None:
        return [finding.unknown(SPACE, "no disk could be looked at", do="df -h")]
    return [finding.ok(SPACE, f"{least.path}: {room.mb(least.free)} free of {room.mb(least.total)}")]


# ---- wear ---------------------------------------------------------------------------------------------------------


def check_wear(box: Box) -> list[Finding]:
    found = [block.on(box, path) for path in (box.state_dir, os.path.dirname(box.config.model_path))]
    devices = {device.name: device for device in found if device is not None}
    return judge_wear(list(devices.values()), synced=box.config.journal == "disk")


def judge_wear(devices: list[Device], *, synced: bool) -> list[Finding]:
    """`synced`: the journal is on the disk."""
    if not devices:
        return [finding.info(WEAR, "no disk of its own to be seen here")]
    out = []
    for device in devices:
        out += _wear(device)
        if synced and device.kind == SD:
            why = "two syncs of the card for each request; ram survives all but a power cut"
            do = "journal: ram, unless requests must outlive a power cut"
            out.append(finding.info(WEAR, f"journal: disk on the {device.kind} {device.name}", why, do))
    return out


def _wear(device: Device) -> list[Finding]:
    name = f"{device.kind} {device.name}"
    used = max(device.life, default=0)
    if device.end == 3 or used >= 11:
        what = f"{name} is worn out ({_figures(device)})"
        return [finding.error(WEAR, what, "it may take no more writes any day", "copy it and replace it now")]
    if device.end == 2 or used >= 9:
        what = f"{name} is nearly worn out ({_figures(device)})"
        do = "plan a new one; until then journal: ram and cache.disk: off write least"
        return [finding.warning(WEAR, what, "it ends by taking no more writes", do)]
    if used:
        return [finding.ok(WEAR, f"{name}: {_figures(device)}")]
    if device.kind in (SD, EMMC):
        return [finding.info(WEAR, f"{name} does not tell how worn it is", "SD cards do not; keep a spare one")]
    if device.kind == NVME:
        return [
            finding.info(WEAR, f"{name} tells its wear to smartctl only", do=f"sudo smartctl -A /dev/{device.name}")
        ]
    return [finding.ok(WEAR, name)]


def _figures(device: Device) -> str:
    used = max(device.life, default=0)
    life = "used beyond its life" if used >= 11 else f"up to {10 * used} % used"
    reserve = {1: "", 2: ", 80 % of the reserve is gone", 3: ", the reserve is gone"}.get(device.end or 1, "")
    return life + reserve


# ---- mounts -------------------------------------------------------------------------------------------------------


class Mounted(Struct, frozen=True):
    path: str
    system: str
    options: frozenset[str]
    meant_ro: bool  # /etc/fstab says so


def check_mounted(box: Box) -> list[Finding]:
    found = block.mount(box, box.state_dir)
    if found is None:
        return [finding.unknown(MOUNTED, "the mounts cannot be read", do="findmnt, on the box itself")]
    rows = (line.split() for line in (box.text("etc/fstab") or "").splitlines())
    fstab = {row[1]: row[3].split(",") for row in rows if len(row) > 3 and not row[0].startswith("#")}
    meant = "ro" in fstab.get(found.point, [])
    return judge_mounted(Mounted(box.state_dir, found.system, found.options, meant))


def judge_mounted(mounted: Mounted) -> list[Finding]:
    at = f"{mounted.path} ({mounted.system})"
    if "ro" in mounted.options:
        if mounted.meant_ro:
            why = "sessions, snapshots and the journal on the disk need a place to write"
            do = "a tmpfs or a data partition at that place, or journal: ram and cache.disk: off without sessions"
            return [finding.warning(MOUNTED, f"{at} is read-only", why, do)]
        why = "the kernel makes a file system read-only after errors: the card or disk is failing"
        return [finding.error(MOUNTED, f"{at} is read-only", why, "dmesg; copy what matters, and replace the card")]
    if mounted.system in ("nfs", "nfs4", "cifs", "9p", "fuse.sshfs"):
        why = "a network that is away stops whoever writes there"
        return [finding.warning(MOUNTED, f"{at} is a network's", why, "a local state_dir")]
    slow = sorted({"sync", "strictatime"} & mounted.options)
    if slow:
        do = "remove it from /etc/fstab; noatime is best for cards"
        return [finding.warning(MOUNTED, f"{at} is mounted {', '.join(slow)}", "many more writes than needed", do)]
    return [finding.ok(MOUNTED, f"{at} can be written")]
