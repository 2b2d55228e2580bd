"""A tier of state files: its directory, its budget, and who leaves first. What is done about it is in statefiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edged.worker.statedir import BAD_BYTES, StateDir
from edged.worker.stateformat import Origin, Snapshot


@dataclass(slots=True, eq=False)
class Entry:
    """A file; a foreign one has no snapshot. `used` counts up with each use, whatever the clock does."""

    name: str
    size: int
    used: int
    snapshot: Snapshot | None
    touched: float = float("-inf")
    moving: bool = False

    @property
    def session(self) -> bool:
        return self.snapshot is not None and self.snapshot.session


class Tier:
    """A directory with a budget, or none. What is moving has left the budget already."""

    def __init__(self, path: str, budget: int, origin: Origin, *, durable: bool) -> None:
        files = (
            StateDir(path, origin, durable=durable, bad_bytes=min(BAD_BYTES, budget // 4)) if path and budget else None
        )
        self.problem = files.problem if files else ""
        self.files = None if self.problem else files
        self.budget = budget if self.files else 0
        self.prefers_sessions = durable
        self.entries: dict[str, Entry] = {}

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())

    def rank(self, entry: Entry) -> tuple[bool, bool, int]:
        return entry.snapshot is not None, self.prefers_sessions and entry.session, entry.used

    def victims(self, room: int, newcomer: Entry | None) -> list[Entry] | None:
        """Who leaves so that at most `room` bytes stay; None: the newcomer would push out what ranks above it."""
        staying = [entry for entry in self.entries.values() if not entry.moving]
        excess = sum(entry.size for entry in staying) - room
        leaving: list[Entry] = []
        for entry in sorted(staying, key=self.rank):
            if excess <= 0:
                break
            if newcomer is not None and self.rank(entry) > self.rank(newcomer):
                return None
            leaving.append(entry)
            excess -= entry.size
        return leaving if excess <= 0 else None

    def extended_by(self, new: Entry) -> list[Entry]:
        return [old for old in self.entries.values() if old is not new and extends(new.snapshot, old.snapshot)]


class Allowance:
    """So many bytes an hour, saved up for an hour at most."""

    def __init__(self, per_hour: int, now: float) -> None:
        self._per_hour, self._left, self._since = per_hour, float(per_hour), now

    def take(self, size: int, now: float) -> bool:
        """False: not enough is left."""
        self._left = min(self._per_hour, self._left + self._per_hour * (now - self._since) / 3600)
        self._since = now
        if size > self._left:
            return False
        self._left -= size
        return True


def extends(new: Snapshot | None, old: Snapshot | None) -> bool:
    """Whatever `old` is good for, `new` is too."""
    if new is None or old is None or new.scope != old.scope or new.session < old.session or new.public < old.public:
        return False
    length = len(old.tokens)
    return new.floor <= length <= len(new.tokens) and np.array_equal(new.tokens[:length], old.tokens)


def same(one: Snapshot, other: Snapshot | None) -> bool:
    """Of the same tokens and the same caller: a file may have been put in another's place."""
    return other is not None and one.scope == other.scope and np.array_equal(one.tokens, other.tokens)
