"""What a caller gives, as the fields of a request (protocol 3). The daemon checks them, not this."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Turns = str | Sequence[Mapping[str, Any]]
"""Messages `{"role": …, "content": …}`, or the text of one user message. An assistant's may have `tool_calls` instead
of content (`Result.message` is one), a tool's answer has `tool_call_id`.
"""


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
    session: str
    """A conversation that the daemon keeps: the messages are the new turns only. 1–64 of `A–Z a–z 0–9 . _ : -`. With
    several endpoints it is also the `affinity`, unless that is given: a session lives on one box."""
    reset: bool
    """The session begins afresh; the old one is replaced when this turn is stored."""
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]]
    """Token id and what is added to its logit, −100…100; at most 256."""
    logprobs: int
    """So many alternatives per token, 0…20, in `Result.logprobs`."""
    json_schema: Mapping[str, Any]
    """The text is JSON of this schema; a keyword that the daemon does not enforce is `BadRequest`."""
    grammar: str
    """The text is of this GBNF grammar. At most one of the two."""
    tools: Sequence[Mapping[str, Any]]
    """`{"type": "function", "function": {"name", "description", "parameters": schema}}`, as in the OpenAI chat API."""
    tool_choice: Literal["none", "auto", "required"] | Mapping[str, Any]
    """Or `{"type": "function", "function": {"name": …}}`: this one."""
    thinking: bool
    """For models whose template knows it; what was thought is `Result.reasoning`."""
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
    if isinstance(bias := fields.get("logit_bias"), Mapping):
        fields["logit_bias"] = list(bias.items())
    return fields | dict(options.get("extra", {}))


def tokenize_fields(text: str | None, messages: Turns | None) -> dict[str, Any]:
    if (text is None) == (messages is None):
        raise ValueError("exactly one of text and messages")
    return {"text": text} if messages is None else {"messages": turns(messages)}


def embed_fields(texts: Sequence[str]) -> dict[str, Any]:
    if isinstance(texts, str):
        raise TypeError("a list of texts, not one text")
    return {"input": list(texts)}
