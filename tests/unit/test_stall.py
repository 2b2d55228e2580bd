"""Standing still: only time with work counts, and only time in which somebody looked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edged.watchdog.stall import Stall

steps = st.lists(
    st.tuples(st.floats(0.01, 3), st.booleans(), st.sampled_from(["nothing", "progress", "beat", "same"])), max_size=60
)


@given(steps)
def test_true_only_after_the_bound_without_progress(events: list[tuple[float, bool, str]]) -> None:
    """Never earlier than the bound after the last progress or beginning of work."""
    stall, now, since, tokens = Stall(2.0), 0.0, 0.0, 0
    for passed, work, said in events:
        now += passed
        if said == "progress":
            stall.progress()
            since = now
        elif said == "beat":
            tokens += 1
            stall.beat(tokens)
            since = now
        elif said == "same":
            stall.beat(tokens)
        if not work:
            since = now
        if stall.look(now, work=work):
            assert now - since >= 2.0


@given(st.floats(0.5, 40))
def test_looked_at_as_it_asks_it_is_noticed_in_time(bound: float) -> None:
    stall, now = Stall(bound), 0.0
    assert not stall.look(now, work=True)
    while not stall.look(now, work=True):
        now = stall.next_look()
        assert now <= bound * 1.2
    assert now >= bound * 0.99


def test_a_gap_between_looks_does_not_count_as_its_own() -> None:
    stall = Stall(8.0)
    assert not stall.look(0.0, work=True)
    assert not stall.look(3600.0, work=True)
    assert not stall.look(3601.0, work=True)


def test_without_work_it_never_is() -> None:
    stall = Stall(1.0)
    assert not any(stall.look(float(now), work=False) for now in range(100))
    assert stall.next_look() == float("inf")
