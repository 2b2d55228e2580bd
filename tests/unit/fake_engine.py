"""Cells by sequence, as llama.cpp would hold them: refuses what the real one refuses, and knows what each cell is."""

from __future__ import annotations

from collections.abc import Callable

from edged.worker.jobs import Job
from edged.worker.plan import (
    Assign,
    Checkpoint,
    Copy,
    Evict,
    Fetch,
    Move,
    Pack,
    Plan,
    Recall,
    Remember,
    Restore,
    Resume,
    SetAside,
    Trim,
    Unpack,
)
from edged.worker.residency import Remembered
from edged.worker.scheduler import Scheduler

Cell = tuple[int, int]  # a number of its own, the token


def answer_token(rid: int, index: int) -> int:
    """What request `rid` says."""
    return 1000 + (rid * 7 + index) % 13


class FakeEngine:
    """`lose(what)` decides whether a snapshot or a checkpoint is lost: what is "fetch", "unpack", "recall", "resume".

    `checkpoints`: how many tokens of a request, by number, its checkpoint holds.
    """

    def __init__(self, s: Scheduler, lose: Callable[[str], bool] = lambda _: False, snapshots: bool = True) -> None:
        self.s = s
        self.cells: dict[int, list[Cell]] = {n: [] for n in range(s.residents)}
        self.floors: dict[int, int] = {}  # seq -> what it cannot be trimmed below
        self.saved: dict[int, list[Cell]] = {}
        self.answers: dict[int, int] = {}  # rid -> tokens to come in all
        self.given: dict[int, list[int]] = {}  # rid -> tokens sampled
        self.jobs: dict[int, Job] = {}
        self.ended: list[int] = []
        self.order: list[int] = []
        self.started: list[int] = []
        self.cached: dict[int, int] = {}
        self.archive: dict[str, Remembered] = {}
        self.in_memory: dict[int, Remembered] = {}
        self.checkpoints: dict[int, int] = {}
        self.recalled: dict[int, int] = {}
        self.replayed = 0
        self.steps = self.read = self.numbers = 0
        self.snapshots = snapshots
        self.halved = False  # pieces may be less than a chunk
        self.lose = lose

    def submit(self, job: Job, answer: int = 1) -> None:
        limit = self.s.submit(job)
        self.jobs[job.rid] = job
        self.answers[job.rid] = min(answer, limit)
        self.given[job.rid] = list(job.ids)
        self.order.append(job.rid)

    def abort(self, rid: int) -> None:
        self._end(rid)

    def _end(self, rid: int) -> None:
        seq = self.s.remove(rid)
        if seq is not None:
            self.cells[seq] = []
        self.saved.pop(rid, None)
        self.in_memory.pop(rid, None)
        self.recalled.pop(rid, None)
        self.ended.append(rid)
        del self.answers[rid]

    def moves(self, moves: tuple[Move, ...]) -> bool:
        """Carries them out; False: a snapshot was no good, nothing may be decoded."""
        good = True
        for move in moves:
            match move:
                case SetAside(rid=rid, seq=seq, cells=cells):
                    running = [r for r in self.order if r in self.answers and self.s._requests[r].seq is not None]
                    assert all(self._order(r) < self._order(rid) for r in running[:1])
                    assert len(self.cells[seq]) == cells
                    self.saved[rid] = self._fresh(self.cells[seq])
                    self.cells[seq] = []
                case Restore(rid=rid, seq=seq, cells=cells):
                    self._needs_empty(seq)
                    self.cells[seq] = self.saved.pop(rid)
                    self._copied_in(seq)
                    assert len(self.cells[seq]) == cells
                case Trim(seq=seq, length=length):
                    assert length == 0 or not self.s.rules.exact
                    assert 0 <= length <= len(self.cells[seq])
                    self._needs_floor(seq, length)
                    del self.cells[seq][length:]
                case Copy(source=source, seq=seq, length=length):
                    self._needs_empty(seq)
                    assert not self.s.rules.exact
                    assert 0 < length <= len(self.cells[source])
                    self._needs_floor(source, length)
                    self.cells[seq] = self.cells[source][:length]
                    self.floors[seq] = self.floors.get(source, 0)
                case Evict(seq=seq, tokens=tokens):
                    assert self._tokens(seq) == tokens
                    self._remember(tokens, move.scope, move.public)
                    self.cells[seq] = []
                case Remember(seq=seq, tokens=tokens):
                    assert self._tokens(seq) == tokens
                    self._remember(tokens, move.scope, move.public)
                case Pack(seq=seq):
                    assert not any(held for other, held in self.cells.items() if other != seq), "it has the cache"
                    self.cells[seq] = self._fresh(self.cells[seq])
                case Checkpoint(rid=rid, seq=seq, length=length):
                    assert self._tokens(seq) == self.jobs[rid].tokens[:length]
                    self._remember(self._tokens(seq), self.jobs[rid].scope, self.jobs[rid].public)
                case Fetch(rid=rid, key=key):
                    if self.lose("fetch"):
                        self.archive.pop(key)
                        self._publish()
                        self.s.fetched(rid, found=False)
                    else:
                        self.in_memory[rid] = self.archive[key]
                        self.s.fetched(rid, found=True)
                case Unpack(rid=rid, seq=seq, cells=cells, length=length):
                    self._needs_empty(seq)
                    blob = self.in_memory.pop(rid)
                    assert len(blob.tokens) == cells
                    assert length == cells or not self.s.rules.exact
                    if self.lose("unpack"):
                        self.s.unpack_failed(rid)
                        good = False
                        continue
                    self.cells[seq] = self._fresh([(0, t) for t in blob.tokens])
                    self._copied_in(seq)
                    self.check_room()
                    self._needs_floor(seq, length)
                    del self.cells[seq][length:]
                case Recall(rid=rid):
                    length = 0 if self.lose("recall") else min(self.checkpoints.get(rid, 0), self.jobs[rid].known - 1)
                    if self.s.recalled(rid, length):
                        self.recalled[rid] = length
                case Resume(rid=rid, seq=seq, length=length):
                    self._needs_empty(seq)
                    assert self.recalled.pop(rid) == length
                    if self.lose("resume"):
                        self.s.unpack_failed(rid)
                        good = False
                        continue
                    self.cells[seq] = self._fresh([(0, t) for t in self._known(rid)[:length]])
                    self._copied_in(seq)
                    self.check_room()
                case Assign(rid=rid, seq=seq, cached=cached):
                    self.in_memory.pop(rid, None)
                    self.recalled.pop(rid, None)
                    self.started.append(rid)
                    self.cached[rid] = cached if good else 0
                    if good:
                        assert self._tokens(seq) == self._known(rid)[:cached], "a prefix that is not the prompt's"
        return good

    def _known(self, rid: int) -> list[int]:
        return [*self.jobs[rid].tokens, *self.jobs[rid].ids]

    def _order(self, rid: int) -> tuple[bool, int]:
        return self.jobs[rid].warm, self.order.index(rid)

    def _remember(self, tokens: list[int], scope: str, public: int) -> None:
        if not self.snapshots:
            return
        self.numbers += 1
        key = str(self.numbers)
        self.archive[key] = Remembered(key, list(tokens), scope, public)
        while len(self.archive) > 4:
            held = {r.fetching for r in self.s._requests.values()}
            del self.archive[next(k for k in self.archive if k not in held)]
        self._publish()

    def _publish(self) -> None:
        self.s.residency.snapshots = tuple(self.archive.values())

    def _needs_empty(self, seq: int) -> None:
        assert not self.cells[seq]
        self.floors.pop(seq, None)

    def _copied_in(self, seq: int) -> None:
        """A state has the last window only."""
        if 0 < self.s.rules.window < len(self.cells[seq]):
            self.floors[seq] = len(self.cells[seq])

    def _needs_floor(self, seq: int, length: int) -> None:
        assert length == 0 or length >= self.floors.get(seq, 0), "the window is not there"

    def _tokens(self, seq: int) -> list[int]:
        return [token for _, token in self.cells[seq]]

    def _fresh(self, cells: list[Cell]) -> list[Cell]:
        self.numbers += len(cells)
        return [(self.numbers - i, token) for i, (_, token) in enumerate(cells)]

    def check_room(self) -> None:
        assert len({cell for held in self.cells.values() for cell in held}) <= self.s.context, "no slot"

    def step(self) -> None:
        self.steps += 1
        plan = self.s.plan()
        self.s.check()
        if not self.moves(plan.moves):
            self.compare()
            return
        self.compare()
        self.decode(plan)

    def decode(self, plan: Plan) -> None:
        assert plan.tokens <= self.s.batch
        outputs = []
        for row in plan.rows:
            index = row.position - len(self.jobs[row.rid].tokens)
            assert row.token == self.given[row.rid][index]
            assert row.sample == (index == len(self.given[row.rid]) - 1)
            self._decode(row.seq, row.position, row.token)
            outputs += [row.rid] if row.sample else []
            self.replayed += not row.sample
        total = 0
        for c in plan.chunks:
            cuts = self.jobs[c.rid].cuts
            begins = c.start % self.s.chunk == 0 or c.start == self.cached[c.rid] or c.start in cuts
            ends = c.stop % self.s.chunk == 0 or c.last or c.stop in cuts
            assert self.halved or (begins and ends), "pieces are whole chunks"
            for position in range(c.start, c.stop):
                self._decode(c.seq, position, self.jobs[c.rid].tokens[position])
            total += c.stop - c.start
            warm = self.jobs[c.rid].warm
            assert c.sample == (c.last and not warm and not self.given[c.rid])
            outputs += [c.rid] if c.sample or (c.last and warm) else []
        self.read += total
        assert total <= self.s.chunk
        assert len(outputs) <= self.s.sequences
        self.check_room()
        decoding = [
            rid
            for rid in self.answers
            if self.given[rid] and (r := self.s._requests[rid]).seq is not None and r.filled >= r.prompt
        ]
        assert sorted(r.rid for r in plan.rows) == sorted(decoding), "every running sequence gets its token"
        for rid in self.s.commit(plan):
            outputs.remove(rid)
            self._end(rid)
        for rid in outputs:
            token = answer_token(rid, len(self.given[rid]))
            self.given[rid].append(token)
            if len(self.given[rid]) == self.answers[rid]:
                self._end(rid)
            else:
                self.s.sampled(rid, token)
        self.s.check()
        self.compare()

    def _decode(self, seq: int, position: int, token: int) -> None:
        assert len(self.cells[seq]) == position, "positions have no holes"
        if position == 0:
            self.floors.pop(seq, None)
        self.numbers += 1
        self.cells[seq].append((self.numbers, token))

    def compare(self) -> None:
        """The books and the cells are the same, shared ones included."""
        books = {seq: resident.tokens for seq, resident in self.s.kv.residents() if resident.tokens}
        cells = {seq: self._tokens(seq) for seq, held in self.cells.items() if held}
        assert books == cells
        assert len({c for held in self.cells.values() for c in held}) == self.s.kv.occupied
