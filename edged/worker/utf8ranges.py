"""A range of code points as sequences of byte ranges of UTF-8. Pure."""

from __future__ import annotations

_ENDS = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)


def sequences(low: int, high: int) -> list[list[tuple[int, int]]]:
    """What matches exactly the characters low…high; surrogates are left out.

    A range is cut until first and last have equally many bytes and differ only in a last part whose bytes run over
    the whole of 80…BF: then each byte's range is that of the ends.
    """
    out: list[list[tuple[int, int]]] = []
    todo = [(low, high)]
    while todo:
        low, high = todo.pop()
        if low > high:
            continue
        if low <= 0xDFFF and high >= 0xD800:
            todo += [(0xE000, high), (low, 0xD7FF)] if high > 0xDFFF or low < 0xD800 else []
            continue
        cut = _cut(low, high)
        if cut is not None:
            todo += [(cut + 1, high), (low, cut)]
            continue
        out.append(list(zip(chr(low).encode(), chr(high).encode(), strict=True)))
    return out


def _cut(low: int, high: int) -> int | None:
    """The last character of a first part, when the range must be cut."""
    for end in _ENDS[:-1]:
        if low <= end < high:
            return end
    for bits in (6, 12, 18):
        tail = (1 << bits) - 1
        if low & ~tail != high & ~tail:
            if low & tail:
                return low | tail
            if high & tail != tail:
                return (high & ~tail) - 1
    return None
