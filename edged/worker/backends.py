"""llama.cpp's CPU code, in builds that have it as libraries of its own, one per kind of processor (GGML_BACKEND_DL).

In such a build nothing computes before the fitting one is loaded: each says how well it suits this processor, the best
is kept (docs/adr/0024-one-wheel.md). In any other build the code is part of the library, and `load` does nothing.
Functions are those of ggml-backend.h, reached through the binding's handle, whose dependencies dlsym walks.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any, Final

from edged.errors import EngineError

_FILE: Final = re.compile(r"libggml-cpu-(?P<variant>[^/]+)\.so")


def separate(directory: str) -> bool:
    """Whether this build's CPU code lies in libraries of its own."""
    return any(_FILE.fullmatch(name) for name in os.listdir(directory))


def load(lib: ctypes.CDLL, directory: str) -> None:
    """Before llama_backend_init. Raises EngineError: nothing in `directory` suits this processor."""
    if not separate(directory):
        return
    lib.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    lib.ggml_backend_load_all_from_path.restype = None
    lib.ggml_backend_load_all_from_path(os.fsencode(directory))
    if _cpu(lib) is None:
        raise EngineError(_refused(directory))


def variant() -> str | None:
    """Of the library that is loaded: `armv8.2_2`, `haswell`; None: this build has no variants."""
    found = _loaded()
    return found["variant"] if found else None


def function(lib: ctypes.CDLL, name: str) -> Any:
    """A function that lives in the CPU code; None: it is not offered there. After `load`."""
    if variant() is None:
        return getattr(lib, name, None)
    lib.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
    address = lib.ggml_backend_reg_get_proc_address(_cpu(lib), name.encode())
    return ctypes.CFUNCTYPE(None)(address) if address else None


def _cpu(lib: ctypes.CDLL) -> int | None:
    lib.ggml_backend_reg_by_name.argtypes = [ctypes.c_char_p]
    lib.ggml_backend_reg_by_name.restype = ctypes.c_void_p
    found: int | None = lib.ggml_backend_reg_by_name(b"CPU")
    return found


def _loaded() -> re.Match[str] | None:
    """The file's name, as the kernel has it."""
    return _FILE.search(Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace"))


def _refused(directory: str) -> str:
    """Why nothing was loaded: a library that it needs is missing, or the processor."""
    for name in sorted(os.listdir(directory)):
        if _FILE.fullmatch(name):
            try:
                ctypes.CDLL(os.path.join(directory, name))
            except OSError as error:
                return f"llama.cpp's CPU code cannot be loaded: {error}"
    return "this build of llama.cpp does not fit the processor: none of its variants (edgectl doctor says more)"
