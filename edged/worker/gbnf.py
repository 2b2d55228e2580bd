"""GBNF, llama.cpp's notation of grammars, → rules. Pure.

    root ::= "yes" | "no" [.!]?        # a comment
    name ::= ( [^\\n] | "\\u00e9" ){1,20}

Taken: literals, classes (negated, with ranges), `.`, groups, `|`, `*` `+` `?` `{m}` `{m,}` `{m,n}`, rule names,
comments to the end of the line, the escapes \\n \\r \\t \\\\ \\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH. A line
break ends a rule outside of groups, unless the next line begins with `|`. Not taken: llama.cpp's token rules
(`<[id]>`).

Bounds: groups are nested at most DEPTH deep (this parser is recursive); counts are at most COUNT. Everything else is
bounded where the automaton is built. Errors name the line, and no more of the text than one rule's name.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from edged.worker.grammar import LAST, NOTHING, Chain, Chars, Choice, GrammarError, Node, Repeat, Rule, Text, without

DEPTH: Final = 64
COUNT: Final = 10_000

_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_\-]+")
_COUNTS = re.compile(r"\{\s*(\d{1,9})\s*(,\s*(\d{1,9})?\s*)?\}")
_HEX = {"x": 2, "u": 4, "U": 8}
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^"}


def parse(source: str) -> dict[str, Node]:
    """Raises GrammarError."""
    rules = _Parser(source).rules()
    if "root" not in rules:
        raise GrammarError("there is no rule `root`")
    return rules


class _Parser:
    def __init__(self, source: str) -> None:
        self._source, self._at = source, 0

    def rules(self) -> dict[str, Node]:
        out: dict[str, Node] = {}
        self._skip(lines=True)
        while self._at < len(self._source):
            name = self._name() or self._fail("a rule's name is expected")
            self._skip(lines=False)
            if not self._take("::="):
                self._fail(f"`::=` is expected after `{name}`")
            if name in out:
                self._fail(f"rule `{name}` stands twice")
            self._skip(lines=True)
            out[name] = self._choice(0)
            if self._at < len(self._source) and self._source[self._at] not in "\r\n":
                self._fail("an item of a rule is expected")
            self._skip(lines=True)
        return out

    def _choice(self, depth: int) -> Node:
        options = [self._chain(depth)]
        while self._bar(depth):
            self._skip(lines=True)
            options.append(self._chain(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _bar(self, depth: int) -> bool:
        """A `|`, on the next line too."""
        before = self._at
        self._skip(lines=True)
        if self._take("|"):
            return True
        if depth == 0:
            self._at = before
        return False

    def _chain(self, depth: int) -> Node:
        parts: list[Node] = []
        while True:
            self._skip(lines=depth > 0)
            item = self._item(depth)
            if item is None:
                break
            parts.append(self._repeated(item))
        return parts[0] if len(parts) == 1 else Chain(tuple(parts)) if parts else NOTHING

    def _item(self, depth: int) -> Node | None:
        if self._take('"'):
            return self._literal()
        if self._take("["):
            return self._class()
        if self._take("."):
            return Chars(without(()))
        if self._take("("):
            if depth >= DEPTH:
                self._fail(f"groups are nested more than {DEPTH} deep")
            inner = self._choice(depth + 1)
            self._skip(lines=True)
            if not self._take(")"):
                self._fail("`)` is expected")
            return inner
        name = self._name()
        return None if name is None else Rule(name)

    def _repeated(self, item: Node) -> Node:
        for _ in range(DEPTH):
            self._skip(lines=False)
            if self._take("*"):
                item = Repeat(item, 0, None)
            elif self._take("+"):
                item = Repeat(item, 1, None)
            elif self._take("?"):
                item = Repeat(item, 0, 1)
            elif counts := _COUNTS.match(self._source, self._at):
                self._at = counts.end()
                item = self._counted(item, counts)
            else:
                return item
        return self._fail("too many repetitions of one item")

    def _counted(self, item: Node, counts: re.Match[str]) -> Repeat:
        least = int(counts[1])
        most = (int(counts[3]) if counts[3] else None) if counts[2] else least
        if max(least, most or 0) > COUNT:
            self._fail(f"more than {COUNT} repetitions")
        if most is not None and most < least:
            self._fail("a repetition's bounds are the wrong way round")
        return Repeat(item, least, most)

    def _literal(self) -> Text:
        out: list[str] = []
        while not self._take('"'):
            out.append(self._character())
        return Text("".join(out).encode())

    def _class(self) -> Chars:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            low = high = ord(self._character())
            if self._source.startswith("-", self._at) and not self._source.startswith("-]", self._at):
                self._at += 1
                high = ord(self._character())
            if high < low:
                self._fail("a range's ends are the wrong way round")
            ranges.append((low, high))
        return Chars(without(tuple(ranges)) if negated else tuple(ranges))

    def _character(self) -> str:
        if self._at >= len(self._source) or self._source[self._at] in "\r\n":
            self._fail("a literal or class has no end")
        char = self._source[self._at]
        self._at += 1
        if char != "\\":
            return char
        escape = self._source[self._at : self._at + 1]
        self._at += 1
        if escape in _HEX:
            digits = self._source[self._at : self._at + _HEX[escape]]
            self._at += len(digits)
            if len(digits) < _HEX[escape] or not re.fullmatch("[0-9a-fA-F]+", digits):
                self._fail(f"`\\{escape}` needs {_HEX[escape]} hexadecimal digits")
            code = int(digits, 16)
            if code > LAST or 0xD800 <= code <= 0xDFFF:
                self._fail("an escape is no character")
            return chr(code)
        if escape not in _PLAIN or not escape:
            self._fail("unknown escape")
        return _PLAIN[escape]

    def _name(self) -> str | None:
        found = _NAME.match(self._source, self._at)
        if not found:
            return None
        self._at = found.end()
        return found[0]

    def _take(self, word: str) -> bool:
        if not self._source.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _skip(self, *, lines: bool) -> None:
        found = (_SPACE_AND_LINES if lines else _SPACE).match(self._source, self._at)
        assert found is not None
        self._at = found.end()

    def _fail(self, why: str) -> NoReturn:
        raise GrammarError(f"line {self._source.count(chr(10), 0, self._at) + 1}: {why}")
