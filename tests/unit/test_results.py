"""Kept results: TTL, bytes, whose go first."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.broker.results import OVERHEAD_BYTES, Kept, Results
from unit.rig import A, B, C

INF = float("inf")
PLENTY = 1 << 20


def kept(name: str, who: str = A, size: int = 0, ended: float = 0.0, **fields: object) -> Kept:
    given_ = {"digest": b"", "topic": f"tok/{who}/{name}/", "seq": 3, "body": b"x" * size, "text": None}
    flags = {"retryable": False, "cancelled": False, "deadline_ms": 1000, "ended": ended}
    return Kept(identity=who, id=name, **{**given_, **flags, **fields})


def names(results: Results) -> list[str]:
    return [one.id for one in results._by_id.values()]


def test_found_by_id_and_by_topic() -> None:
    results = Results()
    one = kept("a")
    results.keep(one, PLENTY)
    assert results.find(A, "a") is results.on_topic(one.topic) is one
    assert results.find(B, "a") is None
    assert results.on_topic("tok/other/") is None


def test_a_result_goes_after_its_time() -> None:
    results = Results()
    results.keep(kept("a", ended=10.0), PLENTY)
    results.keep(kept("b", ended=11.0), PLENTY)
    assert results.next_expiry(300) == 310.0
    results.expire(309.9, 300)
    assert names(results) == ["a", "b"]
    results.expire(310.0, 300)
    assert names(results) == ["b"]
    assert results.on_topic(kept("a").topic) is None
    results.expire(1000.0, 300)
    assert results.next_expiry(300) == INF
    results.check()


def test_the_heaviest_identitys_oldest_goes_first() -> None:
    results = Results()
    limit = 4 * OVERHEAD_BYTES + 3300
    for one in (kept("b1", B, 100), kept("a1", A, 1000), kept("a2", A, 2000), kept("b2", B, 100)):
        results.keep(one, limit)
    assert len(results) == 4
    results.keep(kept("b3", B, 100), limit)
    assert names(results) == ["b1", "a2", "b2", "b3"]


def test_one_callers_long_answers_cost_only_that_caller() -> None:
    results = Results()
    limit = 20 * OVERHEAD_BYTES
    for n in range(5):
        results.keep(kept(f"small{n}", B, 10), limit)
    for n in range(50):
        results.keep(kept(f"long{n}", A, 3000), limit)
    assert [name for name in names(results) if name.startswith("small")] == [f"small{n}" for n in range(5)]
    assert "long49" in names(results)
    assert "long0" not in names(results)


def test_one_over_the_limit_goes_at_once() -> None:
    results = Results()
    results.keep(kept("a", size=100), 50)
    assert len(results) == 0
    assert results.total_bytes == 0
    results.check()


def test_kept_again_replaces() -> None:
    results = Results()
    results.keep(kept("a", size=10, ended=1.0), PLENTY)
    results.keep(kept("b", size=10, ended=2.0), PLENTY)
    results.keep(kept("a", size=20, ended=3.0, topic="tok/new/"), PLENTY)
    assert names(results) == ["b", "a"]
    assert results.on_topic("tok/new/") is results.find(A, "a")
    assert results.on_topic(kept("a").topic) is None
    results.check()


def test_dropping_the_unknown_is_nothing() -> None:
    results = Results()
    results.drop(A, "a")
    results.check()


def test_size_counts_the_texts() -> None:
    assert kept("a", size=100).size >= 100 + OVERHEAD_BYTES
    assert kept("a", size=100, text="é" * 10).size >= 100 + 10 * len("é".encode())
    assert kept("a", text="😀" * 10).size >= len("😀" * 10) * 4


def test_stats() -> None:
    results = Results()
    results.keep(kept("a", size=10), PLENTY)
    assert results.stats() == {"kept": 1, "kept_bytes": results.total_bytes}


def test_the_story_of_a_result() -> None:
    body = msgspec.json.encode({"v": 1, "ok": True, "id": "a", "instance": "i", "text": "hello", "stop": None})
    snapshot, end = kept("a", body=body).story()
    assert snapshot == {"id": "a", "type": "snapshot", "seq": 2, "text": "hello", "state": "finished"}
    assert end == {
        "id": "a",
        "type": "end",
        "seq": 3,
        "v": 1,
        "ok": True,
        "instance": "i",
        "text": "hello",
        "stop": None,
    }


def test_the_story_of_an_error_has_what_was_sent() -> None:
    body = msgspec.json.encode({"ok": False, "id": "a", "error": {"code": "worker_lost"}})
    snapshot, end = kept("a", body=body, text="half an answer").story()
    assert snapshot["text"] == "half an answer"
    assert end["error"] == {"code": "worker_lost"}
    assert "text" not in end


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.sampled_from("abcdef"), st.integers(0, 4000), st.integers(0, 5)),
        max_size=60,
    ),
    st.integers(0, 12_000),
)
@settings(max_examples=80)
def test_bounds_hold_whatever_ends(ends: list[tuple[str, str, int, int]], limit: int) -> None:
    results = Results()
    now = 0.0
    for number, (who, name, size, later) in enumerate(ends):
        now += later
        before = dict(results._bytes)
        one = kept(name, who, size, now, topic=f"tok/{number}/")
        results.keep(one, limit)
        results.check()
        assert results.total_bytes <= limit
        average = limit / max(1, len(before | {who: 0}))
        for other, held in before.items():
            if other != who and held + OVERHEAD_BYTES + size <= average:
                assert results._bytes[other] == held, "a light caller paid"
        results.expire(now, 10)
        results.check()
        assert all(k.ended + 10 > now for k in results._by_id.values())
        assert results.next_expiry(10) > now
