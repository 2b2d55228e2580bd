"""Keeps special tokens out of what users write. Pure.

A rendered prompt is tokenized with special tokens enabled, since the template's own are meant. A *break* (a Unicode
noncharacter) inside a special token's text keeps it from being one: the rendering is split there before tokenizing.

* Every occurrence of a special token's text inside a content gets a break after its first character.
* A special token may also be composed across the border of content and template ("<|im_" + "end|>"). It shows when
  the rendering is compared with one of harmless contents: other counts → breaks at both ends of every content,
  inside its surrounding whitespace (templates trim).

A tokenizer that begins every piece of text with a space (SentencePiece) writes one more at a break: only in texts that
hold a special token's spelling, where nothing better can be said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


class Guard:
    """The special tokens of one model. Texts of one character cannot be broken and are left out."""

    def __init__(self, specials: Iterable[str]) -> None:
        texts = sorted({s for s in specials if len(s) > 1}, key=lambda s: (-len(s), s))
        self._any = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._starts = re.compile(f"(?={self._any.pattern})") if self._any else None

    def protect(self, text: str, mark: str) -> str:
        """Breaks every special token's text in `text`, overlapping ones too."""
        if self._starts is None:
            return text
        parts, last = [], 0
        for match in self._starts.finditer(text):
            parts.append(text[last : match.start() + 1])
            last = match.start() + 1
        return mark.join([*parts, text[last:]]) if parts else text

    def count(self, segments: Iterable[str]) -> Counter[str]:
        """How often each special token stands in the segments."""
        return Counter(hit for s in segments for hit in self._any.findall(s)) if self._any else Counter()


def choose_mark(texts: Sequence[str]) -> tuple[str, list[str]]:
    """A noncharacter that is in none of the texts, and the texts; if all are used, the first is taken out."""
    for mark in _NONCHARACTERS:
        if not any(mark in text for text in texts):
            return mark, list(texts)
    mark = _NONCHARACTERS[0]
    return mark, [text.replace(mark, "") for text in texts]


def fence(text: str, mark: str) -> str:
    """Breaks at both ends of a content, inside its surrounding whitespace."""
    core = text.strip()
    if not core:
        return text
    at = text.index(core)
    return f"{text[:at]}{mark}{core}{mark}{text[at + len(core) :]}"


def split(text: str, mark: str) -> list[str]:
    return [segment for segment in text.split(mark) if segment]
