"""The scheduler against a fake engine: a random run checks the rules in the module's head."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.worker.scheduler import (
    GROWTH,
    PASSES,
    Assign,
    Chunk,
    ContextOverflowError,
    Exhausted,
    Restore,
    Row,
    Scheduler,
    SetAside,
)


class FakeEngine:
    """Cells by sequence, as llama.cpp would hold them; refuses what the real one refuses."""

    def __init__(self, s: Scheduler) -> None:
        self.s = s
        self.cells: dict[int, list[int]] = {n: [] for n in range(s.sequences)}  # seq -> positions
        self.saved: dict[int, list[int]] = {}
        self.answers: dict[int, int] = {}  # rid -> tokens still to come
        self.given: dict[int, int] = {}  # rid -> tokens sampled
        self.ended: list[int] = []
        self.order: list[int] = []
        self.started: list[int] = []
        self.steps = 0

    def submit(self, rid: int, prompt: int, max_tokens: int, answer: int) -> None:
        limit = self.s.submit(rid, prompt, max_tokens)
        self.answers[rid] = min(answer, limit)
        self.given[rid] = 0
        self.order.append(rid)

    def abort(self, rid: int) -> None:
        self._end(rid)

    def _end(self, rid: int) -> None:
        seq = self.s.remove(rid)
        if seq is not None:
            self.cells[seq] = []
        self.saved.pop(rid, None)
        self.ended.append(rid)
        del self.answers[rid]

    def moves(self, moves: tuple) -> None:
        for move in moves:
            if isinstance(move, SetAside):
                running = [r for r in self.order if r in self.answers and self.s._requests[r].seq is not None]
                assert all(self.order.index(r) < self.order.index(move.rid) for r in running[:1])
                assert len(self.cells[move.seq]) == move.cells
                self.saved[move.rid] = self.cells[move.seq]
                self.cells[move.seq] = []
            elif isinstance(move, Restore):
                assert not self.cells[move.seq]
                self.cells[move.seq] = self.saved.pop(move.rid)
                assert len(self.cells[move.seq]) == move.cells
            else:
                assert isinstance(move, Assign)
                assert not self.cells[move.seq]
                self.started.append(move.rid)

    def step(self) -> None:
        self.steps += 1
        plan = self.s.plan()
        self.s.check()
        self.moves(plan.moves)
        assert 0 < plan.tokens <= self.s.batch
        outputs = []
        for row in plan.rows:
            self._decode(row.seq, row.position)
            outputs.append(row.rid)
        total = 0
        for c in plan.chunks:
            assert c.start % self.s.chunk == 0, "pieces begin at multiples of the chunk"
            assert c.stop % self.s.chunk == 0 or c.last
            for position in range(c.start, c.stop):
                self._decode(c.seq, position)
            total += c.stop - c.start
            outputs += [c.rid] if c.last else []
        assert total <= self.s.chunk
        assert len(outputs) <= self.s.sequences
        assert sum(len(c) for c in self.cells.values()) <= self.s.context
        decoding = [r for r in self.answers if self.given[r] and self.s._requests[r].seq is not None]
        assert sorted(r.rid for r in plan.rows) == sorted(decoding), "every running sequence gets its token"
        self.s.commit(plan)
        for rid in outputs:
            self.given[rid] += 1
            if self.given[rid] == self.answers[rid]:
                self._end(rid)
            else:
                self.s.sampled(rid)
        self.s.check()

    def _decode(self, seq: int, position: int) -> None:
        assert len(self.cells[seq]) == position, "positions have no holes"
        self.cells[seq].append(position)


REQUEST = st.tuples(st.integers(1, 300), st.integers(1, 400), st.integers(1, 300), st.integers(0, 6))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(256, 600), st.integers(1, 5), st.sampled_from([8, 16, 32]), st.lists(REQUEST, max_size=24), st.data()
)
def test_random_runs(context: int, sequences: int, chunk: int, requests: list, data: st.DataObject) -> None:
    s = Scheduler(context, sequences, chunk + sequences, chunk)
    engine = FakeEngine(s)
    expected = []
    for rid, (prompt, max_tokens, answer, steps) in enumerate(requests):
        if prompt + 1 > context:
            with pytest.raises(ContextOverflowError):
                s.submit(rid, prompt, max_tokens)
            continue
        engine.submit(rid, prompt, max_tokens, answer)
        expected.append(rid)
        for _ in range(steps):
            if s.runnable:
                engine.step()
        if engine.answers and data.draw(st.integers(0, 9)) == 0:
            engine.abort(data.draw(st.sampled_from(sorted(engine.answers))))
    bound = engine.steps + sum(p + min(m, a) + 1 for p, m, a, _ in requests) + 1
    while s.runnable:
        engine.step()
        assert engine.steps < bound, "no step without progress"
    assert sorted(engine.ended) == expected, "every request ends exactly once"
    assert s.kv.free == context
    assert not engine.saved


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=2, max_size=30))
def test_at_most_eight_pass_one_that_does_not_fit(requests: list) -> None:
    s = Scheduler(256, 4, 36, 32)
    engine = FakeEngine(s)
    for rid, (prompt, answer) in enumerate(requests):
        engine.submit(rid, prompt, answer, answer)
    while s.runnable:
        engine.step()
    for rid in engine.order:
        before = engine.started[: engine.started.index(rid)]
        assert sum(other > rid for other in before) <= PASSES


def test_one_token_of_every_sequence_then_prefill() -> None:
    s = Scheduler(1024, 2, 34, 32)
    e = FakeEngine(s)
    e.submit(1, 10, 50, 50)
    e.step()
    e.submit(2, 70, 50, 50)
    plan = s.plan()
    assert plan.moves == (Assign(2, 1),)
    assert plan.rows == (Row(1, 0, 10),)
    assert plan.chunks == (Chunk(2, 1, 0, 32, False),)


def test_short_prompts_share_a_step_and_a_piece_goes_in_only_whole() -> None:
    s = Scheduler(1024, 3, 40, 32)
    for rid, prompt in ((1, 12), (2, 40), (3, 20)):
        s.submit(rid, prompt, 5)
    plan = s.plan()
    assert [(c.rid, c.start, c.stop, c.last) for c in plan.chunks] == [(1, 0, 12, True), (3, 0, 20, True)]


def test_the_youngest_is_set_aside_and_comes_back_first() -> None:
    s = Scheduler(256, 2, 36, 32)
    e = FakeEngine(s)
    e.submit(1, 10, 240, 240)
    for _ in range(60):
        e.step()
    e.submit(2, 10, 100, 100)
    while 2 not in e.saved:
        e.step()
    assert (s.set_aside, s.set_aside_total) == (1, 1)
    e.submit(3, 60, 100, 1)
    while s.runnable:
        e.step()
    assert e.ended == [1, 2, 3]


def test_max_tokens_is_clamped_to_the_context() -> None:
    s = Scheduler(256, 1, 36, 32)
    assert s.submit(1, 200, 4096) == 56
    with pytest.raises(ContextOverflowError, match=r"256.*257 > 256"):
        s.submit(2, 256, 1)
    assert s.submit(3, 255, 9) == 1


def test_no_slot_loses_no_request() -> None:
    s = Scheduler(512, 2, 36, 32)
    e = FakeEngine(s)
    e.submit(1, 60, 20, 20)
    e.submit(2, 60, 20, 20)
    plan = s.plan()
    e.moves(plan.moves)
    e.moves(s.no_slot(plan))
    assert s.set_aside == 1
    plan = s.plan()
    assert plan.moves == ()
    assert plan.chunks == (Chunk(1, 0, 0, 32, False),)
    assert s.no_slot(plan) == ()
    assert s.plan().chunks == (Chunk(1, 0, 0, 16, False),)
    while s.runnable:
        plan = s.plan()
        e.moves(plan.moves)
        for c in plan.chunks:
            for position in range(c.start, c.stop):
                e._decode(c.seq, position)
        for row in plan.rows:
            e._decode(row.seq, row.position)
        s.commit(plan)
        for rid in [r.rid for r in plan.rows] + [c.rid for c in plan.chunks if c.last]:
            e.given[rid] += 1
            if e.given[rid] == e.answers[rid]:
                e._end(rid)
            else:
                s.sampled(rid)
        s.check()
    assert sorted(e.ended) == [1, 2]


def test_a_cache_without_room_for_one_token_is_broken() -> None:
    s = Scheduler(512, 1, 36, 32)
    s.submit(1, 60, 20)
    plan = s.plan()
    while plan.tokens > 1:
        s.no_slot(plan)
        plan = s.plan()
    with pytest.raises(Exhausted):
        s.no_slot(plan)


def test_growth_is_as_designed() -> None:
    s = Scheduler(4096, 1, 36, 32)
    s.submit(1, 100, 1000)
    s.plan()
    assert s.kv.reserved(0) == 100 + GROWTH
