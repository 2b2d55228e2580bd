"""What `edgectl model` prints, from data to lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from edged.models.pull import Pulled
from edged.models.room import mb
from edged.models.store import Stored, Verdict

_VERIFIED = {
    "yes": "verified",
    "hashed": "hashed",
    "changed": "changed since hashed",
    "other": "not the catalog's",
    "no": "",
}
_HEAD = ("", "NAME", "SIZE", "MEMORY", "FORMAT", "STATE")


def table(rows: Iterable[Stored], *, long: bool) -> Iterator[str]:
    """The lines of `list`: columns as wide as they need to be."""
    rows = list(rows)
    cells = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
    for number, line in enumerate(cells):
        right = (2, 3)
        yield "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        if long and number:
            row = rows[number - 1]
            for text in (row.path if row.present else row.source, row.licence, row.boards, row.note):
                if text:
                    yield f"     {text}"


def _cells(row: Stored) -> tuple[str, ...]:
    size = mb(row.size) if row.size else "?"
    memory = f"~{mb(row.memory)}" if row.memory else "?"
    return ("*" if row.in_use else "", row.name, size, memory, row.quantization or "?", _state(row))


def _state(row: Stored) -> str:
    if row.problem:
        return row.problem.replace("_", " ")
    words = []
    if row.present:
        words.append(_VERIFIED[row.verified] or "not verified")
    if row.partial:
        share = f"{row.partial / row.expected:.0%}".replace("%", " %") if row.expected else mb(row.partial)
        words.append(f"{share} fetched")
    return ", ".join(words) or "to be had"


def pulled(done: Pulled) -> str:
    what = f"{done.path}: {mb(done.size)}, {_sum(done.sha256, done.against)}"
    if not done.fetched:
        return f"{what}; it was there already"
    return f"{what}; resumed after {mb(done.resumed_from)}" if done.resumed_from else what


def verdict(found: Verdict) -> str:
    return f"{found.path}: {_sum(found.sha256, found.against)}" if found.ok else f"BAD {found.problem}"


def _sum(sha256: str, against: str) -> str:
    return f"sha256 {sha256}, {f'as {against} says' if against else 'with nothing to compare it with'}"


def used(file: str, was: str, path: str, sha256: str | None) -> str:
    checked = "its sha256 is checked before each load"
    if sha256 is None:
        checked = f"without a sha256, since it has none yet: edgectl model verify {Path(path).name}, then this again"
    back = f"\nback again: edgectl model use {was}" if was != path else ""
    return f"{file}: the model is {path} ({checked})\nto have a running daemon load it: edgectl config apply{back}"


def by_hand(why: str, path: str, sha256: str | None) -> str:
    quoted = f'"{sha256}"' if sha256 else "null"
    return f"edgectl: {why}. Put this into the configuration:\nmodel:\n  path: '{path}'\n  sha256: {quoted}"
