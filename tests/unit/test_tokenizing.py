"""`tokenize`: bounded, answered exactly once, whatever the worker does."""

from __future__ import annotations

import pytest

from edged.broker.tokenizing import DEADLINE_S, MAX_PENDING, MAX_PER_IDENTITY
from edged.messages import Abort, Refused, Tokenize, Tokenized
from unit.rig import A, B, Rig, answer, answers, code, told


def asked(rig: Rig, who: str = A) -> int:
    (message,) = told(rig.tokenize(who))
    assert isinstance(message, Tokenize)
    return message.rid


def test_the_worker_is_asked_and_the_caller_answered() -> None:
    rig = Rig()
    to = rig.to()
    (message,) = told(rig.tokenize(to=to))
    assert message == Tokenize(message.rid, "some text", None)
    out = rig.heard(Tokenized(message.rid, [1, 2, 3], True))
    assert answer(out, to) == {"ok": True, "id": "t", "tokens": [1, 2, 3], "count": 3, "fits": True}


@pytest.mark.parametrize(
    ("said", "told_"), [("bad_request", "bad_request"), ("internal", "internal"), ("nonsense", "internal")]
)
def test_a_refusal_is_passed_on(said: str, told_: str) -> None:
    rig = Rig()
    assert code(rig.heard(Refused(asked(rig), said, "why"))) == told_


def test_one_answer_only() -> None:
    rig = Rig()
    rid = asked(rig)
    assert answers(rig.heard(Tokenized(rid, [], True)))
    assert rig.heard(Tokenized(rid, [], True)) == []
    assert rig.heard(Refused(rid, "internal", "x")) == []
    assert rig.lost() == []


def test_a_callers_share_is_bounded() -> None:
    rig = Rig()
    rids = [asked(rig) for _ in range(MAX_PER_IDENTITY)]
    assert code(rig.tokenize()) == "busy"
    asked(rig, B)
    rig.heard(Tokenized(rids[0], [], True))
    asked(rig)


def test_all_together_are_bounded() -> None:
    rig = Rig()
    for n in range(MAX_PENDING):
        asked(rig, f"uid:{n}")
    assert code(rig.tokenize("uid:99")) == "busy"


def test_without_an_answer_there_is_a_deadline() -> None:
    rig = Rig()
    rid = asked(rig)
    assert rig.wait(DEADLINE_S - 0.01) == []
    out = rig.wait(0.02)
    assert code(out) == "deadline_exceeded"
    assert told(out) == [Abort(rid)]
    assert rig.wait(100) == []


def test_when_the_worker_dies_all_are_answered() -> None:
    rig = Rig()
    asked(rig)
    asked(rig, B)
    assert [a["error"]["code"] for a in answers(rig.lost())] == ["worker_lost"] * 2
    assert code(rig.tokenize()) == "unavailable"
    rig.ready()
    asked(rig)


def test_at_the_stop_all_are_answered() -> None:
    rig = Rig()
    asked(rig)
    out = rig.broker.stopped(rig.now)
    assert code(out) == "shutting_down"


def test_while_loading() -> None:
    assert code(Rig(sequences=0).tokenize()) == "loading"


def test_when_unavailable() -> None:
    rig = Rig()
    rig.lost()
    rig.broker.unavailable("no worker", 300.0, rig.now)
    assert code(rig.tokenize()) == "unavailable"
