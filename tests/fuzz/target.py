"""What a target is, and how one input is tried on it.

A target takes bytes and runs a parser of edged on them. It may return (a word about what came out), or raise one of
the errors that it allows: typed ones, whose text is one printable line of bounded length. All else is a failure:

* any other exception, and with it every invariant that the target asserts;
* more than LOOPS times the CPU time of a fixed piece of Python (so a slow board is no failure, nor is a busy one), and
  SLACK times that where every allocation or every line is watched;
* memory: more than RESIDENT bytes of growth in one go, or, when an input is measured (`measured`), a peak of PEAK.

The *outcome* tells inputs apart without looking into the parser: the type and text of the error without what is the
input's own (numbers, quoted words). An input with a new outcome is worth mutating further.
"""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

LOOPS = 300
SLACK = 5
RESIDENT = 64 << 20
PEAK = 32 << 20
MESSAGE = 800
"""Characters of an error: two quoted pieces of the input, of 80 to 400 each, and a path."""

Mutator = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Target:
    """`modules`: those whose lines the report counts. `mutators`: that know the format, beside the one for all bytes.
    `corpus`: the directory of its seeds, if it shares another's."""

    name: str
    run: Callable[[bytes], str]
    allowed: tuple[type[Exception], ...]
    modules: tuple[str, ...]
    mutators: tuple[Mutator, ...] = ()
    words: tuple[bytes, ...] = ()
    most: int = 4096
    corpus: str = ""

    @property
    def seeds(self) -> str:
        return self.corpus or self.name


class FailureError(Exception):
    """`kind` is the same for the same defect: exception and place, not the words of it."""

    def __init__(self, kind: str, story: str) -> None:
        super().__init__(f"{kind}\n{story}")
        self.kind, self.story = kind, story


class TooSlowError(BaseException):
    """Not an Exception: what catches those must not catch this."""


def attempt(target: Target, data: bytes, slack: float = 1) -> str:
    """The outcome. Raises FailureError."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _within(slack * LOOPS * yardstick()):
            outcome = _outcome(target, data)
    except TooSlowError as slow:
        raise FailureError("too slow", _story(slow)) from None
    except Exception as error:  # noqa: BLE001 - whatever is not allowed
        what = skeleton(str(error).partition(":")[0])[:60] if isinstance(error, AssertionError) else ""
        raise FailureError(f"{type(error).__name__} in {_place(error)} {what}".rstrip(), _story(error)) from None
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > RESIDENT:
        raise FailureError("too much memory", f"{grown >> 20} MB for {len(data)} bytes")
    return outcome


def measured(target: Target, data: bytes) -> str:
    """As `attempt`, with every allocation counted: slower by far, and exact."""
    yardstick()  # before everything takes longer
    tracemalloc.start()
    try:
        outcome = attempt(target, data, SLACK)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > PEAK:
        raise FailureError("too much memory", f"{peak >> 20} MB for {len(data)} bytes")
    return outcome


def _outcome(target: Target, data: bytes) -> str:
    try:
        return f"ok {target.run(data)}"
    except target.allowed as error:
        check_message(str(error))
        return f"{type(error).__name__} {skeleton(str(error))}"


def check_message(text: str) -> None:
    """It goes to a terminal, a log, a client: nothing in it may move a cursor or flood them."""
    assert len(text) <= MESSAGE, f"a long error: {len(text)} characters, {text[:100]!r}…"
    assert text.isprintable(), f"an error that is no printable line: {text[:200]!r}"


_OWN = re.compile(r"""`[^`]*`|'[^']*'|"[^"]*"|\d+|/\S+|found .*""")


def skeleton(text: str) -> str:
    return _OWN.sub("_", text)[:200]


@cache
def yardstick() -> float:
    """CPU seconds of a loop that takes some 10 ms where this was written: the best of three."""

    def once() -> float:
        begun, total = time.process_time(), 0
        for number in range(200_000):
            total += number & 7
        return time.process_time() - begun

    return max(0.001, min(once() for _ in range(3)))


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """CPU time of this process; only the main thread can be stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: Any) -> None:
        raise TooSlowError(f"more than {seconds:.2f} s")

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def _place(error: BaseException) -> str:
    """The innermost function of edged, or else of the target."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/edged/" in frame.filename] or frames
    return f"{ours[-1].filename.rpartition('/')[2]}:{ours[-1].name}"


def _story(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3000:]
