"""What a caller gives, as the fields of a request (protocol 3). The daemon checks them, not this."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Turns = str | Sequence[Mapping[str, Any]]
"""Messages `{"role": …, "content": …}`, or the text of one user message."""


class Options(TypedDict, total=False):
    """Fields of `generate`; what is left out is the daemon's default."""

    prompt: str
    """Raw completion, without the model's chat template; instead of messages."""
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    stop: list[str]
    priority: Literal["high", "normal", "low"]
    supersedes: str
    detach: bool
    extra: Mapping[str, Any]
    """Fields that this library does not know by name; ask `ping` for `features` first."""


def new_id() -> str:
    """An id that makes a request safe to repeat."""
    return os.urandom(16).hex()


def turns(messages: Turns) -> list[Mapping[str, Any]]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def generate_fields(messages: Turns | None, request_id: str | None, options: Options) -> dict[str, Any]:
    if (messages is None) == ("prompt" not in options):
        raise ValueError("exactly one of messages and prompt")
    fields: dict[str, Any] = {"id": request_id or new_id()}
    if messages is not None:
        fields["messages"] = turns(messages)
    fields |= {name: value for name, value in options.items() if name != "extra" and value is not None}
    return fields | dict(options.get("extra", {}))


def tokenize_fields(text: str | None, messages: Turns | None) -> dict[str, Any]:
    if (text is None) == (messages is None):
        raise ValueError("exactly one of text and messages")
    return {"text": text} if messages is None else {"messages": turns(messages)}
