"""Logarithms of probabilities in the model's own distribution: of the raw logits, before bias, grammar, penalties,
temperature and truncation. One entry per token of an answer; numbers are rounded, so that an entry stays small."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edged.messages import TokenLogprob, TopLogprob

LEAST = -9999.0
"""For a token that the model excludes: JSON has no −∞."""


class Logprobs:
    """`look` before the token is chosen, `of` afterwards."""

    def __init__(self, top: int, piece: Callable[[int], bytes]) -> None:
        self._top, self._piece = top, piece
        self._logits: NDArray[np.float64] = np.zeros(0)
        self._total = 0.0

    def look(self, logits: NDArray[np.float32]) -> None:
        self._logits = logits.astype(np.float64)
        peak = float(self._logits.max())
        self._total = peak + float(np.log(np.exp(self._logits - peak).sum()))

    def of(self, token: int) -> TokenLogprob:
        size = self._logits.size
        best = np.argpartition(self._logits, size - min(self._top, size))[size - min(self._top, size) :]
        best = best[np.lexsort((best, -self._logits[best]))]
        top = [TopLogprob(t, self._text(t), self._value(t)) for t in best.tolist()]
        return TokenLogprob(token, self._text(token), self._value(token), top)

    def _text(self, token: int) -> str:
        return self._piece(token).decode("utf-8", "replace")

    def _value(self, token: int) -> float:
        return round(max(LEAST, min(0.0, float(self._logits[token]) - self._total)), 4)
