"""What `edgectl verify` finds wrong with a box."""

from __future__ import annotations

import hashlib

import pytest

from edged.cli.verdict import Answer, Expected, tokens_sha256, verdict

SHA = "ab" * 32
STATUS = {
    "version": "0.2.0",
    "state": "ready",
    "ready": True,
    "instance": "i1",
    "model": {"name": "tiny", "sha256": SHA, "context": 4096},
    "watchdog": {"level": "normal", "readings": {"temperature_c": 51.5}, "worker_deaths": 2},
    "warnings": [],
}
ANSWER = Answer((7, 42), 11)


ANYTHING = Expected()


def problems(expected: Expected = ANYTHING, status=STATUS, answer=ANSWER) -> list[str]:
    found = verdict(expected, status, answer)
    assert found["ok"] == (found["problems"] == [])
    return found["problems"]


def changed(**parts):
    return STATUS | {k: (STATUS[k] | v if isinstance(v, dict) else v) for k, v in parts.items()}


def test_without_expectations_it_tells_what_it_found():
    assert verdict(Expected(), STATUS, ANSWER) == {
        "ok": True,
        "version": "0.2.0",
        "state": "ready",
        "instance": "i1",
        "model": {"name": "tiny", "sha256": SHA},
        "level": "normal",
        "temperature_c": 51.5,
        "tokens_sha256": hashlib.sha256(b"7,42").hexdigest(),
        "tokens": 2,
        "text_bytes": 11,
        "restarts": 2,
        "problems": [],
    }


def test_all_that_is_expected_and_right():
    assert problems(Expected("0.2.0", SHA, tokens_sha256([7, 42]), 60.0)) == []


@pytest.mark.parametrize(
    ("expected", "status", "answer", "why"),
    [
        (Expected(version="0.3.0"), STATUS, ANSWER, "version is 0.2.0, expected 0.3.0"),
        (Expected(model_sha256="cd" * 32), STATUS, ANSWER, f"the model's sha256 is {SHA}, expected cd"),
        (Expected(model_sha256=SHA), changed(model={"sha256": None}), ANSWER, "not known yet, expected"),
        (Expected(tokens_sha256=SHA), STATUS, ANSWER, f", expected {SHA}"),
        (Expected(), STATUS, Answer(error="worker_lost: SIGABRT"), "no answer was generated: worker_lost"),
        (Expected(), STATUS, Answer(), "the answer has no tokens"),
        (Expected(), changed(ready=False, state="unavailable", warnings=["x: why"]), ANSWER, "unavailable (x: why)"),
        (Expected(), changed(watchdog={"level": "hot", "why": "80 °C"}), ANSWER, "the level is hot: 80 °C"),
        (Expected(max_temperature=50.0), STATUS, ANSWER, "the temperature is 51.5 °C, expected at most 50"),
        (Expected(max_temperature=50.0), changed(watchdog={"readings": {}}), ANSWER, "the temperature is not known"),
    ],
)
def test_one_thing_wrong(expected, status, answer, why):
    (found,) = problems(expected, status, answer)
    assert why in found


def test_an_own_limit_stands_for_the_levels():
    assert problems(Expected(max_temperature=90.0), changed(watchdog={"level": "hot"})) == []


def test_a_status_of_another_shape_is_told_and_not_raised():
    assert "not ready: None" in problems(status={"model": 3, "watchdog": [], "warnings": "x"})
    assert problems(Expected(version="0.2.0"), status={})[0] == "version is None, expected 0.2.0"
