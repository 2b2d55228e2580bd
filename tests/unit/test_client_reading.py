"""A stream's text, however its events come."""

from __future__ import annotations

from edged.client.reading import Anew, Piece, Prefill, Queued, Reading, Replaced


def event(kind, seq, **fields):
    return {"type": kind, "seq": seq, **fields}


def test_the_example_of_the_protocol():
    """sent 0 queued, 1 prefill, 2 "A", 3 "B"; late, up to date, behind."""
    snapshot = event("snapshot", 3, text="AB", state="running")
    late = Reading()
    assert late.event(snapshot) == [Piece("AB")]
    early = Reading()
    assert early.event(event("queued", 0, position=2)) == [Queued(2)]
    assert early.event(event("prefill", 1, done=1, total=3)) == [Prefill(1, 3)]
    assert early.event(event("token", 2, text="A")) == [Piece("A")]
    behind = Reading()
    behind.event(event("queued", 0))
    behind.event(event("prefill", 1))
    behind.event(event("token", 2, text="A"))
    assert behind.event(snapshot) == [Piece("B")]
    assert early.event(event("token", 3, text="B")) == [Piece("B")]
    assert early.event(snapshot) == []
    for reading in (late, early, behind):
        assert reading.event(event("token", 4, text="C")) == [Piece("C")]
        assert reading.text == "ABC"


def test_a_gap_is_told_and_not_taken():
    reading = Reading()
    assert reading.event(event("token", 1, text="x")) is None
    assert (reading.text, reading.seq) == ("", -1)


def test_what_is_behind_or_malformed_is_ignored():
    reading = Reading()
    reading.event(event("token", 0, text="a"))
    for message in (event("token", 0, text="a"), event("token", "1", text="b"), {"type": "token"}):
        assert reading.event(message) == []
    assert reading.snapshot(3, None) == []
    assert reading.text == "a"


def test_another_topic_is_another_run():
    reading = Reading()
    assert reading.ticket("t1") == []
    reading.event(event("token", 0, text="old"))
    assert reading.ticket("t1") == []
    assert reading.ticket("t2") == [Anew(2, "old")]
    assert (reading.text, reading.seq, reading.run) == ("", -1, 2)


def test_a_text_that_does_not_continue_ours_begins_anew():
    reading = Reading()
    reading.event(event("token", 0, text="abc"))
    assert reading.snapshot(5, "xyz") == [Anew(2, "abc"), Piece("xyz")]
    assert reading.event(event("token", 6, text="!")) == [Piece("!")]


def test_restart_and_unknown_events_count():
    reading = Reading()
    assert reading.event(event("restart", 0, reason="worker")) == [Replaced("worker")]
    assert reading.event(event("of-version-2", 1)) == []
    assert reading.event(event("token", 2, text="x")) == [Piece("x")]
