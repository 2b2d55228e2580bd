"""Which tokens a state of a grammar lets through. Pure but for numpy.

A token may come when its bytes lead to a state, an end of generation when the text may end here; tokens without bytes
never. Two ways to the best few of them:

* look at the likeliest tokens one by one until enough are found: where most tokens may come (inside a string);
* walk the vocabulary in order of bytes, with the states along the way on a stack, and skip whatever begins with bytes
  that may not come: where few may come (in a key). It tells of every token, and is remembered with the state.

Both give the same tokens in the same order (logit, then id). `MASKS` states keep theirs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from edged.worker.automaton import Automaton, State
from edged.worker.grammar import GrammarError

LOOK: Final = 256
"""The likeliest tokens that are looked at one by one; a walk costs as much as some thousands."""
LOST: Final = 48
"""After so many in vain the walk is likely the shorter way."""
MASKS: Final = 32

Ids = NDArray[np.int64]


class DeadEndError(GrammarError):
    """The grammar wants bytes that no token begins with."""


class Pieces:
    """A vocabulary's bytes, sorted; made once."""

    def __init__(self, pieces: Sequence[bytes], ends: Iterable[int]) -> None:
        self.pieces = pieces
        self.ends = frozenset(ends)
        order = sorted((p, t) for t, p in enumerate(pieces) if p and t not in self.ends)
        self.texts = [p for p, _ in order]
        self.ids = np.array([t for _, t in order], dtype=np.int64)
        self.end_ids = np.array(sorted(self.ends), dtype=np.int64)


class Masks:
    """For one automaton."""

    def __init__(self, pieces: Pieces, automaton: Automaton) -> None:
        self._pieces, self._automaton = pieces, automaton
        self._with_mask: list[State] = []

    def allows(self, state: State, token: int) -> bool:
        """May this one come? Raises TooAmbiguousError."""
        self._automaton.work = 0
        return self._may(state, token)

    def _may(self, state: State, token: int) -> bool:
        if token in self._pieces.ends:
            return state.final
        piece = self._pieces.pieces[token]
        return bool(piece) and self._automaton.walk(state, piece) is not None

    def best(self, state: State, logits: NDArray[np.float32], want: int | None) -> Ids:
        """The `want` likeliest tokens that may come (None: all), best first. Raises DeadEndError, TooAmbiguousError."""
        self._automaton.work = 0
        if state.mask is None and want is not None and want <= LOOK:
            found = self._look(state, logits, want)
            if found is not None:
                return found
        ids = self._all(state)
        if not ids.size:
            raise DeadEndError("no token of this model can go on as the grammar demands")
        if want is not None and ids.size > 4 * want:
            border = np.partition(logits[ids], ids.size - want)[ids.size - want]
            ids = ids[logits[ids] >= border]
        best: Ids = ids[np.lexsort((ids, -logits[ids]))][:want]
        return best

    def _look(self, state: State, logits: NDArray[np.float32], want: int) -> Ids | None:
        if logits.size <= LOOK:
            return None
        top = np.argpartition(logits, logits.size - LOOK)[logits.size - LOOK :]
        top = top[np.lexsort((top, -logits[top]))]
        found: list[int] = []
        for place, token in enumerate(top.tolist()):
            if place == LOST and not found:
                return None
            if self._may(state, token):
                found.append(token)
                if len(found) == want:
                    return np.array(found, dtype=np.int64)
        return None

    def _all(self, state: State) -> Ids:
        if state.mask is None:
            if len(self._with_mask) >= MASKS:
                for old in self._with_mask:
                    old.mask = None
                self._with_mask.clear()
            ids = self._pieces.ids[self._walk(state)]
            state.mask = np.concatenate([ids, self._pieces.end_ids]) if state.final else ids
            self._with_mask.append(state)
        return cast("Ids", state.mask)

    def _walk(self, start: State) -> list[int]:
        texts, step = self._pieces.texts, self._automaton.step
        out: list[int] = []
        along: list[State] = [start]  # along[n]: after the first n bytes of `last`
        last = b""
        at, count = 0, len(texts)
        while at < count:
            text = texts[at]
            same = 0
            for a, b in zip(text, last, strict=False):
                if a != b:
                    break
                same += 1
            del along[min(same, len(along) - 1) + 1 :]
            last = text
            for depth in range(len(along) - 1, len(text)):
                state = step(along[-1], text[depth])
                if state is None:
                    at = bisect_left(texts, _after(text[: depth + 1]), at + 1)
                    break
                along.append(state)
            else:
                out.append(at)
                at += 1
        return out


def _after(prefix: bytes) -> bytes:
    """Greater than everything that begins so."""
    return prefix + b"\xff" * 64
