"""How hard the board is pressed (design 4). The worse of heat and memory rules."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """Ordered: a higher one is worse."""

    NORMAL = 0
    WARM = 1  # paced; prompt cache trimmed; low priority waits
    HOT = 2  # a smaller profile; only high priority is admitted
    CRITICAL = 3  # unloaded; accepted requests wait for their deadline

    @property
    def word(self) -> str:
        return self.name.lower()
