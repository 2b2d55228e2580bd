"""The snapshots, beside the decode loop: a thread owns the files, the loop has an index and never waits for a disk.

* `put` and `fetch` are jobs in one queue: what was put before can be fetched after. A snapshot is in the index from the
  moment it was put; when its job is done, the index is what the files say.
* Puts that wait hold whole states in memory: with as many bytes of them as the RAM tier may have, more are dropped.
* What was fetched comes by `take`; an eventfd (the prepare thread's, one for all) wakes the loop.
* `save` moves to the disk what may go there, until a deadline.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from edged.messages import CacheSettings
from edged.worker.plan import State
from edged.worker.residency import Remembered
from edged.worker.statefiles import StateStore
from edged.worker.stateformat import Origin

OPEN_S: Final = 5.0
"""What reading the directories may take; a disk that is slower is heard of later."""


@dataclass(frozen=True, slots=True)
class Put:
    number: int
    kept: Remembered
    state: State
    session: bool
    floor: int


@dataclass(frozen=True, slots=True)
class Get:
    """`then`: whom it is for."""

    kept: Remembered
    then: int


@dataclass(frozen=True, slots=True)
class Move:
    deadline: float


@dataclass(frozen=True, slots=True)
class Drop:
    scope: str


@dataclass(frozen=True, slots=True)
class Shed:
    """What lies in RAM goes."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """`state` is None: it is gone, or was damaged."""

    rid: int
    state: State | None


@dataclass(frozen=True, slots=True)
class Moved:
    files: int
    bytes: int
    left: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Of both tiers, now and since the start."""

    ram_files: int = 0
    ram_bytes: int = 0
    disk_files: int = 0
    disk_bytes: int = 0
    restored: int = 0
    written_bytes: int = 0
    set_aside_files: int = 0


@dataclass(frozen=True, slots=True)
class _Index:
    """What the files hold after all puts up to `number`."""

    number: int
    kept: tuple[Remembered, ...]
    totals: Totals


class Archive:
    """Make it before the decode thread is pinned: a thread inherits the cores of the one that starts it."""

    def __init__(self, settings: CacheSettings, origin: Origin, cpus: Iterable[int], wake: int) -> None:
        self._settings, self._origin = settings, origin
        self._cpus, self._wake = set(cpus), wake
        self._jobs: queue.SimpleQueue[Put | Get | Move | Drop | Shed | None] = queue.SimpleQueue()
        self._done: deque[Fetched | Moved | _Index] = deque()
        self._numbers = 0
        self._pending: dict[int, tuple[Remembered, int]] = {}  # and the bytes of its state
        self._filed: tuple[Remembered, ...] = ()
        self.index: tuple[Remembered, ...] = ()
        self.totals = Totals()
        self.warnings: list[str] = []
        self._remove_ram = False
        opened = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="archive", daemon=True)
        self._thread.start()
        opened.wait(OPEN_S)
        self.take()

    # ---- the loop's side

    @property
    def full(self) -> bool:
        waiting = sum(size for _, size in self._pending.values())
        return waiting > 0 and waiting >= self._settings.ram_bytes

    def put(self, tokens: list[int], scope: str, state: State, *, public: int, session: bool, floor: int) -> None:
        """`state` must not change any more."""
        if self.full:
            return
        self._numbers += 1
        kept = Remembered(f"put {self._numbers}", tokens, scope, public)
        self._pending[self._numbers] = (kept, len(state))
        self._jobs.put(Put(self._numbers, kept, state, session, floor))
        self._renew()

    def fetch(self, key: str, rid: int) -> None:
        """`take` brings it. An unknown key is a miss."""
        kept = next((k for k in self.index if k.key == key), None)
        if kept is None:
            self._done.append(Fetched(rid, None))
        else:
            self._jobs.put(Get(kept, rid))

    def forget(self, scope: str) -> None:
        """All snapshots of a caller go."""
        self._jobs.put(Drop(scope))

    def shed(self) -> None:
        """Memory is short: what lies in RAM goes."""
        self._jobs.put(Shed())

    def save(self, deadline: float) -> None:
        """`take` brings a `Moved`."""
        self._jobs.put(Move(deadline))

    def take(self) -> list[Fetched | Moved]:
        """What is done by now; the index is renewed by the way."""
        out: list[Fetched | Moved] = []
        while self._done:
            done = self._done.popleft()
            if isinstance(done, _Index):
                self._filed, self.totals = done.kept, done.totals
                self._pending = {n: put for n, put in self._pending.items() if n > done.number}
                self._renew()
            else:
                out.append(done)
        return out

    def _renew(self) -> None:
        self.index = (*self._filed, *(kept for kept, _ in self._pending.values()))

    def close(self, *, remove_ram: bool, timeout: float) -> None:
        """Waits for what is to be written, at most so long."""
        self._remove_ram = remove_ram
        self._jobs.put(None)
        self._thread.join(timeout)

    # ---- the thread's side

    def _run(self, opened: threading.Event) -> None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self._cpus)
        store = StateStore(self._settings, self._origin, time.monotonic)
        self.warnings = list(store.warnings)
        number = 0
        self._publish(store, number)
        opened.set()
        while (job := self._jobs.get()) is not None:
            number = job.number if isinstance(job, Put) else number
            try:
                done = self._do(store, job)
            except Exception as error:  # noqa: BLE001 - nobody may wait for ever; no text is in it
                done = Fetched(job.then, None) if isinstance(job, Get) else None
                self.warnings.append(f"state files: {type(error).__name__}")
            del job  # a state is large
            if done is not None:
                self._done.append(done)
            self._publish(store, number)
            os.eventfd_write(self._wake, 1)
        store.close(remove_ram=self._remove_ram)

    def _do(self, store: StateStore, job: Put | Get | Move | Drop | Shed) -> Fetched | Moved | None:
        match job:
            case Put(kept=kept, state=state, session=session, floor=floor):
                tokens = np.array(kept.tokens, dtype=np.int32)
                store.put(tokens, kept.scope, state, session=session, public=kept.public, floor=floor)
                return None
            case Get(kept=kept, then=rid):
                return Fetched(rid, self._get(store, kept))
            case Drop(scope=scope):
                store.forget(scope)
                return None
            case Shed():
                store.shed()
                return None
            case Move(deadline=deadline):
                moved = store.persist(deadline)
                return Moved(moved.files, moved.bytes, moved.left)

    @staticmethod
    def _get(store: StateStore, wanted: Remembered) -> State | None:
        tokens = np.array(wanted.tokens, dtype=np.int32)
        for key, snapshot in store.entries():
            if snapshot.scope == wanted.scope and np.array_equal(snapshot.tokens, tokens):
                loaded = store.load(key)
                if loaded is not None:
                    return loaded.state
        return None

    def _publish(self, store: StateStore, number: int) -> None:
        known = {kept.key: kept for kept in self._filed}
        kept = tuple(
            known.get(key) or Remembered(key, snapshot.tokens.tolist(), snapshot.scope, snapshot.public)
            for key, snapshot in store.entries()
        )
        tiers = (store.ram, store.disk)
        files, sizes = [len(t.entries) for t in tiers], [t.bytes for t in tiers]
        totals = Totals(
            ram_files=files[0],
            ram_bytes=sizes[0],
            disk_files=files[1],
            disk_bytes=sizes[1],
            restored=store.counts.restored,
            written_bytes=store.counts.written_bytes,
            set_aside_files=store.set_aside,
        )
        self._done.append(_Index(number, kept, totals))
