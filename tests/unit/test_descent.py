"""How far down the profiles deaths have led, and the way back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edged.watchdog.descent import PATIENCE, Descent


def test_down_at_once_up_after_the_window() -> None:
    one = Descent(300)
    one.down(1)
    assert one.floor == 1
    one.up(10.0)
    one.look(309.0)
    assert one.floor == 1
    assert one.next_look() == 310.0
    one.look(310.0)
    assert one.floor == 0


def test_a_step_up_that_leads_down_again_waits_twice_as_long() -> None:
    one, now, waits = Descent(300), 0.0, []
    one.down(1)
    for _ in range(8):
        one.up(now)
        waits.append((one.next_look() - now) / 300)
        now = one.next_look()
        one.look(now)
        assert one.floor == 0
        one.up(now)
        one.down(1)
    assert waits == [1, 2, 4, 8, 16, 32, 32, 32]
    assert max(waits) <= PATIENCE


def test_one_that_lasts_is_forgiven() -> None:
    one = Descent(300)
    one.down(1)
    one.up(0.0)
    one.look(300.0)
    one.up(301.0)
    one.look(601.0)
    assert one.next_look() == float("inf")
    one.down(1)
    one.up(700.0)
    assert one.next_look() == 1000.0


events = st.lists(st.tuples(st.sampled_from(["down", "up", "lost", "look"]), st.floats(0, 400)), max_size=80)


@given(events)
def test_steps_up_are_a_window_apart_at_least(happened: list[tuple[str, float]]) -> None:
    one, now, last_up = Descent(300), 0.0, -300.0
    for what, passed in happened:
        now += passed
        before = one.floor
        match what:
            case "down":
                one.down(before + 1)
            case "up":
                one.up(now)
            case "lost":
                one.lost()
            case _:
                one.look(now)
        if one.floor < before:
            assert one.floor == before - 1
            assert now - last_up >= 300
            last_up = now
        assert one.floor >= 0
