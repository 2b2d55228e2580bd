"""The thread that owns the files of checkpoints, and the loop's side of it, which never waits for a file.

* Jobs go in by one queue, in order; what was done comes by `take`, an eventfd (one for all threads) wakes the loop.
* States that wait to be written are copies in memory: at most PENDING bytes of them or one; `room` says no meanwhile.
* All files together keep to the budget. What has no room is not copied out: the pieces that are there stay of use.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from edged.messages import CheckpointSettings
from edged.worker.checkdir import CheckDir, is_name
from edged.worker.checkformat import Piece
from edged.worker.plan import State
from edged.worker.stateformat import Origin

PENDING: Final = 8 << 20
OVERHEAD: Final = 4096
"""Bytes of a record beside its state, and more."""
OPEN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Put:
    name: str
    prompt: Sequence[int]
    start: int
    tokens: list[int]
    state: State


@dataclass(frozen=True, slots=True)
class Recall:
    rid: int
    name: str
    prompt: Sequence[int]
    known: Sequence[int]


@dataclass(frozen=True, slots=True)
class Remove:
    """One file, or all (None)."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Kept:
    """The file of `name` goes up to token `stop` now; up to `wanted` it should."""

    name: str
    stop: int
    wanted: int
    size: int
    bytes: int  # of the state that was written


@dataclass(frozen=True, slots=True)
class Recalled:
    rid: int
    pieces: tuple[Piece, ...]


class Checkpoints:
    """Make it before the decode thread is pinned: a thread inherits the cores of the one that starts it."""

    def __init__(
        self, settings: CheckpointSettings, origin: Origin, cpus: Iterable[int], wake: int, *, whole: bool
    ) -> None:
        self.whole = whole
        self._budget = settings.bytes
        self._cpus, self._wake = set(cpus), wake
        self._jobs: queue.SimpleQueue[Put | Recall | Remove | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Kept | Recalled] = queue.SimpleQueue()
        self._pending = 0
        self._open: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._remove = False
        self.problem = ""
        opened = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(settings, origin, opened), name="carry", daemon=True)
        self._thread.start()
        opened.wait(OPEN_S)

    # ---- the loop's side

    def room(self, size: int) -> bool:
        """For a state of so many bytes, about."""
        if self._pending and self._pending + size > PENDING:
            return False
        return sum(self._sizes.values()) + self._pending + size + OVERHEAD <= self._budget

    def put(self, name: str, prompt: Sequence[int], start: int, tokens: list[int], state: State) -> None:
        """`state` must not change any more. `take` brings a `Kept`."""
        self._pending += len(state)
        self._open.add(name)
        self._jobs.put(Put(name, prompt, start, tokens, state))

    def recall(self, rid: int, name: str, prompt: Sequence[int], known: Sequence[int]) -> None:
        """`take` brings a `Recalled`."""
        self._jobs.put(Recall(rid, name, prompt, known))

    def remove(self, name: str) -> None:
        self._open.discard(name)
        self._sizes.pop(name, None)
        self._jobs.put(Remove(name))

    def clear(self) -> None:
        self._open.clear()
        self._sizes.clear()
        self._jobs.put(Remove(None))

    def take(self, timeout: float = 0.0) -> list[Kept | Recalled]:
        """What is done by now; waits for a first one at most so long."""
        out: list[Kept | Recalled] = []
        with contextlib.suppress(queue.Empty):
            while timeout > 0 or not self._done.empty():
                out.append(done := self._done.get(timeout=timeout or None))
                timeout = 0.0
                if isinstance(done, Kept):
                    self._pending -= done.bytes
                    if done.name in self._open:
                        self._sizes[done.name] = done.size
        return out

    @property
    def waiting(self) -> bool:
        """Something is to be written."""
        return self._pending > 0

    def close(self, *, remove: bool, timeout: float) -> None:
        """Waits for what is to be written, at most so long; with `remove` the files go."""
        self._remove = remove
        self._jobs.put(None)
        self._thread.join(timeout)

    # ---- the thread's side

    def _run(self, settings: CheckpointSettings, origin: Origin, opened: threading.Event) -> None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self._cpus)
        files = CheckDir(settings.dir, origin, whole=self.whole)
        self.problem = files.problem
        self._sizes = {} if files.problem else files.tidy(name for name in settings.live if is_name(name))
        opened.set()
        while (job := self._jobs.get()) is not None:
            done = self._do(files, job)
            del job  # a state is large
            if done is not None:
                self._done.put(done)
                os.eventfd_write(self._wake, 1)
            del done
        if self._remove and not files.problem:
            files.clear()
            files.remove_empty()

    def _do(self, files: CheckDir, job: Put | Recall | Remove) -> Kept | Recalled | None:
        match job:
            case Put(name=name, start=start, tokens=tokens):
                wanted, (stop, size) = start + len(tokens), (0, 0)
                with contextlib.suppress(Exception):  # the thread has to live on; the file is then worth nothing
                    stop, size = self._put(files, job)
                return Kept(name, stop, wanted, size, len(job.state))
            case Recall(rid=rid, name=name, prompt=prompt, known=known):
                pieces: tuple[Piece, ...] = ()
                with contextlib.suppress(Exception):
                    pieces = () if files.problem else files.recall(name, prompt, known)
                return Recalled(rid, pieces)
            case Remove(name=None):
                files.clear()
            case Remove(name=str(name)):
                files.remove(name)
        return None

    def _put(self, files: CheckDir, job: Put) -> tuple[int, int]:
        if files.problem:
            return 0, 0
        state = memoryview(job.state).cast("B")
        if self.whole:
            return files.replace(job.name, job.prompt, job.tokens, state)
        return files.append(job.name, job.prompt, job.start, job.tokens, state)
