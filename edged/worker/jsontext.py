"""JSON as grammars: values of every kind, literals, whole numbers within bounds. Pure.

What is written is a subset of JSON, chosen so that a model can neither run away nor write what a parser minds: spaces
only where they are common and few of them, numbers of at most 16 digits before and after the point and two in the
exponent, no control characters, no lone surrogates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from edged.worker.gbnf import parse
from edged.worker.grammar import NOTHING, Chain, Chars, Choice, Node, Repeat, Rule, Text, maybe, text

BASE: Final[dict[str, Node]] = parse(
    r"""
    root ::= value
    space ::= (" " | "\n" " "{0,16})?
    value ::= object | array | string | number | boolean | null
    object ::= "{" space (string space ":" space value (space "," space string space ":" space value)* space)? "}"
    array ::= "[" space (value (space "," space value)* space)? "]"
    string ::= "\"" char* "\""
    char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F] | [dD] [0-7]) [0-9a-fA-F]{2})
    digits ::= "0" | [1-9] [0-9]{0,15}
    integer ::= "-"? digits
    fraction ::= ("." [0-9]{1,16})? ([eE] [+\-]? [0-9]{1,2})?
    number ::= "-"? digits fraction
    positive ::= digits fraction
    boolean ::= "true" | "false"
    null ::= "null"
    hex ::= [0-9a-fA-F]
    uuid ::= "\"" hex{8} ("-" hex{4}){3} "-" hex{12} "\""
    year ::= [1-9] [0-9]{3}
    day28 ::= "0" [1-9] | "1" [0-9] | "2" [0-8]
    day30 ::= day28 | "29" | "30"
    long ::= "01" | "03" | "05" | "07" | "08" | "10" | "12"
    short ::= "04" | "06" | "09" | "11"
    days ::= year "-" (long "-" (day30 | "31") | short "-" day30 | "02-" day28)
    hour ::= [01] [0-9] | "2" [0-3]
    sixty ::= [0-5] [0-9]
    clock ::= hour ":" sixty ":" sixty ("." [0-9]{1,6})? ("Z" | [+\-] hour ":" sixty)
    date ::= "\"" days "\""
    time ::= "\"" clock "\""
    date-time ::= "\"" days "T" clock "\""
    """
)

SPACE: Final = Rule("space")
_COLON: Final = Chain((SPACE, text(":"), SPACE))
COMMA: Final = Chain((SPACE, text(","), SPACE))


def literal(value: Any) -> Node:
    """Just this value, written compactly."""
    return text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def literals(values: Iterable[Any]) -> Node:
    """One of these values; common beginnings are shared, so that many of them are few ways at each place."""
    written = {json.dumps(v, ensure_ascii=False, separators=(",", ":")).encode() for v in values}
    return _shared(sorted(written))


def _shared(words: Sequence[bytes]) -> Node:
    if len(words) == 1:
        return Text(words[0])
    first, last = words[0], words[-1]
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    if same:
        return Chain((Text(first[:same]), _shared([w[same:] for w in words])))
    options: list[Node] = []
    at = 0
    while at < len(words):
        group = [w for w in words[at:] if w[:1] == words[at][:1]]
        options.append(_shared(group) if group[0] else NOTHING)
        at += len(group)
    return Choice(tuple(options))


def string(least: int, most: int | None) -> Node:
    """A string of so many characters."""
    return Chain((text('"'), Repeat(Rule("char"), least, most), text('"')))


def obj(members: Sequence[tuple[str, Node, bool]], add: Callable[[Node], Rule]) -> Node:
    """An object with these members (name, value, required) in this order; `add` makes a rule.

    Two strands of rules, so that the size stays linear: `rest`, a member that is written next, and `after`, what may
    follow one.
    """
    rest: Node | None = None
    after: Node = SPACE
    must_more = False
    for name, value, must in reversed(members):
        taken = Chain((add(Chain((literal(name), _COLON, value))), add(after)))
        rest = taken if must or rest is None else Choice((taken, rest))
        rest = add(rest)
        must_more = must_more or must
        more = Chain((text(","), SPACE, rest))
        after = Chain((SPACE, more if must_more else maybe(more)))
    inside: Node = NOTHING if rest is None else rest if must_more else Choice((rest, NOTHING))
    return Chain((text("{"), SPACE, inside, text("}")))


def mapping(value: Node) -> Node:
    """An object with any names, all of whose values are such."""
    member = Chain((Rule("string"), _COLON, value))
    inside = Chain((member, Repeat(Chain((COMMA, member)), 0, None), SPACE))
    return Chain((text("{"), SPACE, maybe(inside), text("}")))


def array(first: Sequence[Node], more: Node | None, least: int, most: int | None) -> Node:
    """The items of `first`, then `more` of a kind; least…most of those in all."""
    start: Node = text("[")
    if not first and (more is None or most == 0):
        return Chain((start, SPACE, text("]")))
    parts: list[Node] = [start, SPACE]
    parts += [Chain((COMMA, item)) if at else item for at, item in enumerate(first)]
    if more is not None:
        need, can = max(0, least - len(first)), None if most is None else most - len(first)
        if first:
            parts.append(Repeat(Chain((COMMA, more)), need, can))
        else:
            rest = Repeat(Chain((COMMA, more)), max(0, need - 1), None if can is None else can - 1)
            inside = Chain((more, rest))
            parts.append(inside if need else maybe(inside))
    return Chain((*parts, SPACE, text("]")))


def integer(low: int | None, high: int | None) -> Node:
    """A whole number low…high; where one bound is missing, of at most 16 digits."""
    largest = 10**16 - 1
    low = min(-largest, high or 0) if low is None else low
    high = max(largest, low) if high is None else high
    options: list[Node] = []
    if low < 0:
        options.append(Chain((text("-"), _between(max(1, -high), -low))))
    if high >= 0:
        options.append(_between(max(0, low), high))
    return Choice(tuple(options))


def _between(low: int, high: int) -> Node:
    """Decimal numbers without sign."""
    options: list[Node] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        least, most = max(low, 10 ** (length - 1) if length > 1 else 0), min(high, 10**length - 1)
        options.append(_digits(str(least), str(most)))
    return Choice(tuple(options))


def _digits(low: str, high: str) -> Node:
    """Numbers of equally many digits."""
    if low == high:
        return text(low)
    if set(low) == {"0"} and set(high) == {"9"}:
        return Repeat(_digit(0, 9), len(low), len(low))
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if not rest:
        return _digit(first, last)
    if first == last:
        return Chain((text(low[0]), _digits(low[1:], high[1:])))
    options: list[Node] = []
    if set(low[1:]) != {"0"}:
        options.append(Chain((text(low[0]), _digits(low[1:], "9" * rest))))
        first += 1
    if set(high[1:]) != {"9"}:
        options.append(Chain((text(high[0]), _digits("0" * rest, high[1:]))))
        last -= 1
    if first <= last:
        options.append(Chain((_digit(first, last), _digits("0" * rest, "9" * rest))))
    return Choice(tuple(options))


def _digit(low: int, high: int) -> Chars:
    return Chars(((ord("0") + low, ord("0") + high),))
