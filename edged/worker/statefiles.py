"""Snapshots of sequences in two tiers of files: RAM first, then the disk. Each tier has a budget of bytes.

* `put` writes to the RAM tier. What must leave it moves to the disk when it may (`disk` is "all", or "sessions" and it
  is one), else it is gone. A move is an errand: the file can be read where it was until it has arrived. At most MOVING
  files and half of the RAM budget (or one file) are on their way, in RAM beyond its budget; more are dropped.
* What leaves the RAM tier while running may write `spill_bytes` an hour to the disk, at most as many at once; what
  `persist` moves is not counted. SD cards wear.
* What is too large for the RAM tier, or comes without one, goes straight to the disk and can be read once it is there.
* An entry replaces what it extends, in its own tier, if it can be trimmed that far; no session is replaced by less.
* First to leave: foreign files, on the disk then what is no session, then the least recently used. Nothing leaves for
  something that ranks below it. A file's mtime is its last use, so that the order outlives the worker.
* A file that turns out to be gone or damaged is a miss. Nothing here raises OSError.

Called by one thread. Sizes are those of the files. Tokens of an entry are compared by whoever asks for `entries`.
"""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from edged.messages import CacheSettings
from edged.worker import stateformat
from edged.worker.errands import Errands
from edged.worker.statedir import SUFFIX
from edged.worker.stateformat import Data, Origin, Snapshot, Tokens
from edged.worker.statetiers import Allowance, Entry, Tier, extends, same

MOVING: Final = 2
FORGET_S: Final = 5.0
"""What is waited for a file that is on its way to the disk, so that it can be removed there."""
TOUCH_S: Final = 60.0
"""The mtime of a file on the disk is set at most so often: each time is a write to an SD card."""

State = Data | ctypes.Array[ctypes.c_uint8]


@dataclass(slots=True)
class Counts:
    """Since the start; `failed`: files that could not be written or read."""

    restored: int = 0
    written_files: int = 0
    written_bytes: int = 0
    evicted: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Persisted:
    files: int
    bytes: int
    left: int


@dataclass(frozen=True, slots=True)
class Loaded:
    tokens: Tokens
    state: bytearray


class StateStore:
    """Make it before the decode thread is pinned (see Errands)."""

    def __init__(self, settings: CacheSettings, origin: Origin, clock: Callable[[], float]) -> None:
        self._origin = origin
        self._clock = clock
        self._policy = settings.disk
        self._used = 0
        self._on_the_way: dict[str, int] = {}
        self._closing = False
        self._spill = Allowance(settings.spill_bytes, clock())
        self.counts = Counts()
        self.ram = Tier(settings.ram_dir, settings.ram_bytes, origin, durable=False)
        self.disk = Tier("" if settings.disk == "off" else settings.disk_dir, settings.disk_bytes, origin, durable=True)
        self.warnings = [tier.problem for tier in (self.ram, self.disk) if tier.problem]
        self._errands = Errands()
        self._read_directories()

    def _read_directories(self) -> None:
        tiers = [tier for tier in (self.ram, self.disk) if tier.files]
        found = [(file, tier) for tier in tiers if tier.files for file in tier.files.scan()]
        for file, tier in sorted(found, key=lambda pair: pair[0].mtime):
            tier.entries[file.name] = Entry(file.name, file.size, self._next(), file.snapshot)
        for name in self.ram.entries.keys() & self.disk.entries.keys():  # cut off at the end of a move
            self._drop(self.ram, self.ram.entries[name])
        for tier in tiers:
            self._evict(tier, tier.victims(tier.budget, None) or [])

    # ---- asked

    def entries(self) -> Iterator[tuple[str, Snapshot]]:
        """Key and what it is of; the same tokens may be there twice."""
        self._errands.settle()
        for tier in (self.ram, self.disk):
            for entry in list(tier.entries.values()):
                if entry.snapshot is not None:
                    yield entry.name, entry.snapshot

    def load(self, key: str) -> Loaded | None:
        """The state, verified; None: it is gone or was damaged, and forgotten."""
        self._errands.settle()
        for tier in (self.ram, self.disk):
            entry = tier.entries.get(key)
            if entry is None or tier.files is None:
                continue
            found = tier.files.read(key)
            if found is not None and same(found.snapshot, entry.snapshot):
                self.counts.restored += 1
                self._use(tier, entry)
                return Loaded(found.snapshot.tokens, found.state)
            self.counts.failed += 1
            self._drop(tier, entry)
        return None

    @property
    def set_aside(self) -> int:
        return sum(tier.files.set_aside for tier in (self.ram, self.disk) if tier.files)

    # ---- told

    def put(
        self,
        tokens: Sequence[int] | Tokens,
        scope: str,
        state: State,
        *,
        session: bool = False,
        public: int = 0,
        floor: int = 0,
    ) -> bool:
        """True: it is kept, or on its way to the disk. `state` must not change any more."""
        self._errands.settle()
        snapshot = Snapshot(np.array(tokens, dtype=np.int32), scope, session, public, floor)
        if self._known(snapshot):
            return True
        parts = stateformat.encode(self._origin, snapshot, memoryview(state).cast("B"))
        entry = Entry(secrets.token_hex(8) + SUFFIX, sum(map(len, parts)), self._next(), snapshot)
        if self.ram.files is None or entry.size > self.ram.budget:
            return self._send(entry, lambda: parts)
        for old in self.ram.extended_by(entry):
            self._drop(self.ram, old)
        self._evict(self.ram, self.ram.victims(self.ram.budget - entry.size, entry) or [])
        if not self.ram.files.write(entry.name, parts):
            self.counts.failed += 1
            return False
        self.ram.entries[entry.name] = entry
        return True

    def forget(self, scope: str) -> None:
        """Every file of a caller goes, in both tiers."""
        self._wait(self._clock() + FORGET_S, lambda: not self._on_the_way)
        for tier in (self.ram, self.disk):
            for entry in list(tier.entries.values()):
                if entry.snapshot is not None and entry.snapshot.scope == scope:
                    self._drop(tier, entry)

    def shed(self) -> None:
        """Memory is short: the RAM tier is emptied, and nothing is written to the disk for it."""
        self._errands.settle()
        for entry in list(self.ram.entries.values()):
            if not entry.moving:  # it goes when it has arrived
                self._drop(self.ram, entry)

    def persist(self, deadline: float) -> Persisted:
        """Moves to the disk what may go there, the most recently used first, until the clock says `deadline`."""
        files, written, left = self.counts.written_files, self.counts.written_bytes, 0
        self._wait(deadline, lambda: not self._on_the_way)
        for entry in sorted(self.ram.entries.values(), key=lambda entry: -entry.used):
            if not self._may_go(entry):
                continue
            in_time = self._clock() < deadline
            if in_time and not entry.moving and self._move(entry, deadline):
                self._wait(deadline, lambda: not self._on_the_way)
                in_time = self._clock() < deadline
            left += not in_time and entry.name in self.ram.entries
        return Persisted(self.counts.written_files - files, self.counts.written_bytes - written, left)

    def close(self, *, remove_ram: bool, timeout: float = 1.0) -> None:
        """Half-written files are given up; with `remove_ram` the RAM tier's files go."""
        self._closing = True
        self._errands.close(timeout)
        self._errands.settle()
        if remove_ram:
            for entry in list(self.ram.entries.values()):
                self._drop(self.ram, entry)
            if self.ram.files is not None:
                self.ram.files.remove_empty()

    # ---- inside

    def _next(self) -> int:
        self._used += 1
        return self._used

    def _use(self, tier: Tier, entry: Entry) -> None:
        entry.used = self._next()
        files, now = tier.files, self._clock()
        if tier is self.ram and files:
            files.touch(entry.name)
        elif files and now - entry.touched >= TOUCH_S:
            entry.touched = now
            self._errands.submit(lambda: files.touch(entry.name), _nothing)

    def _known(self, new: Snapshot) -> bool:
        for tier in (self.ram, self.disk):
            for entry in tier.entries.values():
                old = entry.snapshot
                if old and len(old.tokens) == len(new.tokens) and old.floor <= new.floor and extends(old, new):
                    self._use(tier, entry)
                    return True
        return False

    def _may_go(self, entry: Entry) -> bool:
        wanted = entry.snapshot is not None and (self._policy == "all" or entry.session)
        return wanted and self.disk.files is not None and entry.size <= self.disk.budget

    def _evict(self, tier: Tier, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if tier is self.disk or not self._move(entry):
                self.counts.evicted += 1
                self._drop(tier, entry)

    def _drop(self, tier: Tier, entry: Entry) -> None:
        files = tier.files
        tier.entries.pop(entry.name, None)
        if files and tier is self.ram:
            files.remove(entry.name)
        elif files:
            self._errands.submit(lambda: files.remove(entry.name), _nothing)

    def _move(self, entry: Entry, deadline: float | None = None) -> bool:
        """Starts it; with a deadline the entry stays in RAM when it is not met or fails."""
        ram = self.ram.files
        assert ram is not None
        mtime_ns = ram.mtime_ns(entry.name)
        entry.moving = self._send(entry, lambda: ram.pieces(entry.name), mtime_ns, deadline)
        return entry.moving

    def _send(
        self,
        entry: Entry,
        parts: Callable[[], Iterable[Data]],
        mtime_ns: int | None = None,
        deadline: float | None = None,
    ) -> bool:
        """Writes it to the disk beside the decode loop. False: it may not, there is no room, or too much is going."""
        files, going = self.disk.files, sum(self._on_the_way.values())
        crowded = len(self._on_the_way) >= MOVING or (going and going + entry.size > self.ram.budget // 2)
        if files is None or crowded or not self._may_go(entry):
            return False
        victims = self.disk.victims(self.disk.budget - going - entry.size, entry)
        if victims is None or (deadline is None and not self._spill.take(entry.size, self._clock())):
            return False
        self._evict(self.disk, victims)
        self._on_the_way[entry.name] = entry.size

        def going_on() -> bool:
            return not self._closing and (deadline is None or self._clock() < deadline)

        self._errands.submit(
            lambda: files.write(entry.name, parts(), going_on=going_on, mtime_ns=mtime_ns),
            lambda complete: self._arrived(entry, complete=complete, evicted=deadline is None),
        )
        return True

    def _arrived(self, entry: Entry, *, complete: bool, evicted: bool) -> None:
        del self._on_the_way[entry.name]
        entry.moving = False
        in_ram = entry.name in self.ram.entries
        if complete:
            self.counts.written_files += 1
            self.counts.written_bytes += entry.size
            self.disk.entries[entry.name] = entry
            for old in self.disk.extended_by(entry):
                self._drop(self.disk, old)
        elif evicted:
            self.counts.failed += 1
            self.counts.evicted += 1
        if in_ram and (complete or evicted):
            self._drop(self.ram, entry)

    def _wait(self, deadline: float, done: Callable[[], bool]) -> None:
        while not done() and self._errands.settle(max(0.0, deadline - self._clock())):
            pass


def _nothing(_result: object) -> None:
    pass
