"""The scheduler against a fake engine: a random run checks the rules in the heads of the modules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.worker.jobs import GROWTH, ContextOverflowError, Exhausted, Job
from edged.worker.plan import Assign, Chunk, Fetch, Row
from edged.worker.prefix import Rules
from edged.worker.residency import Remembered
from edged.worker.scheduler import PASSES, Scheduler
from tests.unit.fake_engine import FakeEngine, answer_token

TEXTS = {name: [start + i % 97 for i in range(700)] for name, start in (("a", 100), ("b", 300), ("c", 500))}
"""Prompts are beginnings of these, with another ending."""


def distinct(rid: int, length: int) -> list[int]:
    """A prompt that begins as no other does."""
    return [10_000 + rid, *range(length - 1)]


@st.composite
def prompts(draw: st.DrawFn) -> tuple[list[int], int]:
    """Tokens, and how many of them are the leading system message."""
    text = TEXTS[draw(st.sampled_from("abc"))]
    public = draw(st.sampled_from([0, 0, 40, 100]))
    length = draw(st.integers(max(1, public), 300))
    tail = draw(st.lists(st.integers(0, 3), max_size=40))
    return text[:length] + tail, public


REQUEST = st.fixed_dictionaries(
    {
        "prompt": prompts(),
        "max_tokens": st.integers(1, 400),
        "answer": st.integers(1, 300),
        "steps": st.integers(0, 6),
        "scope": st.sampled_from("xy"),
        "warm": st.sampled_from([False, False, False, True]),
        "keep": st.booleans(),
        "carried": st.one_of(st.none(), st.integers(0, 120)),
        "checkpoint": st.one_of(st.none(), st.integers(0, 400)),
    }
)


def job_of(rid: int, asked: dict, *, exact: bool) -> Job:
    tokens, public = asked["prompt"]
    cuts = tuple(sorted({public, len(tokens) - 3} - {0})) if exact and len(tokens) > 3 else ()
    ids = 0 if asked["warm"] else min(asked["carried"] or 0, asked["answer"] - 1, asked["max_tokens"] - 1)
    return Job(
        rid=rid,
        tokens=tokens,
        max_tokens=0 if asked["warm"] else asked["max_tokens"],
        scope=asked["scope"],
        public=public,
        keep=asked["keep"],
        warm=asked["warm"],
        cuts=tuple(c for c in cuts if 0 < c < len(tokens)),
        ids=[answer_token(rid, index) for index in range(ids)],
        recall=asked["checkpoint"] is not None and asked["carried"] is not None and not asked["warm"],
    )


@st.composite
def schedulers(draw: st.DrawFn) -> Scheduler:
    sequences, chunk = draw(st.integers(1, 4)), draw(st.sampled_from([8, 16, 32]))
    exact, window = draw(st.sampled_from([(False, 0), (False, 0), (True, 0), (False, 16)]))
    return Scheduler(
        context=draw(st.integers(256, 600)),
        sequences=sequences,
        batch=chunk + sequences,
        chunk=chunk,
        residents=sequences + draw(st.integers(0, 5)),
        rules=Rules(draw(st.sampled_from(["identity", "system", "all"])), exact, window),
        reuse=draw(st.booleans()),
        alone=draw(st.booleans()),
    )


@settings(max_examples=50, deadline=None)
@given(schedulers(), st.booleans(), st.lists(REQUEST, max_size=24), st.data())
def test_random_runs(s: Scheduler, snapshots: bool, requests: list, data: st.DataObject) -> None:
    engine = FakeEngine(s, lose=lambda _: data.draw(st.integers(0, 7)) == 0, snapshots=snapshots)
    expected = []
    for rid, asked in enumerate(requests):
        job = job_of(rid, asked, exact=s.rules.exact)
        if job.known + (not job.warm) > s.context:
            with pytest.raises(ContextOverflowError):
                s.submit(job)
            continue
        if job.recall:
            engine.checkpoints[rid] = asked["checkpoint"]
        engine.submit(job, asked["answer"])
        expected.append(rid)
        for _ in range(asked["steps"]):
            if s.runnable:
                engine.step()
        if engine.answers and data.draw(st.integers(0, 9)) == 0:
            engine.abort(data.draw(st.sampled_from(sorted(engine.answers))))
    most = sum(len(r["prompt"][0]) + min(r["max_tokens"], r["answer"]) + 6 for r in requests)
    bound = engine.steps + 3 * most + 20
    while s.runnable:
        engine.step()
        assert engine.steps < bound, "no step without progress"
    assert sorted(engine.ended) == expected, "every request ends exactly once"
    assert s.kv.free == s.context
    assert not engine.saved
    assert not engine.in_memory
    assert not engine.recalled
    if not s.reuse:
        assert not any(engine.cached[rid] for rid in engine.started if not engine.jobs[rid].recall)
        assert s.kv.occupied == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=2, max_size=30))
def test_at_most_eight_pass_one_that_does_not_fit(requests: list) -> None:
    s = Scheduler(256, 4, 36, 32)
    engine = FakeEngine(s)
    for rid, (prompt, answer) in enumerate(requests):
        engine.submit(Job(rid, distinct(rid, prompt), answer), answer)
    while s.runnable:
        engine.step()
    for rid in engine.order:
        before = engine.started[: engine.started.index(rid)]
        assert sum(other > rid for other in before) <= PASSES


def test_one_token_of_every_sequence_then_prefill() -> None:
    s = Scheduler(1024, 2, 34, 32)
    e = FakeEngine(s)
    e.submit(Job(1, distinct(1, 10), 50), 50)
    e.step()
    e.submit(Job(2, distinct(2, 70), 50), 50)
    plan = s.plan()
    assert plan.moves == (Assign(2, 1),)
    assert plan.rows == (Row(1, 0, 10, e.given[1][0]),)
    assert plan.chunks == (Chunk(2, 1, 0, 32, last=False, sample=False),)


def test_short_prompts_share_a_step_and_a_piece_goes_in_only_whole() -> None:
    s = Scheduler(1024, 3, 40, 32)
    for rid, prompt in ((1, 12), (2, 40), (3, 20)):
        s.submit(Job(rid, distinct(rid, prompt), 5))
    plan = s.plan()
    assert [(c.rid, c.start, c.stop, c.last) for c in plan.chunks] == [(1, 0, 12, True), (3, 0, 20, True)]


def test_the_youngest_is_set_aside_and_comes_back_first() -> None:
    s = Scheduler(256, 2, 36, 32)
    e = FakeEngine(s)
    e.submit(Job(1, distinct(1, 10), 240), 240)
    for _ in range(60):
        e.step()
    e.submit(Job(2, distinct(2, 10), 100), 100)
    while 2 not in e.saved:
        e.step()
    assert (s.set_aside, s.set_aside_total) == (1, 1)
    e.submit(Job(3, distinct(3, 60), 100), 1)
    while s.runnable:
        e.step()
    assert e.ended == [1, 2, 3]


def test_max_tokens_is_clamped_to_the_context() -> None:
    s = Scheduler(256, 1, 36, 32)
    assert s.submit(Job(1, distinct(1, 200), 4096)) == 56
    with pytest.raises(ContextOverflowError, match=r"256.*257 > 256"):
        s.submit(Job(2, distinct(2, 256), 1))
    assert s.submit(Job(3, distinct(3, 255), 9)) == 1


def test_no_slot_loses_no_request() -> None:
    s = Scheduler(512, 2, 36, 32)
    e = FakeEngine(s)
    e.submit(Job(1, distinct(1, 60), 20), 20)
    e.submit(Job(2, distinct(2, 60), 20), 20)
    plan = s.plan()
    e.moves(plan.moves)
    e.moves(s.no_slot(plan))
    assert s.set_aside == 1
    plan = s.plan()
    assert plan.moves == ()
    assert plan.chunks == (Chunk(1, 0, 0, 32, last=False, sample=False),)
    assert s.no_slot(plan) == ()
    assert s.plan().chunks == (Chunk(1, 0, 0, 16, last=False, sample=False),)
    e.halved = True
    while s.runnable:
        plan = s.plan()
        e.moves(plan.moves)
        e.decode(plan)
    assert sorted(e.ended) == [1, 2]


def test_no_slot_evicts_what_is_idle_first() -> None:
    s = Scheduler(512, 2, 36, 32)
    e = FakeEngine(s)
    e.submit(Job(1, distinct(1, 60), 20), 20)
    while s.runnable:
        e.step()
    e.submit(Job(2, distinct(2, 60), 20), 20)
    plan = s.plan()
    e.moves(plan.moves)
    e.moves(s.no_slot(plan))
    assert s.set_aside == 0
    assert s.kv.idle() == []


def test_a_cache_without_room_for_one_token_is_broken() -> None:
    s = Scheduler(512, 1, 36, 32)
    s.submit(Job(1, distinct(1, 60), 20))
    plan = s.plan()
    while plan.tokens > 1:
        s.no_slot(plan)
        plan = s.plan()
    with pytest.raises(Exhausted):
        s.no_slot(plan)


def test_growth_is_as_designed() -> None:
    s = Scheduler(4096, 1, 36, 32)
    s.submit(Job(1, distinct(1, 100), 1000))
    s.plan()
    assert s.kv[0].reserved == 100 + GROWTH


# ---- prefix reuse


def run(e: FakeEngine, *jobs: Job, answer: int = 5) -> None:
    for job in jobs:
        e.submit(job, answer)
    finish(e)


def finish(e: FakeEngine) -> None:
    for _ in range(2000):
        if not e.s.runnable:
            return
        e.step()
    raise AssertionError("no end")


def test_eight_callers_with_one_system_message_read_it_once() -> None:
    s = Scheduler(4096, 4, 68, 32, 9)
    e = FakeEngine(s)
    system = TEXTS["a"][:400]
    jobs = [Job(rid, [*system, 2000 + rid, 7, 8, 9], 16, scope=f"caller{rid}", public=400) for rid in range(8)]
    run(e, *jobs, answer=16)
    assert sorted(e.cached.values()) == [0] + [400] * 7
    assert e.read == 400 + 8 * 4


def test_the_next_turn_reads_only_what_is_new() -> None:
    s = Scheduler(1024, 2, 34, 32, 5)
    e = FakeEngine(s)
    run(e, Job(1, TEXTS["a"][:100], 50), answer=20)
    said = [*TEXTS["a"][:100], *e.given[1]]
    read = e.read
    run(e, Job(2, [*said, 1, 2, 3], 50))
    assert e.cached[2] == 116, "all but the last token of the answer, cut to a multiple of four"
    assert e.read - read == len(said) + 3 - 116


def test_a_conversation_that_was_left_is_found_again_when_another_took_a_copy() -> None:
    s = Scheduler(1024, 1, 33, 32, 4)
    e = FakeEngine(s)
    system = TEXTS["a"][:100]
    long = [*system, *range(60)]
    run(e, Job(1, long, 5))
    run(e, Job(2, [*system, 700, 701], 5))
    assert e.cached[2] == 100
    run(e, Job(3, [*long, 3, 3], 5))
    assert e.cached[3] >= 160


@pytest.mark.parametrize(("sharing", "expected"), [("identity", 0), ("system", 0), ("all", 100)])
def test_a_text_of_another_is_not_found(sharing: str, expected: int) -> None:
    s = Scheduler(1024, 2, 34, 32, 5, Rules(sharing))
    e = FakeEngine(s)
    run(e, Job(1, [*TEXTS["a"][:100], 1], 5, scope="a"))
    run(e, Job(2, [*TEXTS["a"][:100], 2], 5, scope="b"))
    assert e.cached[2] == expected


def test_a_system_message_is_shared_whole_or_not_at_all() -> None:
    s = Scheduler(1024, 2, 34, 32, 5)
    e = FakeEngine(s)
    run(e, Job(1, TEXTS["a"][:150], 5, scope="a", public=100))
    run(e, Job(2, [*TEXTS["a"][:99], 3, *range(50)], 5, scope="b", public=100))
    assert e.cached[2] == 0, "it differs in its last token"
    run(e, Job(3, TEXTS["a"][:150], 5, scope="c", public=100))
    assert e.cached[3] == 100, "and nothing of what the other wrote after it"
    run(e, Job(4, TEXTS["a"][:150], 5, scope="d", public=120))
    assert e.cached[4] == 0


def test_a_conversation_comes_back_from_its_snapshot() -> None:
    s = Scheduler(300, 1, 33, 32, 2)
    e = FakeEngine(s)
    run(e, Job(1, TEXTS["a"][:200], 5))
    run(e, Job(2, TEXTS["b"][:250], 5))
    run(e, Job(3, [*TEXTS["a"][:200], 4, 5, 6, 7], 5))
    assert e.cached[3] == 200


def test_a_request_that_starts_alone_has_the_cache_to_itself() -> None:
    s = Scheduler(1024, 2, 34, 32, 6, alone=True)
    e = FakeEngine(s)
    run(e, Job(1, TEXTS["a"][:100], 5), Job(2, TEXTS["b"][:100], 5))
    assert len(s.kv.idle()) == 2
    for rid, text in ((3, "a"), (4, "b"), (5, "a")):
        e.submit(Job(rid, [*TEXTS[text][:100], rid, 2, 3, 4], 5), 5)
        while rid not in e.started:
            e.step()
        assert [seq for seq, held in e.cells.items() if held] == [s._requests[rid].seq]
        assert s.kv[s._requests[rid].seq].packed
        finish(e)
        assert e.cached[rid] == 100, "and finds what it wrote"


def remembered(e: FakeEngine, tokens: list[int]) -> None:
    e.archive["big"] = Remembered("big", tokens, "", 0)
    e._publish()


def test_a_snapshot_of_a_larger_context_holds_nobody_up() -> None:
    s = Scheduler(256, 2, 36, 32)
    e = FakeEngine(s)
    remembered(e, TEXTS["a"][:300])
    run(e, Job(1, [*TEXTS["a"][:60], 1], 5))
    assert e.cached[1] == 0


def test_a_snapshot_that_does_not_fit_now_is_not_waited_for() -> None:
    s = Scheduler(512, 2, 36, 32)
    e = FakeEngine(s)
    e.submit(Job(1, distinct(1, 100), 400), 400)
    e.step()
    remembered(e, TEXTS["a"][:400])
    e.submit(Job(2, [*TEXTS["a"][:60], 1], 5), 5)
    e.step()
    assert e.started == [1, 2]
    assert e.cached[2] == 0
    finish(e)


def test_a_snapshot_that_comes_too_late_is_not_kept() -> None:
    s = Scheduler(512, 2, 36, 32)
    remembered(FakeEngine(s), TEXTS["a"][:400])
    s.submit(Job(1, [*TEXTS["a"][:400], 1], 5))
    assert Fetch(1, "big") in s.plan().moves
    s.remove(1)
    assert not s.fetched(1, found=True)


def test_a_hybrid_goes_on_at_its_end_or_at_a_checkpoint() -> None:
    s = Scheduler(2048, 1, 33, 32, 2, Rules(exact=True))
    e = FakeEngine(s)
    run(e, Job(1, TEXTS["a"][:100], 5, public=40, cuts=(40, 97)))
    whole = [*TEXTS["a"][:100], *e.given[1]]
    run(e, Job(2, [*whole, 1, 2], 5, public=40, cuts=(40, 104)))
    assert e.cached[2] == 104, "its own end: all but the last token of the answer"
    run(e, Job(3, [*TEXTS["a"][:97], 9, 9, 9], 5, public=40, cuts=(40, 99)))
    assert e.cached[3] == 97, "the end of the turn"
    run(e, Job(4, [*TEXTS["a"][:90], 9, 9, 9], 5, scope="other", public=40, cuts=(40, 92)))
    assert e.cached[4] == 40, "the end of the system message"


def test_a_warm_up_makes_way_and_keeps_what_it_read() -> None:
    s = Scheduler(1024, 1, 33, 32, 3)
    e = FakeEngine(s)
    e.submit(Job(1, TEXTS["a"][:200], warm=True))
    for _ in range(3):
        e.step()
    e.submit(Job(2, TEXTS["b"][:10], 3), 3)
    while 2 not in e.ended:
        e.step()
    assert 1 not in e.ended
    finish(e)
    assert e.read == 200 + 10
    run(e, Job(3, [*TEXTS["a"][:200], 1], 3))
    assert e.cached[3] == 200


# ---- carried on


def carried(rid: int, prompt: int, ids: int, **more: object) -> Job:
    tokens = distinct(rid, prompt)
    return Job(rid, tokens, 100, ids=[answer_token(rid, index) for index in range(ids)], **more)


def test_what_is_known_is_decoded_and_not_sampled() -> None:
    s = Scheduler(1024, 2, 34, 32)
    e = FakeEngine(s)
    e.submit(carried(1, 70, 20), answer=25)
    finish(e)
    assert (e.read, e.replayed) == (70, 19), "the last one known is decoded with an output that is sampled"
    assert e.given[1] == [answer_token(1, index) for index in range(25)]


@pytest.mark.parametrize(("held", "read", "replayed"), [(0, 70, 19), (64, 6, 19), (70, 0, 19), (80, 0, 9), (500, 0, 0)])
def test_a_checkpoint_is_gone_on_from(held: int, read: int, replayed: int) -> None:
    s = Scheduler(1024, 2, 34, 32, alone=True)
    e = FakeEngine(s)
    e.checkpoints[1] = held
    e.submit(carried(1, 70, 20, recall=True), answer=25)
    finish(e)
    assert (e.read, e.replayed) == (read, replayed)


def test_one_that_died_while_its_prompt_was_read_goes_on_there() -> None:
    s = Scheduler(1024, 2, 34, 32)
    e = FakeEngine(s)
    e.checkpoints[1] = 192
    e.submit(carried(1, 200, 0, recall=True), answer=3)
    finish(e)
    assert e.read == 8
    assert s.hits == s.misses == 0


def test_a_checkpoint_waits_for_cells_as_others_do() -> None:
    s = Scheduler(256, 2, 34, 32)
    e = FakeEngine(s)
    e.submit(Job(1, distinct(1, 100), 100), 100)
    e.step()
    e.checkpoints[2] = 90
    e.submit(carried(2, 80, 20, recall=True), answer=30)
    while 1 not in e.ended:
        e.step()
        assert not e.recalled
    finish(e)
    assert e.replayed == 9


def test_too_little_context_for_what_is_known() -> None:
    s = Scheduler(256, 2, 34, 32)
    with pytest.raises(ContextOverflowError, match="257 > 256"):
        s.submit(carried(1, 200, 56))


def test_a_checkpoint_for_nobody_is_told() -> None:
    s = Scheduler(256, 2, 34, 32)
    s.submit(carried(1, 100, 5, recall=True))
    s.plan()
    s.remove(1)
    assert not s.recalled(1, 50)
