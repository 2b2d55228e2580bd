"""Memory: what the kernel measures of it, where it swaps to, and whether the model has room.

A Raspberry Pi has neither the memory controller of control groups nor PSI by default. edged does without both, so their
want is only good to know; with `MemoryMax=` or `MemoryHigh=` in a unit it is more: they have no effect, silently.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from msgspec import Struct

from edged.config import Config, Profile
from edged.doctor import block, finding, unitfiles
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.errors import ModelFileError
from edged.models import room
from edged.places import absent
from edged.system import gguf, memory, need, smallfile

CGROUP: Final = "cgroup-memory"
PSI: Final = "psi"
SWAP: Final = "swap"
ROOM: Final = "memory"

CMDLINE: Final = ("boot/firmware/cmdline.txt", "boot/cmdline.txt")
_LIMITS: Final = re.compile(r"^\s*Memory(?:Max|High)\s*=\s*(?!infinity\b)\S", re.MULTILINE)


def _switch(word: str, cmdline: str) -> str:
    """What to do for a word on the kernel's command line."""
    if word in cmdline.split():
        return f"{word} is in cmdline.txt already: restart the box"
    return f"add {word} to the end of the one line in /boot/firmware/cmdline.txt, and restart the box"


def _cmdline(box: Box) -> str:
    return next((text for name in CMDLINE if (text := box.text(name)) is not None), "")


# ---- control groups -----------------------------------------------------------------------------------------------


class Groups(Struct, frozen=True):
    """`controllers` None: no control groups to be seen. `limited`: a unit of ours has a limit of memory."""

    controllers: list[str] | None
    v1: bool
    limited: bool
    booted: str
    cmdline: str


def check_cgroup(box: Box) -> list[Finding]:
    controllers = box.text("sys/fs/cgroup/cgroup.controllers")
    return judge_cgroup(
        Groups(
            controllers=None if controllers is None else controllers.split(),
            v1=box.exists("sys/fs/cgroup/memory/memory.limit_in_bytes"),
            limited=any(_LIMITS.search(text) for text in unitfiles.texts(box).values()),
            booted=box.text("proc/cmdline") or "",
            cmdline=_cmdline(box),
        )
    )


def judge_cgroup(groups: Groups) -> list[Finding]:
    if groups.v1 or "memory" in (groups.controllers or []):
        return [finding.ok(CGROUP, "control groups measure memory")]
    if groups.controllers is None:
        return [finding.info(CGROUP, "no control groups to be seen", "limits of memory cannot be read")]
    do = _switch("cgroup_enable=memory", groups.cmdline)
    if "cgroup_disable=memory" in groups.booted and "cgroup_enable=memory" in groups.booted:
        do = "cgroup_enable=memory must come after cgroup_disable=memory: put it at the end of cmdline.txt, and restart"
    if groups.limited:
        why = "MemoryMax= or MemoryHigh= of edged's unit has no effect: the kernel's memory controller is off"
        return [finding.warning(CGROUP, "control groups do not measure memory", why, do)]
    why = "edged goes by /proc/meminfo; only limits of units (MemoryMax=) would have no effect"
    return [finding.info(CGROUP, "control groups do not measure memory", why, do)]


# ---- pressure -----------------------------------------------------------------------------------------------------


def check_psi(box: Box) -> list[Finding]:
    try:
        text = smallfile.read(box.path("proc/pressure/memory"))
        return judge_psi(text, 0, _cmdline(box))
    except OSError as failed:
        return judge_psi("", failed.errno or errno.EIO, _cmdline(box))


def judge_psi(text: str, number: int, cmdline: str) -> list[Finding]:
    """`number`: the error of reading it; EOPNOTSUPP where it is compiled in and off."""
    if text.startswith("some "):
        return [finding.ok(PSI, "the kernel tells pressure (PSI)")]
    off = "is switched off" if number == errno.EOPNOTSUPP else "is not there"
    why = "without it edged sees a want of memory by MemAvailable and page faults alone"
    return [finding.info(PSI, f"pressure (PSI) {off}", why, _switch("psi=1", cmdline))]


# ---- swap ---------------------------------------------------------------------------------------------------------


class Swap(Struct, frozen=True):
    """`card`: it lies on an SD card or eMMC."""

    name: str
    size_kb: int
    card: bool


def check_swap(box: Box) -> list[Finding]:
    rows = [line.split() for line in (box.text("proc/swaps") or "").splitlines()[1:]]
    return judge_swap([_swap(box, row) for row in rows if len(row) >= 3 and row[2].isdigit()])


def _swap(box: Box, row: list[str]) -> Swap:
    device = block.on(box, row[0]) if row[1] == "file" else block.disk(box, os.path.basename(row[0]))
    return Swap(row[0], int(row[2]), card=device is not None and device.flash)


def judge_swap(swaps: list[Swap]) -> list[Finding]:
    if not swaps:
        return [finding.ok(SWAP, "none: what does not fit is refused or killed at once, nothing thrashes")]
    cards = [swap for swap in swaps if swap.card]
    if cards:
        what = ", ".join(f"{swap.name} ({swap.size_kb >> 10} MB)" for swap in cards)
        why = "swapping wears the card, and a model that is swapped out answers late, or not in time"
        do = "zram instead: apt install rpi-swap or systemd-zram-generator; sudo swapoff -a; remove dphys-swapfile"
        return [finding.warning(SWAP, f"swap on a card: {what}", why, do)]
    zram = [swap for swap in swaps if swap.name.startswith("/dev/zram")]
    what = ", ".join(f"{swap.name} ({swap.size_kb >> 10} MB)" for swap in swaps)
    if zram:
        return [finding.ok(SWAP, f"{what}; compressed pages still take memory")]
    return [finding.ok(SWAP, what)]


# ---- room for the model -------------------------------------------------------------------------------------------


class Wanted(Struct, frozen=True):
    """A profile and what it needs: bytes of the file, and the estimate."""

    profile: str
    size: int
    need: int


def check_room(box: Box) -> list[Finding]:
    wanted = all_wanted(box)
    paths = {profile.model or box.config.model.path for profile in box.config.profiles}
    hidden = any(not absent(box.path(path)) and not os.access(box.path(path), os.R_OK) for path in paths)
    serving = isinstance(box.ask("ping"), dict)
    available = None if serving or not box.here else memory.available_bytes(box.root)
    return judge_room(wanted, memory.total_bytes(box.root), available, hidden=hidden)


def all_wanted(box: Box) -> list[Wanted]:
    """Of the profiles whose model file tells, the best first."""
    return [one for profile in box.config.profiles if (one := _wanted(box, box.config, profile)) is not None]


def total(box: Box) -> int | None:
    """Of the board, in bytes."""
    return memory.total_bytes(box.root)


def _wanted(box: Box, config: Config, profile: Profile) -> Wanted | None:
    """None: the file says nothing; `model` tells why."""
    try:
        header = gguf.check(box.path(profile.model or config.model.path))
    except (ModelFileError, OSError):
        return None
    shape = {"context": profile.context, "sequences": profile.sequences, "batch": profile.batch}
    return Wanted(profile.name, header.file_bytes, need.estimate(header, kv_type=profile.kv_type, **shape))


def judge_room(
    wanted: list[Wanted], total: int | None, available: int | None, *, hidden: bool = False
) -> list[Finding]:
    """`available` None: the model may be in memory already. `hidden`: there is one that may not be read."""
    if total is None:
        return [finding.unknown(ROOM, "the kernel does not say how much memory there is", do="mount /proc")]
    if not wanted and hidden:
        what = f"{room.mb(total)} in all; the model may not be read by this user"
        return [finding.unknown(ROOM, what, do="sudo edgectl doctor")]
    if not wanted:
        return [finding.info(ROOM, f"{room.mb(total)} in all; there is no model to compare it with")]
    out = []
    for index, one in enumerate(wanted):
        found = room.memory(one.size, one.need, total=total, available=available if index == 0 else None)
        if found is None:
            continue
        do = "a smaller model, context or kv_type q8_0 for this profile (docs/models.md has the sizes)"
        last = index == len(wanted) - 1
        make = finding.error if found.fatal and last else finding.warning
        out.append(make(ROOM, f"profile {one.profile}: {found.text}", "the next profile is taken" * (not last), do))
    best = wanted[0]
    said = f"profile {best.profile} needs about {room.mb(best.need)} of {room.mb(total)} (estimated)"
    return out or [finding.ok(ROOM, said)]
