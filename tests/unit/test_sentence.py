"""STATUS= in words."""

from __future__ import annotations

from typing import Any

from edged.observe.sentence import sentence


def status(**changed: Any) -> dict[str, Any]:
    return {
        "state": "ready",
        "model": {"name": "qwen2.5-0.5b-instruct"},
        "profile": "default",
        "queue": {"length": 3, "accepted": 5},
        "watchdog": {"level": "normal", "readings": {"temperature_c": 61.53}},
        "warnings": ["something else"],
        **changed,
    }


def test_all_of_it():
    assert sentence(status()) == (
        "ready, level normal, qwen2.5-0.5b-instruct (profile default), 2 running, 3 waiting, 61.5 °C"
    )


def test_loading_and_a_board_without_a_sensor():
    told = status(state="loading", model={"name": "m", "loaded": 0.437}, watchdog={"level": "normal"})
    assert sentence(told) == "loading 44%, level normal, m (profile default), 2 running, 3 waiting"


def test_unavailable_says_why():
    told = sentence(status(state="unavailable", warnings=["a", "unavailable: truncated file"]))
    assert told.startswith("unavailable: truncated file, level normal")
