"""Token bytes → text that may be shown. Pure.

Three stages, each of which only ever holds back what is not decided yet:

1. *Incremental UTF-8*: a character split over tokens is held until whole; invalid bytes are dropped, so is an
   incomplete character at the end. No U+FFFD is ever made here.
2. *Stop filter*: the text ends before the stop string that is complete first (of those that end together, the one
   that began first), wherever token or chunk boundaries fall. Held back is the longest suffix that is a proper
   prefix of some stop string, and nothing else. The final flush is the rest of that: no stop string is in it.
3. Control tokens have no bytes (the caller feeds none), so they never reach text.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Detokenizer:
    """One request's way from token bytes to text."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._stops = StopFilter(stop)

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text."""
        return self._stops.stopped

    def feed(self, piece: bytes) -> str:
        """Bytes of the next token → text that may be shown now."""
        return self._stops.feed(self._decoder.decode(piece))

    def finish(self) -> str:
        """The text still held back; an incomplete character is dropped."""
        return self._stops.finish()


class StopFilter:
    """Passes text on until a stop string is complete."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._prefixes = frozenset(s[:n] for s in stop for n in range(1, len(s)))
        self._longest = max((len(s) for s in stop), default=1) - 1
        self._held = ""
        self.stopped: str | None = None

    def feed(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + text
        hits = [(at + len(s), at, s) for s in self._stop if (at := text.find(s)) >= 0]
        if hits:
            _, at, self.stopped = min(hits)
            self._held = ""
            return text[:at]
        keep = next((n for n in range(min(self._longest, len(text)), 0, -1) if text[-n:] in self._prefixes), 0)
        shown, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return shown

    def finish(self) -> str:
        rest, self._held = self._held, ""
        return rest
