"""When a journal file is begun afresh."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.journal.upkeep import EVERY_S, FIRST_S, GROWN_BYTES, LONGEST_S, Upkeep

INF = float("inf")
KEY = ("uid:1", "talk")


def begun(size: int = 1000, gone: int = 0, at: float = 100.0) -> Upkeep:
    one = Upkeep()
    one.handed(at, size, gone, [])
    one.well()
    return one


def test_nothing_is_due_while_all_of_it_is_alive():
    one = begun()
    assert not one.due(1e6, 1000 + GROWN_BYTES, 0, 300)
    assert one.next_wake(0, 300) == INF


def test_growth():
    one = begun(5000)
    assert not one.due(100, 10_000 + GROWN_BYTES, 0, 300)
    assert one.due(100, 10_001 + GROWN_BYTES, 0, 300)


def test_what_is_past_goes_within_a_minute_or_a_fifth_of_the_time():
    one = begun(gone=3)
    assert one.next_wake(4, 300) == 100 + EVERY_S
    assert one.next_wake(4, 3000) == 100 + 600
    assert not one.due(159, 1000, 4, 300)
    assert one.due(160, 1000, 4, 300)


def test_a_deleted_session_goes_at_once_when_it_is_there():
    one = begun()
    one.deleted([KEY])
    assert one.next_wake(0, 300) == INF
    one.turn(KEY)
    one.deleted([("uid:2", "talk")])
    assert one.next_wake(0, 300) == INF
    one.deleted([KEY])
    assert one.due(101, 1000, 0, 300)
    one.handed(101, 20 * GROWN_BYTES, 0, [KEY])
    assert one.next_wake(0, 300) == INF
    one.deleted([KEY])
    assert one.next_wake(0, 300) == 121, "no more than a MiB a second"


def test_failures_are_repeated_less_and_less():
    one, now, waits = begun(), 200.0, []
    for _ in range(7):
        one.failed(now)
        waits.append(one.next_wake(9, 300) - now)
        now = one.next_wake(9, 300)
        assert one.due(now, 10 * GROWN_BYTES, 9, 300)
        assert not one.due(now - 0.1, 10 * GROWN_BYTES, 9, 300)
        one.handed(now, 1000, 9, [])
    assert waits == [0, FIRST_S, 4, 8, 16, LONGEST_S, LONGEST_S]
    one.well()
    assert one.next_wake(9, 300) == INF
    one.failed(now)
    assert one.next_wake(9, 300) == now


STEPS = st.tuples(
    st.sampled_from(["gone", "grow", "turn", "delete", "fail", "well"]),
    st.floats(0, 100),
    st.integers(0, 3 * GROWN_BYTES),
)


@given(st.lists(STEPS, max_size=40))
@settings(max_examples=60)
def test_it_is_due_when_it_said_it_would_be(steps: list[tuple[str, float, int]]):
    """Else the loop would sleep over it, or turn without end."""
    one, now, gone, size = begun(), 100.0, 0, 1000
    for what, later, number in steps:
        now += later
        match what:
            case "gone":
                gone += 1
            case "grow":
                size += number
            case "turn":
                one.turn(KEY)
            case "delete":
                one.deleted([KEY])
            case "fail":
                one.failed(now)
            case "well":
                one.well()
        wake = one.next_wake(gone, 300)
        if wake < INF:
            assert one.due(wake, size, gone, 300)
        if one.due(now, size, gone, 300):
            size = number
            one.handed(now, size, gone, [])
            assert not one.due(now, size, gone, 300)
