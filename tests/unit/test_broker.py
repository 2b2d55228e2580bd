"""What callers may rely on (protocol 3–6), event in → instructions out."""

from __future__ import annotations

import itertools

import pytest

from edged.broker.instructions import Caller, Emit, Instruction
from edged.config import Defaults
from edged.messages import Abort, Done, Drain, Refused, Requests, Resume, Sampled, Start
from unit.rig import A, B, C, Rig, address, answer, answers, code, emits, ended, events, kinds, started, told

STREAMS = [False, "pub", "reply"]


def ask_drain(rig: Rig, kind: type = Drain) -> list[Instruction]:
    return rig.broker.asked(Caller(A, address("operator", "control")), kind(), b"", rig.now)


def filled(rig: Rig, count: int, who: str = A) -> list[str]:
    """So many requests, all in the worker's hands or waiting."""
    names = [f"fill-{who}-{n}" for n in range(count)]
    for name in names:
        rig.generate(name, who)
    return names


# ---- one request -----------------------------------------------------------------------------------------------


def test_the_reply_is_the_result() -> None:
    rig = Rig()
    to = rig.to()
    out = rig.generate("a", to=to, prompt="hello", seed=5, stop=["\n"], max_tokens=9, temperature=0.0)
    assert answers(out) == []
    (start,) = told(out)
    assert isinstance(start, Start)
    assert (start.prompt, start.messages, start.max_tokens, start.stop) == ("hello", None, 9, ["\n"])
    assert (start.sampling.seed, start.sampling.temperature) == (5, 0.0)
    rig.run(start.rid, "hello")
    reply = answer(rig.done(start.rid, "stop", "\n"), to)
    assert (reply["ok"], reply["id"], reply["text"], reply["finish_reason"]) == (True, "a", "hello", "stop")
    assert (reply["stop"], reply["seed"], reply["model"], reply["restarts"]) == ("\n", 5, "tiny", 0)


def test_what_is_not_said_is_the_default() -> None:
    rig = Rig(defaults=Defaults(max_tokens=33, temperature=0.1, top_k=2, min_p=0.25, deadline_ms=777))
    (start,) = told(rig.generate("a", top_k=0))
    assert (start.max_tokens, start.sampling.temperature, start.sampling.top_k) == (33, 0.1, 0)
    assert (start.sampling.min_p, start.sampling.seed, start.stop) == (0.25, 7, [])
    assert rig.request("a").deadline_ms == 777


def test_zero_is_said() -> None:
    (start,) = told(Rig().generate(seed=0, temperature=0, top_k=0, min_p=0, presence_penalty=0))
    sampling = start.sampling
    assert (sampling.seed, sampling.temperature, sampling.top_k, sampling.min_p) == (0, 0, 0, 0)


def test_an_id_is_made_where_none_is_given() -> None:
    rig = Rig(sequences=4)
    ids = {answer(rig.generate(None, stream="pub"))["id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(len(one) == 32 for one in ids)


def test_a_stream_gets_its_ticket_before_the_worker_sees_it() -> None:
    for stream in ("pub", "reply"):
        rig = Rig()
        out = rig.generate("a", stream=stream, deadline_ms=5000)
        assert answer(out[:1])["state"] == "queued"
        assert started(out[:1]) == []
        assert started(out[1:]) == [rig.rid("a")]


def test_the_ticket() -> None:
    rig = Rig()
    ticket = answer(rig.generate("a", stream="pub", deadline_ms=5000))
    assert set(ticket) == {"ok", "id", "topic", "state", "position", "deadline_ms"}
    prefix, topic, rest = ticket["topic"].split("/")
    assert (prefix, len(topic), rest) == ("tok", 32, "")
    assert (ticket["state"], ticket["position"], ticket["deadline_ms"]) == ("queued", 0, 5000)


def test_the_events_of_a_reply_stream_follow_the_ticket() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", stream="reply", to=to)
    rid = rig.rid("a")
    out = rig.run(rid, "hi") + rig.sample(rid, "", 2) + rig.sample(rid, "!") + rig.done(rid, "length")
    assert {e.to for e in emits(out)} == {to}
    assert kinds(out) == ["prefill", "token", "token", "end"]
    assert [e["seq"] for e in events(out)] == [0, 1, 2, 3]
    assert [e.get("n") for e in events(out)] == [None, 1, 3, None]
    end = events(out)[-1]
    assert (end["text"], end["finish_reason"], end["id"]) == ("hi!", "length", "a")
    assert end["usage"]["completion_tokens"] == 4
    assert answers(out) == []


def test_the_events_of_a_pub_stream_go_to_its_topic() -> None:
    rig = Rig()
    rig.generate("a", stream="pub")
    rid, topic = rig.rid("a"), rig.topic("a").decode()
    out = rig.run(rid) + rig.done(rid)
    assert {(e.topic, e.to) for e in emits(out)} == {(topic, None)}


def test_without_a_stream_there_are_no_events() -> None:
    rig = Rig(sequences=1)
    filled(rig, 5)
    out: list[Instruction] = []
    for _ in range(5):
        rid = min(r.rid for r in rig.lives.table)
        out += rig.run(rid) + rig.wait(1) + rig.done(rid)
    assert emits(out) == []
    assert len(answers(out)) == 5


def test_what_waits_hears_of_it_every_5_s() -> None:
    rig = Rig(sequences=1)
    filled(rig, 3)
    rig.subscribe(b"sys/")
    out = rig.generate("a", stream="reply", who=B) + rig.wait(26)
    assert kinds(out) == ["queued"] * 7
    assert [e["seq"] for e in events(out)] == list(range(7))
    assert {e["position"] for e in events(out)} == {0}


def test_what_is_given_but_does_not_run_hears_too() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    out = rig.wait(26)
    assert kinds(out) == ["queued"] * 6
    assert {e["position"] for e in events(out)} == {0}


def test_what_runs_is_not_queued() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rig.prefill(rig.rid("a"), 1, 100)
    assert kinds(rig.wait(26)) == []


def test_a_long_prompt_is_told_every_2_s() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rid = rig.rid("a")
    times = []
    for done in range(1, 41):
        rig.wait(0.5)
        times += [rig.now for e in events(rig.prefill(rid, done, 40)) if e["type"] == "prefill"]
    assert times[0] == 0.5
    assert all(0 < later - earlier <= 2 for earlier, later in itertools.pairwise(times))
    assert 20.0 - times[-1] <= 2


def test_an_assigned_sequence_is_not_a_chunk() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    assert events(rig.prefill(rig.rid("a"), 0, 10)) == []
    assert rig.request("a").shown == "queued"


@pytest.mark.parametrize("said", ["context_overflow", "bad_request"])
@pytest.mark.parametrize("stream", STREAMS)
def test_what_the_worker_refuses_ends(stream: str | bool, said: str) -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", stream=stream, to=to)
    out = rig.heard(Refused(rig.rid("a"), said, "why"))
    found = events(out)[0] if stream else answer(out, to)
    assert found["error"] == {"code": said, "message": "why", "retryable": False}
    assert told(out) == []
    assert answer(rig.result("a"))["error"]["code"] == said


def test_other_refusals_are_a_bug() -> None:
    rig = Rig()
    rig.generate("a")
    assert code(rig.heard(Refused(rig.rid("a"), "not_found", "x"))) == "internal"


def test_late_words_of_the_worker_are_ignored() -> None:
    rig = Rig()
    rig.generate("a")
    rid = rig.rid("a")
    rig.done(rid)
    for late in (
        Sampled(rid, [1], "x"),
        Done(rid, "stop", None),
        Refused(rid, "internal", "x"),
        Done(999, "stop", None),
    ):
        assert rig.heard(late) == []


# ---- giving ----------------------------------------------------------------------------------------------------


def test_the_worker_is_given_what_it_can_run_and_two_more() -> None:
    rig = Rig(sequences=3)
    out = [rig.generate(f"r{n}") for n in range(8)]
    assert [len(started(o)) for o in out] == [1] * 5 + [0] * 3


def test_the_place_of_one_that_ended_is_given_on() -> None:
    rig = Rig()
    names = filled(rig, 5)
    out = rig.done(rig.rid(names[0]))
    assert started(out) == [rig.rid(names[3])]
    out = rig.cancel(names[1])
    assert started(out) == [rig.rid(names[4])]


def test_positions() -> None:
    rig = Rig()
    tickets = [answer(rig.generate(f"r{n}", stream="pub")) for n in range(6)]
    assert [t["position"] for t in tickets] == [0, 0, 0, 0, 1, 2]
    ticket = answer(rig.generate("other", B, stream="pub"))
    assert ticket["position"] == 1
    ticket = answer(rig.generate("first", C, stream="pub", priority="high"))
    assert ticket["position"] == 0


def test_the_position_in_the_ticket_is_that_of_the_event() -> None:
    rig = Rig()
    filled(rig, 6)
    for fields in ({}, {"priority": "high"}, {"supersedes": "fill-uid:1-4"}):
        out = rig.generate(None, stream="reply", **fields)
        found = [e["position"] for e in events(out) if e["type"] == "queued"]
        assert found in ([], [answer(out[:1])["position"]])


def test_order_of_admission() -> None:
    rig = Rig()
    filled(rig, 3)
    for name, who, priority in (
        ("low", A, "low"),
        ("a1", A, "normal"),
        ("a2", A, "normal"),
        ("b1", B, "normal"),
        ("high", C, "high"),
    ):
        rig.generate(name, who, priority=priority)
    order = []
    while rig.lives.queue:
        (rid,) = started(rig.done(min(r.rid for r in rig.lives.table if str(r.state) != "queued")))
        order.append(rig.lives.table.get(rid).id)
    assert order == ["high", "a1", "b1", "a2", "low"]


# ---- refusals --------------------------------------------------------------------------------------------------


def test_a_full_queue_is_busy() -> None:
    rig = Rig(queue=2)
    filled(rig, 5)
    reply = answer(rig.generate("late", B))
    assert reply["error"]["code"] == "busy"
    assert reply["error"]["retry_after_ms"] >= 100
    assert reply["id"] == "late"


def test_a_full_share_is_busy_for_its_owner_only() -> None:
    rig = Rig(queue_per_identity=2)
    filled(rig, 5)
    assert code(rig.generate("late")) == "busy"
    assert answers(rig.generate("other", B)) == []


def test_a_refusal_leaves_no_trace() -> None:
    rig = Rig(queue=1)
    filled(rig, 4)
    assert code(rig.generate("a", B)) == "busy"
    assert code(rig.result("a", B)) == "not_found"
    assert code(rig.cancel("a", B)) == "not_found"
    rig.cancel("fill-uid:1-3")
    assert answers(rig.generate("a", B, prompt="another body")) == []


@pytest.mark.parametrize(
    ("mine", "wanted", "refused"),
    [
        ("high", "high", False),
        ("normal", "high", True),
        ("normal", "normal", False),
        ("normal", "low", False),
        ("low", "normal", True),
        ("low", "low", False),
    ],
)
def test_a_priority_above_ones_own_is_forbidden(mine: str, wanted: str, refused: bool) -> None:
    out = Rig().generate("a", max_priority=mine, priority=wanted)
    assert [a["error"]["code"] for a in answers(out)] == (["forbidden"] if refused else [])


def test_while_loading() -> None:
    rig = Rig(sequences=0)
    assert code(rig.generate("a")) == "loading"
    rig.ready()
    assert started(rig.generate("a"))


# ---- idempotency -----------------------------------------------------------------------------------------------


def test_a_repeated_id_attaches_to_what_runs() -> None:
    rig = Rig()
    first, second = rig.to(), rig.to()
    rig.generate("a", to=first)
    assert rig.generate("a", to=second) == []
    out = rig.done(rig.rid("a"))
    assert answer(out, first) == answer(out, second)


def test_a_repeated_id_gets_the_kept_result() -> None:
    rig = Rig()
    rig.generate("a")
    rig.run(rig.rid("a"), "hello")
    first = answer(rig.done(rig.rid("a")))
    again = rig.generate("a")
    assert told(again) == []
    assert answer(again) == first


def test_another_deadline_is_the_same_body_and_the_first_stays() -> None:
    rig = Rig(sequences=1)
    rig.generate("a", stream="pub", detach=True, deadline_ms=5000)
    again = answer(rig.generate("a", stream="pub", detach=True, deadline_ms=9000))
    assert again["deadline_ms"] == 5000
    assert [e["outcome"] for e in ended(rig.wait(5))] == ["deadline_exceeded"]


@pytest.mark.parametrize(
    "other", [{"prompt": "x"}, {"stream": "pub"}, {"detach": True}, {"seed": 1}, {"priority": "low"}]
)
def test_another_body_is_a_conflict(other: dict) -> None:
    rig = Rig()
    rig.generate("a")
    assert code(rig.generate("a", **other)) == "id_conflict"
    rig.done(rig.rid("a"))
    assert code(rig.generate("a", **other)) == "id_conflict"


def test_ids_are_each_callers_own() -> None:
    rig = Rig()
    mine, theirs = rig.to(), rig.to()
    rig.generate("a", A, to=mine, prompt="mine")
    rig.generate("a", B, to=theirs, prompt="theirs")
    rig.run(rig.rid("a", A), "for A")
    rig.run(rig.rid("a", B), "for B")
    assert answer(rig.done(rig.rid("a", A)), mine)["text"] == "for A"
    assert answer(rig.done(rig.rid("a", B)), theirs)["text"] == "for B"


def test_a_repeated_pub_gets_a_ticket_and_no_second_run() -> None:
    rig = Rig()
    first = answer(rig.generate("a", stream="pub"))
    rig.run(rig.rid("a"))
    out = rig.generate("a", stream="pub")
    again = answer(out)
    assert again["topic"] == first["topic"]
    assert again["state"] == "running"
    assert "position" not in again
    assert started(out) == []


def test_a_repeated_reply_takes_the_stream_over() -> None:
    rig = Rig()
    old, new = rig.to(), rig.to()
    rig.generate("a", stream="reply", to=old)
    rid = rig.rid("a")
    rig.run(rid, "he")
    out = rig.generate("a", stream="reply", to=new)
    assert answer(out, new)["state"] == "running"
    (shot,) = emits(out)
    assert (shot.to, shot.fields["seq"], shot.fields["text"]) == (new, 1, "he")
    out = rig.sample(rid, "llo") + rig.done(rid)
    assert {e.to for e in emits(out)} == {new}
    assert [e["seq"] for e in events(out)] == [2, 3]


def test_a_repeated_reply_after_the_end_gets_it_whole() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rid, topic = rig.rid("a"), rig.topic("a").decode()
    rig.run(rid, "hello")
    rig.done(rid)
    to = rig.to()
    out = rig.generate("a", stream="reply", to=to)
    ticket = answer(out, to)
    assert (ticket["state"], ticket["topic"]) == ("finished", topic)
    assert "position" not in ticket
    assert kinds(out) == ["snapshot", "end"]
    assert {(e.to, e.topic) for e in emits(out)} == {(to, None)}
    assert [e["seq"] for e in events(out)] == [1, 2]


def test_a_repeated_pub_after_the_end_gets_a_ticket() -> None:
    rig = Rig()
    rig.generate("a", stream="pub", deadline_ms=4000)
    rig.done(rig.rid("a"))
    out = rig.generate("a", stream="pub", deadline_ms=9)
    assert (answer(out)["state"], answer(out)["deadline_ms"]) == ("finished", 4000)
    assert emits(out) == []


@pytest.mark.parametrize("stream", STREAMS)
def test_what_ended_in_a_retryable_error_runs_anew(stream: str | bool) -> None:
    rig = Rig()
    rig.generate("a", stream=stream, deadline_ms=10_000, detach=True)
    old, topic = rig.rid("a"), rig.topic("a")
    rig.run(old)
    rig.fail(old)
    assert answer(rig.result("a"))["error"]["code"] == "internal"
    rig.wait(3)
    out = rig.generate("a", stream=stream, deadline_ms=20_000, detach=True)
    assert started(out) == [rig.rid("a")] != [old]
    assert rig.topic("a") != topic
    assert rig.request("a").deadline == 3 + 20
    assert rig.request("a").ids.tolist() == []


def test_a_retryable_error_refused_again_is_still_kept() -> None:
    rig = Rig(queue=1)
    rig.generate("a")
    rig.run(rig.rid("a"))
    rig.fail(rig.rid("a"))
    rig.lost()
    rig.generate("other")
    assert code(rig.generate("a")) == "busy"
    assert code(rig.result("a")) == "internal"


def test_another_body_for_a_retryable_error_is_a_conflict() -> None:
    rig = Rig()
    rig.generate("a")
    rig.run(rig.rid("a"))
    rig.fail(rig.rid("a"))
    assert code(rig.generate("a", prompt="other")) == "id_conflict"


def test_what_ended_in_a_final_error_is_not_run_again() -> None:
    rig = Rig()
    rig.generate("a")
    rig.heard(Refused(rig.rid("a"), "context_overflow", "7 of 4"))
    out = rig.generate("a")
    assert told(out) == []
    assert code(out) == "context_overflow"


def test_cancelled_is_a_result_and_not_run_again() -> None:
    rig = Rig()
    rig.generate("a")
    rig.cancel("a")
    assert answer(rig.generate("a"))["finish_reason"] == "cancelled"


def test_an_id_is_free_when_its_result_is_gone() -> None:
    rig = Rig(result_ttl_s=10)
    rig.generate("a")
    rig.done(rig.rid("a"))
    rig.wait(10)
    assert code(rig.result("a")) == "not_found"
    assert started(rig.generate("a", prompt="other"))


@pytest.mark.parametrize("why", ["drained", "stopping", "replacing", "full"])
def test_attaching_works_whatever_the_gate_says(why: str) -> None:
    rig = Rig(queue=1)
    rig.generate("a")
    rig.generate("b", stream="pub", detach=True)
    rig.generate("kept")
    rig.done(rig.rid("kept"))
    if why == "full":
        filled(rig, 2, B)
        assert code(rig.generate("new")) == "busy"
    elif why == "replacing":
        rig.lost()
    else:
        setattr(rig.broker.gate, why, True)
        assert code(rig.generate("new")) in ("shutting_down", "unavailable")
    assert rig.generate("a") == []
    assert answer(rig.generate("b", stream="pub", detach=True))["state"] == "queued"
    assert answer(rig.generate("kept"))["finish_reason"] == "stop"


def test_a_lower_caller_may_attach_to_its_own() -> None:
    rig = Rig()
    rig.generate("a", priority="high")
    assert rig.generate("a", priority="high", max_priority="normal") == []


# ---- waiters ---------------------------------------------------------------------------------------------------


def test_every_waiter_is_answered_once() -> None:
    rig = Rig(waiters=8)
    waiters = [rig.to() for _ in range(6)]
    for n, to in enumerate(waiters):
        assert (rig.generate("a", to=to) if n % 2 == 0 else rig.result("a", wait_ms=60_000, to=to)) is not None
    out = rig.done(rig.rid("a"))
    assert [len(answers(out, to)) for to in waiters] == [1] * 6
    assert len({str(a) for a in answers(out)}) == 1
    assert answers(rig.wait(200)) == []


def test_the_oldest_beyond_the_limit_get_busy() -> None:
    rig = Rig(waiters=2)
    one, two, three, four = (rig.to() for _ in range(4))
    rig.generate("a", to=one)
    assert rig.result("a", wait_ms=5000, to=two) == []
    out = rig.generate("a", to=three)
    assert code(out, one) == "busy"
    assert len(answers(out)) == 1
    assert code(rig.generate("a", to=four), two) == "busy"
    out = rig.done(rig.rid("a"))
    assert (len(answers(out, three)), len(answers(out, four)), len(answers(out))) == (1, 1, 2)


def test_result_waits_and_then_says_how_far() -> None:
    rig = Rig()
    rig.generate("a", stream="pub", detach=True)
    rig.run(rig.rid("a"), "hel")
    to = rig.to()
    assert rig.result("a", wait_ms=2000, to=to) == []
    assert answers(rig.wait(1.99)) == []
    assert answer(rig.wait(0.02), to) == {"ok": True, "id": "a", "state": "running", "text": "hel", "seq": 1}
    assert answers(rig.done(rig.rid("a"))) == []


def test_result_at_once_when_it_does_not_wait() -> None:
    rig = Rig()
    rig.generate("a")
    assert answer(rig.result("a")) == {"ok": True, "id": "a", "state": "queued", "text": "", "seq": -1}


def test_result_is_answered_by_the_end() -> None:
    rig = Rig()
    rig.generate("a", stream="pub", deadline_ms=1000)
    to = rig.to()
    rig.result("a", wait_ms=60_000, to=to)
    assert code(rig.wait(1), to) == "deadline_exceeded"


def test_a_caller_that_went_away_finds_its_result() -> None:
    rig = Rig()
    rig.generate("a")
    rig.run(rig.rid("a"), "hello")
    rig.done(rig.rid("a"))
    assert answer(rig.result("a"))["text"] == "hello"


# ---- supersedes ------------------------------------------------------------------------------------------------


def superseded(out: list[Instruction]) -> list[str]:
    return [e["id"] for e in ended(out) if e["outcome"] == "cancelled"]


def test_the_new_one_takes_the_place_in_the_queue() -> None:
    rig = Rig()
    names = filled(rig, 6)
    out = rig.generate("new", supersedes=names[3], stream="pub")
    assert superseded(out) == [names[3]]
    assert answer(out[:1])["position"] == 0
    assert rig.lives.queue.position(rig.request("new")) == 0
    assert rig.lives.queue.share(A) == 3


def test_the_ticket_tells_the_place_taken() -> None:
    rig = Rig()
    names = filled(rig, 6)
    assert answer(rig.generate("new", supersedes=names[5], stream="pub")[:1])["position"] == 2


def test_the_old_ones_waiters_get_what_there_is() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("old", to=to)
    rig.run(rig.rid("old"), "half")
    reply = answer(rig.generate("new", supersedes="old"), to)
    assert (reply["finish_reason"], reply["text"]) == ("cancelled", "half")


def test_a_running_one_gives_its_place_at_the_head() -> None:
    rig = Rig()
    names = filled(rig, 6)
    rid = rig.rid(names[0])
    rig.run(rid)
    out = rig.generate("new", supersedes=names[0])
    assert superseded(out) == [names[0]]
    assert [type(m) for m in told(out)] == [Abort, Start]
    assert (told(out)[0].rid, told(out)[1].rid) == (rid, rig.rid("new"))


def test_the_head_is_that_of_the_new_ones_priority() -> None:
    rig = Rig()
    names = filled(rig, 4)
    rig.generate("high", B, priority="high")
    rig.generate("low", B, priority="low")
    rig.run(rig.rid(names[0]))
    out = rig.generate("new", supersedes=names[0], priority="low")
    assert started(out) == [rig.rid("high", B)]
    assert rig.lives.queue.position(rig.request("new")) == 1
    assert rig.lives.queue.position(rig.request("low", B)) == 2


def test_superseding_is_never_busy() -> None:
    rig = Rig(queue=2, queue_per_identity=2)
    names = filled(rig, 5)
    assert code(rig.generate("no")) == "busy"
    assert superseded(rig.generate("x", supersedes=names[4])) == [names[4]]
    rig.run(rig.rid(names[0]))
    assert superseded(rig.generate("y", supersedes=names[0])) == [names[0]]
    assert len(rig.lives.queue) == 2


def test_other_refusals_leave_the_old_one() -> None:
    rig = Rig()
    rig.generate("old")
    assert code(rig.generate("new", supersedes="old", priority="high", max_priority="normal")) == "forbidden"
    rig.broker.gate.drained = True
    assert code(rig.generate("new", supersedes="old")) == "unavailable"
    rig.broker.gate.drained, rig.broker.gate.stopping = False, True
    assert code(rig.generate("new", supersedes="old")) == "shutting_down"
    assert rig.request("old")
    assert code(rig.result("new")) == "not_found"


def test_a_conflict_leaves_the_old_one() -> None:
    rig = Rig()
    rig.generate("old")
    rig.generate("new")
    assert code(rig.generate("new", supersedes="old")) == "id_conflict"
    assert rig.request("old")


def test_a_duplicate_supersedes_nothing() -> None:
    rig = Rig()
    rig.generate("new", supersedes="old", prompt="n")
    rig.generate("old")
    assert ended(rig.generate("new", supersedes="old", prompt="n")) == []
    assert rig.request("old")


def test_the_unknown_the_finished_and_the_foreign_are_ignored() -> None:
    rig = Rig(sequences=4)
    rig.generate("theirs", B)
    rig.generate("done")
    rig.done(rig.rid("done"))
    for n, name in enumerate(("nobody", "theirs", "done")):
        out = rig.generate(f"new{n}", supersedes=name)
        assert ended(out) == []
        assert len(started(out)) == 1
    assert rig.request("theirs", B)
    assert answer(rig.result("done"))["finish_reason"] == "stop"


def test_one_that_names_a_foreign_id_may_be_busy() -> None:
    rig = Rig(queue=1)
    filled(rig, 4, B)
    assert code(rig.generate("new", supersedes="fill-uid:2-3")) == "busy"


def test_superseding_while_the_worker_is_replaced() -> None:
    rig = Rig()
    names = filled(rig, 3)
    rig.run(rig.rid(names[0]))
    rig.lost()
    out = rig.generate("new", supersedes=names[2], stream="pub", detach=True)
    assert superseded(out) == [names[2]]
    assert answer(out[:1])["position"] == 2
    assert started(rig.ready()) == [rig.rid(names[0]), rig.rid(names[1]), rig.rid("new")]


def test_a_chain_of_superseding_never_grows_the_queue() -> None:
    rig = Rig(queue=3, queue_per_identity=3)
    last = filled(rig, 6)[-1]
    for n in range(50):
        rig.generate(f"s{n}", supersedes=last, priority=("high", "normal", "low")[n % 3])
        last = f"s{n}"
        if n % 7 == 0:
            rig.run(min(r.rid for r in rig.lives.table if str(r.state) != "queued"))
        assert len(rig.lives.queue) <= 3


# ---- deadlines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("where", ["queued", "given", "prefill", "held", "text"])
def test_the_deadline_ends_any_state(where: str, stream: str | bool) -> None:
    rig = Rig()
    if where == "queued":
        filled(rig, 3, B)
    to = rig.to()
    rig.generate("a", stream=stream, detach=True, deadline_ms=3000, to=to)
    rid = rig.rid("a")
    if where in ("prefill", "held", "text"):
        rig.prefill(rid, 0, 4)
        rig.prefill(rid, 1, 4)
    if where == "held":
        rig.sample(rid, "")
    if where == "text":
        rig.sample(rid, "some")
    out = rig.wait(2.99)
    assert ended(out) == []
    out = rig.wait(0.02)
    found = events(out)[-1] if stream else answer(out, to)
    if where == "text":
        assert (found["finish_reason"], found["text"]) == ("deadline", "some")
    else:
        assert found["error"]["code"] == "deadline_exceeded"
        assert found["error"]["retryable"]
    assert [m for m in told(out) if isinstance(m, Abort)] == ([] if where == "queued" else [Abort(rid)])
    assert len(ended(out)) == 1


def test_every_accepted_request_ends_without_a_worker() -> None:
    rig = Rig()
    rig.run(min(started(rig.generate("r"))), "x")
    rig.lost()
    filled(rig, 6)
    out = rig.wait(120)
    assert sorted(e["outcome"] for e in ended(out)) == ["deadline"] + ["deadline_exceeded"] * 6
    assert len(rig.lives.table) == 0


# ---- cancel ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["queued", "given", "running"])
def test_cancel_ends_any_state(where: str) -> None:
    rig = Rig()
    if where == "queued":
        filled(rig, 3, B)
    to = rig.to()
    rig.generate("a", to=to)
    rid = rig.rid("a")
    if where == "running":
        rig.run(rid, "half")
    out = rig.cancel("a")
    assert answers(out)[0] == {"ok": True, "id": "a", "state": "cancelled"}
    reply = answer(out, to)
    assert (reply["finish_reason"], reply["text"]) == ("cancelled", "half" if where == "running" else "")
    assert told(out)[:1] == ([] if where == "queued" else [Abort(rid)])


def test_cancel_is_idempotent() -> None:
    rig = Rig()
    rig.generate("a")
    rig.cancel("a")
    for _ in range(3):
        out = rig.cancel("a")
        assert answer(out)["state"] == "cancelled"
        assert told(out) == []


def test_cancel_of_what_is_finished() -> None:
    rig = Rig()
    rig.generate("a")
    rig.done(rig.rid("a"))
    assert answer(rig.cancel("a"))["state"] == "finished"
    assert answer(rig.result("a"))["finish_reason"] == "stop"


def test_cancel_never_touches_another() -> None:
    rig = Rig(sequences=4)
    rig.generate("a", A)
    rig.generate("a", B)
    rig.generate("b", A)
    assert code(rig.cancel("b", B)) == "not_found"
    rig.cancel("a", B)
    assert rig.request("a", A)
    assert rig.request("b", A)


def test_an_operator_may_name_the_identity() -> None:
    rig = Rig()
    to = rig.to()
    rig.generate("a", B, to=to)
    out = rig.cancel("a", A, identity=B)
    assert answers(out)[0]["state"] == "cancelled"
    assert answer(out, to)["finish_reason"] == "cancelled"
    assert code(rig.cancel("zz", A, identity=B)) == "not_found"


@pytest.mark.parametrize("stream", ["pub", "reply"])
def test_a_cancelled_stream_gets_its_end(stream: str) -> None:
    rig = Rig()
    rig.generate("a", stream=stream)
    rig.run(rig.rid("a"), "half")
    (end,) = events(rig.cancel("a"))
    assert (end["type"], end["seq"], end["text"], end["finish_reason"]) == ("end", 2, "half", "cancelled")


# ---- drain and stop --------------------------------------------------------------------------------------------


def test_a_drain_finishes_what_is_accepted() -> None:
    rig = Rig()
    names = filled(rig, 5)
    assert answer(ask_drain(rig))["state"] == "draining"
    assert code(rig.generate("late")) == "unavailable"
    for name in names:
        rig.run(rig.rid(name))
        assert answer(rig.done(rig.rid(name)))["finish_reason"] == "stop"
    assert answer(ask_drain(rig, Resume))["state"] == "ready"
    assert started(rig.generate("late"))


def test_a_stop_ends_what_is_left_once() -> None:
    rig = Rig()
    to = rig.to()
    filled(rig, 5)
    rig.generate("s", B, stream="reply", to=to)
    rig.broker.gate.stopping = True
    assert code(rig.generate("late")) == "shutting_down"
    out = rig.broker.stopped(rig.now)
    assert len(ended(out)) == 6
    assert started(out) == []
    assert {a["error"]["code"] for a in answers(out)} == {"shutting_down"}
    assert [e.to for e in emits(out)] == [to]
    assert len(rig.lives.table) == 0
    assert ended(rig.broker.stopped(rig.now)) == []


# ---- privacy and bounds ----------------------------------------------------------------------------------------


def test_nothing_of_another_is_ever_found() -> None:
    rig = Rig()
    rig.generate("a", A, stream="pub")
    for out in (rig.result("a", B), rig.result("a", B, wait_ms=1000), rig.cancel("a", B)):
        assert code(out) == "not_found"
    topic = rig.topic("a")
    rig.done(rig.rid("a"))
    for out in (rig.result("a", B), rig.cancel("a", B)):
        assert code(out) == "not_found"
    assert rig.subscribe(topic, B) == (False, [])


def test_the_unknown_and_the_foreign_look_alike() -> None:
    rig = Rig()
    rig.generate("a", A)
    foreign, unknown = answer(rig.result("a", B)), answer(rig.result("zz", B))
    assert foreign["error"] == unknown["error"]


def test_anothers_result_costs_only_its_owner() -> None:
    rig = Rig(sequences=4, results_kept_bytes=20_000)
    rig.generate("mine", A)
    rig.done(rig.rid("mine"))
    for n in range(30):
        rig.generate(f"r{n}", B)
        rig.sample(rig.rid(f"r{n}", B), "x" * 1000)
        rig.done(rig.rid(f"r{n}", B))
    assert answer(rig.result("mine"))["ok"]
    assert code(rig.result("r0", B)) == "not_found"


def test_a_result_too_big_to_keep_is_still_delivered() -> None:
    rig = Rig(results_kept_bytes=0)
    to = rig.to()
    rig.generate("a", stream="reply", to=to)
    rig.sample(rig.rid("a"), "hello")
    (end,) = emits(rig.done(rig.rid("a")))
    assert (end.to, end.fields["text"]) == (to, "hello")
    assert code(rig.result("a")) == "not_found"


def test_requests_are_for_operators_and_have_no_text() -> None:
    rig = Rig()
    rig.generate("a", B, prompt="secret prompt", stop=["secret"])
    rig.run(rig.rid("a", B), "secret answer")
    rig.generate("b", A)
    out = rig.broker.asked(Caller(A, address("op", "control")), Requests(), b"", rig.now)
    (listed, other) = answer(out)["requests"]
    assert (listed["id"], listed["identity"], listed["state"], listed["completion_tokens"]) == ("a", B, "running", 1)
    assert other["state"] == "queued"
    assert "secret" not in str(out)


def test_logged_facts_have_no_text() -> None:
    rig = Rig()
    rig.generate("a", prompt="secret prompt", stream="pub")
    topic = rig.topic("a").decode()
    rig.run(rig.rid("a"), "secret answer")
    (facts,) = ended(rig.done(rig.rid("a")))
    assert "secret" not in str(facts)
    assert topic[4:-1] not in str(facts)
    assert (facts["id"], facts["identity"], facts["outcome"], facts["completion_tokens"]) == ("a", A, "stop", 1)


def test_a_kept_end_is_sent_to_the_topic_only() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    topic = rig.topic("a")
    rig.done(rig.rid("a"))
    assert all(isinstance(i, Emit) and i.to is None for i in rig.subscribe(topic)[1])
