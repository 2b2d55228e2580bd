"""The result's fields and what is measured of them."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.broker.endings import Pace, result_fields
from edged.broker.table import Request
from unit.rig import request


def run(
    tokens: int = 3, *, first: float | None = 10.3, last: float | None = 10.5, started: float | None = 10.1
) -> Request:
    one = request(1, received=10.0)
    one.ids = array("I", [5] * tokens)
    one.started, one.first_token, one.last_token = started, first, last
    one.prompt_tokens, one.cached_tokens = 31, 24
    one.stream.token("hello", tokens, 10.3)
    return one


def fields(one: Request, reason: str = "stop", stop: str | None = None, now: float = 11.0) -> dict:
    return result_fields(one, reason=reason, stop=stop, model="tiny", now=now)


def test_the_result_has_the_fields_of_protocol_3() -> None:
    assert fields(run(), stop="\n") == {
        "text": "hello",
        "finish_reason": "stop",
        "stop": "\n",
        "usage": {"prompt_tokens": 31, "cached_tokens": 24, "completion_tokens": 3},
        "timing": {
            "queue_ms": 100.0,
            "prefill_ms": 200.0,
            "ttft_ms": 300.0,
            "total_ms": 1000.0,
            "tokens_per_second": 10.0,
        },
        "model": "tiny",
        "seed": 7,
        "restarts": 0,
    }


def test_lagged_is_said_only_when_so() -> None:
    one = run()
    assert "lagged" not in fields(one)
    one.stream.lagged = True
    assert fields(one)["lagged"] is True


def test_times_count_from_receipt() -> None:
    timing = fields(run())["timing"]
    assert timing["ttft_ms"] == pytest.approx(timing["queue_ms"] + timing["prefill_ms"])


def test_one_that_never_ran_has_waited_all_the_time() -> None:
    timing = fields(run(0, first=None, last=None, started=None), "cancelled")["timing"]
    assert timing == {"queue_ms": 1000.0, "total_ms": 1000.0, "tokens_per_second": 0.0}


def test_one_cut_in_prefill_has_no_ttft() -> None:
    timing = fields(run(0, first=None, last=None), "cancelled")["timing"]
    assert timing["prefill_ms"] == 900.0
    assert "ttft_ms" not in timing


@pytest.mark.parametrize(("tokens", "last"), [(0, None), (1, 10.3), (2, 10.3), (5, 10.3)])
def test_speed_needs_two_tokens_and_time_between(tokens: int, last: float | None) -> None:
    assert fields(run(tokens, last=last))["timing"]["tokens_per_second"] == 0.0


def test_retry_after_is_a_second_per_place_when_nothing_is_known() -> None:
    assert Pace().retry_after_ms(0, 1) == 1000
    assert Pace().retry_after_ms(3, 4) == 1000
    assert Pace().retry_after_ms(0, 0) == 1000


def test_retry_after_follows_the_measured_time() -> None:
    pace = Pace()
    pace.served(run(), 14.1)
    assert pace.service_s == pytest.approx(4.0)
    assert pace.retry_after_ms(1, 2) == 4000
    assert pace.tokens_per_second == pytest.approx(10.0)


def test_what_never_started_is_no_measure() -> None:
    pace = Pace()
    pace.served(run(0, first=None, last=None, started=None), 99.0)
    assert (pace.service_s, pace.tokens_per_second) == (None, None)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=20), st.integers(0, 1000), st.integers(0, 64))
def test_the_estimate_is_bounded_by_what_was_seen(times: list[float], waiting: int, sequences: int) -> None:
    pace = Pace()
    for seconds in times:
        pace.served(run(), 10.1 + seconds)
    assert pace.service_s is not None
    assert min(times) - 1e-6 <= pace.service_s <= max(times) + 1e-6
    assert pace.retry_after_ms(waiting, sequences) >= 100
