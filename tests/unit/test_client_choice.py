"""Which endpoint is tried next, and when."""

from __future__ import annotations

from collections import Counter

from edged.client.boxes import Boxes
from edged.client.choice import CUT_S, Choice, ordered
from edged.client.errors import CUT, KEY_UNKNOWN, KEYS_WANTED, NoAnswer, NotAdmitted
from edged.client.steps import Pace

PACE = Pace()
ABC = ["a", "b", "c"]


def choice(order=ABC, boxes=None):
    return Choice(order, boxes or Boxes(PACE), PACE, "salt")


def test_without_affinity_the_order_is_the_given_one():
    assert ordered(ABC, None) == ABC


def test_sessions_stick_spread_and_move_only_when_their_own_box_goes():
    boxes = [f"tcp://10.0.0.{n}:5555" for n in range(5)]
    first = {f"s{n}": ordered(boxes, f"s{n}")[0] for n in range(1000)}
    assert first == {session: ordered(boxes[::-1], session)[0] for session in first}
    assert min(Counter(first.values()).values()) > 150
    gone = boxes[2]
    rest = [box for box in boxes if box != gone]
    moved = {session for session, box in first.items() if ordered(rest, session)[0] != box}
    assert moved == {session for session, box in first.items() if box == gone}


def test_the_silent_one_comes_last_and_waits_longer_when_it_is_the_only_one():
    c = choice()
    assert c.next(0) == ("a", 0)
    c.silent("a", 0)
    assert c.next(0) == ("b", 0)
    alone = choice(["a"])
    waits = []
    for _ in range(5):
        waits.append(alone.patience("a"))
        alone.silent("a", 0)
    assert waits == [2, 4, 8, 10, 10]
    assert alone.next(7) == ("a", 7)
    alone.answered("a")
    assert alone.patience("a") == 2


def test_a_refusal_is_waited_out_but_others_are_asked_first():
    c = choice(["a", "b"])
    c.refused("a", 0, 5.0)
    assert c.next(0) == ("b", 0)
    assert c.others("a", 0)
    c.refused("b", 0, 1.0)
    endpoint, at = c.next(0)
    assert endpoint == "b"
    assert 1.0 <= at <= 1.25
    assert not c.others("a", 0)
    c.refused("b", 1.5, 100.0)
    endpoint, at = c.next(2)
    assert endpoint == "a"
    assert 5.0 <= at <= 6.25


def test_back_off_without_a_time_doubles_up_to_a_bound():
    c = choice(["a"])
    waits = []
    for _ in range(12):
        c.refused("a", 0)
        waits.append(c.next(0)[1])
    assert waits[:6] == sorted(set(waits[:6]))
    assert waits[0] < 0.13
    assert max(waits) <= PACE.backoff_max_s * 1.25


def test_who_refuses_the_connection_is_left_out_after_a_second_try():
    c = choice(["a"])
    assert c.barred("a", 0.0, KEY_UNKNOWN) is None
    assert c.next(0.0)[1] < 1.0
    error = c.barred("a", 1.0, KEY_UNKNOWN)
    assert isinstance(error, NotAdmitted)
    assert isinstance(error, NoAnswer)
    assert (error.reason, error.endpoints) == (KEY_UNKNOWN, "a")
    assert "a refuses the connection: it does not know this key" in str(error)


def test_the_others_are_asked_meanwhile():
    c = choice(["a", "b"])
    assert c.barred("a", 0.0, KEYS_WANTED) is None
    assert c.barred("a", 1.0, KEYS_WANTED) is None
    assert c.out("a")
    assert c.next(100.0)[0] == "b"
    assert type(c.silence(1.0)) is NoAnswer
    assert c.barred("b", 101.0, KEY_UNKNOWN) is None
    assert isinstance(c.barred("b", 102.0, KEY_UNKNOWN), NotAdmitted)


def test_a_cut_handshake_may_be_a_box_that_starts():
    c = choice(["a"])
    at = 0.0
    while at < CUT_S:
        assert c.barred("a", at, CUT) is None
        at = c.next(at)[1]
    assert isinstance(c.silence(5.0), NotAdmitted)
    assert isinstance(c.barred("a", at, CUT), NotAdmitted)
    again = choice(["a"])
    again.barred("a", 0.0, CUT)
    again.answered("a")
    assert type(again.silence(5.0)) is NoAnswer
    assert again.barred("a", CUT_S + 1, CUT) is None
