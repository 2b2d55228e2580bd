"""STATUS= in words."""

from __future__ import annotations

from typing import Any

from edged.errors import ConfigError
from edged.observe import unapplied
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


def test_a_configuration_that_was_refused():
    """For `systemctl status`; why is in `edgectl status`."""
    error = ConfigError("/etc/edged/config.yaml", "limits.queue", "int", "'secret'")
    warned = unapplied.refusal(error, "12:30")
    assert warned == (
        "the configuration of 12:30 was refused: /etc/edged/config.yaml: limits.queue: expected int; "
        "the one before is in force"
    )
    assert ", the configuration of 12:30 was refused, 61.5 °C" in sentence(status(warnings=["a: b", warned]))


def test_a_refusal_does_not_tell_callers_names():
    error = ConfigError("/etc/edged/clients/kitchen.key:2", "security.clients_dir", "the limits of `kitchen`", "x")
    assert "kitchen" not in unapplied.refusal(error, "12:30")


def test_unavailable_says_why():
    told = sentence(status(state="unavailable", warnings=["a", "unavailable: truncated file"]))
    assert told.startswith("unavailable: truncated file, level normal")
