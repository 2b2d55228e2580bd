"""Who may hear what, and when a stream is an orphan (protocol 4), on a whole broker."""

from __future__ import annotations

import pytest

from edged.broker.streams import SILENCE_S
from edged.messages import Abort
from unit.rig import A, B, Rig, answers, emits, ended, events, kinds, told

GRACE = 5.0


@pytest.fixture
def rig() -> Rig:
    one = Rig(orphan_grace_ms=5000)
    one.generate("a", stream="pub", prompt="secret")
    return one


def test_the_owner_is_approved_and_made_whole(rig: Rig) -> None:
    rig.run(rig.rid("a"), "hel")
    approved, out = rig.subscribe(rig.topic("a"))
    assert approved
    (shot,) = emits(out)
    assert shot.topic == rig.topic("a").decode()
    assert shot.fields == {"id": "a", "type": "snapshot", "seq": 1, "text": "hel", "state": "running"}


def test_each_approved_subscription_gets_a_snapshot(rig: Rig) -> None:
    for connection in "121":
        assert kinds(rig.subscribe(rig.topic("a"), connection=connection)[1]) == ["snapshot"]


def test_a_snapshot_before_any_event_has_minus_one(rig: Rig) -> None:
    assert events(rig.subscribe(rig.topic("a"))[1])[0]["seq"] == -1


@pytest.mark.parametrize("who", [B, None, "", "uid:11"])
def test_a_stranger_is_refused(rig: Rig, who: str | None) -> None:
    assert rig.subscribe(rig.topic("a"), who) == (False, [])
    topic = rig.topic("a")
    rig.done(rig.rid("a"))
    assert rig.subscribe(topic, who) == (False, [])


def test_only_the_exact_topic_is_approved(rig: Rig) -> None:
    topic = rig.topic("a")
    for wrong in (b"", b"t", b"tok/", topic[:-1], topic + b"x", topic.upper(), b"tok/" + b"0" * 32 + b"/", b"\xff\xfe"):
        assert rig.subscribe(wrong) == (False, []), wrong


def test_sys_topics_are_for_anybody(rig: Rig) -> None:
    for topic in (b"sys/", b"sys/health", b"sys/anything"):
        for who in (A, B, None):
            assert rig.subscribe(topic, who) == (True, [])


def test_after_the_end_the_snapshot_then_the_end(rig: Rig) -> None:
    topic, rid = rig.topic("a"), rig.rid("a")
    rig.run(rid, "hello")
    rig.done(rid)
    approved, out = rig.subscribe(topic)
    assert approved
    shot, end = events(out)
    assert (shot["type"], shot["seq"], shot["text"], shot["state"]) == ("snapshot", 1, "hello", "finished")
    assert (end["type"], end["seq"], end["text"], end["finish_reason"]) == ("end", 2, "hello", "stop")
    assert all(e.topic == topic.decode() for e in emits(out))


def test_after_an_error_the_snapshot_has_what_was_sent(rig: Rig) -> None:
    topic = rig.topic("a")
    rig.run(rig.rid("a"), "hel")
    rig.fail(rig.rid("a"))
    shot, end = events(rig.subscribe(topic)[1])
    assert shot["text"] == "hel"
    assert (end["error"]["code"], end["seq"]) == ("internal", shot["seq"] + 1)


def test_the_topic_lives_as_long_as_the_result(rig: Rig) -> None:
    topic = rig.topic("a")
    rig.done(rig.rid("a"))
    rig.wait(299)
    assert rig.subscribe(topic)[0]
    rig.wait(2)
    assert rig.subscribe(topic) == (False, [])


def test_a_run_anew_has_a_new_topic(rig: Rig) -> None:
    old = rig.topic("a")
    rig.run(rig.rid("a"))
    rig.fail(rig.rid("a"))
    rig.generate("a", stream="pub", prompt="secret")
    assert rig.topic("a") != old
    assert rig.subscribe(old) == (False, [])
    assert rig.subscribe(rig.topic("a"))[0]


# ---- orphans ---------------------------------------------------------------------------------------------------


def outcomes(out: list) -> list[str]:
    return [fields["outcome"] for fields in ended(out)]


def test_a_stream_that_nobody_hears_is_cancelled(rig: Rig) -> None:
    rid = rig.rid("a")
    assert outcomes(rig.wait(GRACE - 0.01)) == []
    out = rig.wait(0.02)
    assert outcomes(out) == ["cancelled"]
    assert Abort(rid) in told(out)


def test_a_listener_keeps_it(rig: Rig) -> None:
    rig.subscribe(rig.topic("a"))
    assert outcomes(rig.wait(100)) == []


def test_when_the_last_listener_goes_the_grace_begins(rig: Rig) -> None:
    rig.subscribe(rig.topic("a"), connection="1")
    rig.subscribe(rig.topic("a"), connection="2")
    rig.unsubscribe(rig.topic("a"), "1")
    assert outcomes(rig.wait(20)) == []
    rig.unsubscribe(rig.topic("a"))
    assert outcomes(rig.wait(GRACE - 0.01)) == []
    assert outcomes(rig.wait(0.02)) == ["cancelled"]


def test_who_returns_in_time_saves_it(rig: Rig) -> None:
    rig.subscribe(rig.topic("a"), connection="1")
    for connection in "2345":
        rig.unsubscribe(rig.topic("a"))
        assert outcomes(rig.wait(GRACE - 0.1)) == []
        rig.subscribe(rig.topic("a"), connection=connection)
    assert outcomes(rig.wait(20)) == []


def test_a_stranger_delays_and_never_triggers(rig: Rig) -> None:
    topic = rig.topic("a")
    rig.subscribe(topic, B, "9")
    assert outcomes(rig.wait(20)) == []
    rig.subscribe(topic, A, "1")
    rig.unsubscribe(topic)
    rig.unsubscribe(topic, "9")
    rig.unsubscribe(topic, "8")
    assert outcomes(rig.wait(GRACE + 1)) == ["cancelled"]


def test_strangers_who_leave_take_nobody_with_them(rig: Rig) -> None:
    topic = rig.topic("a")
    rig.subscribe(topic, A, "1")
    for number in range(2, 20):
        rig.subscribe(topic, B, str(number))
    for number in range(2, 20):
        rig.unsubscribe(topic, None if number % 2 else str(number))
    assert outcomes(rig.wait(100)) == []


def test_bound_anew_the_grace_begins_again(rig: Rig) -> None:
    rig.subscribe(rig.topic("a"))
    rig.wait(50)
    rig.broker.topics.rebound(rig.now)
    assert outcomes(rig.wait(SILENCE_S + GRACE - 0.01)) == [], "time to notice, and to come back"
    assert outcomes(rig.wait(0.02)) == ["cancelled"]


def test_bound_anew_in_the_grace_it_begins_again(rig: Rig) -> None:
    rig.wait(GRACE - 1)
    rig.broker.topics.rebound(rig.now)
    assert outcomes(rig.wait(SILENCE_S + GRACE - 0.01)) == []
    assert outcomes(rig.wait(0.02)) == ["cancelled"]


def test_a_reply_stream_has_the_same_time_when_all_sockets_are_bound_anew() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rig.generate("plain")
    rig.broker.topics.rebound(rig.now, replies=True)
    rig.broker.topics.unreachable(rig.rid("a"), rig.now)
    assert outcomes(rig.wait(SILENCE_S + GRACE - 0.01)) == []
    assert outcomes(rig.wait(0.02)) == ["cancelled"]
    rig.run(rig.rid("plain"))
    rig.done(rig.rid("plain"))
    assert answers(rig.result("plain"))[0]["ok"], "who waited without a stream finds the result"


def test_a_detached_stream_is_no_orphan() -> None:
    rig = Rig()
    rig.generate("a", stream="pub", detach=True)
    assert outcomes(rig.wait(100)) == []


def test_without_a_stream_there_is_no_orphan() -> None:
    rig = Rig()
    rig.generate("a")
    assert outcomes(rig.wait(100)) == []


def test_a_reply_stream_is_an_orphan_when_its_connection_is_gone() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    assert outcomes(rig.wait(50)) == []
    rig.broker.topics.unreachable(rig.rid("a"), rig.now)
    assert outcomes(rig.wait(GRACE - 0.01)) == []
    assert outcomes(rig.wait(0.02)) == ["cancelled"]


def test_a_reply_stream_may_be_taken_over_in_the_grace() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rig.broker.topics.unreachable(rig.rid("a"), rig.now)
    rig.wait(GRACE - 1)
    rig.generate("a", stream="reply")
    assert outcomes(rig.wait(50)) == []


def test_a_listener_on_the_topic_keeps_a_reply_stream() -> None:
    rig = Rig()
    rig.generate("a", stream="reply")
    rig.subscribe(rig.topic("a"))
    rig.broker.topics.unreachable(rig.rid("a"), rig.now)
    assert outcomes(rig.wait(50)) == []
    (token,) = emits(rig.sample(rig.rid("a"), "x"))
    assert (token.topic, token.to) == (rig.topic("a").decode(), None)


def test_a_waiting_result_is_a_listener(rig: Rig) -> None:
    rig.wait(GRACE - 1)
    rig.result("a", wait_ms=20_000)
    assert outcomes(rig.wait(20)) == []
    assert outcomes(rig.wait(GRACE - 0.01)) == []
    assert outcomes(rig.wait(0.02)) == ["cancelled"]


def test_asking_without_waiting_is_not_listening(rig: Rig) -> None:
    rig.wait(GRACE - 1)
    rig.result("a")
    rig.generate("a", stream="pub", prompt="secret")
    assert outcomes(rig.wait(1.01)) == ["cancelled"]


def test_what_is_gone_is_not_counted(rig: Rig) -> None:
    topic, rid = rig.topic("a"), rig.rid("a")
    rig.done(rid)
    rig.unsubscribe(topic)
    rig.unsubscribe(b"\xff")
    rig.broker.topics.unreachable(rid, rig.now)
    rig.broker.topics.unreachable(0, rig.now)
    rig.broker.topics.lagged(rid)
    rig.broker.topics.rebound(rig.now)
    rig.lives.check()


# ---- slow readers ----------------------------------------------------------------------------------------------


def test_lagged_is_in_the_result(rig: Rig) -> None:
    rid = rig.rid("a")
    rig.run(rid)
    rig.broker.topics.lagged(rid)
    (end,) = events(rig.done(rid))
    assert end["lagged"] is True
    assert rig.lives.pace.counters["events_dropped"] == 1
