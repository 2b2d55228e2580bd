"""A thread for the kernel's files: a read or write that hangs in the kernel costs this thread, and not its caller.

A file of /proc or /sys may answer never (a driver, a mount that is gone), and no flag of `open` helps against that. So
jobs run here, in order. Who wants an answer waits for it, within a bound; while a job has outlasted somebody's bound,
nobody waits any more, until it has ended after all.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

T = TypeVar("T")

WAITING: Final = 16
"""Jobs. More than that are dropped while one hangs: a look that is missed is made up for by the next."""


class Aside:
    """`name` of the thread, which ends with the process or by `close`."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._hangs = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, job: Callable[[], object]) -> None:
        """Without an answer."""
        if self._jobs.qsize() < WAITING:
            self._jobs.put(lambda: (job(), None)[1])

    def ask(self, job: Callable[[], T], within_s: float, otherwise: T) -> T:
        """What it gives back; `otherwise` when it raises, or does not answer in time."""
        if self._hangs:
            return otherwise
        answers: queue.SimpleQueue[T] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put(job())
            except Exception:  # noqa: BLE001 - whatever it was: there is no answer
                answers.put(otherwise)

        self._jobs.put(answer)
        try:
            return answers.get(timeout=within_s)
        except queue.Empty:
            self._hangs = True
            self._jobs.put(lambda: None)  # the job may have ended just now: this one says so
            return otherwise

    def close(self) -> None:
        """When what waits is done."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            with contextlib.suppress(Exception):  # the thread goes on
                job()
            self._hangs = False


def once(job: Callable[[], T], within_s: float, otherwise: T) -> T:
    """For a single question."""
    aside = Aside("aside")
    try:
        return aside.ask(job, within_s, otherwise)
    finally:
        aside.close()


def together(jobs: Mapping[str, Callable[[], T]], within_s: float) -> dict[str, T]:
    """Many at once, a thread each: the answers that came in time. Jobs must not raise."""
    answers: queue.SimpleQueue[tuple[str, T]] = queue.SimpleQueue()

    def answer(name: str, job: Callable[[], T]) -> None:
        answers.put((name, job()))

    for name, job in jobs.items():
        aside = Aside(name)
        aside.do(functools.partial(answer, name, job))
        aside.close()
    until = time.monotonic() + within_s
    found: dict[str, T] = {}
    with contextlib.suppress(queue.Empty):
        while len(found) < len(jobs):
            name, told = answers.get(timeout=max(0.0, until - time.monotonic()))
            found[name] = told
    return found
