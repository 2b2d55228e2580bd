"""Which lines of a target's modules its inputs reach: functions only, since imports reach the rest."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .target import SLACK, FailureError, Target, attempt, yardstick

ROOT = Path(__file__).parents[2]


def reached(target: Target, inputs: Iterable[bytes], seconds: float) -> dict[str, tuple[set[int], set[int]]]:
    """By module: lines reached and all lines. Some inputs are left out when the time is up."""
    hit: dict[str, set[int]] = {str(ROOT / module): set() for module in target.modules}

    def trace(frame: FrameType, event: str, _value: Any) -> Any:
        lines = hit.get(frame.f_code.co_filename)
        if lines is None:
            return None
        if event == "line":
            lines.add(frame.f_lineno)
        return trace

    yardstick()  # before everything takes longer
    end = time.monotonic() + seconds
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        for data in inputs:
            with contextlib.suppress(FailureError):  # too slow, when it is traced
                attempt(target, data, SLACK)
            if time.monotonic() > end:
                break
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    every = {module: _lines(ROOT / module) for module in target.modules}
    return {module: (hit[str(ROOT / module)] & every[module], every[module]) for module in target.modules}


def _lines(path: Path) -> set[int]:
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    return {
        line for inner in _functions(code) for _, _, line in inner.co_lines() if line and line != inner.co_firstlineno
    }


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            yield from _functions(constant)
