"""The judge itself: what it must let pass, and what it must see."""

from __future__ import annotations

from typing import Any

import pytest
from history import Story, judge, judge_all

TEXT = "a0 a1 a2 "


def ticket(**fields: Any) -> dict[str, Any]:
    return {"ok": True, "id": "a", "topic": "tok/x/", "state": "queued"} | fields


def event(seq: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": "a", "type": kind, "seq": seq} | fields


def result(text: str = TEXT, reason: str = "stop", restarts: int = 1) -> dict[str, Any]:
    return {"ok": True, "id": "a", "text": text, "finish_reason": reason, "restarts": restarts}


def error(code: str) -> dict[str, Any]:
    return {"ok": False, "id": "a", "error": {"code": code, "message": "why"}}


def token(seq: int, text: str) -> dict[str, Any]:
    return event(seq, "token", text=text, n=1)


END = event(4, "end") | result()
WHOLE = [
    ticket(),
    event(0, "prefill", done=1, total=1),
    token(1, "a0 "),
    event(2, "restart", reason="SIGKILL"),
    token(3, "a1 a2 "),
    END,
    result(),
]


def story(frames: list[dict[str, Any]], **fields: Any) -> Story:
    one = Story("a", TEXT, 10.0, 100.0, **fields)
    for number, frame in enumerate(frames):
        one.saw(100 + number / 10, frame)
    return one


def snapshot(seq: int, text: str) -> dict[str, Any]:
    return event(seq, "snapshot", text=text, state="running")


@pytest.mark.parametrize(
    "frames",
    [
        WHOLE,
        [error("busy"), error("loading"), *WHOLE],
        [result()],
        [result(), result()],
        [*WHOLE[:3], snapshot(1, "a0 "), *WHOLE[3:]],
        [ticket(), snapshot(3, TEXT), END],
        [*WHOLE[:3], snapshot(3, TEXT), END, snapshot(3, TEXT), END],
    ],
)
def test_it_lets_pass(frames: list[dict[str, Any]]) -> None:
    assert judge(story(frames)) == []


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        (WHOLE[:-2], "never ended"),
        ([*WHOLE[:2], *WHOLE[3:]], "event 2 after 0"),
        ([*WHOLE[:3], token(2, "a0 "), END], "no beginning"),
        ([*WHOLE[:3], token(1, "a1 "), *WHOLE[3:]], "two events with number 1"),
        ([*WHOLE, token(5, "")], "after the end"),
        ([*WHOLE, result(restarts=2)], "ended in"),
        ([result("a0 a1 ")], "ended by stop with"),
        ([result("a0 ", "length")], "ended by length"),
        ([error("worker_lost")], "ended with worker_lost"),
        ([*WHOLE[:4], snapshot(3, "a1 "), END], "no beginning"),
        ([*WHOLE[:2], token(1, "b0 "), *WHOLE[2:]], "no beginning"),
        ([{**WHOLE[0], "id": "b"}, *WHOLE[1:]], "a frame of 'b'"),
        ([*WHOLE[:5], event(4, "end") | result(restarts=0)], "restarts were told"),
        ([*WHOLE[:3], event(2, "end") | result()], "told 'a0 '"),
    ],
)
def test_it_sees(frames: list[dict[str, Any]], what: str) -> None:
    assert any(what in fault for fault in judge(story(frames))), judge(story(frames))


def test_it_sees_what_is_late() -> None:
    late = story([])
    late.saw(111.5, result())
    assert "11.50 s" in judge(late)[0]


def test_what_is_expected_passes() -> None:
    assert judge(story([error("worker_lost")], errors=frozenset({"worker_lost"}))) == []
    assert judge(story(WHOLE[:3], abandoned=True)) == []
    assert judge_all([story(WHOLE), story(WHOLE)]) == ["a: asked by two stories"]
