"""The rules of a tier that need no files."""

from hypothesis import given
from hypothesis import strategies as st

from edged.worker.statetiers import Allowance


@given(st.integers(0, 1000), st.lists(st.tuples(st.floats(0, 7200), st.integers(1, 1500)), max_size=40))
def test_an_hour_writes_no_more_than_two_hours_worth(per_hour: int, writes: list) -> None:
    """What was saved up, and what came since."""
    allowance, now, taken = Allowance(per_hour, 0.0), 0.0, []
    for pause, size in writes:
        now += pause
        if allowance.take(size, now):
            taken.append((now, size))
    for end, _ in taken:
        assert sum(size for at, size in taken if end - 3600 < at <= end) <= 2 * per_hour


def test_it_comes_back_with_time() -> None:
    allowance = Allowance(100, 0.0)
    assert allowance.take(100, 0.0)
    assert not allowance.take(1, 1.0)
    assert allowance.take(50, 1801.0)
    assert not allowance.take(101, 100_000.0), "no more than an hour's worth at once"
