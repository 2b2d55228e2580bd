"""Which sequence a prompt starts on, and what has to make room for it. Pure.

A prompt starts from the longest usable prefix (`prefix`) of what is resident or in a snapshot:

* An idle sequence of the same caller that holds little beyond the prefix (TAIL) is *taken over*: the rest is trimmed.
* Otherwise the prefix is *copied* to a spare sequence (cells are shared), or to the least recently used idle one.
  With no other sequence to be had, the idle one is taken over, whatever else it holds.
* A snapshot is used when it saves at least WORTH tokens more and there are cells for all of it now; else the next best
  start is: nobody waits for others to end because of what could be saved. It has to be fetched first (a file is read
  by another thread); the request waits for that, others do not. One is fetched at a time.
* Memory that cannot be trimmed is taken over whole, or comes from a snapshot.

Idle sequences are evicted, least recently used first, when cells or sequence numbers are wanted.

Alone. Attention adds up what a token sees in the order of cells, and with 512 cells or more in use each thread adds up
a part: where a sequence lies, and what lies beside it, changes the last bits, and some answers with them (measured,
SmolLM2-135M: logits by up to 0.6). So a request that starts with nobody else running gets the cache to itself, as if it
were the first (`alone`): idle sequences go to their snapshots, and its own is packed to the first cells. That costs two
copies of a state (some milliseconds) and makes its text the same whether its prompt was cached or not. Not where there
are no snapshots, and not with a sliding window, whose state cannot be copied whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edged.worker.kvcache import KvCache, Resident
from edged.worker.plan import Copy, Evict, Move, Pack, Remember, Resume, Trim, Unpack
from edged.worker.prefix import Rules, Wanted, usable

TAIL = 16
"""Tokens that may be lost when a sequence is taken over: the end of an answer that was cut, or written otherwise."""

WORTH = 16
"""Tokens that must be saved for a snapshot to be fetched, or for a prompt to wait until another has read them."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A snapshot in the archive."""

    key: str
    tokens: list[int]
    scope: str
    public: int


@dataclass(frozen=True, slots=True)
class Found:
    """The best start of a prompt: `length` tokens from `seq`, or from the snapshot `key` of `cells` tokens.

    `recalled`: what `key` names is the request's own checkpoint.
    """

    length: int = 0
    seq: int | None = None
    key: str | None = None
    cells: int = 0
    recalled: bool = False


class Residency:
    def __init__(self, kv: KvCache, rules: Rules, *, reuse: bool, alone: bool) -> None:
        self.kv = kv
        self._alone = alone and reuse and not rules.window
        self.rules = rules
        self.reuse = reuse
        self.snapshots: Sequence[Remembered] = ()
        self.evicted = 0

    def find(self, wanted: Wanted, refused: str | None = None, *, snapshots: bool = True) -> Found:
        """`refused`: a snapshot that could not be read."""
        if not self.reuse:
            return Found()
        best = Found()
        for seq, resident in self.kv.residents():
            if self.rules.exact and resident.owner is not None:
                continue
            floor = resident.used if self.rules.exact else resident.floor
            length = usable(self.rules, wanted, resident, floor)
            if length and (length, *self._liking(seq, wanted)) > (best.length, *self._liking(best.seq, wanted)):
                best = Found(length, seq)
        for kept in self.snapshots if snapshots else ():
            if len(kept.tokens) > self.kv.total:  # of a larger profile
                continue
            floor = self.rules.floor(len(kept.tokens))
            length = usable(self.rules, wanted, kept, floor)
            if kept.key != refused and length >= best.length + (WORTH if best.key is None else 1):
                best = Found(length, None, kept.key, len(kept.tokens))
        return best

    def _liking(self, seq: int | None, wanted: Wanted) -> tuple[bool, int]:
        """Between equal lengths: idle and the caller's own, then the one used last."""
        if seq is None:
            return False, -1
        resident = self.kv[seq]
        return resident.owner is None and resident.scope == wanted.scope, resident.used_at

    def cost(self, found: Found, need: int) -> int:
        """Free cells that a start with `need` cells takes."""
        if found.key is not None:
            return max(need, found.cells)
        return need - (self.kv.held_of(found.seq, found.length) if found.seq is not None else 0)

    def start(self, rid: int, begun: Wanted, found: Found, need: int, *, keep: bool, moves: list[Move]) -> int:
        """Gives a sequence, of which the first tokens are there (`begun`); the moves bring them there."""
        resident = Resident(begun.tokens, [], begun.scope, begun.public, keep, rid, need)
        if self._alone and not self.kv.busy:
            return self._start_alone(rid, resident, found, moves)
        if found.key is not None:
            return self._unpack(rid, resident, found, moves)
        source = found.seq
        if source is None:
            return self.place(resident, moves)
        resident.floor = self.kv[source].floor
        if self._takes_over(source, resident):
            if self.kv[source].used > found.length:
                moves.append(Trim(source, found.length))
            self.kv.take_over(source, resident)
            seq = source
        else:
            self._spare_one(moves, but=source)
            seq = self.kv.copy(source, resident)
            moves.append(Copy(source, seq, found.length))
        self.make_room(moves)
        return seq

    def _start_alone(self, rid: int, resident: Resident, found: Found, moves: list[Move]) -> int:
        for seq in self.kv.idle():
            if seq != found.seq:
                self._evict(seq, moves)
        if found.key is not None:
            resident.packed = True
            return self._unpack(rid, resident, found, moves)
        if found.seq is None:
            return self.place(resident, moves)
        old = self.kv[found.seq]
        if self._is_lost(old, resident, found.length):
            moves.append(Remember(found.seq, list(old.tokens), old.scope, old.public, old.keep))
        if old.used > found.length:
            moves.append(Trim(found.seq, found.length))
        if not old.packed:
            moves.append(Pack(found.seq))
        self.kv.take_over(found.seq, resident)
        resident.packed = True
        return found.seq

    def place(self, resident: Resident, moves: list[Move]) -> int:
        """A sequence with cells of its own, which are about to be filled."""
        self._spare_one(moves)
        while self.kv.total - self.kv.occupied < self.kv.promised + resident.reserved:
            self._evict_oldest(moves)
        return self.kv.assign(resident)

    def _unpack(self, rid: int, resident: Resident, found: Found, moves: list[Move]) -> int:
        """All of the snapshot comes in, then it is trimmed: for that moment its cells are needed."""
        need = resident.reserved
        resident.reserved = max(need, found.cells)
        resident.floor = self.rules.floor(found.cells)
        seq = self.place(resident, moves)
        resident.reserved = need
        if found.recalled:
            moves.append(Resume(rid, seq, found.length))
        else:
            moves.append(Unpack(rid, seq, found.cells, found.length))
        return seq

    def _takes_over(self, source: int, resident: Resident) -> bool:
        old = self.kv[source]
        if old.owner is not None:
            return False
        if self.rules.exact or not (self.kv.spare_sequences or [s for s in self.kv.idle() if s != source]):
            return True
        return not self._is_lost(old, resident, len(resident.tokens))

    @staticmethod
    def _is_lost(old: Resident, new: Resident, length: int) -> bool:
        """Going on with the first `length` tokens of `old` would lose something that may be wanted again."""
        return old.scope != new.scope or old.used - length > TAIL or (old.keep and not new.keep)

    def make_room(self, moves: list[Move]) -> None:
        """What is promised must be there."""
        while self.kv.short:
            self._evict_oldest(moves)

    def _spare_one(self, moves: list[Move], but: int | None = None) -> None:
        if not self.kv.spare_sequences:
            self._evict(next(seq for seq in self.kv.idle() if seq != but), moves)

    def _evict_oldest(self, moves: list[Move]) -> None:
        self._evict(self.kv.idle()[0], moves)

    def evict_one(self, moves: list[Move]) -> bool:
        """llama_decode found no slot, though the sums say otherwise: is there an idle sequence that can go?"""
        if not self.kv.idle():
            return False
        self._evict_oldest(moves)
        return True

    def _evict(self, seq: int, moves: list[Move]) -> None:
        old = self.kv[seq]
        moves.append(Evict(seq, old.tokens, old.scope, old.public, old.keep))
        self.kv.evict(seq)
        self.evicted += 1

    def forget(self, scope: str | None) -> list[int]:
        """The idle sequences of a caller go, or all of them (None); these are to be emptied."""
        gone = [seq for seq in self.kv.idle() if scope in (None, self.kv[seq].scope)]
        for seq in gone:
            self.kv.evict(seq)
        return gone

    def leave(self, seq: int) -> int | None:
        """The request on `seq` is gone: what it holds stays, or the sequence must be emptied (then: its number)."""
        if self.reuse and self.kv[seq].used:
            self.kv.rest(seq)
            return None
        self.kv.release(seq)
        return seq
