"""A worker's end and the next one's beginning: nothing is lost, nothing is told twice, the guilty one is found."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from edged.errors import Code
from edged.level import Level
from edged.messages import (
    Abort,
    Carried,
    Discard,
    Done,
    Gone,
    Prefilled,
    Refused,
    Sampled,
    Start,
    Tokenized,
    TokenLogprob,
    TopLogprob,
)
from unit.rig import A, B, Rig, answer, answers, code, ended, events, kinds, started, told

STREAMS: tuple[str | bool, ...] = (False, "pub", "reply")


def filled(rig: Rig, count: int, who: str = A) -> list[str]:
    names = [f"fill-{n}" for n in range(count)]
    for name in names:
        rig.generate(name, who)
    return names


def starts(out: list[Any]) -> list[Start]:
    return [m for m in told(out) if isinstance(m, Start)]


def carried(out: list[Any]) -> Carried:
    (one,) = starts(out)
    assert one.carried is not None
    return one.carried


def ids(*values: int) -> bytes:
    return array("I", values).tobytes()


# ---- the road ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("cause", ["SIGKILL", "SIGSEGV", "stalled", "reload", "heat"])
def test_a_running_request_goes_on(cause: str, stream: str | bool) -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", stream=stream, detach=True, to=to)
    rid = rig.rid("a")
    out = rig.run(rid, "half ") + rig.lost(cause) + rig.wait(0.5)
    start = rig.ready()
    assert carried(start) == Carried(ids(0, 1, 2, 3), 0, [], ids(1))
    out += start + rig.prefill(rid, 0) + rig.prefill(rid) + rig.sample(rid, "and half") + rig.done(rid)
    if stream is not False:
        assert kinds(out) == ["prefill", "token", "restart", "token", "end"]
        assert [e["seq"] for e in events(out)] == [0, 1, 2, 3, 4]
        assert [e["reason"] for e in events(out) if e["type"] == "restart"] == [cause]
    result = answer(rig.result("a"))
    assert (result["text"], result["restarts"], result["usage"]["completion_tokens"]) == ("half and half", 1, 2)


def test_what_ran_and_what_was_given_keep_their_order() -> None:
    rig = Rig(sequences=2)
    names = filled(rig, 6)
    rids = [rig.rid(name) for name in names]
    rig.run(rids[1], "half")
    assert ended(rig.lost("SIGSEGV")) == []
    out = rig.ready(sequences=8)
    assert started(out) == rids
    assert [s.carried is not None for s in starts(out)] == [False, True] + [False] * 4


def test_round_robin_does_not_reorder_what_was_given() -> None:
    rig = Rig(sequences=2)
    for name, who in (("a1", A), ("b1", B), ("a2", A), ("b2", B), ("c1", "uid:3")):
        rig.generate(name, who)
    given_first = [("a1", A), ("b1", B), ("a2", A), ("b2", B)]
    rig.lost()
    expected = [rig.rid(*one) for one in given_first]
    assert started(rig.ready(sequences=2)) == expected


def test_it_has_a_name_that_stays() -> None:
    rig = Rig()
    (first,) = starts(rig.generate("a"))
    assert len(first.name) == 32
    assert set(first.name) <= set("0123456789abcdef")
    rig.run(first.rid)
    rig.lost()
    assert [s.name for s in starts(rig.ready())] == [first.name]
    rig.done(first.rid)
    assert [s.name for s in starts(rig.generate("b"))] != [first.name]


def test_it_is_running_to_everybody_meanwhile() -> None:
    rig = Rig()
    rig.generate("a", stream="pub", detach=True)
    rig.generate("b", stream="pub", detach=True)
    rig.run(rig.rid("a"), "half")
    rig.lost()
    for _ in range(2):
        assert answer(rig.result("a"))["state"] == "running"
        assert answer(rig.result("a"))["text"] == "half"
        ticket = answer(rig.generate("a", stream="pub", detach=True))
        assert (ticket["state"], "position" in ticket) == ("running", False)
        assert events(rig.subscribe(rig.topic("a"))[1])[0]["state"] == "running"
        assert {e["id"] for e in events(rig.wait(6)) if e["type"] == "queued"} == {"b"}
        rig.ready()


def test_one_in_the_middle_of_its_prompt_reads_on_without_counting_twice() -> None:
    rig = Rig()
    rig.generate("a", stream="pub", detach=True)
    rid = rig.rid("a")
    rig.prompted(rid, 100)
    rig.heard(Prefilled(rid, 8, 100, 8))
    rig.heard(Prefilled(rid, 60, 100, 8))
    rig.lost("SIGKILL")
    assert carried(rig.ready()).ids == b""
    rig.wait(2)
    assert events(rig.heard(Prefilled(rid, 60, 100, 60))) == []
    (event,) = events(rig.heard(Prefilled(rid, 90, 100, 60)))
    assert (event["type"], event["done"], event["total"]) == ("prefill", 90, 100)
    rig.sample(rid, "x")
    rig.done(rid)
    assert answer(rig.result("a"))["usage"] == {"prompt_tokens": 100, "cached_tokens": 8, "completion_tokens": 1}


def test_every_second_of_reading_again_is_told() -> None:
    rig = Rig()
    rig.generate("a", stream="pub", detach=True)
    rid = rig.rid("a")
    rig.run(rid, "half")
    rig.lost("SIGKILL")
    rig.ready()
    out: list[Any] = []
    for done in range(1, 9):
        rig.wait(0.5)
        out += rig.heard(Prefilled(rid, done, 9, 0))
    assert kinds(out) == ["prefill"] * 4


def test_without_its_prompt_it_starts_afresh_if_nothing_was_sampled_and_ends_else() -> None:
    rig = Rig(sequences=2)
    to = rig.to()
    rig.generate("reads")
    rig.generate("speaks", to=to)
    rig.prefill(rig.rid("reads"), 2)
    rig.prefill(rig.rid("speaks"))
    rig.sample(rig.rid("speaks"), "half")
    out = rig.lost("SIGKILL")
    assert (code(out, to), answer(out, to)["error"]["retryable"]) == ("worker_lost", True)
    (again,) = starts(rig.ready())
    assert (again.rid, again.carried) == (rig.rid("reads"), None)


def test_a_restart_is_counted() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", to=to)
    for _ in range(3):
        rig.prefill(rig.rid("a"), 0, 4)
        rig.lost("SIGKILL")
        rig.ready()
    rig.run(rig.rid("a"))
    rig.lost("reload")
    rig.ready()
    assert answer(rig.done(rig.rid("a")), to)["restarts"] == 4


def test_a_second_death_before_it_goes_on_is_told_once_more() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rig.run(rig.rid("a"), "half")
    assert kinds(rig.lost("SIGKILL")) == ["restart"]
    assert kinds(rig.lost("SIGKILL")) == [], "the new worker died while it loaded: it had nothing"
    rig.ready()
    assert kinds(rig.lost("SIGKILL")) == ["restart"]
    assert carried(rig.ready()).ids == ids(1)


def test_the_name_of_what_ran_and_runs_is_live() -> None:
    rig = Rig(sequences=1)
    filled(rig, 5)
    names = {rig.request(f"fill-{n}").name for n in range(3)}
    assert set(rig.broker.live_names()) == names
    rig.run(rig.rid("fill-0"))
    rig.lost()
    assert rig.broker.live_names() == [rig.request("fill-0").name]


def test_work_is_what_the_worker_has() -> None:
    rig = Rig()
    assert not rig.broker.has_work
    rig.generate("a")
    assert rig.broker.has_work
    rig.lost()
    assert not rig.broker.has_work
    rig.ready()
    rig.done(rig.rid("a"))
    assert not rig.broker.has_work
    rig.tokenize()
    assert rig.broker.has_work


# ---- how it ends while it waits ------------------------------------------------------------------------------------


def test_what_returned_keeps_its_deadline() -> None:
    rig = Rig()
    rig.generate("a", deadline_ms=3000)
    rig.wait(2)
    rig.lost()
    assert [e["outcome"] for e in ended(rig.wait(1))] == ["deadline_exceeded"]


def test_the_deadline_runs_on_and_the_text_is_kept() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", deadline_ms=3000, to=to)
    rig.run(rig.rid("a"), "half")
    name = rig.request("a").name
    rig.lost()
    out = rig.wait(3)
    assert (answer(out, to)["finish_reason"], answer(out, to)["text"]) == ("deadline", "half")
    assert told(out) == [Discard(name)]


def test_a_cancel_ends_it_with_its_text() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rig.run(rig.rid("a"), "half")
    name = rig.request("a").name
    rig.lost()
    out = rig.cancel("a")
    assert (events(out)[-1]["finish_reason"], events(out)[-1]["text"]) == ("cancelled", "half")
    assert told(out) == [Discard(name)]
    assert starts(rig.ready()) == []


def test_given_again_it_is_aborted_like_any_other() -> None:
    rig = Rig()
    rig.generate("a")
    rid = rig.rid("a")
    rig.run(rid, "half")
    rig.lost()
    rig.ready()
    assert told(rig.cancel("a")) == [Abort(rid)]


def test_superseded_it_leaves_the_head_of_the_new_ones_priority() -> None:
    rig = Rig()
    rig.generate("a")
    rig.generate("b")
    rig.run(rig.rid("a"), "half")
    rig.lost()
    for n in range(2):
        rig.generate(f"high-{n}", priority="high")
    out = rig.generate("new", supersedes="a", priority="high")
    assert [e["id"] for e in ended(out)] == ["a"]
    expected = [rig.rid(name) for name in ("new", "high-0", "high-1", "b")]
    assert started(rig.ready(sequences=2)) == expected


def test_a_stop_ends_it() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", to=to)
    rig.run(rig.rid("a"), "half")
    rig.lost()
    assert code(rig.broker.stopped(rig.now), to) == "shutting_down"


# ---- another model, a smaller profile ------------------------------------------------------------------------------


def test_with_another_model_one_with_text_ends_by_length() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", to=to)
    name = rig.request("a").name
    rig.run(rig.rid("a"), "half")
    rig.lost("reload")
    out = rig.ready(model="other")
    result = answer(out, to)
    assert (result["finish_reason"], result["text"], result["model"]) == ("length", "half", "tiny")
    assert told(out) == [Discard(name)]
    assert rig.lives.model == "other"


def test_with_another_model_one_without_text_starts_afresh() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", to=to, logprobs=1, stream="pub", detach=True)
    rid = rig.rid("a")
    rig.prompted(rid)
    rig.prefill(rid)
    entry = TokenLogprob(5, "x", -1.0, [TopLogprob(5, "x", -1.0)])
    rig.heard(Sampled(rid, [5, 6], "", [entry, entry]))
    rig.lost("reload")
    out = rig.ready(model="other")
    (again,) = starts(out)
    assert (again.rid, again.carried) == (rid, None)
    out = rig.run(rid, "hi") + rig.done(rid)
    result = answer(rig.result("a"))
    assert (result["text"], result["usage"]["completion_tokens"], result["model"]) == ("hi", 1, "other")
    assert (result["logprobs"], result["restarts"]) == ([], 1)
    assert [e["n"] for e in events(out) if e["type"] == "token"] == [1]


def test_the_first_model_again_finds_it_where_it_was() -> None:
    rig = Rig()
    rig.generate("a")
    rig.run(rig.rid("a"), "half")
    rig.lost("reload")
    assert carried(rig.ready(model="tiny")).ids == ids(1)


@pytest.mark.parametrize(
    ("text", "level", "outcome"),
    [
        ("half", Level.NORMAL, "length"),
        ("half", Level.HOT, "length"),
        ("", Level.NORMAL, "context_overflow"),
        ("", Level.HOT, "low_memory"),
    ],
)
def test_a_smaller_context(text: str, level: Level, outcome: str) -> None:
    rig = Rig()
    rig.generate("a")
    rid = rig.rid("a")
    rig.run(rid, text)
    rig.lost("memory")
    rig.broker.pressed(level, Code.LOW_MEMORY if level else None, 4000, "memory is short", rig.now)
    rig.ready()
    out = rig.heard(Refused(rid, "context_overflow", "100 tokens, 64 fit"))
    assert [e["outcome"] for e in ended(out)] == [outcome]
    assert told(out) == []


# ---- blame ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("where", ["given", "reads", "speaks"])
def test_a_prompt_that_kills_is_ended_and_kills_no_more(where: str, stream: str | bool) -> None:
    rig = Rig()
    rig.generate("a", stream=stream, detach=True)
    rid = rig.rid("a")
    for death in range(3):
        if where == "reads":
            rig.prompted(rid)
            rig.prefill(rid, 2)
        if where == "speaks" and death == 0:
            rig.run(rid, "half")
        out = rig.lost("SIGSEGV")
        rig.ready()
    assert [e["outcome"] for e in ended(out)] == ["worker_lost"]
    rig.wait(1)
    again = rig.generate("a", stream=stream, detach=True)
    assert starts(again) == []
    error = answer(rig.result("a"))["error"]
    assert (error["code"], error["retryable"]) == ("worker_lost", False)
    assert "retry_after_ms" not in error


@pytest.mark.parametrize("cause", ["SIGKILL", "exit 1", "oom", "reload", "SIGTERM"])
def test_other_causes_never_count(cause: str) -> None:
    rig = Rig()
    rig.generate("a")
    rig.run(rig.rid("a"), "half")
    for _ in range(20):
        assert ended(rig.lost(cause)) == []
        rig.ready()
    assert rig.request("a").blamed == 0


def test_progress_between_deaths_clears_blame() -> None:
    rig = Rig()
    rig.generate("a", max_tokens=4096)
    rid = rig.rid("a")
    rig.run(rid, "x")
    for _ in range(10):
        assert ended(rig.lost("SIGSEGV")) == []
        rig.ready()
        rig.prefill(rid)
        rig.sample(rid, "x" * 32, 32)
    for n in range(3):
        rig.prefill(rid)
        rig.sample(rid, "x", 10)
        out = rig.lost("stalled")
        assert len(ended(out)) == (n == 2)
        rig.ready()


def test_what_is_read_again_is_no_progress() -> None:
    rig = Rig()
    rig.generate("a")
    rid = rig.rid("a")
    for death in range(3):
        rig.prompted(rid, 200)
        rig.heard(Prefilled(rid, 100, 200, 0))
        assert len(ended(rig.lost("SIGBUS"))) == (death == 2)
        rig.ready()


def test_the_innocent_are_not_ended_with_the_guilty() -> None:
    rig = Rig(sequences=4)
    names = [*filled(rig, 3), "guilty"]
    rig.generate("guilty")
    deaths = 0
    while deaths < 10 and len(rig.lives.table):
        having = [name for name in names if rig.lives.table.find(A, name)]
        having = [name for name in having if rig.request(name).with_worker]
        for name in having:
            if name != "guilty" and rig.request(name).state != "running":
                rig.run(rig.rid(name), "")
        if "guilty" in having:
            deaths += 1
            rig.lost("SIGABRT")
            rig.ready(sequences=4)
            continue
        for name in having:
            rig.sample(rig.rid(name), "x" * 40, 40)
        if len(having) == len(rig.lives.table):
            for name in having:
                rig.done(rig.rid(name))
    assert deaths == 3
    assert code(rig.result("guilty")) == "worker_lost"
    assert {answer(rig.result(name))["finish_reason"] for name in names[:3]} == {"stop"}


def test_a_trial_lets_nobody_stand_beside_the_suspect() -> None:
    rig = Rig(sequences=4)
    a, b = (rig.rid(name) for name in filled(rig, 2))
    for _ in range(2):
        rig.lost("SIGSEGV")
        out = rig.ready(sequences=4)
    assert started(out) == [a]
    assert started(rig.generate("new")) == []
    assert started(rig.run(a, "x") + rig.sample(a, "x", 20)) == []
    out = rig.sample(a, "x", 11)
    assert started(out) == [b], "proven; now the next suspect, alone but for what is proven"
    out = rig.done(b)
    assert started(out) == [rig.rid("new")]


def test_no_errand_stands_beside_a_suspect() -> None:
    rig = Rig(sequences=4)
    (a,) = (rig.rid(name) for name in filled(rig, 1))
    for _ in range(2):
        rig.tokenize()
        rig.lost("SIGSEGV")
        rig.ready()
    assert code(rig.tokenize()) == "busy"
    rig.run(a, "x")
    rig.sample(a, "x", 31)
    assert [m.rid for m in told(rig.tokenize())] != [], "proven"


def test_a_suspect_waits_until_those_that_run_are_proven() -> None:
    rig = Rig(sequences=4)
    (a,) = (rig.rid(name) for name in filled(rig, 1))
    rig.lost("SIGSEGV")
    rig.ready()
    rig.lost("SIGSEGV")
    rig.generate("high", priority="high")
    assert started(rig.ready(sequences=4)) == [rig.rid("high")]
    high = rig.rid("high")
    assert started(rig.run(high, "x") + rig.sample(high, "y", 20)) == []
    assert started(rig.sample(high, "z", 8)) == [a]


# ---- what was aborted and may still be there -----------------------------------------------------------------------


def suspected(rig: Rig) -> int:
    """One that two workers died of, while the next one loads."""
    rig.generate("s")
    for _ in range(2):
        rig.lost("SIGABRT")
        rig.ready(sequences=4)
    rig.lost("SIGKILL")
    return rig.rid("s")


@pytest.mark.parametrize("end", ["cancelled", "superseded", "orphaned", "late"])
def test_a_suspect_does_not_answer_for_one_that_was_aborted(end: str) -> None:
    """The abort and a start would lie in the link together, and the worker die of the first before it reads either."""
    rig = Rig(sequences=4, orphan_grace_ms=1000)
    suspect = suspected(rig)
    rig.generate("g", priority="high", deadline_ms=2000 if end == "late" else 60_000, stream="pub")
    guilty = rig.rid("g")
    out = rig.ready(sequences=4)
    assert started(out) == [guilty], "the suspect waits for it to be proven"
    match end:
        case "cancelled":
            out = rig.cancel("g")
        case "superseded":
            out = rig.generate("new", supersedes="g", priority="low")
        case "orphaned":
            out = rig.wait(1.5)
        case "late":
            rig.subscribe(rig.topic("g"))
            out = rig.wait(2.5)
    assert [m for m in told(out) if isinstance(m, Abort | Start)] == [Abort(guilty)]
    assert rig.broker.has_work, "a worker that never says so is stuck"
    assert ended(rig.lost("SIGABRT")) == []
    assert rig.request("s").blamed == 2
    assert started(rig.ready(sequences=4))[0] == suspect, "a dead worker has nothing"


def test_it_is_given_when_the_worker_has_let_go() -> None:
    rig = Rig(sequences=4)
    suspect = suspected(rig)
    rig.generate("g", priority="high")
    rig.ready(sequences=4)
    guilty = rig.rid("g")
    rig.cancel("g")
    assert rig.heard(Gone(guilty + 1000)) == []
    assert started(rig.heard(Gone(guilty))) == [suspect]
    assert rig.heard(Gone(guilty)) == []
    rig.done(suspect)
    assert not rig.broker.has_work


def test_beside_a_proven_one_that_was_aborted_it_is_given() -> None:
    rig = Rig(sequences=4)
    suspect = suspected(rig)
    rig.generate("p", priority="high")
    rig.ready(sequences=4)
    proven = rig.rid("p")
    rig.run(proven, "x")
    assert started(rig.sample(proven, "x", 31)) == [suspect]
    assert told(rig.cancel("p")) == [Abort(proven)]
    rig.lost("SIGKILL")
    assert started(rig.ready(sequences=4)) == [suspect]


def test_a_suspect_that_was_aborted_has_nobody_beside_it_until_it_is_gone() -> None:
    rig = Rig(sequences=4)
    suspect = suspected(rig)
    rig.generate("n")
    assert started(rig.ready(sequences=4)) == [suspect]
    assert told(rig.cancel("s")) == [Abort(suspect)]
    assert started(rig.heard(Gone(suspect))) == [rig.rid("n")]


def test_others_are_given_beside_one_that_was_aborted() -> None:
    rig = Rig(sequences=4)
    rig.generate("a")
    rig.cancel("a")
    rig.generate("b")
    assert rig.request("b").with_worker
    rig.lost("SIGSEGV")
    assert rig.request("b").blamed == 1
    assert not rig.broker.has_work, "what a dead worker had is no matter"


@pytest.mark.parametrize("late", [False, True])
def test_a_suspect_waits_for_errands_too(late: bool) -> None:
    """Asked for before it stood at the head; `late`: given up by the daemon, and not yet by the worker."""
    rig = Rig(sequences=1)
    suspect = suspected(rig)
    for n in range(3):
        rig.generate(f"g{n}", priority="high")
    rig.ready(sequences=1)
    (errand,) = told(rig.tokenize())
    for n in range(3):
        rid = rig.rid(f"g{n}")
        rig.run(rid, "x")
        out = rig.sample(rid, "x", 40)
        assert started(out) == []
    assert started(rig.done(rid)) == [], "there is room, and the errand may be the guilty one"
    assert code(rig.tokenize()) == "busy", "no more of them, or it would wait for ever"
    if late:
        assert told(rig.wait(11)) == [Abort(errand.rid)]
        assert rig.heard(Tokenized(errand.rid, [], True)) == [], "said before it read that"
        assert rig.broker.has_work
        assert started(rig.heard(Gone(errand.rid))) == [suspect]
    else:
        assert started(rig.heard(Tokenized(errand.rid, [], True))) == [suspect]


# ---- what was tested before it went on -----------------------------------------------------------------------------


def test_while_the_worker_is_replaced_requests_queue() -> None:
    rig = Rig()
    rig.lost()
    out = rig.generate("a", stream="pub")
    assert answer(out)["position"] == 0
    assert answer(rig.generate("b", stream="pub"))["position"] == 1
    assert told(out) == []
    assert len(started(rig.ready())) == 2


def test_a_death_before_the_first_model_is_still_loading() -> None:
    rig = Rig(sequences=0)
    rig.lost()
    assert code(rig.generate("a")) == "loading"


def test_words_of_the_dead_are_ignored() -> None:
    rig = Rig()
    rig.generate("a")
    rid = rig.rid("a")
    rig.lost()
    assert rig.heard(Sampled(rid, [1], "x")) == []
    assert rig.heard(Done(rid, "stop", None)) == []
    assert rig.heard(Tokenized(rid, [], True)) == []
    assert rig.request("a").stream.text == ""


def test_unavailable_ends_everything_and_refuses() -> None:
    rig = Rig()
    filled(rig, 5)
    rig.run(rig.rid("fill-0"), "half")
    rig.lost()
    out = rig.broker.unavailable("the worker ended 4 times", rig.now + 60, rig.now)
    assert {a["error"]["code"] for a in answers(out)} == {"unavailable"}
    assert len(ended(out)) == 5
    reply = answer(rig.generate("late"))
    assert (reply["error"]["code"], reply["error"]["retry_after_ms"]) == ("unavailable", 60_000)
    rig.ready()
    assert started(rig.generate("late"))


# ---- the levels ----------------------------------------------------------------------------------------------------


def press(rig: Rig, level: Level, wanted: Code | None = Code.OVERHEATED) -> list[Any]:
    return rig.checked(rig.broker.pressed(level, wanted if level else None, 7000, "82 °C", rig.now))


def test_warm_holds_low_back_and_accepts_it() -> None:
    rig = Rig(sequences=4)
    press(rig, Level.WARM)
    assert answer(rig.generate("low", priority="low", stream="pub"))["state"] == "queued"
    out = rig.generate("normal", stream="pub")
    assert (answer(out)["position"], started(out)) == (0, [rig.rid("normal")])
    assert rig.broker.gate.state == "degraded"
    assert rig.broker.gate.ready
    assert started(press(rig, Level.NORMAL)) == [rig.rid("low")]


def test_hot_takes_high_only() -> None:
    rig = Rig(sequences=1)
    names = filled(rig, 6)
    press(rig, Level.HOT)
    for priority in ("normal", "low"):
        error = answer(rig.generate("new", priority=priority))["error"]
        assert (error["code"], error["retryable"], error["retry_after_ms"]) == ("overheated", True, 7000)
    assert code(rig.generate("fill-0", prompt="other")) == "id_conflict"
    rig.generate("high", priority="high")
    assert started(rig.done(rig.rid(names[0]))) == [rig.rid("high")]
    assert started(rig.done(rig.rid(names[1]))) == []
    assert not rig.broker.gate.ready
    assert started(press(rig, Level.WARM)) == [rig.rid(names[3])]


def test_hot_lets_what_ran_go_on_whatever_its_priority() -> None:
    rig = Rig(sequences=1)
    rig.generate("low", priority="low")
    rig.generate("normal")
    rig.run(rig.rid("low"), "half")
    press(rig, Level.HOT)
    rig.lost("heat")
    assert started(rig.ready()) == [rig.rid("low")]


def test_critical_takes_and_gives_nothing() -> None:
    rig = Rig(sequences=1)
    rig.generate("a", deadline_ms=5000)
    rig.generate("b", priority="high", deadline_ms=5000)
    rig.run(rig.rid("a"), "half")
    press(rig, Level.CRITICAL, Code.LOW_MEMORY)
    rig.lost("memory")
    rig.broker.unloaded()
    assert code(rig.generate("c", priority="high")) == "low_memory"
    assert rig.broker.gate.state == "degraded"
    assert sorted(e["outcome"] for e in ended(rig.wait(5))) == ["deadline", "deadline_exceeded"]


def test_after_unloading_what_waited_goes_on() -> None:
    rig = Rig(sequences=1)
    rig.generate("a")
    rig.run(rig.rid("a"), "half")
    press(rig, Level.CRITICAL)
    rig.lost("heat")
    rig.broker.unloaded()
    assert press(rig, Level.HOT) == []
    assert code(rig.generate("b", priority="high")) == "overheated"
    rig.broker.trying_again()
    rig.generate("b", priority="high")
    assert started(rig.ready(sequences=2)) == [rig.rid("b"), rig.rid("a")]


def test_a_position_counts_what_goes_before() -> None:
    rig = Rig(sequences=0)
    rig.ready(1)
    filled(rig, 3, B)
    press(rig, Level.WARM)
    assert answer(rig.generate("low", priority="low", stream="pub"))["position"] == 0
    assert answer(rig.generate("high", priority="high", stream="pub"))["position"] == 0
    assert answer(rig.generate("normal", stream="pub"))["position"] == 1
    assert answer(rig.generate("low", priority="low", stream="pub"))["position"] == 2
