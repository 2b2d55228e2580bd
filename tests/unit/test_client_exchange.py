"""One `generate` over many tries: each rule of `edged.client.exchange` by itself, without a socket or a clock."""

from __future__ import annotations

import math

import pytest

from edged import keypair
from edged.client import STARTING, Anew, Busy, Client, NoAnswer, NotAdmitted, Piece, Result, WorkerLost
from edged.client.choice import CUT_S
from edged.client.errors import CUT, KEY_UNKNOWN
from edged.client.steps import Heard, Lost
from unit.client_rig import PACE, RESULT, Rig, call, exchange

A, B = "ipc:///a/request.sock", "ipc:///b/request.sock"


def test_a_stream_without_trouble():
    rig = exchange()
    assert rig.bodies == [{"op": "generate", "id": "i", "prompt": "x", "deadline_ms": 60_000, "stream": "reply"}]
    rig.ticket()
    rig.event("queued", 0, position=0)
    rig.event("token", 1, text="hel")
    rig.event("token", 2, text="lo")
    rig.event("end", 3, **RESULT)
    assert rig.machine.outcome.text == rig.shown == "hello"
    assert [type(e).__name__ for e in rig.machine.events] == ["Accepted", "Queued", "Piece", "Piece", "Ended"]
    assert rig.machine.wake == math.inf or rig.machine.tick(1e9) == []


# ---- lost messages ---------------------------------------------------------------------------------------------


def test_no_ticket_the_same_id_on_a_fresh_line_with_what_is_left_of_the_deadline():
    rig = exchange()
    first = rig.line("generate")
    body = rig.wait_for("generate")
    assert rig.now == PACE.first_try_s
    assert rig.line("generate") != first
    assert len(rig.open) == 1
    assert body == {**rig.bodies[0], "deadline_ms": 58_000}


def test_nobody_ever_answers():
    rig = exchange()
    while rig.machine.outcome is None:
        rig.wait()
    assert isinstance(rig.machine.outcome, NoAnswer)
    assert rig.now == 60 + PACE.grace_s
    assert len(rig.bodies) < 10


def test_answer_s_gives_up_early_but_only_on_silence():
    rig = exchange(answer_s=3)
    rig.wait()
    rig.wait()
    assert (type(rig.machine.outcome), rig.now) == (NoAnswer, 3)
    rig = exchange(answer_s=3)
    rig.refuse("loading", retry_after_ms=9000)
    rig.wait_for("generate")
    assert rig.now > 9
    rig.ticket()
    rig.now += 8
    rig.event("prefill", 0, done=1, total=2)
    rig.wait_for("result")
    assert rig.now > 9 + 8 + PACE.silence_s
    rig.wait()
    rig.wait()
    assert isinstance(rig.machine.outcome, NoAnswer)


def test_answer_s_without_a_stream_asks_before_it_gives_up():
    rig = exchange(mode=None, answer_s=1)
    rig.wait_for("result")
    assert rig.now == 0.5
    rig.hear("result", state="running", text="", seq=0)
    rig.wait_for("result")
    assert rig.now > PACE.silence_s
    rig.wait()
    assert isinstance(rig.machine.outcome, NoAnswer)


def test_a_gap_is_repaired_by_the_same_generate():
    rig = exchange()
    rig.ticket()
    rig.event("token", 0, text="a")
    rig.event("token", 2, text="c")
    assert rig.shown == "a"
    assert len(rig.bodies) == 2
    rig.ticket()
    rig.event("snapshot", 3, text="abcd", state="running")
    rig.event("token", 4, text="e")
    assert rig.shown == "abcde"
    assert [e.text for e in rig.machine.events if isinstance(e, Piece)] == ["a", "bcd", "e"]


def test_an_end_behind_a_gap_has_the_whole_text():
    rig = exchange()
    rig.ticket()
    rig.event("token", 0, text="he")
    rig.event("end", 5, **RESULT)
    assert rig.shown == "hello"
    assert len(rig.bodies) == 1


def test_what_comes_on_a_closed_line_is_nothing():
    rig = exchange()
    late = rig.line("generate")
    rig.wait_for("generate")
    rig.open[late] = rig.open[rig.line("generate")]
    assert rig.machine.feed(Heard(late, {"ok": True, "topic": "tok/0/"}), rig.now) == []
    assert rig.machine.reading.topic is None


# ---- silence ---------------------------------------------------------------------------------------------------


def test_silence_asks_result_and_goes_on_listening():
    rig = exchange()
    rig.ticket()
    rig.wait_for("result")
    assert rig.now == PACE.silence_s
    rig.event("queued", 0, position=3)
    rig.hear("result", state="queued", text="", seq=0)
    assert len(rig.open) == 1
    rig.event("token", 1, text="x")
    assert rig.shown == "x"


def test_silence_result_ends_it():
    rig = exchange()
    rig.ticket()
    rig.wait_for("result")
    rig.hear("result", RESULT)
    assert rig.machine.outcome.text == rig.shown == "hello"


def test_silence_result_that_is_ahead_repairs_and_takes_the_stream_up():
    rig = exchange()
    rig.ticket()
    rig.wait_for("result")
    rig.hear("result", state="running", text="hel", seq=4)
    assert rig.shown == "hel"
    assert rig.bodies[-1]["op"] == "generate"
    rig.ticket()
    rig.event("snapshot", 4, text="hel", state="running")
    rig.event("token", 5, text="lo")
    assert rig.shown == "hello"


@pytest.mark.parametrize(
    "reply", [{"ok": False, "error": {"code": "not_found"}}, {"state": "running", "instance": "2"}]
)
def test_silence_restarted_daemon_gets_the_same_id_and_the_text_begins_anew(reply):
    rig = exchange()
    rig.ticket()
    rig.event("token", 0, text="old")
    rig.wait_for("result")
    rig.hear("result", reply)
    assert rig.bodies[-1]["op"] == "generate"
    assert rig.bodies[-1]["id"] == "i"
    rig.ticket("tok/2/", instance="2")
    assert rig.machine.events[-2] == Anew(2, "old")
    rig.event("token", 0, text="hello")
    rig.event("end", 1, **RESULT)
    assert rig.shown == "hello"
    assert rig.machine.reading.run == 2


def test_silence_nobody_answers_result_then_all_over():
    rig = exchange()
    rig.ticket()
    rig.wait_for("result")
    rig.wait_for("generate")
    assert len(rig.open) == 1


def test_a_restart_that_carries_on_is_no_new_run():
    """Issue C: another instance, the same topic."""
    rig = exchange()
    rig.ticket()
    rig.event("token", 0, text="he")
    rig.lose()
    rig.wait_for("generate")
    rig.ticket(instance="2")
    rig.event("snapshot", 1, text="hel", state="running")
    rig.event("restart", 2, reason="daemon")
    rig.event("token", 3, text="lo")
    assert (rig.shown, rig.machine.reading.run) == ("hello", 1)


# ---- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["busy", "loading", "unavailable", "shutting_down", "overheated", "low_memory"])
def test_a_refusal_is_repeated_after_the_time_it_names(code):
    rig = exchange()
    rig.refuse(code, retry_after_ms=3000)
    assert rig.open == {}
    rig.wait_for("generate")
    assert 3 <= rig.now <= 3.75
    rig.ticket()
    rig.event("end", 0, **RESULT)
    assert isinstance(rig.machine.outcome, Result)


def test_a_refusal_that_lasts_beyond_the_deadline_is_told_at_once():
    rig = exchange()
    rig.refuse("busy", retry_after_ms=70_000)
    assert isinstance(rig.machine.outcome, Busy)
    assert rig.machine.outcome.retry_after == 70
    assert rig.now == 0


def test_busy_until_the_deadline_is_busy():
    rig = exchange()
    while rig.machine.outcome is None:
        rig.refuse("busy", retry_after_ms=7000)
        if rig.machine.outcome is None:
            rig.wait_for("generate")
    assert isinstance(rig.machine.outcome, Busy)
    assert rig.now < 60


def test_final_errors_and_retry_false_are_told_at_once():
    for rig, retryable in ((exchange(), False), (exchange(retry=False), True)):
        rig.refuse("forbidden", retryable=retryable)
        assert rig.machine.outcome.code == "forbidden"
        assert len(rig.bodies) == 1


def test_a_lost_worker_is_forgiven_twice():
    rig = exchange()
    for number in range(3):
        rig.ticket(f"tok/{number}/")
        rig.event("token", 0, text=f"part{number}")
        rig.event("end", 1, ok=False, error={"code": "worker_lost", "message": "m", "retryable": True})
        if number < 2:
            rig.wait_for("generate")
    assert isinstance(rig.machine.outcome, WorkerLost)
    assert [e for e in rig.machine.events if isinstance(e, Anew)] == [Anew(2, "part0"), Anew(3, "part1")]


def test_the_result_of_a_lost_request_is_its_error():
    rig = exchange()
    rig.ticket()
    rig.wait_for("result")
    rig.refuse("worker_lost", "result", retryable=False)
    assert isinstance(rig.machine.outcome, WorkerLost)


# ---- deadlines -------------------------------------------------------------------------------------------------


def test_without_a_deadline_the_daemons_own_counts():
    rig = exchange(deadline_s=None)
    assert "deadline_ms" not in rig.bodies[0]
    rig.hear("generate", topic="tok/1/", state="queued", deadline_ms=600_000)
    rig.now = 599.0
    rig.event("token", 0, text="x")
    rig.event("token", 2, text="z")
    assert rig.bodies[-1]["deadline_ms"] == 1000
    while rig.machine.outcome is None:
        rig.wait()
    assert rig.now == 602


def test_a_short_deadline_never_sends_less_than_a_millisecond():
    rig = exchange(deadline_s=0.5)
    rig.now = 1.9
    rig.lose()
    rig.wait_for("generate")
    assert rig.bodies[-1]["deadline_ms"] == 1


# ---- lines that are cut ----------------------------------------------------------------------------------------


def test_a_cut_line_after_the_ticket_is_taken_up_at_the_same_endpoint():
    rig = exchange(endpoints=(A, B))
    rig.ticket()
    rig.event("token", 0, text="he")
    rig.lose()
    rig.wait_for("generate")
    assert rig.now < 0.2
    assert rig.at() == A
    rig.unreachable()
    assert rig.at() == A


def test_cut_lines_before_the_ticket_back_off():
    rig = exchange()
    for _ in range(6):
        rig.lose()
        rig.wait_for("generate")
    assert rig.now > 3


def test_unreachable_is_waited_for_when_there_is_nobody_else():
    rig = exchange()
    rig.unreachable()
    assert len(rig.bodies) == 1
    rig.ticket()
    assert rig.machine.outcome is None


# ---- several endpoints -----------------------------------------------------------------------------------------


def test_failover_on_silence_and_on_refusal():
    rig = exchange(endpoints=(A, B))
    assert rig.at() == A
    rig.wait_for("generate")
    assert rig.at() == B
    rig.refuse("unavailable", retry_after_ms=10_000)
    assert rig.at() == A
    rig.refuse("loading", retry_after_ms=2000)
    rig.wait_for("generate")
    assert rig.at() == A
    assert rig.now < 6


# ---- without a stream ------------------------------------------------------------------------------------------


def test_result_mode_asks_soon_whether_it_arrived():
    rig = exchange(mode=None)
    assert "stream" not in rig.bodies[0]
    rig.wait_for("result")
    assert rig.now == PACE.first_try_s
    rig.hear("result", state="running", text="", seq=-1)
    rig.wait_for("result")
    assert rig.now == PACE.first_try_s + PACE.silence_s
    rig.hear("generate", RESULT)
    assert rig.machine.outcome.text == "hello"


def test_result_mode_a_lost_request_is_sent_again():
    rig = exchange(mode=None)
    rig.wait_for("result")
    rig.refuse("not_found", "result", retryable=False)
    assert rig.bodies[-1]["op"] == "generate"
    rig.wait_for("result")
    rig.hear("result", RESULT)
    assert rig.machine.outcome.text == "hello"


# ---- pub -------------------------------------------------------------------------------------------------------

TOPIC, NEXT = "tok/1/", "tok/2/"


def test_pub_listens_where_protocol_1_says():
    rig = exchange(mode="pub")
    assert rig.bodies[0]["stream"] == "pub"
    rig.ticket(TOPIC)
    assert list(rig.open.values()) == [("ipc:///a/stream.sock", TOPIC)]
    rig.event("snapshot", -1, TOPIC, text="", state="queued")
    rig.event("token", 0, TOPIC, text="hello")
    rig.event("end", 1, TOPIC, **RESULT)
    assert rig.machine.outcome.text == "hello"


def test_pub_a_gap_is_repaired_by_subscribing_again():
    rig = exchange(mode="pub")
    rig.ticket(TOPIC)
    first = rig.line(TOPIC)
    rig.event("token", 1, TOPIC, text="b")
    assert rig.line(TOPIC) != first
    rig.event("snapshot", 2, TOPIC, text="abc", state="running")
    assert rig.shown == "abc"
    assert len(rig.bodies) == 1


def test_pub_out_of_reach_still_goes_on_by_result():
    rig = exchange(mode="pub")
    rig.ticket(TOPIC)
    rig.wait_for("result")
    rig.hear("result", state="running", text="he", seq=3)
    assert rig.shown == "he"
    rig.wait_for("result")
    rig.hear("result", RESULT)
    assert rig.machine.outcome.text == rig.shown == "hello"


def test_pub_a_cut_subscription_asks_result_at_once_then_less_often():
    rig = exchange(mode="pub")
    rig.ticket(TOPIC)
    rig.now = 1.0
    rig.lose(TOPIC)
    rig.wait_for("result")
    assert rig.now == 1.0
    rig.hear("result", state="queued", text="", seq=-1)
    rig.lose(TOPIC)
    rig.wait_for("result")
    assert 1.0 < rig.now < 2.0
    rig.refuse("not_found", "result", retryable=False)
    rig.ticket(NEXT)
    assert rig.at(NEXT) == "ipc:///a/stream.sock"


# ---- leaving ---------------------------------------------------------------------------------------------------


def test_leaving_says_cancel_on_the_same_line_and_waits_for_the_answer():
    rig = exchange()
    rig.ticket()
    rig.event("token", 0, text="he")
    rig.do(rig.machine.leave(rig.now))
    assert rig.bodies[-1] == {"op": "cancel", "id": "i"}
    assert len(rig.open) == 1
    rig.event("token", 1, text="ll")
    assert rig.machine.outcome is None
    rig.hear("generate", state="cancelled")
    assert rig.machine.outcome.finish_reason == "cancelled"


@pytest.mark.parametrize("how", ["silence", "cut", "end", "error"])
def test_leaving_is_bounded_however_it_goes(how):
    rig = exchange(mode="pub")
    rig.ticket(TOPIC)
    rig.do(rig.machine.leave(rig.now))
    assert list(rig.open.values()) == [(A, {"op": "cancel", "id": "i"})]
    match how:
        case "silence":
            rig.wait()
            assert rig.now == PACE.leave_s
        case "cut":
            rig.lose("cancel")
        case "end":
            rig.hear("cancel", {**RESULT, "finish_reason": "cancelled"})
        case "error":
            rig.refuse("not_found", "cancel")
    assert rig.machine.outcome.finish_reason == "cancelled"


def test_leaving_before_the_ticket_and_during_back_off():
    rig = exchange()
    rig.do(rig.machine.leave(0))
    rig.ticket()
    assert rig.machine.outcome is None
    rig.hear("generate", state="cancelled")
    assert rig.machine.outcome.finish_reason == "cancelled"
    rig = exchange()
    rig.refuse("busy", retry_after_ms=5000)
    rig.do(rig.machine.leave(0))
    assert rig.machine.outcome.finish_reason == "cancelled"
    assert len(rig.bodies) == 1


def test_cancelled_from_elsewhere_makes_no_more_tries():
    rig = exchange()
    rig.refuse("busy", retry_after_ms=1000)
    rig.machine.cancelled = True
    rig.wait()
    assert rig.machine.outcome.finish_reason == "cancelled"
    rig = exchange()
    rig.machine.cancelled = True
    rig.ticket()
    assert rig.bodies[-1]["op"] == "cancel"


# ---- other verbs -----------------------------------------------------------------------------------------------


def test_call_repeats_the_same_bytes_until_answered():
    rig = call()
    rig.wait_for("ping")
    assert rig.now == 2
    rig.hear("ping", version="1")
    assert rig.machine.outcome["version"] == "1"
    assert rig.bodies[0] == rig.bodies[1]


def test_call_gives_up_at_its_deadline():
    rig = call()
    while rig.machine.outcome is None:
        rig.wait()
    assert (type(rig.machine.outcome), rig.now) == (NoAnswer, 5)


def test_call_patient_or_not():
    rig = call("tokenize", patient=True)
    rig.refuse("loading", "tokenize", retry_after_ms=2000)
    rig.wait_for("tokenize")
    rig.refuse("loading", "tokenize", retry_after_ms=20_000)
    assert rig.machine.outcome.code == "loading"
    rig = call()
    rig.refuse("busy", "ping", retry_after_ms=1)
    assert rig.machine.outcome.code == "busy"


def test_call_seeks_an_id_everywhere():
    rig = call("cancel", ("a", "b"), seek=True)
    rig.refuse("not_found", "cancel", retryable=False)
    assert rig.at("cancel") == "b"
    rig.refuse("not_found", "cancel", retryable=False)
    assert rig.machine.outcome.code == "not_found"


def test_call_cut_or_unreachable_goes_elsewhere():
    rig = call(endpoints=("a", "b"))
    rig.unreachable("ping")
    assert rig.at("ping") == "b"
    places = []
    for _ in range(4):
        rig.lose("ping")
        if not rig.open:
            rig.wait_for("ping")
        places.append(rig.at("ping"))
    assert set(places) == {"a", "b"}
    assert rig.now < 1


def test_a_refusal_that_is_repeated_is_told():
    rig = exchange(retry=True)
    rig.refuse("loading", retry_after_ms=400)
    (told,) = rig.machine.events
    assert (told.code, told.message) == ("loading", "m")
    assert 0.4 <= told.after_s <= 0.5
    rig.wait_for("generate")


@pytest.mark.parametrize("code", ["loading", "unavailable", "shutting_down", "busy", "overheated", "worker_lost"])
def test_only_what_a_restarting_box_says(code):
    rig = exchange(retry=STARTING)
    rig.refuse(code, retry_after_ms=400)
    if code in ("loading", "unavailable", "shutting_down"):
        assert rig.machine.outcome is None
        rig.wait_for("generate")
    else:
        assert rig.machine.outcome.code == code
    one = call("result", patient=STARTING)
    one.refuse(code, "result")
    assert (one.machine.outcome is None) == (code in STARTING)


@pytest.mark.parametrize("at", ["generate", "probe"])
def test_a_connection_that_is_refused_ends_it(at):
    """Also in mid-stream, where a key was revoked."""
    rig = exchange()
    what = "generate"
    if at == "probe":
        rig.ticket()
        rig.wait_for("result")
        what = "result"
    for number in range(2):
        rig.do(rig.machine.feed(Lost(rig.line(what if number == 0 else "generate"), KEY_UNKNOWN), rig.now))
        if number == 0:
            rig.wait_for("generate")
    assert isinstance(rig.machine.outcome, NotAdmitted)


def test_a_handshake_cut_after_it_was_let_in_is_a_restart():
    rig = exchange()
    rig.ticket()
    for _ in range(30):
        rig.do(rig.machine.feed(Lost(rig.line("generate"), CUT), rig.now))
        assert rig.machine.outcome is None
        rig.wait_for("generate")
        rig.ticket()


@pytest.mark.parametrize("deadline", [*(1.0 + 0.1 * n for n in range(120)), 60.0, 600.0])
@pytest.mark.parametrize("verb", ["generate", "ping"])
def test_a_wrong_server_key_is_told_well_before_the_deadline(verb, deadline):
    """It is known from the first handshake on; a box that is starting gets a third of the time, at most CUT_S."""
    edged = Client("tcp://127.0.0.1:1", key=keypair.new()[1], server_key=keypair.new()[0])
    if verb == "ping":
        rig = Rig(edged._one("ping", {}, deadline))
    else:
        rig = Rig(
            edged._exchange("reply", "x", {}, id="i", deadline_s=deadline, answer_s=None, affinity=None, retry=True)
        )
    while rig.machine.outcome is None:
        rig.do(rig.machine.feed(Lost(rig.line(verb), CUT), rig.now))
        if rig.machine.outcome is None:
            rig.wait_for(verb)
    assert isinstance(rig.machine.outcome, NotAdmitted)
    assert min(deadline / 3, CUT_S) <= rig.now < min(deadline, 2 * CUT_S)
