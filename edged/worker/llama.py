"""The only importer of llama_cpp: the functions the engine needs, typed, with return codes turned into exceptions.

What llama-cpp-python 0.3.36 leaves unbound (thread pools) is declared here. What would abort() inside C is checked
before the call: sequence numbers, row numbers, batch sizes. Nothing here keeps state but the log callback.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as C  # noqa: N812 - as in "the C side"
from numpy.typing import NDArray

from edged.errors import EngineError


VERSION = metadata.version("llama-cpp-python")

Model = Any
Vocab = Any
SamplerHandle = Any

KV_TYPES = {"f16": C.GGML_TYPE_F16, "q8_0": C.GGML_TYPE_Q8_0, "q4_0": C.GGML_TYPE_Q4_0}
_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED = 1 << 0, 1 << 3, 1 << 4
_MAX_THREADS = 512
_LOG_WARN = 3  # ggml_log_level: none 0, debug 1, info 2, warn 3, error 4, continue 5
_LOG_CONTINUE = 5


class NoSlotError(EngineError):
    """llama_decode 1: no room in the KV cache; nothing was decoded."""


class AbortedError(EngineError):
    """llama_decode 2: stopped by the abort callback."""


class BadBatchError(EngineError):
    """llama_decode -1: the batch is malformed."""


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


# ---- thread pools (declared in ggml.h and llama.h, not bound by llama-cpp-python 0.3.36)


class _PoolParams(ctypes.Structure):
    _fields_ = [  # noqa: RUF012 - ctypes reads it
        ("cpumask", ctypes.c_bool * _MAX_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    ]


_POOL_PARAMS_SIZE = 528
"""sizeof(struct ggml_threadpool_params) at the vendored version; another size is another layout."""


def _pool_functions() -> tuple[Any, Any, Any, Any] | None:
    lib: Any = C._lib  # noqa: SLF001 - the binding's handle; dlsym walks its dependencies
    try:
        init, new = lib.ggml_threadpool_params_init, lib.ggml_threadpool_new
        free, attach = lib.ggml_threadpool_free, lib.llama_attach_threadpool
    except AttributeError:
        return None
    if ctypes.sizeof(_PoolParams) != _POOL_PARAMS_SIZE:
        return None
    init.argtypes, init.restype = [ctypes.POINTER(_PoolParams), ctypes.c_int], None
    new.argtypes, new.restype = [ctypes.POINTER(_PoolParams)], ctypes.c_void_p
    free.argtypes, free.restype = [ctypes.c_void_p], None
    attach.argtypes, attach.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p], None
    return init, new, free, attach


_POOL = _pool_functions()


def pool_new(cores: Sequence[int]) -> int | None:
    """A pool with one thread per core, each pinned to its own; None when this build has no pools to offer."""
    if _POOL is None or not cores or max(cores) >= _MAX_THREADS:
        return None
    init, new, _, _ = _POOL
    params = _PoolParams()
    init(ctypes.byref(params), len(cores))
    if params.n_threads != len(cores):
        return None  # the layout is not the one declared above
    for core in cores:
        params.cpumask[core] = True
    params.strict_cpu = True
    pool: int | None = new(ctypes.byref(params))
    return pool


def pool_attach(context: Context, pool: int, threads: int) -> None:
    """The pool's size must be `threads` exactly: a smaller one is a SIGSEGV."""
    assert _POOL is not None
    C.llama_set_n_threads(context.handle, threads, threads)
    _POOL[3](context.handle, pool, pool)


def threads_set(context: Context, threads: int) -> None:
    C.llama_set_n_threads(context.handle, threads, threads)


# ---- library


def _write_log(level: int, text: bytes | None, _data: object) -> None:
    line = (text or b"").decode("utf-8", "replace").rstrip()
    if line:
        print(f"llama.cpp: {line}", file=sys.stderr, flush=True)


class _Log:
    """llama.cpp's log goes to stderr from `warning` up, or all of it. The callback object must stay alive."""

    def __init__(self) -> None:
        self.debug = False
        self._last = 0
        self.callback = C.llama_log_callback(self._on_log)

    def _on_log(self, level: int, text: bytes | None, data: object) -> None:
        level = self._last if level == _LOG_CONTINUE else level
        self._last = level
        if self.debug or level >= _LOG_WARN:
            _write_log(level, text, data)


_log = _Log()
C.llama_log_set(_log.callback, None)  # again after the import, which installs its own


def init(*, debug: bool) -> None:
    _log.debug = debug
    C.llama_backend_init()


def system_info() -> str:
    return C.llama_print_system_info().decode("utf-8", "replace").strip().rstrip("|").strip()


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
        raise EngineError("llama.cpp could not load the model")
    return model


def model_description(model: Model) -> str:
    buffer = ctypes.create_string_buffer(256)
    C.llama_model_desc(model, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


def model_meta(model: Model, key: str) -> str | None:
    buffer = ctypes.create_string_buffer(1024)
    size = C.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if size >= 0 else None


def model_template(model: Model) -> str | None:
    text = C.llama_model_chat_template(model, None)
    return text.decode("utf-8", "replace") if text else None


def model_parameters(model: Model) -> int:
    return int(C.llama_model_n_params(model))


def model_size(model: Model) -> int:
    return int(C.llama_model_size(model))


def model_train_context(model: Model) -> int:
    return int(C.llama_model_n_ctx_train(model))


def model_memory_kind(model: Model) -> str | None:
    """Why parts of a sequence cannot be removed or copied; None for plain attention."""
    if C.llama_model_is_recurrent(model):
        return "recurrent"
    if C.llama_model_is_hybrid(model):
        return "hybrid"
    return "sliding-window" if C.llama_model_n_swa(model) > 0 else None


def model_can_generate(model: Model) -> bool:
    return bool(C.llama_model_has_decoder(model)) and not C.llama_model_has_encoder(model)


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
    params.offload_kqv = params.op_offload = False
    params.no_perf = True
    handle = C.llama_init_from_model(model, params)
    if not handle:
        raise EngineError(f"no context of {cells} cells and {sequences} sequences could be made")
    if C.llama_n_ctx(handle) < cells or C.llama_n_seq_max(handle) < sequences or C.llama_n_batch(handle) < batch:
        raise EngineError("the context is smaller than asked for")
    vocab_size = vocab_count(model_vocab(model))
    return Context(handle, C.llama_get_memory(handle), sequences, batch, vocab_size)


def model_vocab(model: Model) -> Vocab:
    return C.llama_model_get_vocab(model)


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
    return np.frombuffer((ctypes.c_float * context.vocab_size).from_address(address), dtype=np.float32)


def _check_seq(context: Context, seq: int) -> None:
    if not 0 <= seq < context.sequences:
        raise BadBatchError(f"sequence {seq} is not one of {context.sequences}")


def seq_remove(context: Context, seq: int) -> None:
    """Empties a sequence."""
    _check_seq(context, seq)
    if not C.llama_memory_seq_rm(context.memory, seq, -1, -1):
        raise FatalError(f"sequence {seq} could not be emptied")


def seq_last(context: Context, seq: int) -> int:
    """The last position in a sequence, -1 when empty."""
    _check_seq(context, seq)
    return int(C.llama_memory_seq_pos_max(context.memory, seq))


def seq_copy_out(context: Context, seq: int) -> ctypes.Array[ctypes.c_uint8]:
    _check_seq(context, seq)
    size = C.llama_state_seq_get_size(context.handle, seq)
    buffer = (ctypes.c_uint8 * size)()
    if C.llama_state_seq_get_data(context.handle, buffer, size, seq) != size:
        raise FatalError(f"the state of sequence {seq} could not be copied out")
    return buffer


def seq_copy_in(context: Context, seq: int, state: ctypes.Array[ctypes.c_uint8]) -> None:
    _check_seq(context, seq)
    if C.llama_state_seq_set_data(context.handle, state, len(state), seq) == 0:
        raise FatalError(f"the state of sequence {seq} could not be copied in")


# ---- vocabulary


def vocab_count(vocab: Vocab) -> int:
    return int(C.llama_vocab_n_tokens(vocab))


def vocab_bos(vocab: Vocab) -> int:
    """-1: the model has none."""
    return int(C.llama_vocab_bos(vocab))


def vocab_eos(vocab: Vocab) -> int:
    return int(C.llama_vocab_eos(vocab))


def vocab_add_bos(vocab: Vocab) -> bool:
    return bool(C.llama_vocab_get_add_bos(vocab))


def vocab_text(vocab: Vocab, token: int) -> str:
    if token < 0:
        return ""
    text = C.llama_vocab_get_text(vocab, token)
    return text.decode("utf-8", "replace") if text else ""


def vocab_is_eog(vocab: Vocab, token: int) -> bool:
    return bool(C.llama_vocab_is_eog(vocab, token))


def vocab_specials(vocab: Vocab) -> list[int]:
    """Tokens that steer: control, unknown, end of generation, and user-defined ones of the form <|…|>."""
    out = []
    for token in range(vocab_count(vocab)):
        attr = C.llama_vocab_get_attr(vocab, token)
        if attr & (_ATTR_CONTROL | _ATTR_UNKNOWN) or C.llama_vocab_is_eog(vocab, token):
            out.append(token)
        elif attr & _ATTR_USER_DEFINED:
            text = vocab_text(vocab, token)
            if text.startswith("<|") and text.endswith("|>"):
                out.append(token)
    return out


def tokenize(vocab: Vocab, text: str, *, special: bool) -> list[int]:
    """Token ids without BOS; `special`: texts of special tokens become those tokens."""
    data = text.encode()
    room = len(data) + 16
    buffer = (C.llama_token * room)()
    count = C.llama_tokenize(vocab, data, len(data), buffer, room, False, special)
    if count < 0:
        raise EngineError(f"tokenizing {len(data)} bytes returned {count}")
    return list(buffer[:count])


def piece(vocab: Vocab, token: int) -> bytes:
    """The bytes of a token; none for control tokens."""
    buffer = ctypes.create_string_buffer(64)
    size = C.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, False)
    if size < 0:
        buffer = ctypes.create_string_buffer(-size)
        size = C.llama_token_to_piece(vocab, token, buffer, -size, 0, False)
    return buffer.raw[: max(size, 0)]


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


def sampler_free(sampler: SamplerHandle) -> None:
    C.llama_sampler_free(sampler)
