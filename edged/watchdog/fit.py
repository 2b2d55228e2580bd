"""Which comes first, the new worker or the end of the old one (design 4). Pure.

The estimate of a model's memory is a lower one (`edged.system.need`), so a new worker beside the old one must fit with
a margin; alone it must fit at all. What the old one gives back is estimated from its own header: of a mapped file that
both use nothing is counted twice, which errs to the side of old first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MARGIN: Final = 1.15
MARGIN_BYTES: Final = 64 << 20
"""Beside the running requests, which go on growing while the new one loads."""


class Order(StrEnum):
    NEW_FIRST = "new first"  # the old one serves until the new one is ready
    OLD_FIRST = "old first"
    NEITHER = "no room"


def order(need: int, available: int | None, freed: int, *, old_first: bool) -> Order:
    """`freed`: what the old one would give back. `old_first`: memory is short, no two at a time."""
    if available is None:
        return Order.OLD_FIRST
    if not old_first and need * MARGIN + MARGIN_BYTES <= available:
        return Order.NEW_FIRST
    return Order.OLD_FIRST if need <= available + freed else Order.NEITHER


def too_big(name: str, need: int, available: int) -> str:
    return f"profile {name} needs about {need >> 20} MB, {available >> 20} MB are available"
