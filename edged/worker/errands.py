"""What a disk is slow at, done beside the decode loop by one thread, in order.

An errand returns something; `then` is called with it by `settle`, that is in the caller's thread: so no lock is needed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

_Task = tuple[Callable[[], Any], Callable[[Any], None]]


class Errands:
    """Make it before the decode thread is pinned: a thread inherits the cores of the one that starts it."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="states", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            work, then = task
            try:
                result = work()
            except Exception:  # noqa: BLE001 - the thread has to live on; nobody waits for ever
                result = None
            self._done.put((then, result))

    def submit(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """`work` touches nothing that the caller's thread changes; what it raises comes as None."""
        self._open += 1
        self._tasks.put((work, then))

    def settle(self, timeout: float = 0.0) -> bool:
        """Takes what is done; waits for one more at most so long. False: nothing came, or nothing is open."""
        settled = False
        while self._open:
            try:
                then, result = self._done.get(block=timeout > 0 and not settled, timeout=timeout or None)
            except queue.Empty:
                break
            self._open -= 1
            settled = True
            then(result)
        return settled

    @property
    def open(self) -> int:
        return self._open

    def close(self, timeout: float) -> None:
        self._tasks.put(None)
        self._thread.join(timeout)
