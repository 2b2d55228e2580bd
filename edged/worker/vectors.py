"""The C side of `embed`: what the model says about embeddings, and a context that gives a vector for every token.

The context is beside the one that answers: same model, same compute threads, one sequence, an output for every token
of a chunk. llama.cpp computes logits along with the vectors whether they are wanted or not, and a row of logits is as
long as the vocabulary: so the chunk is held down until its outputs fit `OUTPUT_BYTES`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from edged.errors import EngineError
from edged.worker import llama
from edged.worker.engine import Engine
from edged.worker.llama import C

Pooling = Literal["mean", "cls", "last", "rank"]

OUTPUT_BYTES: Final = 32 << 20
"""Logits of a chunk, which are held twice. SmolLM2-135M with chunks of 64: 26 MB; of 152,000 words: chunks of 27."""
_LEAST_CHUNK: Final = 8
_PAD: Final = 256  # llama.cpp rounds a context up to this
_POOLING: Final[dict[str, Pooling]] = {"0": "mean", "1": "mean", "2": "cls", "3": "last", "4": "rank"}
_NONE, _UNSPECIFIED = 0, -1  # llama_pooling_type


@dataclass(frozen=True, slots=True)
class Facts:
    """`pooling` is the model's own (`{arch}.pooling_type`: 1 mean, 2 the first token, 3 the last, 4 rank); a model that
    was not made for embeddings says nothing, and gets the mean. `causal` False: a token sees what comes after it, so a
    text cannot be read in chunks. `fixed` and `cell`: bytes of a context, in all and per token.
    """

    dimension: int
    pooling: Pooling
    named: bool
    causal: bool
    chunk: int
    fixed: int
    cell: int

    def need(self, cells: int) -> int:
        """An estimate of a context's memory."""
        return self.fixed + self.cell * cells


def facts(engine: Engine) -> Facts:
    model, vocab = engine.model, engine.vocabulary.size
    arch = _text(model, "general.architecture")
    kind = _text(model, f"{arch}.pooling_type")
    dimension = int(C.llama_model_n_embd_out(model))
    heads = max(1, int(C.llama_model_n_head(model)))
    width = int(C.llama_model_n_head_kv(model)) * (int(C.llama_model_n_embd(model)) // heads)
    row = 2 * 4 * vocab
    chunk = max(1, min(engine.chunk, max(_LEAST_CHUNK, OUTPUT_BYTES // row)))
    return Facts(
        dimension=dimension,
        pooling=_POOLING.get(kind, "mean"),
        named=bool(kind),
        causal=_text(model, f"{arch}.attention.causal") != "false",
        chunk=chunk,
        fixed=chunk * (row + 4 * 32 * dimension),
        cell=2 * 2 * int(C.llama_model_n_layer(model)) * width,
    )


def _text(model: llama.Model, key: str) -> str:
    """A value of the model's metadata, "" when there is none."""
    buffer = ctypes.create_string_buffer(128)
    size = C.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if size >= 0 else ""


def rounded(cells: int, most: int) -> int:
    """The next power of two, so that texts of like length find their context made; `most` at most."""
    return min(1 << math.ceil(math.log2(max(cells, _PAD))), most)


class Reader:
    """A context for texts of up to `cells` tokens. `close` gives its memory back. Raises EngineError."""

    def __init__(self, engine: Engine, facts: Facts, cells: int) -> None:
        self.cells, self._facts = cells, facts
        params = C.llama_context_default_params()
        params.n_ctx = cells
        params.n_batch = params.n_ubatch = params.n_outputs_max = facts.chunk
        params.n_seq_max = 1
        params.embeddings = True
        params.pooling_type = _NONE if facts.named else _UNSPECIFIED  # NONE unasked for is a line in the log
        params.flash_attn_type = -1  # LLAMA_FLASH_ATTN_TYPE_AUTO
        params.kv_unified = True
        params.swa_full = False  # a text is read once, from its beginning: a window is enough
        params.offload_kqv = params.op_offload = False
        params.no_perf = True
        handle = C.llama_init_from_model(engine.model, params)
        if not handle:
            raise EngineError(f"no context of {cells} cells for embeddings could be made")
        self._context = llama.Context(handle, C.llama_get_memory(handle), 1, facts.chunk, engine.vocabulary.size)
        self._batch = llama.batch_new(facts.chunk)
        self._vocab = engine.vocabulary.size
        if C.llama_pooling_type(handle) != _NONE or C.llama_n_ctx(handle) < cells:
            self.close()
            raise EngineError("the context for embeddings is not the one asked for")
        self._engine = engine

    def read(self, tokens: Sequence[int], position: int) -> NDArray[np.float32]:
        """Decodes a chunk; a view of its vectors, one a token, gone with the next call. Raises EngineError."""
        batch, count = self._batch, len(tokens)
        if not 0 < count <= self._facts.chunk or position + count > self.cells:
            raise llama.BadBatchError(f"{count} tokens at {position} for chunks of {self._facts.chunk}")
        if not all(0 <= token < self._vocab for token in tokens):
            raise llama.BadBatchError("a token that is none")
        for at, token in enumerate(tokens):
            batch.token[at], batch.pos[at] = token, position + at
            batch.n_seq_id[at], batch.seq_id[at][0], batch.logits[at] = 1, 0, 1
        batch.n_tokens = count
        self._engine.lend_threads(self._context)  # their number may have changed
        llama.decode(self._context, batch)
        pointer = C.llama_get_embeddings(self._context.handle)
        if not pointer:
            raise llama.FatalError("no embeddings after a decode")
        size = count * self._facts.dimension
        address = ctypes.addressof(pointer.contents)
        rows: NDArray[np.float32] = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
        return rows.reshape(count, self._facts.dimension)

    def clear(self) -> None:
        """For the next text."""
        C.llama_memory_clear(self._context.memory, False)

    def close(self) -> None:
        C.llama_batch_free(self._batch)
        C.llama_free(self._context.handle)
