"""What comes back, as frozen structs. Fields of a newer daemon are ignored here and kept in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from edged.client.errors import Internal


class Usage(Struct, frozen=True):
    """Tokens. `cached_tokens`: prompt tokens that did not have to be read again."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Timing(Struct, frozen=True):
    """Milliseconds in the daemon; `ttft_ms` and `total_ms` count from receipt."""

    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    tokens_per_second: float = 0.0


class Result(Struct, frozen=True, kw_only=True):
    """A finished request (protocol 3). `finish_reason`: `stop`, `length`, `cancelled` or `deadline`."""

    id: str = ""
    text: str
    finish_reason: str
    stop: str | None = None
    usage: Usage = Usage()
    timing: Timing = Timing()
    model: str = ""
    seed: int | None = None
    restarts: int = 0
    lagged: bool = False
    instance: str = ""
    raw: dict[str, Any] = field(default_factory=dict)


class Progress(Struct, frozen=True, kw_only=True):
    """A request that has not finished (protocol 5). `state`: `queued` or `running`; `seq`: the last event sent."""

    id: str = ""
    state: str
    text: str = ""
    seq: int = -1
    instance: str = ""
    raw: dict[str, Any] = field(default_factory=dict)


class Pong(Struct, frozen=True, kw_only=True):
    """`features` names what this daemon can; `stream` its stream endpoints as bound there, for information."""

    version: str = ""
    features: tuple[str, ...] = ()
    time: float = 0.0
    stream: tuple[str, ...] = ()
    instance: str = ""
    raw: dict[str, Any] = field(default_factory=dict)


class Status(Struct, frozen=True, kw_only=True):
    """Protocol 7; what has no field here is in `raw`."""

    version: str = ""
    state: str = ""
    ready: bool = False
    uptime_s: float = 0.0
    warnings: tuple[str, ...] = ()
    instance: str = ""
    raw: dict[str, Any] = field(default_factory=dict)


class Tokens(Struct, frozen=True, kw_only=True):
    """`fits`: the context has room for these and one more."""

    tokens: tuple[int, ...] = ()
    count: int = 0
    fits: bool = True
    raw: dict[str, Any] = field(default_factory=dict)


Kind = TypeVar("Kind", Result, Progress, Pong, Status, Tokens)


def typed(reply: Mapping[str, Any], kind: type[Kind]) -> Kind:
    """The reply as a struct. One of another shape than the protocol's is the daemon's mistake: `Internal`."""
    try:
        return msgspec.convert({**reply, "raw": dict(reply)}, kind)
    except msgspec.ValidationError as error:
        raise Internal("internal", f"a reply that is none: {error}", raw=reply) from None


def is_result(reply: Mapping[str, Any]) -> bool:
    return isinstance(reply.get("finish_reason"), str) and isinstance(reply.get("text"), str)
