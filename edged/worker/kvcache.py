"""Sequences and cells of the unified KV cache: who holds what. Bookkeeping only, no llama_cpp.

Words: a *cell* holds one token's keys and values; a *sequence* is a number llama.cpp tells cells apart by; the
cache has `total` cells for all sequences together (kv_unified), and one sequence may grow to all of them.

Rules:

* A sequence belongs to one request or to nobody. What it holds is *used* (decoded tokens) ≤ *reserved* (used and the
  growth promised to it). Σ reserved ≤ total, always: so a decode never asks for a cell that is not there.
* *free* is what nobody has been promised: total − Σ reserved.
* A sequence that is released is empty. Later, idle sequences keep their cells for prefix reuse: they will count as
  free (they can be evicted at any time), and a cell shared by two sequences will count once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Sequence:
    """One sequence in use."""

    owner: int
    used: int
    reserved: int


class KvCache:
    """`total` cells, `sequences` numbers from 0."""

    def __init__(self, total: int, sequences: int) -> None:
        self.total = total
        self.sequences = sequences
        self._busy: dict[int, Sequence] = {}
        self._spare = list(range(sequences - 1, -1, -1))

    @property
    def free(self) -> int:
        return self.total - sum(s.reserved for s in self._busy.values())

    @property
    def used(self) -> int:
        return sum(s.used for s in self._busy.values())

    @property
    def busy(self) -> int:
        return len(self._busy)

    @property
    def spare_sequences(self) -> int:
        return len(self._spare)

    def reserved(self, seq: int) -> int:
        return self._busy[seq].reserved

    def assign(self, owner: int, reserve: int, used: int = 0) -> int:
        """Gives a sequence with `reserve` cells, of which `used` are about to be copied in."""
        assert 0 <= used <= reserve <= self.free, (used, reserve, self.free)
        seq = self._spare.pop()
        self._busy[seq] = Sequence(owner, used, reserve)
        return seq

    def grow(self, seq: int, cells: int) -> None:
        assert 0 < cells <= self.free, (cells, self.free)
        self._busy[seq].reserved += cells

    def fill(self, seq: int, cells: int) -> None:
        """`cells` more tokens were decoded."""
        sequence = self._busy[seq]
        sequence.used += cells
        assert sequence.used <= sequence.reserved, (seq, sequence)

    def release(self, seq: int) -> None:
        del self._busy[seq]
        self._spare.append(seq)

    def check(self) -> None:
        """The rules above; AssertionError when one is broken."""
        assert sorted([*self._busy, *self._spare]) == list(range(self.sequences)), "a sequence got lost or doubled"
        assert self.free >= 0, f"{-self.free} cells promised too many"
        owners = [s.owner for s in self._busy.values()]
        assert len(owners) == len(set(owners)), "one request holds two sequences"
        for seq, sequence in self._busy.items():
            assert 0 <= sequence.used <= sequence.reserved, (seq, sequence)
