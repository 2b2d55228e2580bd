"""llama.cpp's thread pools, which llama-cpp-python 0.3.36 does not bind: declared in ggml.h, ggml-cpu.h and llama.h.

A layout that is not the one declared here is noticed (size, and what the library's own initializer writes), and then
there are no pools: the caller falls back to pinning the whole process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from edged.worker import backends, llama

_MAX_THREADS = 512  # GGML_MAX_N_THREADS


class _PoolParams(ctypes.Structure):
    _fields_ = [
        ("cpumask", ctypes.c_bool * _MAX_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    ]


_POOL_PARAMS_SIZE = 528
"""sizeof(struct ggml_threadpool_params) at the vendored version; another size is another layout."""


@functools.cache
def _pool_functions() -> tuple[Any, Any, Any] | None:
    """After `llama.init`: before it the CPU code may not be loaded."""
    lib: Any = llama.C._lib  # noqa: SLF001 - the binding's handle; dlsym walks its dependencies
    make = backends.function(lib, "ggml_threadpool_new")
    try:
        init, attach_to = lib.ggml_threadpool_params_init, lib.llama_attach_threadpool
    except AttributeError:
        return None
    if make is None or ctypes.sizeof(_PoolParams) != _POOL_PARAMS_SIZE:
        return None
    init.argtypes, init.restype = [ctypes.POINTER(_PoolParams), ctypes.c_int], None
    make.argtypes, make.restype = [ctypes.POINTER(_PoolParams)], ctypes.c_void_p
    attach_to.argtypes, attach_to.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p], None
    return init, make, attach_to


def new(cores: Sequence[int]) -> int | None:
    """A pool with one thread per core, each pinned to its own; None when this build has no pools to offer."""
    functions = _pool_functions()
    if functions is None or not cores or max(cores) >= _MAX_THREADS:
        return None
    init, make, _ = functions
    params = _PoolParams()
    init(ctypes.byref(params), len(cores))
    if params.n_threads != len(cores):
        return None  # the layout is not the one declared above
    for core in cores:
        params.cpumask[core] = True
    params.strict_cpu = True
    pool: int | None = make(ctypes.byref(params))
    return pool


def attach(context: llama.Context, pool: int, threads: int) -> None:
    """The pool must have `threads` threads or more: a smaller one is a SIGSEGV."""
    functions = _pool_functions()
    assert functions is not None
    llama.C.llama_set_n_threads(context.handle, threads, threads)
    functions[2](context.handle, pool, pool)


def set_count(context: llama.Context, threads: int) -> None:
    llama.C.llama_set_n_threads(context.handle, threads, threads)
