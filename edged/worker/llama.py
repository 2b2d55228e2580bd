"""The only importer of llama_cpp: the functions the engine needs, typed, with return codes turned into exceptions.

Tokens are in `vocabulary`, thread pools in `pools`; both go through `C` here. What would abort() inside C is checked
before the call: sequence numbers, batch sizes. Nothing here keeps state but the log callback.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as C  # noqa: N812 - as in "the C side"
from numpy.typing import NDArray

from edged.errors import EngineError
from edged.worker import backends
from edged.worker.plan import State

VERSION = metadata.version("llama-cpp-python")

__all__ = ["C"]  # for vocabulary and pools

Model = Any
SamplerHandle = Any

KV_TYPES = {"f16": C.GGML_TYPE_F16, "q8_0": C.GGML_TYPE_Q8_0, "q4_0": C.GGML_TYPE_Q4_0}
_LOG_WARN = 3  # ggml_log_level: none 0, debug 1, info 2, warn 3, error 4, continue 5
_LOG_ERROR = 4
_LOG_CONTINUE = 5


class NoSlotError(EngineError):
    """llama_decode 1: no room in the KV cache; nothing was decoded."""


class AbortedError(EngineError):
    """llama_decode 2: stopped by the abort callback."""


class BadBatchError(EngineError):
    """llama_decode -1: the batch is malformed."""


class StateError(EngineError):
    """A state that does not fit this context."""


class FatalError(EngineError):
    """llama_decode < -1: the context is in doubt."""


@dataclass(frozen=True, slots=True)
class Context:
    """A context and what has to be known to call it safely."""

    handle: Any
    memory: Any
    sequences: int
    batch: int
    vocab_size: int


# ---- library


class _Log:
    """llama.cpp's log goes to stderr from `warning` up, or all of it. The callback object must stay alive."""

    def __init__(self) -> None:
        self.debug = False
        self.last_error = ""
        self._last = 0
        self.callback = C.llama_log_callback(self._on_log)

    def _on_log(self, level: int, text: bytes | None, _data: object) -> None:
        level = self._last if level == _LOG_CONTINUE else level
        self._last = level
        line = (text or b"").decode("utf-8", "replace").rstrip()
        if line and level == _LOG_ERROR:
            self.last_error = " ".join(line.split())[:300]
        if line and (self.debug or level >= _LOG_WARN):
            sys.stderr.write(f"llama.cpp: {line}\n")
            sys.stderr.flush()


_log = _Log()
C.llama_log_set(_log.callback, None)  # again after the import, which installs its own


def init(*, debug: bool) -> None:
    """Raises EngineError: this build does not fit the processor."""
    _log.debug = debug
    backends.load(C._lib, os.path.join(os.path.dirname(C.__file__), "lib"))  # noqa: SLF001 - the binding's handle
    C.llama_backend_init()


def system_info() -> str:
    return str(C.llama_print_system_info().decode("utf-8", "replace")).strip(" |")


# ---- model


def model_load(path: str, progress: Callable[[float], None]) -> Model:
    """Raises EngineError when llama.cpp refuses the file."""

    failures: list[Exception] = []

    def on_progress(fraction: float, _data: object) -> bool:
        try:
            progress(fraction)
        except Exception as error:  # noqa: BLE001 - it cannot pass through C; False ends the load
            failures.append(error)
        return not failures

    callback = C.llama_progress_callback(on_progress)
    params = C.llama_model_default_params()
    params.n_gpu_layers = 0
    params.progress_callback = callback
    model = C.llama_model_load_from_file(os.fsencode(path), params)
    if failures:
        raise failures[0]
    if not model:
        raise EngineError(f"llama.cpp could not load the model: {_log.last_error or 'no reason given'}")
    return model


def model_description(model: Model) -> str:
    buffer = ctypes.create_string_buffer(256)
    C.llama_model_desc(model, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


def model_template(model: Model) -> str | None:
    text = C.llama_model_chat_template(model, None)
    return text.decode("utf-8", "replace") if text else None


def model_parameters(model: Model) -> int:
    return int(C.llama_model_n_params(model))


def model_train_context(model: Model) -> int:
    return int(C.llama_model_n_ctx_train(model))


def model_memory_kind(model: Model) -> str | None:
    """Why parts of a sequence cannot be removed or copied; None for attention, sliding windows kept whole included."""
    if C.llama_model_is_recurrent(model):
        return "recurrent"
    return "hybrid" if C.llama_model_is_hybrid(model) else None


def model_window(model: Model) -> int:
    """Tokens of the sliding window; 0: none."""
    return max(0, int(C.llama_model_n_swa(model)))


def model_can_generate(model: Model) -> bool:
    other = C.llama_model_has_encoder(model) or C.llama_model_is_diffusion(model)
    return bool(C.llama_model_has_decoder(model)) and not other


# ---- context


def context_new(
    model: Model, *, cells: int, sequences: int, batch: int, outputs: int, threads: int, kv_type: str
) -> Context:
    """Raises EngineError."""
    params = C.llama_context_default_params()
    params.n_ctx = cells
    params.n_batch = params.n_ubatch = batch
    params.n_seq_max = sequences
    params.n_outputs_max = outputs
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = KV_TYPES[kv_type]
    params.flash_attn_type = -1  # LLAMA_FLASH_ATTN_TYPE_AUTO
    params.kv_unified = True
    params.swa_full = True
    params.offload_kqv = params.op_offload = False
    params.no_perf = True
    handle = C.llama_init_from_model(model, params)
    if not handle:
        why = _log.last_error or "no reason given"
        raise EngineError(f"no context of {cells} cells and {sequences} sequences could be made: {why}")
    if C.llama_n_ctx(handle) < cells or C.llama_n_seq_max(handle) < sequences or C.llama_n_batch(handle) < batch:
        raise EngineError("the context is smaller than asked for")
    vocab_size = int(C.llama_vocab_n_tokens(C.llama_model_get_vocab(model)))
    return Context(handle, C.llama_get_memory(handle), sequences, batch, vocab_size)


def batch_new(size: int) -> Any:
    """A llama_batch of `size` tokens, one sequence each; never freed."""
    return C.llama_batch_init(size, 0, 1)


def decode(context: Context, batch: Any) -> None:
    """Raises NoSlotError, AbortedError, BadBatchError, FatalError."""
    code = C.llama_decode(context.handle, batch)
    if code == 0:
        return
    if code == 1:
        raise NoSlotError("no slot in the KV cache")
    if code == 2:
        raise AbortedError("decode was aborted")
    raise BadBatchError("malformed batch") if code == -1 else FatalError(f"llama_decode returned {code}")


def logits(context: Context, row: int) -> NDArray[np.float32]:
    """A view of the logits after batch row `row`; gone with the next decode."""
    pointer = C.llama_get_logits_ith(context.handle, row)
    if not pointer:
        raise FatalError(f"no logits for row {row}")
    address = ctypes.addressof(pointer.contents)
    array: NDArray[np.float32] = np.ctypeslib.as_array((ctypes.c_float * context.vocab_size).from_address(address))
    return array


def _check_seq(context: Context, seq: int) -> None:
    if not 0 <= seq < context.sequences:
        raise BadBatchError(f"sequence {seq} is not one of {context.sequences}")


def seq_remove(context: Context, seq: int) -> None:
    """Empties a sequence."""
    _check_seq(context, seq)
    if not C.llama_memory_seq_rm(context.memory, seq, -1, -1):
        raise FatalError(f"sequence {seq} could not be emptied")


def seq_trim(context: Context, seq: int, length: int) -> None:
    """Keeps positions below `length`. Not for memory that cannot be trimmed (`model_memory_kind`)."""
    _check_seq(context, seq)
    if not C.llama_memory_seq_rm(context.memory, seq, length, -1):
        raise FatalError(f"sequence {seq} could not be cut to {length}")


def seq_share(context: Context, source: int, seq: int, length: int) -> None:
    """`seq`, which is empty, shares the first `length` cells of `source`."""
    _check_seq(context, source)
    _check_seq(context, seq)
    C.llama_memory_seq_cp(context.memory, source, seq, 0, length)


def seq_share_part(context: Context, source: int, seq: int, start: int, stop: int) -> None:
    """`seq` shares the cells start…stop of `source`. Only for attention: with other memory it is silently wrong."""
    _check_seq(context, source)
    _check_seq(context, seq)
    C.llama_memory_seq_cp(context.memory, source, seq, start, stop)


def seq_span(context: Context, seq: int) -> tuple[int, int]:
    """The first and last position in a sequence, (-1, -1) when empty; recurrent memory knows its last only."""
    _check_seq(context, seq)
    first, last = (f(context.memory, seq) for f in (C.llama_memory_seq_pos_min, C.llama_memory_seq_pos_max))
    return int(first), int(last)


def seq_copy_out(context: Context, seq: int) -> ctypes.Array[ctypes.c_uint8]:
    _check_seq(context, seq)
    size = C.llama_state_seq_get_size(context.handle, seq)
    buffer: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * size)()
    if C.llama_state_seq_get_data(context.handle, buffer, size, seq) != size:
        raise FatalError(f"the state of sequence {seq} could not be copied out")
    return buffer


def seq_copy_in(context: Context, seq: int, state: State) -> None:
    """Raises StateError: the state does not fit; what the sequence holds then is in doubt, it must be emptied."""
    _check_seq(context, seq)
    pointer = state if isinstance(state, ctypes.Array) else (ctypes.c_uint8 * len(state)).from_buffer(state)
    if C.llama_state_seq_set_data(context.handle, pointer, len(state), seq) != len(state):
        raise StateError(f"the state of sequence {seq} could not be copied in")


# ---- samplers


def _made(sampler: SamplerHandle) -> SamplerHandle:
    if not sampler:
        raise EngineError("a sampler could not be made")
    return sampler


def chain_new() -> SamplerHandle:
    params = C.llama_sampler_chain_default_params()
    params.no_perf = True
    return _made(C.llama_sampler_chain_init(params))


def chain_add(chain: SamplerHandle, sampler: SamplerHandle) -> None:
    """The chain owns the sampler from here on."""
    C.llama_sampler_chain_add(chain, sampler)


def chain_length(chain: SamplerHandle) -> int:
    return int(C.llama_sampler_chain_n(chain))


def chain_replace_last(chain: SamplerHandle, index: int, sampler: SamplerHandle) -> None:
    C.llama_sampler_free(_made(C.llama_sampler_chain_remove(chain, index)))
    C.llama_sampler_chain_add(chain, sampler)


def sampler_greedy() -> SamplerHandle:
    return _made(C.llama_sampler_init_greedy())


def sampler_dist(seed: int) -> SamplerHandle:
    return _made(C.llama_sampler_init_dist(seed))


def sampler_top_k(k: int) -> SamplerHandle:
    return _made(C.llama_sampler_init_top_k(k))


def sampler_top_p(p: float) -> SamplerHandle:
    return _made(C.llama_sampler_init_top_p(p, 1))


def sampler_min_p(p: float) -> SamplerHandle:
    return _made(C.llama_sampler_init_min_p(p, 1))


def sampler_temp(temperature: float) -> SamplerHandle:
    return _made(C.llama_sampler_init_temp(temperature))


def sampler_penalties(vocab_size: int, window: int, repeat: float, frequency: float, presence: float) -> SamplerHandle:
    return _made(C.llama_sampler_init_penalties(vocab_size, window, repeat, frequency, presence))


def sampler_accept(sampler: SamplerHandle, token: int) -> None:
    C.llama_sampler_accept(sampler, token)


def sampler_sample(chain: SamplerHandle, context: Context, row: int) -> int:
    """Samples after batch row `row` and accepts the token."""
    return int(C.llama_sampler_sample(chain, context.handle, row))


_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
assert _CANDIDATE.itemsize == ctypes.sizeof(C.llama_token_data)


def sampler_apply(chain: SamplerHandle, ids: NDArray[np.int64], logits: NDArray[np.float32]) -> int:
    """What the chain selects among these tokens; not accepted."""
    candidates = np.zeros(ids.size, _CANDIDATE)
    candidates["id"], candidates["logit"] = ids, logits
    array: Any = C.llama_token_data_array()
    array.data = ctypes.cast(candidates.ctypes.data, ctypes.POINTER(C.llama_token_data))
    array.size, array.selected, array.sorted = ids.size, -1, False
    C.llama_sampler_apply(chain, ctypes.byref(array))
    if not 0 <= array.selected < array.size:
        raise FatalError("the sampler selected nothing")
    return int(array.data[array.selected].id)


def sampler_free(sampler: SamplerHandle) -> None:
    C.llama_sampler_free(sampler)
