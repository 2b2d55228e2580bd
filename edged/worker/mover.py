"""Carries out the scheduler's moves: cells in the engine, states in the archive and in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edged.worker.archive import Archive
from edged.worker.carrier import Carrier
from edged.worker.engine import Engine
from edged.worker.llama import StateError
from edged.worker.plan import (
    Assign,
    Checkpoint,
    Copy,
    Evict,
    Fetch,
    Move,
    Pack,
    Recall,
    Remember,
    Restore,
    Resume,
    SetAside,
    State,
    Trim,
    Unpack,
)
from edged.worker.request import Reading
from edged.worker.scheduler import Scheduler

LEAST: Final = 16
"""Tokens of a snapshot: fewer are read again as quickly as they are fetched."""


class Mover:
    """`archive` is None: no snapshots. `fetched`: states in memory, by request."""

    def __init__(self, engine: Engine, scheduler: Scheduler, archive: Archive | None, carrier: Carrier) -> None:
        self._engine, self._scheduler, self._archive, self._carrier = engine, scheduler, archive, carrier
        self._fetched: dict[int, State] = {}

    def fetched(self, rid: int, state: State | None) -> None:
        if self._scheduler.fetched(rid, found=state is not None) and state is not None:
            self._fetched[rid] = state

    def forget(self, rid: int) -> None:
        self._fetched.pop(rid, None)

    def forget_scope(self, scope: str) -> None:
        """What is kept of a caller's prompts and is not in use."""
        for seq in self._scheduler.residency.forget(scope):
            self._engine.remove(seq)
        if self._archive is not None:
            self._archive.forget(scope)

    def carry_out(self, moves: tuple[Move, ...], requests: Mapping[int, Reading]) -> tuple[list[Assign], bool]:
        """Who was given a sequence, and whether the plan holds: not when a snapshot was no good."""
        assigned: list[Assign] = []
        spoilt: set[int] = set()
        for move in moves:
            match move:
                case Assign(rid=rid, seq=seq):
                    self.forget(rid)
                    self._carrier.started(rid)
                    assigned.append(Assign(rid, seq) if rid in spoilt else move)
                case Unpack(rid=rid) | Resume(rid=rid):
                    if not self._put_in(move):
                        self._scheduler.unpack_failed(rid)
                        spoilt.add(rid)
                case Checkpoint(rid=rid, seq=seq, length=length):
                    request = requests[rid]
                    self._remember(seq, request.prompt[:length], request.scope, request.public, keep=request.keep)
                case SetAside(rid=rid, seq=seq, cells=cells):
                    requests[rid].state = self._engine.copy_out(seq) if cells else None
                    self._engine.remove(seq)
                case Restore(rid=rid, seq=seq):
                    state, requests[rid].state = requests[rid].state, None
                    if state is not None:
                        self._engine.copy_in(seq, state)
                case Fetch(rid=rid, key=key):
                    assert self._archive is not None
                    self._archive.fetch(key, rid)
                case Recall(rid=rid):
                    self._carrier.recall(rid)
                case Evict() | Remember() | Trim() | Copy() | Pack():
                    self._cells(move)
        return assigned, not spoilt

    def _cells(self, move: Evict | Remember | Trim | Copy | Pack) -> None:
        match move:
            case Evict(seq=seq) | Remember(seq=seq):
                self._remember(seq, move.tokens, move.scope, move.public, keep=move.keep)
                if isinstance(move, Evict):
                    self._engine.remove(seq)
            case Pack(seq=seq):
                state = self._engine.copy_out(seq)
                self._engine.remove(seq)
                self._engine.copy_in(seq, state)
            case Trim(seq=seq, length=length):
                self._engine.trim(seq, length)
            case Copy(source=source, seq=seq, length=length):
                self._engine.share(source, seq, length)

    def _put_in(self, move: Unpack | Resume) -> bool:
        if isinstance(move, Resume):
            return self._carrier.resume(move.rid, move.seq, move.length)
        try:
            self._engine.copy_in(move.seq, self._fetched.pop(move.rid))
        except StateError:
            self._engine.remove(move.seq)
            return False
        if move.length < move.cells:
            self._engine.trim(move.seq, move.length)
        return True

    def shed(self) -> None:
        """Memory is short: what is remembered and not in use goes, but for what lies on the disk."""
        for seq in self._scheduler.residency.forget(None):
            self._engine.remove(seq)
        if self._archive is not None:
            self._archive.shed()

    def save(self, deadline: float, *, everything: bool) -> None:
        """What is idle goes to the archive and from there to the disk, the most recently used first."""
        if self._archive is None:
            return
        kv = self._scheduler.kv
        for seq in reversed(kv.idle()):
            resident = kv[seq]
            if resident.keep or everything:
                self._remember(seq, resident.tokens, resident.scope, resident.public, keep=resident.keep)
                self._archive.save(deadline)
        self._archive.save(deadline)

    def _remember(self, seq: int, tokens: list[int], scope: str, public: int, *, keep: bool) -> None:
        if self._archive is None or len(tokens) < LEAST or self._archive.full or self._covered(tokens, scope):
            return
        floor = self._scheduler.rules.floor(len(tokens))
        state = self._engine.copy_out(seq)
        self._archive.put(list(tokens), scope, state, public=public, session=keep, floor=floor)

    def _covered(self, tokens: list[int], scope: str) -> bool:
        """A snapshot of exactly this is there."""
        assert self._archive is not None
        return any(kept.scope == scope and kept.tokens == tokens for kept in self._archive.index)
