"""What the box is: board, system, and whether they are ones that edged runs on.

64 bits only: a Raspberry Pi OS with a 64-bit kernel and 32-bit programs is common, and the engine has no room there.
"""

from __future__ import annotations

import sys
from typing import Final

from msgspec import Struct

from edged.doctor import finding
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.system import memory

NAME: Final = "board"
MACHINES: Final = ("x86_64", "aarch64")

_MODELS: Final = ("proc/device-tree/model", "sys/firmware/devicetree/base/model", "sys/class/dmi/id/product_name")


class Board(Struct, frozen=True):
    """`bits` of this program; None for another box."""

    model: str
    system: str
    kernel: str
    machine: str
    total: int | None
    bits: int | None


def check(box: Box) -> list[Finding]:
    return judge(look(box))


def look(box: Box) -> Board:
    return Board(
        model=model(box),
        system=release(box.text("etc/os-release") or ""),
        kernel=box.text("proc/sys/kernel/osrelease") or "",
        machine=box.machine,
        total=memory.total_bytes(box.root),
        bits=(64 if sys.maxsize > 1 << 32 else 32) if box.here else None,
    )


def judge(board: Board) -> list[Finding]:
    total = "" if board.total is None else f"{board.total / 2**30:.1f} GB of memory"
    kernel = board.kernel and f"Linux {board.kernel}"
    facts = ", ".join(filter(None, [board.model or "board unknown", board.system, kernel, board.machine, total]))
    if board.bits == 32 or (board.machine and board.machine not in MACHINES):
        why = "edged runs as a 64-bit program, on x86-64 and aarch64"
        return [finding.error(NAME, facts, why, "install the 64-bit system (Raspberry Pi OS 64-bit)")]
    return [finding.ok(NAME, facts)]


def model(box: Box) -> str:
    """`Raspberry Pi 5 Model B Rev 1.0`; "" when nothing says."""
    return next((found for name in _MODELS if (found := box.text(name))), "")


def raspberry_pi(box: Box) -> bool:
    return model(box).startswith("Raspberry Pi")


def release(text: str) -> str:
    """PRETTY_NAME of os-release(5)."""
    rows = (line.partition("=") for line in text.splitlines())
    return next((value.strip("\"'") for name, _, value in rows if name == "PRETTY_NAME"), "")
