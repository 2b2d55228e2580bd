"""How much of what is remembered a prompt may use. Pure.

* The last token of a prompt is always read: without it there are no logits.
* Between scopes (callers) `sharing` rules. "identity": nothing. "all": any common prefix. "system": the leading system
  message if it is the same in both, to its end, and nothing beyond; a part of it never, or a caller could find out
  another's word by word.
* What is reused is cut to a multiple of ALIGN. Kernels for repacked weights take rows of a batch in fours and the rest
  singly, with other rounding; prefill chunks are multiples of ALIGN, so each prompt token stays in the same four as in
  a cold read and gets the same bits. (Measured on x86-64, Qwen2.5 0.5B Q4_K_M: reuse of 45, 190 or 199 tokens changed
  the logits by up to 0.3, of 64 by nothing. SmolLM2 Q4_1, which is not repacked: never.)
* `floor` is the shortest length that a sequence can be trimmed to: 0 with attention; all of it where nothing can be
  trimmed (recurrent, hybrid: `exact`); and all of it after a state was copied in of a model with a sliding window, for
  a state has the last window only (llama.cpp trims it without a word, and the answer is wrong). Below the floor nothing
  is used, and what has to be used whole is not aligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Sharing = Literal["identity", "system", "all"]

ALIGN = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """A prompt: whose it is, and how long its leading system message is."""

    tokens: list[int]
    scope: str
    public: int


@dataclass(frozen=True, slots=True)
class Rules:
    """`exact`: the model's memory cannot be trimmed. `window`: tokens of its sliding window, 0: none."""

    sharing: Sharing = "system"
    exact: bool = False
    window: int = 0

    def floor(self, length: int) -> int:
        """Of a sequence of that length whose state was copied in."""
        return length if self.exact or 0 < self.window < length else 0


def common(a: list[int], b: list[int]) -> int:
    """Length of the longest common prefix. By bisection: slices of lists are compared in C."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Held(Protocol):
    """What is remembered of a prompt: a sequence, a snapshot, another job."""

    @property
    def tokens(self) -> list[int]: ...
    @property
    def scope(self) -> str: ...
    @property
    def public(self) -> int: ...


def usable(rules: Rules, wanted: Wanted, held: Held, floor: int = 0) -> int:
    """How many of the tokens held the prompt may take over; 0: none."""
    shared = common(wanted.tokens, held.tokens)
    if held.scope != wanted.scope and rules.sharing != "all":
        same = rules.sharing == "system" and 0 < held.public == wanted.public <= shared
        shared = held.public if same else 0
    shared = min(shared, len(wanted.tokens) - 1)
    aligned = shared - shared % ALIGN
    if aligned >= floor:
        return aligned
    return shared if shared >= floor else 0
