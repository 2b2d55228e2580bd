"""Grammars as trees: what GBNF and JSON schemas are turned into, and the automaton is made of. Pure data.

Texts are UTF-8 bytes. `Repeat` with `most` None has no end; `Until` is any bytes up to and including the first
occurrence of its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edged.printable import line

LAST = 0x10FFFF
"""The last code point."""


class GrammarError(Exception):
    """The grammar cannot be used; the message is for its author."""

    def __init__(self, why: str) -> None:
        super().__init__(line(why, 400))


@dataclass(frozen=True, slots=True)
class Text:
    data: bytes


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of inclusive ranges of code points."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Chain:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    body: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    """What the rule of this name says."""

    name: str


@dataclass(frozen=True, slots=True)
class Until:
    end: bytes


Node = Text | Chars | Chain | Choice | Repeat | Rule | Until
Rules = Mapping[str, Node]

NOTHING = Chain(())


def text(value: str) -> Text:
    return Text(value.encode())


def maybe(node: Node) -> Repeat:
    return Repeat(node, 0, 1)


def one_of(characters: str) -> Chars:
    return Chars(tuple((ord(c), ord(c)) for c in characters))


def without(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Every other character; surrogates are none."""
    out, at = [], 0
    for low, high in sorted([*ranges, (0xD800, 0xDFFF)]):
        if low > at:
            out.append((at, low - 1))
        at = max(at, high + 1)
    return (*out, (at, LAST)) if at <= LAST else tuple(out)
