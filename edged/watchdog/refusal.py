"""What clients are told of a level: the code, and why in words. Pure."""

from __future__ import annotations

from msgspec import Struct

from edged.errors import Code
from edged.level import Level
from edged.watchdog.policy import Verdict


class Refusal(Struct, frozen=True):
    """`code`: None where the level lets everybody in."""

    level: Level
    code: Code | None = None
    why: str = ""


def refusal(verdict: Verdict) -> Refusal:
    if verdict.level < Level.HOT:
        return Refusal(verdict.level)
    heat, memory = verdict.heat is verdict.level, verdict.memory is verdict.level
    what = " and ".join([*["too hot"] * heat, *["short of memory"] * memory])
    code = Code.OVERHEATED if heat else Code.LOW_MEMORY
    return Refusal(verdict.level, code, f"the board is {what}: {verdict.why}")
