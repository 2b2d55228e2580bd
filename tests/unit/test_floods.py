"""Who sends very much for very long, and who only does so for a moment."""

from __future__ import annotations

from edged.wire.floods import LONG, LOOK_S, RUSH, Floods


def seconds(floods: Floods, count: int, messages: int, stuck: tuple[str, ...] = (), begin: float = 0.0) -> list[str]:
    out = []
    for second in range(1, count + 1):
        for _ in range(messages):
            floods.heard("a")
        floods.heard("b")
        out += floods.look(stuck, begin + second * LOOK_S)
    return out


def test_a_flood_is_one_that_lasts() -> None:
    floods = Floods()
    assert seconds(floods, LONG - 1, RUSH) == []
    assert seconds(floods, 1, RUSH, begin=LONG - 1) == ["a"]
    assert seconds(floods, LONG - 1, RUSH, begin=LONG) == [], "it begins anew"


def test_a_burst_is_none() -> None:
    floods = Floods()
    for begin in range(0, 200, 10):
        assert seconds(floods, LONG - 1, 3 * RUSH, begin=begin) == []
        assert seconds(floods, 11 - LONG, 10, begin=begin + LONG - 1) == []


def test_bytes_that_wait_count_the_same() -> None:
    assert seconds(Floods(), LONG, 0, stuck=("c",)) == ["c"]


def test_looks_that_lie_far_apart_are_no_row() -> None:
    floods = Floods()
    found = [floods.look(["c"], 10.0 * n) for n in range(1, 2 * LONG)]
    assert found == [[]] * len(found)


def test_who_rushes_just_now() -> None:
    floods = Floods()
    for _ in range(RUSH):
        floods.heard("a")
    assert floods.rush() == ["a"]
    floods.look([], 1.0)
    assert floods.rush() == ["a"], "in the second before"
    floods.look([], 2.0)
    assert floods.rush() == []
