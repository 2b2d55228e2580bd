"""Load, turns and rest of several boxes, and the properties of the choice among them."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.client import BadEndpoint, BadKey, Client, Pace
from edged.client.boxes import Box, Boxes
from edged.client.choice import Choice
from edged.client.errors import KEY_UNKNOWN
from edged.client.keys import Keys
from edged.client.where import listed, stream_of

PACE = Pace()
ABC = ["a", "b", "c"]
names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True)


def spread(boxes, order=ABC):
    return Choice(boxes.in_turn(order), boxes, PACE, "salt", spread=True)


def asks(boxes, now=0.0, order=ABC):
    """A request that is under way."""
    choice = spread(boxes, order)
    endpoint = choice.next(now)[0]
    choice.take(endpoint)
    return choice, endpoint


# ---- load and turns --------------------------------------------------------------------------------------------


@given(names, st.integers(0, 1000), st.integers(1, 40))
def test_requests_at_once_are_spread_evenly(order, turn, count):
    boxes = Boxes(PACE, turn)
    held = [asks(boxes, order=order) for _ in range(count)]
    per_box = Counter(endpoint for _, endpoint in held)
    assert max(per_box.values()) - min(per_box.get(name, 0) for name in order) <= 1


@given(names, st.integers(0, 1000))
def test_requests_one_after_the_other_take_turns(order, turn):
    boxes = Boxes(PACE, turn)
    asked = []
    for _ in range(2 * len(order)):
        choice, endpoint = asks(boxes, order=order)
        choice.leave()
        asked.append(endpoint)
    assert asked == asked[: len(order)] * 2
    assert sorted(asked[: len(order)]) == sorted(order)


@given(st.lists(st.tuples(st.sampled_from(["ask", "end", "drop"]), st.integers(0, 20)), max_size=60))
def test_the_count_is_of_those_that_are_there(steps):
    boxes, held = Boxes(PACE), []
    for what, which in steps:
        if what == "ask":
            before = {name: boxes.load(name) for name in ABC}
            held.append(asks(boxes))
            assert before[held[-1][1]] == min(before.values())
        elif held:
            choice, _ = held.pop(which % len(held))
            if what == "end":
                choice.leave()
            del choice
    gc.collect()
    assert {name: boxes.load(name) for name in ABC} == {name: sum(at == name for _, at in held) for name in ABC}


def test_moving_takes_the_load_along():
    boxes = Boxes(PACE)
    choice, first = asks(boxes)
    choice.take("c" if first != "c" else "a")
    assert boxes.load(first) == 0
    assert sum(map(boxes.load, ABC)) == 1


def test_the_client_begins_anywhere():
    endpoints = [f"tcp://10.0.0.{n}:5555" for n in range(4)]
    first = {Client(endpoints)._choice("i", None, None, stays=False).order[0] for _ in range(100)}
    assert first == set(endpoints)


# ---- rest ------------------------------------------------------------------------------------------------------


def rest_of(boxes, name, now):
    (box,) = boxes.view([name], now)
    return box.rests_s


def test_a_failed_box_is_left_alone_for_longer_each_time():
    boxes, now, rests = Boxes(PACE), 0.0, []
    for _ in range(8):
        boxes.silent("a", now, "no answer")
        rests.append(rest_of(boxes, "a", now))
        now += rests[-1]
    assert rests == [5, 10, 20, 40, 80, 120, 120, 120]
    boxes.answered("a")
    assert boxes.view(["a"], now) == [Box(endpoint="a")]
    boxes.silent("a", now, "no answer")
    assert rest_of(boxes, "a", now) == 5


def test_failures_of_many_calls_at_once_are_one_failure():
    boxes = Boxes(PACE)
    for _ in range(50):
        boxes.silent("a", 1.0, "no answer")
    assert rest_of(boxes, "a", 1.0) == 5


def test_who_refuses_rests_as_long_as_it_says_and_is_asked_when_all_rest():
    boxes = Boxes(PACE)
    spread(boxes).refused("a", 0.0, 8.0, "busy: full")
    assert 8 <= rest_of(boxes, "a", 0.0) <= 10
    assert {asks(boxes, 1.0)[1] for _ in range(6)} == {"b", "c"}
    for name in ABC:
        boxes.silent(name, 1.0, "no answer")
    assert {asks(boxes, 1.0)[1] for _ in range(6)} == set(ABC)


def test_a_wrong_key_at_one_is_known_to_all_calls():
    boxes = Boxes(PACE)
    first = spread(boxes)
    assert first.barred("a", 0.0, KEY_UNKNOWN) is None
    (told,) = boxes.view(["a"], 1.0)
    assert told.why.startswith("refuses the connection: it does not know this key")
    assert {asks(boxes, 1.0)[1] for _ in range(6)} == {"b", "c"}


@given(names, st.data())
def test_no_call_is_refused_without_every_box_having_been_asked(order, data):
    """Whatever other calls have met, and whatever this one meets."""
    boxes = Boxes(PACE)
    for name in order:
        if data.draw(st.booleans()):
            boxes.silent(name, 0.0, "no answer")
    choice, asked = spread(boxes, order), []
    while choice.unasked():
        endpoint, ready = choice.next(1.0)
        assert ready == 1.0
        assert endpoint not in asked
        asked.append(endpoint)
        if data.draw(st.booleans()):
            choice.refused(endpoint, 1.0, 3.0, "busy: m")
        else:
            choice.silent(endpoint, 1.0)
    assert sorted(asked) == sorted(order)
    assert set(choice.silence(1.0).boxes) == (set(order) if len(order) > 1 else set())


# ---- what a client takes ---------------------------------------------------------------------------------------


def test_several_endpoints_in_one_string(monkeypatch):
    both = ["tcp://10.0.0.7:5555", "ipc:///run/a,b/request.sock"]
    assert listed("tcp://10.0.0.7:5555, ipc:///run/a,b/request.sock") == both
    assert listed(["tcp://10.0.0.7:5555,ipc:///run/a,b/request.sock", both[0]]) == both
    monkeypatch.setenv("EDGED_ENDPOINT", ",".join(both))
    assert listed(None) == both
    with pytest.raises(BadEndpoint, match="http://x: an endpoint begins with"):
        listed("tcp://10.0.0.7:5555,http://x")


def test_the_box_of_a_verb_for_one_has_to_be_named():
    edged = Client(["ipc:///a/control.sock", "ipc:///b/control.sock"])
    with pytest.raises(ValueError, match=r"`drain` is for one box: say which, at='ipc:///a/control\.sock'"):
        edged.call("drain")
    with pytest.raises(ValueError, match="`cancel` is for one box"):
        edged.call("cancel", id="x", identity="uid:1")
    with pytest.raises(ValueError, match="ipc:///c is not one of"):
        edged.call("drain", at="ipc:///c")
    assert edged._any("drain", {}, None, "ipc:///b/control.sock")._choice.order == ["ipc:///b/control.sock"]


def test_a_session_is_on_one_box_and_an_id_of_ones_own_is_found_again():
    endpoints = [f"tcp://10.0.0.{n}:5555" for n in range(4)]
    settings = {"deadline_s": None, "answer_s": None, "retry": True}

    def order(affinity=None, own=None, **options):
        one = Client(endpoints)._exchange("reply", "x", options, id=own, affinity=affinity, **settings)
        return one._choice.order

    assert len(order(session="kitchen")) == 1
    assert order(affinity="kitchen")[:1] == order(session="kitchen")
    assert sorted(order(affinity="kitchen")) == endpoints
    assert len({tuple(order(own="sensor7-1")) for _ in range(20)}) == 1
    assert len({tuple(order()) for _ in range(100)}) == 4


def test_each_box_may_have_its_own_key(monkeypatch):
    from edged import keypair

    endpoints = ["tcp://10.0.0.7:5555", "tcp://[fe80::1%eth0]:5555"]
    one, two, three = (keypair.new()[0] for _ in range(3))
    secret = keypair.new()[1]
    named = [f"{endpoints[0]}={one}", f"{endpoints[1]}={two}", f"{endpoints[1]}={three}"]
    keys = Keys(endpoints, stream_of(None), secret, named)
    assert keys.of(endpoints[0]).server == one
    assert keys.of(endpoints[1]).server == two
    keys.cut(endpoints[1], keys.of(endpoints[1]))
    assert keys.of(endpoints[1]).server == three
    monkeypatch.setenv("EDGED_SERVER_KEY", ",".join(named))
    assert Keys(endpoints, stream_of(None), secret, None).of(endpoints[0]).server == one
    with pytest.raises(BadKey, match="either each key says whose it is, ENDPOINT=KEY, or none does"):
        Keys(endpoints, stream_of(None), secret, [named[0], two])
    with pytest.raises(BadKey, match=r"`server_key` is missing for tcp://\[fe80::1%eth0\]:5555"):
        Keys(endpoints, stream_of(None), secret, named[:1])
