"""What is due, and when to look again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.broker.timers import _SLACK, Timers

INF = float("inf")


def test_due_in_order_of_time() -> None:
    timers = Timers()
    for number, at in ((1, 3.0), (2, 1.0), (3, 2.0)):
        timers.schedule(number, at)
    assert timers.next() == 1.0
    assert timers.due(2.0) == [2, 3]
    assert timers.due(2.0) == []
    assert timers.due(9.0) == [1]
    assert timers.next() == INF


def test_the_earliest_counts() -> None:
    timers = Timers()
    timers.schedule(1, 5.0)
    timers.schedule(1, 2.0)
    timers.schedule(1, 9.0)
    assert timers.due(2.0) == [1]
    assert timers.due(100.0) == []


def test_forgotten_is_never_due() -> None:
    timers = Timers()
    timers.schedule(1, 2.0)
    timers.forget(1)
    timers.forget(2)
    assert timers.due(9.0) == []
    timers.schedule(1, 3.0)
    assert timers.due(9.0) == [1]


def test_after_forget_the_same_time_is_due_once() -> None:
    timers = Timers()
    timers.schedule(1, 2.0)
    timers.forget(1)
    timers.schedule(1, 2.0)
    assert timers.due(2.0) == [1]


def test_the_heap_is_bounded() -> None:
    timers = Timers()
    timers.schedule(0, 1e9)
    for n in range(10_000):
        timers.schedule(0, 1e6 - n)
        timers.schedule(1 + n, 5.0)
        timers.forget(1 + n)
        assert len(timers) <= 2 * 2 + _SLACK + 1


steps = st.one_of(
    st.tuples(st.just("schedule"), st.integers(0, 8), st.integers(0, 50)),
    st.tuples(st.just("forget"), st.integers(0, 8), st.just(0)),
    st.tuples(st.just("due"), st.just(0), st.integers(0, 10)),
)


@given(st.lists(steps, max_size=300))
@settings(max_examples=60)
def test_as_a_plain_dictionary(run: list[tuple[str, int, int]]) -> None:
    timers, plain, now = Timers(), dict[int, float](), 0.0
    for what, number, value in run:
        if what == "schedule":
            timers.schedule(number, now + value)
            plain[number] = min(plain.get(number, INF), now + value)
        elif what == "forget":
            timers.forget(number)
            plain.pop(number, None)
        else:
            now += value
            found = timers.due(now)
            assert sorted(found) == sorted(n for n, at in plain.items() if at <= now)
            assert [plain[n] for n in found] == sorted(plain[n] for n in found)
            for n in found:
                del plain[n]
            assert timers.next() > now
        assert timers.next() <= min(plain.values(), default=INF)
