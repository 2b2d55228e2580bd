"""The C objects: model, context, batch, thread pools. Called by one thread only.

One `step` decodes a batch: tokens of running answers first, then pieces of prompts. Rows that ask for an output are
at most `sequences` (n_outputs_max): more is an abort() in llama.cpp, so it is checked here, as are all numbers.
Every C object lives as long as the process: a reload is a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edged.errors import EngineError
from edged.messages import Load, ThreadPin
from edged.system import cpu
from edged.system.need import IDLE_SEQUENCES
from edged.worker import automaton, llama
from edged.worker.logprobs import Logprobs
from edged.worker.masks import Masks
from edged.worker.plan import State
from edged.worker.prefix import Rules, Sharing
from edged.worker.sampler import Sampler
from edged.worker.threads import ComputeThreads
from edged.worker.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one sequence from `position` on; `output`: the last one's logits are wanted."""

    seq: int
    position: int
    tokens: Sequence[int]
    output: bool


class Engine:
    """A loaded model with its context."""

    def __init__(self, load: Load, cores: cpu.Cores, progress: Callable[[float], None]) -> None:
        llama.init(debug=load.log_level == "debug")
        self.model = llama.model_load(load.model_path, progress)
        if not llama.model_can_generate(self.model):
            raise EngineError("the model does not generate text (no decoder, or it needs an encoder)")
        self.warnings: list[str] = []
        self.cells = self._cells(load.context)
        self.sequences = load.sequences
        self.batch = min(load.batch, self.cells)  # llama.cpp bounds it the same way
        self.chunk = min(load.prefill_chunk, self.batch - self.sequences)
        self.vocabulary = Vocabulary(self.model)
        kind = llama.model_memory_kind(self.model)
        self.exact = kind is not None
        self.window = llama.model_window(self.model)
        self.residents = self.sequences + (1 if self.exact else IDLE_SEQUENCES)  # a recurrent state each costs memory
        self._scratch = None if self.exact else self.residents
        numbers = self.residents + (self._scratch is not None)
        self._context = llama.context_new(
            self.model,
            cells=self.cells,
            sequences=numbers,
            batch=self.batch,
            outputs=numbers,  # llama.cpp reserves one for each sequence number
            threads=len(cores.decode),
            kv_type=load.kv_type,
        )
        self._rows = _Batch(self.batch)
        self._cores = cores
        self._threads: ComputeThreads | None = None

    def _cells(self, asked: int) -> int:
        trained = llama.model_train_context(self.model)
        if 0 < trained < asked:
            self.warnings.append(f"context {asked} is more than the model was trained for: {trained} is used")
            return trained
        return asked

    def warm_up(self) -> list[ThreadPin]:
        """Pins this thread and decodes once with each pool, so that the compute threads exist; reads them back."""
        before = cpu.tasks()
        self._threads = ComputeThreads(self._context, self._cores)
        token = max(self.vocabulary.bos, 0)
        self.step([Span(0, 0, [token] * self.chunk, output=True)], prefill=True)
        (row,) = self.step([Span(0, self.chunk, [token], output=True)], prefill=False)
        llama.logits(self._context, row)
        self.remove(0)
        pins = self._threads.pins(before)
        self.warnings += self._threads.warnings
        return pins

    def lend_threads(self, context: llama.Context) -> None:
        """Another context of this model computes with the same threads."""
        assert self._threads is not None, "warm_up comes first"
        self._threads.lend(context)

    def limit_threads(self, most: int) -> None:
        """0: all."""
        assert self._threads is not None, "warm_up comes first"
        self._threads.limit(most)

    def step(self, spans: Sequence[Span], *, prefill: bool) -> list[int]:
        """Decodes; returns the batch row of each wanted output, in order. Raises llama's EngineErrors."""
        assert self._threads is not None, "warm_up comes first"
        rows = self._rows.fill(spans, self.sequences)
        self._threads.use(prefill=prefill)
        llama.decode(self._context, self._rows.c)
        return rows

    def sample(
        self,
        sampler: Sampler,
        row: int,
        position: int,
        gate: tuple[Masks, automaton.State] | None = None,
        logprobs: Logprobs | None = None,
    ) -> int:
        token = sampler.sample(self._context, row, position, gate, logprobs)
        if not 0 <= token < self.vocabulary.size:
            raise llama.FatalError(f"token {token} is not one of {self.vocabulary.size}")
        return token

    def rules(self, sharing: Sharing) -> Rules:
        """What may be reused with this model."""
        return Rules(sharing, self.exact, self.window)

    def remove(self, seq: int) -> None:
        llama.seq_remove(self._context, seq)

    def trim(self, seq: int, length: int) -> None:
        if length:
            llama.seq_trim(self._context, seq, length)
        else:
            llama.seq_remove(self._context, seq)

    def share(self, source: int, seq: int, length: int) -> None:
        llama.seq_share(self._context, source, seq, length)

    def check(self, lengths: Mapping[int, int]) -> None:
        """`lengths`: tokens in each sequence that is not empty. Raises FatalError: the books and the cache differ."""
        for seq in range(self._context.sequences):
            wanted = (0, lengths[seq] - 1) if seq in lengths else (-1, -1)
            first, last = llama.seq_span(self._context, seq)
            if last != wanted[1] or (first != wanted[0] and not (self.exact or self.window)):
                raise llama.FatalError(f"sequence {seq} holds positions {first} to {last}, the books say {wanted}")

    def copy_out(self, seq: int) -> State:
        return llama.seq_copy_out(self._context, seq)

    def copy_in(self, seq: int, state: State) -> None:
        llama.seq_copy_in(self._context, seq, state)

    def copy_part_out(self, seq: int, start: int, stop: int) -> State:
        """Cells start…stop, by way of the scratch sequence; or all of them, where memory cannot be cut (`exact`)."""
        if self._scratch is None:
            return self.copy_out(seq)
        llama.seq_share_part(self._context, seq, self._scratch, start, stop)
        try:
            return self.copy_out(self._scratch)
        finally:
            self.remove(self._scratch)

    def copy_part_in(self, seq: int, start: int, stop: int, state: State) -> None:
        """Adds what `copy_part_out` gave, or its first cells, to a sequence that ends at `start`. Raises StateError."""
        if self._scratch is None:
            self.copy_in(seq, state)
            return
        try:
            self.copy_in(self._scratch, state)
            llama.seq_share_part(self._context, self._scratch, seq, start, stop)
        finally:
            self.remove(self._scratch)


class _Batch:
    """A llama_batch with numpy views of its arrays; every token belongs to one sequence."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.c = llama.batch_new(size)
        self._token = _view(self.c.token, size, np.int32)
        self._position = _view(self.c.pos, size, np.int32)
        self._output = _view(self.c.logits, size, np.int8)
        _view(self.c.n_seq_id, size, np.int32)[:] = 1
        self._seq = self.c.seq_id

    def fill(self, spans: Sequence[Span], most_outputs: int) -> list[int]:
        total = sum(len(s.tokens) for s in spans)
        if not 0 < total <= self.size or sum(s.output for s in spans) > most_outputs:
            raise llama.BadBatchError(f"{total} tokens in a batch of {self.size}, or more than {most_outputs} outputs")
        outputs: list[int] = []
        at = 0
        for span in spans:
            end = at + len(span.tokens)
            self._token[at:end] = span.tokens
            self._position[at:end] = range(span.position, span.position + len(span.tokens))
            self._output[at:end] = 0
            for row in range(at, end):
                self._seq[row][0] = span.seq
            if span.output:
                self._output[end - 1] = 1
                outputs.append(end - 1)
            at = end
        self.c.n_tokens = total
        return outputs


def _view(pointer: Any, size: int, kind: type) -> NDArray[np.generic]:
    view: NDArray[np.generic] = np.ctypeslib.as_array(pointer, shape=(size,)).view(kind)
    return view
