"""Width, colour, and a line that is written over: only where there is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import Final

from edged.cli.output import one_line

COLOURS: Final = {"green": "32", "yellow": "33", "red": "31"}
NARROWEST: Final = 12
"""Columns that a value gets at least, however narrow the terminal."""


def width() -> int | None:
    """Columns of stdout; None when it is no terminal: nothing is cut or wrapped then."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def coloured(text: str, colour: str) -> str:
    """https://no-color.org"""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain else f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def dot() -> str:
    """For a terminal; a star where the encoding has no dot."""
    try:
        "●".encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return "*"
    return "●"


def cells(text: str) -> int:
    """Columns that a terminal takes for it."""
    return sum(_cell(c) for c in text)


def _cell(c: str) -> int:
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """At most so many columns; `…` stands for the rest."""
    if cells(text) <= columns:
        return text
    return _front(text, columns - 1) + "…"


def _front(text: str, columns: int) -> str:
    taken, used = "", 0
    for c in text:
        used += _cell(c)
        if used > columns:
            break
        taken += c
    return taken


def wrapped(text: str, columns: int) -> list[str]:
    """At blanks where possible; a word that is too long is broken."""
    columns = max(columns, NARROWEST)
    lines, line = [], ""
    for whole in text.split(" "):
        word = whole
        if line and cells(line) + 1 + cells(word) <= columns:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        while cells(word) > columns:
            front = _front(word, columns)
            lines.append(front)
            word = word[len(front) :]
        line = word
    return [*lines, line]


class Passing:
    """A word on what is going on, on stderr; the next one takes its place. Nothing where there is no terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._there = self._said = False

    def show(self, text: str) -> None:
        if self._terminal:
            columns = shutil.get_terminal_size().columns
            self._write(f"\r\x1b[K{cut(one_line(text), columns - 1)}")
            self._there = True

    def say(self, text: str) -> None:
        """What also those are told who have no terminal, once for all times that it comes."""
        if self._terminal:
            self.show(text)
        elif not self._said:
            self._said = True
            self._write(f"edgectl: {one_line(text)}\n")

    def clear(self) -> None:
        if self._there:
            self._write("\r\x1b[K")
            self._there = False

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
