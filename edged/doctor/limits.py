"""Limits of the unit against what the service needs: memory for the model, threads, open files.

Too little memory does not show at the start: the kernel kills the worker when the model is read or the first prompt
comes, over and over. The need is an estimate (`edged.system.need`).
"""

from __future__ import annotations

import re
from typing import Final

from edged.doctor import finding, unitfiles
from edged.doctor.finding import Finding
from edged.doctor.memory import Wanted
from edged.models import room

DAEMON_BYTES: Final = 40 << 20
"""Beside the worker's (design 2)."""
MEMORY: Final = {
    "MemoryMax": "the kernel kills the worker",
    "MemoryHigh": "the kernel slows the worker down to a crawl",
    "LimitAS": "the worker gets no memory and ends",
    "LimitDATA": "the worker gets no memory and ends",
}
"""Setting → what happens beyond it. `LimitAS=` and `LimitDATA=` hold for each process."""
LEAST: Final = {"TasksMax": 64, "LimitNPROC": 64, "LimitNOFILE": 512}
"""Threads: the worker's by cores, those of libzmq and of the daemon. Files: `open-files` says why."""

_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def judge(lines: list[str], wanted: list[Wanted], total: int | None) -> list[Finding]:
    """`wanted`: profiles, the best first. `total`: of the board, for percentages; None: not known."""
    out = []
    for name, why in MEMORY.items():
        allowed = size(unitfiles.last(lines, name), total)
        small = [one for one in wanted if allowed is not None and allowed < one.need + DAEMON_BYTES]
        if allowed is None or not small:
            continue
        needed = small[0].need + DAEMON_BYTES
        make = finding.error if len(small) == len(wanted) else finding.warning
        what = f"{name}={unitfiles.last(lines, name)}: profile {small[0].profile} needs about {room.mb(needed)}"
        do = f"sudo systemctl edit edged: {name}=infinity, or {needed * 5 // 4 >> 20}M; or a smaller model or context"
        out.append(make("unit-settings", f"{what} (estimated)", why, do))
    for name, least in LEAST.items():
        count = unitfiles.last(lines, name).partition(":")[0]
        if count.isdigit() and int(count) < least:
            do = f"sudo systemctl edit edged: {name}={least} or more"
            why = "files and connections" if name == "LimitNOFILE" else "threads"
            out.append(finding.warning("unit-settings", f"{name}={count}", f"too few for the service's {why}", do))
    return out


def size(text: str, total: int | None) -> int | None:
    """Bytes of `800M`, `1.5G`, `50%`; of `soft:hard` the soft one. None: no limit, or nothing that is understood."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(%?)B?", text.partition(":")[0].strip())
    if found is None:
        return None
    number, unit, part = found.groups()
    if part:
        return None if total is None else int(total * float(number) / 100)
    return int(float(number) * _BYTES[unit])
