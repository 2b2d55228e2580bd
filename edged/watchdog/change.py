"""A replacement under way. Data."""

from __future__ import annotations

from dataclasses import dataclass

from edged.system.gguf import Header
from edged.watchdog.plan import Plan


@dataclass(frozen=True, slots=True)
class Wish:
    """Why a worker of this plan is to serve. `old_first`: memory is short, no two at a time."""

    plan: Plan
    reason: str
    old_first: bool = False

    @property
    def asked(self) -> bool:
        """By an operator, who means this profile; what the watchdog wants may be another one that serves its end."""
        return self.reason in ("reload", "profile")


@dataclass(slots=True)
class Change:
    """`number`: of the look at the new file; `header` and `need` (bytes) are known after it."""

    wish: Wish
    begun: float
    number: int
    header: Header | None = None
    sha256: str | None = None
    need: int = 0
