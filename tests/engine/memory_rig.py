"""A context made as the worker makes it, and the memory functions of llama.cpp, for one sequence at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edged.worker import llama
from edged.worker.llama import C

BATCH, CHUNK = 64, 32


class Memory:
    def __init__(self, path: Path, *, cells: int = 512, sequences: int = 4, kv_type: str = "f16") -> None:
        llama.init(debug=False)
        self.model = llama.model_load(str(path), lambda _fraction: None)
        self.context = llama.context_new(
            self.model, cells=cells, sequences=sequences, batch=BATCH, outputs=sequences, threads=1, kv_type=kv_type
        )
        self._sequences = sequences
        self._batch = llama.batch_new(BATCH)

    def close(self) -> None:
        C.llama_batch_free(self._batch)
        C.llama_free(self.context.handle)
        C.llama_model_free(self.model)

    @property
    def window(self) -> int:
        return int(C.llama_model_n_swa(self.model))

    def read(self, seq: int, position: int, tokens: Sequence[int]) -> np.ndarray:
        """Reads tokens in the worker's way, chunk by chunk; the logits after the last one."""
        for begin in range(0, len(tokens), CHUNK):
            chunk = tokens[begin : begin + CHUNK]
            rows = self._batch
            rows.n_tokens = len(chunk)
            for i, token in enumerate(chunk):
                rows.token[i], rows.pos[i], rows.logits[i] = token, position + begin + i, i == len(chunk) - 1
                rows.n_seq_id[i], rows.seq_id[i][0] = 1, seq
            llama.decode(self.context, rows)
        return llama.logits(self.context, len(chunk) - 1).copy()

    def carry_on(self, seq: int, position: int, token: int, steps: int = 12) -> tuple[list[int], np.ndarray]:
        """Greedy from `token` at `position` on: the tokens, and the logits after the last one."""
        written = []
        for step in range(steps):
            logits = self.read(seq, position + step, [token])
            token = int(logits.argmax())
            written.append(token)
        return written, logits

    def remove(self, seq: int, begin: int = -1, end: int = -1) -> bool:
        return bool(C.llama_memory_seq_rm(self.context.memory, seq, begin, end))

    def clear(self) -> None:
        for seq in range(self._sequences):
            assert self.remove(seq)

    def copy(self, source: int, target: int, begin: int = -1, end: int = -1) -> None:
        C.llama_memory_seq_cp(self.context.memory, source, target, begin, end)

    def span(self, seq: int) -> tuple[int, int]:
        memory = self.context.memory
        return C.llama_memory_seq_pos_min(memory, seq), C.llama_memory_seq_pos_max(memory, seq)

    def copy_out(self, seq: int, flags: int = 0) -> bytes:
        size = C.llama_state_seq_get_size_ext(self.context.handle, seq, flags)
        buffer = (ctypes.c_uint8 * size)()
        assert C.llama_state_seq_get_data_ext(self.context.handle, buffer, size, seq, flags) == size
        return bytes(buffer)

    def copy_in(self, seq: int, state: bytes, flags: int = 0) -> int:
        """The number of bytes that were read; 0: refused."""
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        return int(C.llama_state_seq_set_data_ext(self.context.handle, buffer, len(state), seq, flags))
