"""What `status`, `ping` and `sys/health` say (protocol 4, 7). Pure. Never ids, identities or text of anyone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from edged import __version__
from edged.broker.lives import Lives
from edged.config import Config
from edged.messages import CacheFacts, Ready, Slots
from edged.watchdog.plan import Plan

_QUANTIZATION: Final = re.compile(r"[-._](i?q\d\w*|f16|f32|bf16|fp16|mxfp4)$", re.IGNORECASE)


def model_name(path: str) -> str:
    """`…/SmolLM2-135M-Instruct.Q4_1.gguf` → `smollm2-135m-instruct`."""
    stem = path.rpartition("/")[2].removesuffix(".gguf")
    return _QUANTIZATION.sub("", stem).lower() or "model"


class Facts(Struct, frozen=True):
    """What the daemon knows beside the broker; `loaded` is the fraction of the file that has been read."""

    uptime_s: float
    loaded: float | None
    sha256: str | None
    ready: Ready | None
    slots: Slots | None
    cache: CacheFacts | None
    starts: int
    deaths: int
    recent_deaths: int
    last_exit: Mapping[str, str | float] | None
    counters: Mapping[str, int]
    plan: Plan  # what the worker was started with, or will be
    warnings: list[str]
    sessions: Mapping[str, int] = {}
    watch: Mapping[str, Any] = {}  # the watchdog's part
    journal: Mapping[str, str | int] = {}
    ends: Mapping[str, int] = {}  # how often a worker ended, by cause
    connections: Mapping[str, int] = {}
    memory: Mapping[str, int] = {}  # of the daemon itself


def status_fields(lives: Lives, config: Config, facts: Facts) -> dict[str, Any]:
    """The reply to `status`."""
    gate = lives.gate
    return {
        "version": __version__,
        "state": gate.state,
        "ready": gate.ready,
        "uptime_s": round(facts.uptime_s, 1),
        "model": _model(facts),
        "profile": facts.plan.profile.name,
        "queue": {
            "length": len(lives.queue),
            "limit": config.limits.queue,
            "by_priority": lives.queue.lengths(),
            "accepted": len(lives.table),
        },
        "slots": _slots(lives, facts.slots),
        "cache": msgspec.structs.asdict(facts.cache) if facts.cache else {},
        "threads": [
            {"core": pin.core, "cores": pin.cores, "tid": pin.tid, "role": pin.role}
            for pin in (facts.ready.threads if facts.ready else [])
        ],
        "limits": msgspec.structs.asdict(config.limits),
        "results": lives.results.stats(),
        "sessions": facts.sessions,
        "journal": facts.journal,
        "connections": facts.connections,
        "memory": facts.memory,
        "speed": {"tokens_per_second": lives.pace.tokens_per_second, "service_s": lives.pace.service_s},
        "watchdog": {
            "level": "normal",
            **facts.watch,
            "worker_starts": facts.starts,
            "worker_deaths": facts.deaths,
            "recent_deaths": facts.recent_deaths,
            "ends": dict(facts.ends),
            "restart": msgspec.structs.asdict(config.watchdog.restart),
            "last_exit": facts.last_exit,
        },
        "counters": {**lives.pace.counters, **facts.counters},
        "warnings": warnings(lives, facts),
    }


def _model(facts: Facts) -> dict[str, Any]:
    model: dict[str, Any] = {
        "name": model_name(facts.plan.path),
        "sha256": facts.sha256,
        "file": facts.plan.path.rpartition("/")[2],
    }
    if facts.loaded is not None and facts.ready is None:
        model["loaded"] = round(facts.loaded, 3)
    if facts.ready is not None:
        ready = facts.ready
        model |= {
            "title": ready.name,
            "architecture": ready.architecture,
            "description": ready.description,
            "parameters": ready.parameters,
            "size_bytes": ready.size_bytes,
            "context": ready.context,
            "train_context": ready.train_context,
            "chat_template": ready.chat_template,
            "kv_bytes": ready.kv_bytes,
            "load_ms": ready.load_ms,
            "build": ready.build,
            "variant": ready.variant,
        }
    return model


def _slots(lives: Lives, slots: Slots | None) -> dict[str, Any]:
    if slots is None:
        return {"total": lives.sequences, "busy": 0}
    return {"total": lives.sequences, **msgspec.structs.asdict(slots)}


def warnings(lives: Lives, facts: Facts) -> list[str]:
    """In words, for people."""
    out = list(facts.warnings) + (list(facts.ready.warnings) if facts.ready else [])
    out += facts.watch.get("alarms", [])
    if lives.gate.why:
        out.append(f"unavailable: {lives.gate.why}")
    return out


def health_fields(lives: Lives, facts: Facts, wall_time: float) -> dict[str, Any]:
    """`sys/health`: for anybody."""
    return {
        "type": "health",
        "time": wall_time,
        "version": __version__,
        "state": lives.gate.state,
        "ready": lives.gate.ready,
        "uptime_s": round(facts.uptime_s, 1),
        "queue": len(lives.queue),
        "slots": {"total": lives.sequences, "busy": facts.slots.busy if facts.slots else 0},
    }
