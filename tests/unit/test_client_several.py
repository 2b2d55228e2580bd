"""One `generate` and several boxes: who has it, when it moves, when it stays. Without a socket or a clock."""

from __future__ import annotations

import itertools

import pytest

from edged.client import STARTING, Anew, Busy, NoAnswer, NotAdmitted, Overheated, Result, WorkerLost
from edged.client.errors import KEY_UNKNOWN
from edged.client.steps import Lost
from unit.client_rig import PACE, RESULT, call, exchange

A, B, C = (f"ipc:///{name}/request.sock" for name in "abc")
REFUSALS = ["busy", "loading", "unavailable", "shutting_down", "overheated", "low_memory"]


def two(mode="reply", **options):
    return exchange(mode=mode, endpoints=(A, B), **options)


def bar(rig, what="generate", reason=KEY_UNKNOWN):
    rig.do(rig.machine.feed(Lost(rig.line(what), reason), rig.now))


# ---- it moves --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reply", "pub", None])
@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_goes_to_the_next_box_at_once_with_the_same_id_and_the_time_that_is_left(code, mode):
    rig = two(mode)
    rig.now = 1.0
    rig.reach()
    rig.refuse(code, retry_after_ms=30_000)
    assert (rig.at(), rig.now) == (B, 1.0)
    assert rig.bodies[1] == {**rig.bodies[0], "deadline_ms": 59_000}


@pytest.mark.parametrize("mode", ["reply", "pub", None])
def test_nobody_listens_there_goes_to_the_next_box_at_once(mode):
    rig = two(mode)
    rig.unreachable()
    assert (rig.at(), rig.now) == (B, 0.0)


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_a_box_that_cannot_be_reached_is_left_after_the_first_silence(mode):
    """Its cable is pulled: nobody refuses the connection either."""
    rig = two(mode)
    rig.wait_for("generate")
    assert (rig.at(), rig.now) == (B, PACE.first_try_s)


def test_every_box_is_asked_once_even_if_nothing_is_to_be_repeated():
    rig = exchange(endpoints=(A, B, C), retry=False)
    rig.refuse("busy", retry_after_ms=9000)
    rig.unreachable()
    rig.refuse("overheated", retry_after_ms=9000)
    error = rig.machine.outcome
    assert isinstance(error, Overheated)
    assert rig.now == 0
    assert error.boxes == {A: "busy: m", B: "nobody listens there", C: "overheated: m"}
    assert str(error) == f"overheated: m [{A}: busy: m; {B}: nobody listens there; {C}: overheated: m]"


def test_a_box_that_is_not_there_does_not_hold_a_refusal_up():
    rig = two(retry=False)
    rig.refuse("busy", retry_after_ms=9000)
    rig.unreachable()
    assert isinstance(rig.machine.outcome, Busy)
    assert rig.machine.outcome.boxes == {A: "busy: m", B: "nobody listens there"}
    rig = two(retry=False)
    rig.refuse("busy", retry_after_ms=9000)
    rig.wait()
    assert rig.machine.outcome.boxes == {A: "busy: m", B: "no answer"}


def test_with_some_codes_to_repeat_the_others_are_asked_elsewhere_all_the_same():
    rig = two(retry=STARTING)
    rig.refuse("busy", retry_after_ms=500)
    assert rig.at() == B
    rig.refuse("loading", retry_after_ms=400)
    rig.wait_for("generate")
    assert rig.at() == B
    rig.refuse("busy", retry_after_ms=500)
    assert isinstance(rig.machine.outcome, Busy)


@pytest.mark.parametrize("mode", ["reply", "pub", None])
def test_boxes_that_are_all_away_are_looked_for_in_turn_without_haste(mode):
    """A connection that is refused is told at once: two dead boxes would be asked without end."""
    rig, asked = two(mode), []
    while rig.machine.outcome is None and len(rig.bodies) < 1000:
        if rig.open:
            asked.append((rig.at(), rig.now))
            rig.unreachable()
        else:
            rig.wait()
    assert isinstance(rig.machine.outcome, NoAnswer)
    assert rig.machine.outcome.boxes == dict.fromkeys((A, B), "nobody listens there")
    assert len(rig.bodies) < 150
    for box in (A, B):
        times = [now for endpoint, now in asked if endpoint == box]
        assert all(0.1 <= later - sooner <= 3 for sooner, later in itertools.pairwise(times))


def test_so_are_they_by_other_verbs():
    rig = call(endpoints=("a", "b"))
    while rig.machine.outcome is None and len(rig.bodies) < 1000:
        if rig.open:
            rig.unreachable("ping")
        else:
            rig.wait()
    assert len(rig.bodies) < 20
    assert rig.now == 5


# ---- it stays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reply", "pub", None])
def test_a_box_that_may_have_accepted_is_asked_again_until_it_is_given_up(mode):
    """The connection stood, no word came: the ticket may be lost, the request runs."""
    rig = two(mode)
    rig.now = 0.5
    rig.reach()
    places = set()
    while B not in places:
        assert rig.machine.outcome is None
        rig.wait()
        places |= {endpoint for endpoint, _ in rig.open.values()}
    assert 0.5 + PACE.stay_s <= rig.now <= 0.5 + PACE.stay_s + 1
    assert {body["id"] for body in rig.bodies} == {"i"}


def test_a_ticket_without_text_is_given_up_too():
    rig = two()
    rig.ticket()
    while rig.at("generate") == A:
        rig.lose()
        rig.wait_for("generate")
    assert PACE.stay_s <= rig.now < 2 * PACE.stay_s
    rig.ticket("tok/b/")
    rig.event("end", 0, **RESULT)
    assert rig.machine.outcome.text == "hello"
    assert rig.machine.reading.run == 2


def test_a_word_from_it_counts_anew():
    rig = two()
    for seq in range(6):
        rig.ticket()
        rig.now += PACE.stay_s * 0.6
        rig.event("queued", seq, position=1)
        rig.lose()
        rig.wait_for("generate")
        assert rig.at() == A


def test_text_that_was_shown_never_moves():
    rig = two()
    rig.ticket()
    rig.event("token", 0, text="from a")
    while rig.machine.outcome is None:
        assert {endpoint for endpoint, _ in rig.open.values()} <= {A}
        rig.wait()
    assert isinstance(rig.machine.outcome, NoAnswer)
    assert rig.now == 60 + PACE.grace_s
    assert rig.shown == "from a"


def test_what_ended_in_an_error_with_text_shown_is_begun_anew_where_it_was():
    rig = two()
    rig.ticket()
    rig.event("token", 0, text="from a")
    rig.event("end", 1, ok=False, error={"code": "worker_lost", "message": "m", "retryable": True})
    rig.wait_for("generate")
    assert rig.at() == A
    rig.ticket("tok/2/")
    assert [e for e in rig.machine.events if isinstance(e, Anew)] == [Anew(2, "from a")]


def test_without_text_it_is_begun_anew_elsewhere():
    rig = two(None)
    rig.refuse("worker_lost")
    assert rig.at() == B
    rig.refuse("worker_lost")
    rig.wait_for("generate")
    rig.refuse("worker_lost")
    assert isinstance(rig.machine.outcome, WorkerLost)


def test_a_daemon_that_forgot_it_has_it_no_more():
    rig = two()
    rig.ticket()
    rig.wait_for("result")
    rig.refuse("not_found", "result", retryable=False)
    assert rig.at() == A
    rig.unreachable()
    assert rig.at() == B


def test_a_revoked_key_under_a_text_ends_it():
    rig = two()
    rig.ticket()
    rig.event("token", 0, text="x")
    bar(rig)
    rig.wait_for("generate")
    assert rig.at() == A
    bar(rig)
    assert isinstance(rig.machine.outcome, NotAdmitted)
    assert A in str(rig.machine.outcome)


# ---- all refuse ------------------------------------------------------------------------------------------------


def test_wrong_keys_and_silence_are_told_each_with_its_endpoint():
    rig = two()
    bar(rig)
    assert rig.at() == B
    while rig.machine.outcome is None:
        if rig.open and rig.at() == A:
            bar(rig)
        else:
            rig.wait()
    text = str(rig.machine.outcome)
    assert text.startswith(f"no answer from {A}, {B} within 62.0 s")
    assert f"{A}: refuses the connection: it does not know this key" in text
    assert f"{B}: no answer" in text


def test_all_wrong_keys_are_told_at_once_and_each():
    rig = two()
    for _ in range(4):
        if not rig.open:
            rig.wait_for("generate")
        bar(rig)
    assert isinstance(rig.machine.outcome, NotAdmitted)
    assert set(rig.machine.outcome.boxes) == {A, B}
    assert rig.now < 1


def test_refused_until_the_deadline_each_says_why():
    rig = two(deadline_s=20)
    while rig.machine.outcome is None:
        if rig.open:
            rig.refuse("busy" if rig.at() == A else "loading", retry_after_ms=5000)
        else:
            rig.wait()
    assert rig.machine.outcome.boxes == {A: "busy: m", B: "loading: m"}
    assert not isinstance(rig.machine.outcome, Result)


def test_a_call_names_all_that_did_not_answer():
    rig = call(endpoints=("a", "b"))
    rig.unreachable("ping")
    while rig.machine.outcome is None:
        rig.wait()
    assert set(rig.machine.outcome.boxes) == {"a", "b"}


def test_one_box_is_told_as_before():
    rig = exchange()
    rig.refuse("busy", retry_after_ms=70_000)
    assert str(rig.machine.outcome) == "busy: m"
    assert rig.machine.outcome.boxes == {}
