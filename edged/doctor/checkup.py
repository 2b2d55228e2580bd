"""All checks, side by side: one that hangs (a file of /sys, a mount that is gone) costs itself and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from edged.config import Config
from edged.doctor import board, finding
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.system import aside

WITHIN_S: Final = 4.0
"""For all of them together."""

Check = Callable[[Box], list[Finding]]

CHECKS: Final[dict[str, Check]] = {
    board.NAME: board.check,
}
"""Name → check, in the order in which a box is looked at."""


def run(config: Config, *, root: str = "/", only: Collection[str] = ()) -> list[Finding]:
    """What was found, in the order of CHECKS. `only`: names of checks; none of them: all."""
    box = Box(config, root)
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
