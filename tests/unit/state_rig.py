"""A store of state files in a test's directory, whose clock stands still and whose errands can be waited for."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from edged.messages import CacheSettings
from edged.worker.statefiles import StateStore
from edged.worker.stateformat import Origin, Snapshot

ORIGIN = Origin("model", "f16 full", "build 1")
MIB = 1 << 20
PATIENCE_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    def __init__(self, root: Path) -> None:
        self.ram, self.disk = root / "ram", root / "disk"
        self.clock = Clock()
        self.stores: list[StateStore] = []

    def store(self, origin: Origin = ORIGIN, **settings: object) -> StateStore:
        wanted = {"ram_dir": str(self.ram), "ram_bytes": MIB, "disk_dir": str(self.disk), "disk_bytes": 4 * MIB}
        self.stores.append(StateStore(CacheSettings(**(wanted | settings)), origin, self.clock))
        return self.stores[-1]

    def close(self) -> None:
        for store in self.stores:
            store.close(remove_ram=False, timeout=PATIENCE_S)

    def files(self, where: Path) -> list[Path]:
        return sorted(where.glob("*.kv"))


def settle(store: StateStore) -> None:
    """Until nothing is on its way to the disk."""
    until = time.monotonic() + PATIENCE_S
    while store._errands.open:
        assert time.monotonic() < until, "the errands do not end"
        store._errands.settle(1.0)


def found(store: StateStore, tokens: list[int], scope: str = "a") -> str | None:
    """The key of exactly these tokens."""
    for key, snapshot in store.entries():
        if snapshot.scope == scope and snapshot.tokens.tolist() == tokens:
            return key
    return None


def loaded(store: StateStore, tokens: list[int], scope: str = "a") -> bytes | None:
    key = found(store, tokens, scope)
    data = store.load(key) if key else None
    if data is None:
        return None
    assert data.tokens.tolist() == tokens
    return bytes(data.state)


def snapshot(*tokens: int, scope: str = "a", **more: object) -> Snapshot:
    return Snapshot(np.array(tokens, dtype=np.int32), scope, **more)
