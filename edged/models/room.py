"""Whether a model fits: on the disk, and into memory. Pure: figures in, words out.

The rules for memory: a model that wants more than the board has in all, or whose file alone is above 80 % of it (then
the kernel reads it from the card again for each token), will never run and is refused; one that wants more than is
available now is only warned about, for what runs now may be the model that it replaces.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

SPARE_DISK: Final = 64 << 20
"""What must be left over: a full disk hurts more than a missing model."""

FILE_SHARE: Final = 0.8

TYPICAL_REST: Final = 192 << 20
"""KV cache, compute buffer and process of a model below 1 B parameters, where only the size of the file is known."""


class Finding(Struct, frozen=True):
    """`fatal` stops unless forced; otherwise it is a warning."""

    fatal: bool
    text: str


def disk(directory: str, *, missing: int, free: int) -> Finding | None:
    """`missing`: bytes that still have to be written."""
    if missing + SPARE_DISK <= free:
        return None
    return Finding(
        fatal=True,
        text=f"{directory}: {mb(free)} free, {mb(missing)} to be written and {mb(SPARE_DISK)} to be left over: "
        f"make room (edgectl model remove NAME)",
    )


def memory(size: int, need: int | None, *, total: int | None, available: int | None) -> Finding | None:
    """`need`: the estimate, or None when there is nothing but the file's size to go by."""
    wanted = need if need is not None else size + TYPICAL_REST
    if total is not None and (wanted > total or size > FILE_SHARE * total):
        return Finding(
            fatal=True,
            text=f"the model needs about {mb(wanted)} of memory (estimated, file {mb(size)}), "
            f"this board has {mb(total)} in all: it would not run here",
        )
    if available is not None and wanted > available:
        return Finding(
            fatal=False,
            text=f"the model needs about {mb(wanted)} of memory (estimated), {mb(available)} are available now: "
            f"it runs only if something else makes room, such as the model that it replaces",
        )
    return None


def mb(count: float) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"
