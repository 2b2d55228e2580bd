"""Choosing the next token: one chain per request, freed with it.

Rules:

* Every chain ends in a sampler that selects: one without is an abort() inside llama.cpp. The chain is built here and
  nowhere else; its last place is held by `greedy` or by the `dist` of the token at hand.
* Order: logit bias → grammar → penalties (last 64 tokens, the prompt's own included) → top_k → top_p → min_p → temp →
  dist.
* temperature 0 is greedy: penalties → greedy, and without penalties not even a chain: the argmax of the logits.
* The draw at position i (0 = first token of the answer) depends on (seed, i) alone: the dist sampler is made anew for
  every token from a hash of both. So an answer can be carried on by another process without a generator's state.
* With a grammar a token is drawn as without; when it may not come, a second draw (of its own, from the same seed and
  position) is made among those that may: the likeliest top_k of them and as many more as penalties can push down, or
  all where truncation needs all. The distribution is the model's under the condition of the grammar, and mostly one
  token is looked at. Bias is added to the logits in place: a row is sampled once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edged.messages import Sampling
from edged.worker import llama
from edged.worker.automaton import State
from edged.worker.logprobs import Logprobs
from edged.worker.masks import Masks

PENALTY_WINDOW = 64
"""Tokens back that penalties look at, llama.cpp's default."""

COLD = 1e-6
"""Below this temperature the largest logit takes it all, and dividing by it leaves the range of a float32: greedy."""

_SECOND = 0x5BD1E995
"""Sets second draws apart from first ones."""

_RANDOM_SEED = 0xFFFFFFFF
"""LLAMA_DEFAULT_SEED: llama.cpp takes it for "draw a seed", so the hash must not give it."""


def draw_seed(seed: int, position: int) -> int:
    """A 32-bit seed from (seed, position): the finalizer of splitmix64 over both."""
    z = ((seed << 32) | (position & 0xFFFFFFFF)) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    low = (z ^ (z >> 31)) & 0xFFFFFFFF
    return low if low != _RANDOM_SEED else 0


class Sampler:
    """Samples for one request. `close` frees the C objects; calling it twice is fine."""

    def __init__(self, sampling: Sampling, vocab_size: int, prompt: list[int]) -> None:
        self._seed = sampling.seed
        self._greedy = sampling.temperature < COLD
        penalties = _penalties(sampling, vocab_size)
        self._want = _want(sampling, penal=penalties is not None)
        self._bias = sampling.logit_bias
        self._chain = None if self._greedy and penalties is None else llama.chain_new()
        if self._chain is None:
            return
        if penalties is not None:
            llama.chain_add(self._chain, penalties)
        for stage in _truncation(sampling):
            llama.chain_add(self._chain, stage)
        self._fixed = llama.chain_length(self._chain)
        llama.chain_add(self._chain, llama.sampler_greedy() if self._greedy else llama.sampler_dist(0))
        if penalties is not None:
            for token in prompt[-PENALTY_WINDOW:]:
                llama.sampler_accept(self._chain, token)

    def sample(
        self,
        context: llama.Context,
        row: int,
        position: int,
        gate: tuple[Masks, State] | None = None,
        logprobs: Logprobs | None = None,
    ) -> int:
        """The token after batch row `row`; it is the answer's token number `position`.

        Raises GrammarError when no token may come.
        """
        if logprobs is not None:
            logprobs.look(llama.logits(context, row))
        if self._bias:
            logits = llama.logits(context, row)
            for token, bias in self._bias:
                logits[token] += bias
        if gate is not None:
            return self._gated(*gate, llama.logits(context, row), position)
        if self._chain is None:
            return int(np.argmax(llama.logits(context, row)))
        self._draw(draw_seed(self._seed, position))
        return llama.sampler_sample(self._chain, context, row)

    def accept(self, token: int) -> None:
        """A token that was chosen by an earlier worker."""
        if self._chain is not None:
            llama.sampler_accept(self._chain, token)

    def _gated(self, masks: Masks, state: State, logits: NDArray[np.float32], position: int) -> int:
        """Accepts what is chosen."""
        if self._chain is None:
            token = int(np.argmax(logits))
            return token if masks.allows(state, token) else int(masks.best(state, logits, 1)[0])
        self._draw(draw_seed(self._seed, position))
        token = llama.sampler_apply(self._chain, np.arange(logits.size), logits)
        if not masks.allows(state, token):
            self._draw(draw_seed(self._seed ^ _SECOND, position))
            ids = masks.best(state, logits, self._want)
            token = llama.sampler_apply(self._chain, ids, logits[ids])
        llama.sampler_accept(self._chain, token)
        return token

    def _draw(self, seed: int) -> None:
        if not self._greedy and self._chain is not None:
            llama.chain_replace_last(self._chain, self._fixed, llama.sampler_dist(seed))

    def close(self) -> None:
        if self._chain is not None:
            llama.sampler_free(self._chain)
            self._chain, self._greedy = None, True


def _penalties(sampling: Sampling, vocab_size: int) -> llama.SamplerHandle | None:
    if sampling.repeat_penalty == 1 and sampling.frequency_penalty == 0 and sampling.presence_penalty == 0:
        return None
    return llama.sampler_penalties(
        vocab_size, PENALTY_WINDOW, sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty
    )


def _truncation(sampling: Sampling) -> list[llama.SamplerHandle]:
    if sampling.temperature < COLD:
        return []
    stages = []
    if sampling.top_k > 0:
        stages.append(llama.sampler_top_k(sampling.top_k))
    if sampling.top_p < 1:
        stages.append(llama.sampler_top_p(sampling.top_p))
    if sampling.min_p > 0:
        stages.append(llama.sampler_min_p(sampling.min_p))
    return [*stages, llama.sampler_temp(sampling.temperature)]


def _want(sampling: Sampling, *, penal: bool) -> int | None:
    """How many of the likeliest allowed tokens the chain needs to see; None: all."""
    raising = sampling.repeat_penalty < 1 or sampling.presence_penalty < 0 or sampling.frequency_penalty < 0
    few = 1 if sampling.temperature < COLD else sampling.top_k
    if raising or few == 0:
        return None
    return few + (PENALTY_WINDOW if penal else 0)
