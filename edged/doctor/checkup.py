"""All checks, side by side: one that hangs (a file of /sys, a mount that is gone) costs itself and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from edged.config import Config
from edged.doctor import (
    access,
    board,
    configured,
    disk,
    finding,
    keys,
    memory,
    modelfile,
    pages,
    ports,
    power,
    processor,
    service,
    units,
    wallclock,
)
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.system import aside

WITHIN_S: Final = 4.0
"""For all of them together."""

Check = Callable[[Box], list[Finding]]

CHECKS: Final[dict[str, Check]] = {
    board.NAME: board.check,
    configured.NAME: configured.check,
    processor.NAME: processor.check,
    pages.NAME: pages.check,
    power.CLOCK: power.check_clock,
    power.THROTTLING: power.check_throttling,
    power.SUPPLY: power.check_supply,
    power.TEMPERATURE: power.check_temperature,
    power.COOLING: power.check_cooling,
    memory.ROOM: memory.check_room,
    memory.CGROUP: memory.check_cgroup,
    memory.PSI: memory.check_psi,
    memory.SWAP: memory.check_swap,
    disk.SPACE: disk.check_space,
    disk.WEAR: disk.check_wear,
    disk.MOUNTED: disk.check_mounted,
    modelfile.NAME: modelfile.check,
    access.PERMISSIONS: access.check_permissions,
    access.GROUPS: access.check_groups,
    keys.NAME: keys.check,
    wallclock.NAME: wallclock.check,
    ports.NAME: ports.check,
    units.UNIT: units.check_unit,
    units.SETTINGS: units.check_settings,
    service.SERVICE: service.check_service,
    service.VERSIONS: service.check_versions,
    service.FILES: service.check_files,
}
"""Name → check, in the order in which a box is looked at."""


def run(config: Config, *, root: str = "/", only: Collection[str] = (), refused: str = "") -> list[Finding]:
    """What was found, in the order of CHECKS. `only`: names of checks; none of them: all.

    `refused`: what is wrong with the configuration file; `config` stands in for it.
    """
    box = Box(config, root, refused)
    wanted = {name: check for name, check in CHECKS.items() if not only or name in only}
    found = aside.together({name: _guarded(name, check, box) for name, check in wanted.items()}, WITHIN_S)
    return [one for name in wanted for one in found.get(name, [_hangs(name)])]


def _guarded(name: str, check: Check, box: Box) -> Callable[[], list[Finding]]:
    def look() -> list[Finding]:
        try:
            return check(box)
        except Exception as error:  # noqa: BLE001 - a bug in one check is that check's
            what = f"the check failed: {type(error).__name__}: {error}"
            return [finding.unknown(name, what, do="report it: this is a bug of edgectl")]

    return look


def _hangs(name: str) -> Finding:
    return finding.warning(
        name,
        f"no answer within {WITHIN_S:g} s",
        "a file of the kernel or a mount hangs; the service may meet it too",
        f"edgectl doctor --check {name}; the kernel's log (dmesg) may name a driver or a disk",
    )
