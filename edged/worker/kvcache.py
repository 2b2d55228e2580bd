"""Sequences and cells of the unified KV cache: who holds what. Bookkeeping only, no llama_cpp.

Words: a *cell* holds one token's keys and values; a *sequence* is a number llama.cpp tells cells apart by; the
cache has `total` cells for all sequences together (kv_unified), and one sequence may grow to all of them. A cell may
belong to several sequences (`copy`: llama_memory_seq_cp is metadata only) and is counted once.

A sequence is one of

* *busy*: a request's. What it holds is *used* (decoded tokens) ≤ *reserved* (used and the growth promised to it);
* *idle*: nobody's, its tokens stay for prompts that begin the same (prefix reuse). At most `sequences`, numbers from 0;
* *spare*: empty.

At most `slots` are busy. Counts:

* *held*: cells of busy sequences; *promised*: Σ (reserved − used); *free* = total − held − promised ≥ 0 always. So idle
  cells count as free: they can be evicted at any time.
* *room*: cells of nobody at all. Before a decode room ≥ promised, by evicting idle sequences (`short` says whether it
  is needed): so a decode never asks for a cell that is not there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Resident:
    """What one sequence holds.

    `public`: length of the leading system message. `keep`: the conversation goes on. `floor`: the shortest length that
    it can be trimmed to (see `prefix`). `packed`: it has had the cache to itself since its first token.
    """

    tokens: list[int]
    cells: list[int]
    scope: str = ""
    public: int = 0
    keep: bool = False
    owner: int | None = None
    reserved: int = 0
    used_at: int = 0
    floor: int = 0
    packed: bool = False

    @property
    def used(self) -> int:
        return len(self.cells)


@dataclass(slots=True)
class KvCache:
    """`total` cells; `sequences` numbers, of which `slots` may be busy."""

    total: int
    slots: int
    sequences: int
    _residents: dict[int, Resident] = field(default_factory=dict)
    _spare: list[int] = field(init=False)
    _refs: Counter[int] = field(default_factory=Counter)  # cell → sequences it belongs to
    _busy_refs: Counter[int] = field(default_factory=Counter)
    _next_cell: int = 0
    _clock: int = 0

    def __post_init__(self) -> None:
        assert 0 < self.slots <= self.sequences
        self._spare = list(range(self.sequences - 1, -1, -1))

    # ---- counts

    @property
    def held(self) -> int:
        return len(self._busy_refs)

    @property
    def occupied(self) -> int:
        return len(self._refs)

    @property
    def promised(self) -> int:
        return sum(r.reserved - r.used for r in self._residents.values() if r.owner is not None)

    @property
    def free(self) -> int:
        return self.total - self.held - self.promised

    @property
    def short(self) -> bool:
        """Idle sequences have to go before the next decode."""
        return self.total - self.occupied < self.promised

    @property
    def busy(self) -> int:
        return sum(r.owner is not None for r in self._residents.values())

    @property
    def spare_slots(self) -> int:
        return self.slots - self.busy

    @property
    def spare_sequences(self) -> int:
        return len(self._spare)

    def held_of(self, seq: int, length: int) -> int:
        """How many of the first `length` cells of a sequence are held by busy ones already."""
        return sum(cell in self._busy_refs for cell in self._residents[seq].cells[:length])

    # ---- what there is

    def __getitem__(self, seq: int) -> Resident:
        return self._residents[seq]

    def residents(self) -> list[tuple[int, Resident]]:
        return list(self._residents.items())

    def idle(self) -> list[int]:
        """Least recently used first."""
        found = [(r.used_at, seq) for seq, r in self._residents.items() if r.owner is None]
        return [seq for _, seq in sorted(found)]

    # ---- changes

    def assign(self, resident: Resident) -> int:
        """A spare sequence for a busy resident; its `tokens` are about to be copied in, they get cells of their own."""
        assert resident.owner is not None
        assert len(resident.tokens) <= resident.reserved <= self.free, (resident.reserved, self.free)
        assert self.spare_slots > 0
        resident.cells = self._new_cells(len(resident.tokens))
        return self._settle(resident)

    def copy(self, source: int, resident: Resident) -> int:
        """A spare sequence that shares the cells of `resident.tokens`, a prefix of what `source` holds."""
        assert resident.owner is not None
        assert self.spare_slots > 0
        resident.cells = self._residents[source].cells[: len(resident.tokens)]
        self._residents[source].used_at = self._tick()
        return self._settle(resident)

    def take_over(self, seq: int, resident: Resident) -> None:
        """An idle sequence goes on as a busy one with a prefix of its tokens; the rest of its cells is dropped."""
        old = self._residents[seq]
        assert old.owner is None
        assert resident.owner is not None
        assert self.spare_slots > 0
        resident.cells = old.cells[: len(resident.tokens)]
        resident.packed = old.packed
        self.evict(seq)
        self._spare.remove(seq)
        self._spare.append(seq)
        taken = self._settle(resident)
        assert taken == seq

    def grow(self, seq: int, cells: int) -> None:
        assert 0 < cells <= self.free, (cells, self.free)
        self._residents[seq].reserved += cells

    def fill(self, seq: int, tokens: list[int]) -> None:
        """`tokens` more were decoded."""
        resident = self._residents[seq]
        cells = self._new_cells(len(tokens))
        resident.tokens += tokens
        resident.cells += cells
        assert resident.used <= resident.reserved, (seq, resident.used, resident.reserved)
        self._count(cells, self._refs, 1)
        self._count(cells, self._busy_refs, 1)

    def trim(self, seq: int, length: int) -> None:
        """A busy sequence keeps its first `length` tokens; what is reserved stays."""
        resident = self._residents[seq]
        assert resident.owner is not None
        gone = resident.cells[length:]
        del resident.tokens[length:], resident.cells[length:]
        self._count(gone, self._refs, -1)
        self._count(gone, self._busy_refs, -1)

    def rest(self, seq: int) -> None:
        """Busy → idle: its request is gone, its tokens stay."""
        resident = self._residents[seq]
        assert resident.owner is not None
        resident.owner, resident.reserved = None, 0
        resident.used_at = self._tick()
        self._count(resident.cells, self._busy_refs, -1)

    def release(self, seq: int) -> None:
        """Busy → spare."""
        self.rest(seq)
        self.evict(seq)

    def evict(self, seq: int) -> None:
        """Idle → spare."""
        resident = self._residents.pop(seq)
        assert resident.owner is None
        self._count(resident.cells, self._refs, -1)
        self._spare.append(seq)

    def _settle(self, resident: Resident) -> int:
        resident.used_at = self._tick()
        self._count(resident.cells, self._refs, 1)
        self._count(resident.cells, self._busy_refs, 1)
        seq = self._spare.pop()
        resident.packed = resident.packed or not resident.cells
        self._residents[seq] = resident
        if len(self._residents) > 1:
            for other in self._residents.values():
                other.packed = False
        assert self.free >= 0, f"{-self.free} cells promised too many"
        return seq

    def _new_cells(self, count: int) -> list[int]:
        first = self._next_cell
        self._next_cell += count
        return list(range(first, first + count))

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    @staticmethod
    def _count(cells: list[int], refs: Counter[int], change: int) -> None:
        for cell in cells:
            left = refs[cell] + change
            if left:
                refs[cell] = left
            else:
                del refs[cell]

    def check(self) -> None:
        """The rules above; AssertionError when one is broken."""
        assert sorted([*self._residents, *self._spare]) == list(range(self.sequences)), "a sequence got lost or doubled"
        assert self.busy <= self.slots
        assert self.free >= 0, f"{-self.free} cells promised too many"
        assert self.occupied <= self.total, "more cells in use than there are"
        owners = [r.owner for r in self._residents.values() if r.owner is not None]
        assert len(owners) == len(set(owners)), "one request holds two sequences"
        every: Counter[int] = Counter()
        busy: Counter[int] = Counter()
        for seq, resident in self._residents.items():
            assert len(resident.tokens) == len(resident.cells), seq
            assert len(set(resident.cells)) == resident.used, f"sequence {seq} holds a cell twice"
            every.update(resident.cells)
            if resident.owner is None:
                assert resident.used > 0, f"sequence {seq} is idle and empty"
            else:
                busy.update(resident.cells)
                assert resident.used <= resident.reserved, (seq, resident)
        assert every == self._refs, "the cells of all sequences"
        assert busy == self._busy_refs, "the cells of the busy sequences"
