"""When a worker has to be replaced for another configuration."""

from __future__ import annotations

from typing import Any

import pytest

from edged.config import parse
from edged.watchdog.plan import Plan


def plan(**keys: Any) -> Plan:
    return Plan(parse({"state_dir": "/s", "runtime_dir": "/r", **keys}, "test"))


@pytest.mark.parametrize(
    "keys",
    [
        {"model": {"path": "/other.gguf"}},
        {"model": {"sha256": "0" * 64}},
        {"profiles": [{"name": "default", "context": 512}]},
        {"profiles": [{"name": "default", "model": "/other.gguf"}]},
        {"cpu": {"reserve_cores": 2}},
        {"cache": {"ram_bytes": 0}},
        {"cache": {"checkpoint_bytes": 0}},
        {"security": {"prefix_sharing": "all"}},
    ],
)
def test_what_a_worker_is_started_with(keys: dict[str, Any]) -> None:
    assert plan().differs(plan(**keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"log_level": "debug"},
        {"limits": {"queue": 3}},
        {"watchdog": {"stall_s": 3}},
        {"cache": {"save_s": 1}},
        {"profiles": [{"name": "renamed"}, {"name": "more"}]},
    ],
)
def test_what_it_does_not_know(keys: dict[str, Any]) -> None:
    assert not plan().differs(plan(**keys))


def test_the_hash_is_that_of_the_common_model() -> None:
    config = parse(
        {"model": {"path": "/a.gguf", "sha256": "0" * 64}, "profiles": [{"name": "a"}, {"name": "b", "model": "/b"}]},
        "test",
    )
    assert (Plan(config, 0).sha256, Plan(config, 1).sha256) == ("0" * 64, None)
    assert Plan(config, 0).smaller() == Plan(config, 1)
    assert Plan(config, 1).smaller() is None


def test_checkpoints_lie_in_ram_or_nowhere() -> None:
    load = plan().load("/ram", ["a"])
    assert (load.checkpoints.dir, load.checkpoints.live) == ("/ram/ck", ["a"])
    assert plan().load("", []).checkpoints.dir == ""
