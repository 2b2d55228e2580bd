"""What `status` and `sys/health` say, and never say (protocol 7)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from edged.config import Config
from edged.messages import Ready, Slots, ThreadPin
from edged.observe.status import Facts, health_fields, model_name, status_fields
from edged.watchdog.plan import Plan
from unit.rig import A, B, Rig

KEYS = {
    *("version", "state", "ready", "uptime_s", "model", "profile", "queue", "slots", "threads", "limits"),
    *("watchdog", "counters", "warnings"),
}
READY = Ready(
    name="Tiny",
    architecture="llama",
    description="llama 1M",
    parameters=1,
    size_bytes=2,
    train_context=3,
    context=4,
    sequences=1,
    prefill_chunk=32,
    vocab=5,
    chat_template="model",
    threads=[ThreadPin(tid=11, core=2, cores=[2], role="decode+prefill")],
    load_ms=6.0,
    kv_bytes=7,
    build="b1",
    warnings=["no huge pages"],
)


def facts(**fields: Any) -> Facts:
    known = {
        "uptime_s": 12.34,
        "loaded": 1.0,
        "sha256": "00ff",
        "ready": READY,
        "slots": Slots(1, 0, 0, 9, 99, 0, 1.0, 2.0),
    }
    counts = {"starts": 2, "deaths": 1, "recent_deaths": 1, "counters": {"malformed": 3}, "warnings": ["tcp is open"]}
    return Facts(
        **{
            "plan": Plan(Config()),
            "cache": None,
            **known,
            **counts,
            "last_exit": {"cause": "SIGABRT", "time": 5.0},
            **fields,
        }
    )


def status(rig: Rig, **fields: Any) -> dict[str, Any]:
    found = status_fields(rig.lives, rig.config, facts(**fields))
    return json.loads(msgspec.json.encode(found))


def busy() -> Rig:
    """Callers with ids, texts, streams: waiting, given, running, ended."""
    rig = Rig()
    for n in range(8):
        who = (A, B)[n % 2]
        rig.generate(
            f"secret-id-{n}", who, prompt="secret text", stop=["secret stop"], stream=("pub", "reply", False)[n % 3]
        )
    rig.subscribe(rig.topic("secret-id-0"))
    rig.run(rig.rid("secret-id-0"), "secret answer")
    rig.run(rig.rid("secret-id-1", B), "secret answer")
    rig.done(rig.rid("secret-id-1", B))
    return rig


@pytest.mark.parametrize(
    "fields", [{}, {"ready": None, "slots": None, "sha256": None, "loaded": None, "last_exit": None}]
)
@pytest.mark.parametrize("rig", [Rig(), Rig(sequences=0)])
def test_the_keys_of_protocol_7_are_always_there(rig: Rig, fields: dict[str, Any]) -> None:
    found = status(rig, **fields)
    assert set(found) >= KEYS
    assert {"name", "sha256"} <= set(found["model"])
    assert "last_exit" in found["watchdog"]


def test_nobodys_ids_identities_or_texts() -> None:
    rig = busy()
    topic = rig.topic("secret-id-0").decode()
    for found in (status(rig), health_fields(rig.lives, facts(), 1.0)):
        text = json.dumps(found)
        for secret in ("secret", A, B, topic, topic[4:-1], "peer-"):
            assert secret not in text


def test_the_numbers() -> None:
    found = status(busy())
    assert found["queue"]["length"] == 8 - 1 - 3
    assert found["queue"]["limit"] == 128
    assert found["queue"]["by_priority"] == {"high": 0, "normal": 4, "low": 0}
    assert found["slots"]["total"] == 1
    assert found["threads"] == [{"core": 2, "cores": [2], "tid": 11, "role": "decode+prefill"}]
    assert found["limits"]["max_tokens"] == 4096
    assert found["uptime_s"] == 12.3
    assert found["watchdog"]["last_exit"] == {"cause": "SIGABRT", "time": 5.0}
    assert found["counters"]["malformed"] == 3
    assert found["counters"]["accepted"] == 8
    assert found["counters"]["finished_stop"] == 1
    assert found["warnings"] == ["tcp is open", "no huge pages"]


def test_a_full_queue_is_ready() -> None:
    rig = Rig(queue=1)
    for _ in range(5):
        rig.generate()
    assert status(rig)["ready"] is True


@pytest.mark.parametrize(
    ("happened", "state", "ready"),
    [
        (lambda rig: None, "ready", True),
        (lambda rig: rig.lost(), "degraded", False),
        (lambda rig: (rig.lost(), rig.ready()), "ready", True),
        (lambda rig: rig.broker.unavailable("why", 9.0, 0.0), "unavailable", False),
        (lambda rig: setattr(rig.broker.gate, "drained", True), "draining", False),
        (lambda rig: setattr(rig.broker.gate, "stopping", True), "draining", False),
    ],
)
def test_the_state(happened: Any, state: str, ready: bool) -> None:
    rig = Rig()
    happened(rig)
    for found in (status(rig), health_fields(rig.lives, facts(), 1.0)):
        assert (found["state"], found["ready"]) == (state, ready)


def test_while_loading() -> None:
    found = status(Rig(sequences=0), ready=None, loaded=0.25)
    assert (found["state"], found["ready"], found["model"]["loaded"]) == ("loading", False, 0.25)


def test_unavailable_says_why_until_it_is_over() -> None:
    rig = Rig()
    rig.broker.unavailable("the file is truncated", 9.0, 0.0)
    assert any("truncated" in line for line in status(rig)["warnings"])
    rig.ready()
    assert not any("truncated" in line for line in status(rig)["warnings"])


def test_health_has_type_and_time() -> None:
    found = health_fields(Rig().lives, facts(), 1234.5)
    assert (found["type"], found["time"]) == ("health", 1234.5)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"),
        ("SmolLM2-135M-Instruct-IQ4_XS.gguf", "smollm2-135m-instruct"),
        ("a/tiny-f16.gguf", "tiny"),
        ("a/Tiny.gguf", "tiny"),
        ("a/tiny", "tiny"),
        ("a/.gguf", "model"),
        ("", "model"),
    ],
)
def test_model_name(path: str, name: str) -> None:
    assert model_name(path) == name
