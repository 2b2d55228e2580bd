"""What `ping` lists: a client asks before it uses a newer field or verb (protocol 2, 7). Pure."""

from __future__ import annotations

from typing import Any, Final

from edged import __version__

FEATURES: Final = (
    "cancel",
    "carry_on",
    "detach",
    "embed",
    "generate",
    "grammar",
    "history",
    "journal",
    "json_schema",
    "logit_bias",
    "logprobs",
    "messages",
    "priority",
    "profile",
    "prompt",
    "reload",
    "result",
    "sampling",
    "seed",
    "session",
    "sessions",
    "snapshot",
    "status",
    "stop",
    "stream_pub",
    "stream_reply",
    "supersedes",
    "sys_health",
    "sys_model",
    "sys_service",
    "sys_watchdog",
    "thinking",
    "tokenize",
    "tools",
    "warm",
)


def features(*, journal: bool) -> list[str]:
    """`journal`: there is one here."""
    return [name for name in FEATURES if journal or name != "journal"]


def pong(now: float, stream: list[str], *, journal: bool) -> dict[str, Any]:
    """What answers `ping`. `now`: seconds since 1970, UTC; `stream`: endpoints."""
    return {"version": __version__, "features": features(journal=journal), "time": now, "stream": stream}
