"""Who is let in, and what `status` says of it."""

from __future__ import annotations

import itertools

import pytest

from edged.broker.carrying import Carrying
from edged.broker.gate import Gate, Phase
from edged.broker.lives import Lives
from edged.config import parse
from edged.errors import Code
from edged.level import Level
from edged.messages import PRIORITIES
from unit.rig import A, PlainEncoder, request


def gate(phase: Phase = Phase.READY, *, stopping: bool = False, drained: bool = False) -> Gate:
    one = Gate()
    one.phase, one.stopping, one.drained = phase, stopping, drained
    one.why, one.until = ("no worker", 30.0) if phase is Phase.UNAVAILABLE else ("", 0.0)
    return one


def test_it_begins_with_loading() -> None:
    error = Gate().refusal(0.0)
    assert error is not None
    assert (Gate().state, Gate().ready, error.code) == ("loading", False, Code.LOADING)


@pytest.mark.parametrize(
    ("phase", "code", "state"),
    [
        (Phase.LOADING, Code.LOADING, "loading"),
        (Phase.READY, None, "ready"),
        (Phase.REPLACING, None, "degraded"),
        (Phase.UNLOADED, Code.UNAVAILABLE, "degraded"),
        (Phase.UNAVAILABLE, Code.UNAVAILABLE, "unavailable"),
    ],
)
def test_each_phase(phase: Phase, code: Code | None, state: str) -> None:
    error = gate(phase).refusal(0.0)
    assert (error and error.code) == code
    assert gate(phase).state == state
    assert gate(phase).ready is (phase is Phase.READY)


@pytest.mark.parametrize("phase", list(Phase))
def test_stopping_and_draining_go_before_the_phase(phase: Phase) -> None:
    for stopping, drained in ((True, False), (True, True), (False, True)):
        one = gate(phase, stopping=stopping, drained=drained)
        error = one.refusal(0.0)
        assert error is not None
        assert error.code == (Code.SHUTTING_DOWN if stopping else Code.UNAVAILABLE)
        assert one.state == "draining"
        assert not one.ready


def test_every_refusal_is_retryable_and_says_when() -> None:
    for phase, stopping, drained in itertools.product(Phase, (False, True), (False, True)):
        error = gate(phase, stopping=stopping, drained=drained).refusal(0.0)
        if error is not None:
            assert error.retryable
            assert error.retry_after_ms is not None
            assert error.retry_after_ms >= 100


def test_unavailable_says_until_when() -> None:
    for now, expected in ((0.0, 30_000), (29.0, 1000), (30.0, 100), (99.0, 100)):
        error = gate(Phase.UNAVAILABLE).refusal(now)
        assert error is not None
        assert (error.retry_after_ms, error.message) == (expected, "no worker")


PRESSED = {
    Level.NORMAL: (PRIORITIES, PRIORITIES, "ready", True),
    Level.WARM: (PRIORITIES, ("high", "normal"), "degraded", True),
    Level.HOT: (("high",), ("high",), "degraded", False),
    Level.CRITICAL: ((), (), "degraded", False),
}


@pytest.mark.parametrize("level", list(Level))
def test_each_level(level: Level) -> None:
    accepted, given, state, ready = PRESSED[level]
    one = gate()
    one.level, one.code, one.retry_after_ms, one.pressed_by = level, Code.LOW_MEMORY, 9000, "150 MB left"
    assert (one.state, one.ready) == (state, ready)
    for priority in PRIORITIES:
        error = one.refusal(0.0, priority)
        assert (error is None) == (priority in accepted)
        if error is not None:
            assert (error.code, error.retry_after_ms, error.message) == (Code.LOW_MEMORY, 9000, "150 MB left")
        waits = request(1, A, priority)
        assert one.gives(waits) == (priority in given)
        waits.carried = True
        assert one.gives(waits) == (level < Level.CRITICAL)


def test_unloaded_refuses_in_the_name_of_the_level() -> None:
    one = gate(Phase.UNLOADED)
    assert one.refusal(0.0, "high").code == Code.UNAVAILABLE
    one.level, one.code = Level.HOT, Code.OVERHEATED
    assert one.refusal(0.0, "high").code == Code.OVERHEATED
    assert (one.state, one.ready) == ("degraded", False)


def test_a_smaller_profile_is_degraded_and_ready() -> None:
    one = gate()
    one.smaller = True
    assert (one.state, one.ready) == ("degraded", True)


def test_loading_says_how_far() -> None:
    one = Gate()
    one.loaded = 0.4
    assert "40%" in one.refusal(0.0).message
    one.loaded = None
    assert "%" not in one.refusal(0.0).message


def test_after_unavailable_a_new_try_lets_requests_queue_if_there_ever_was_a_model() -> None:
    for model, phase in (("m", Phase.REPLACING), ("", Phase.LOADING)):
        lives = Lives(parse({}, "test"), PlainEncoder())
        lives.gate.phase, lives.model = Phase.UNAVAILABLE, model
        Carrying(lives).trying_again()
        assert lives.gate.phase is phase
