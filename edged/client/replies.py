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


class FunctionCall(Struct, frozen=True):
    """`arguments` is JSON text: `json.loads(call.function.arguments)`."""

    name: str
    arguments: str = ""


class ToolCall(Struct, frozen=True):
    """A function that the model wants called. The answer: `{"role": "tool", "tool_call_id": call.id, "content": …}`."""

    id: str
    function: FunctionCall
    type: str = "function"


class TopLogprob(Struct, frozen=True):
    """One alternative; `logprob` is the natural logarithm of its probability."""

    token: str = ""
    logprob: float = 0.0
    id: int = -1


class TokenLogprob(Struct, frozen=True):
    """One token of the text and the likeliest at its place, best first."""

    token: str = ""
    logprob: float = 0.0
    id: int = -1
    top: tuple[TopLogprob, ...] = ()


class Result(Struct, frozen=True, kw_only=True):
    """A finished request (protocol 3). `finish_reason`: `stop`, `length`, `cancelled` or `deadline`.

    Of a session: `dropped_turns` no longer fit and are left out of its prompts; `stored` False: this turn is not in it.
    `tool_calls`: what the model wants called, with `text` beside or empty. `reasoning`: what was thought before `text`.
    """

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
    session: str | None = None
    dropped_turns: int = 0
    stored: bool = True
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    instance: str = ""
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message, to be appended to a conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [msgspec.to_builtins(call) for call in self.tool_calls]
        return message


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


class EmbedUsage(Struct, frozen=True):
    """Tokens of all texts; nothing else is counted, so both are the same."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class Embeddings(Struct, frozen=True, kw_only=True):
    """One unit vector per text, in the order given: their dot product is the cosine."""

    embeddings: tuple[tuple[float, ...], ...] = ()
    model: str = ""
    usage: EmbedUsage = EmbedUsage()
    raw: dict[str, Any] = field(default_factory=dict)


class Warmth(Struct, frozen=True, kw_only=True):
    """A prefix that is read: `tokens` long, `cached_tokens` of them were read before."""

    tokens: int = 0
    cached_tokens: int = 0
    raw: dict[str, Any] = field(default_factory=dict)


class Turn(Struct, frozen=True, kw_only=True):
    """One turn of a session: what was asked and the answer, as messages."""

    id: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    finish_reason: str = ""
    usage: Usage = Usage()


class Transcript(Struct, frozen=True, kw_only=True):
    """A session (protocol 7). `turns` are the newest, as far as one reply holds them; `omitted` are not shown.

    `dropped_turns`, the oldest, are left out of prompts. `updated` is Unix seconds.
    """

    session: str = ""
    system: tuple[dict[str, Any], ...] = ()
    turns: tuple[Turn, ...] = ()
    turns_total: int = 0
    omitted: int = 0
    dropped_turns: int = 0
    bytes: int = 0
    updated: float = 0.0
    raw: dict[str, Any] = field(default_factory=dict)


Kind = TypeVar("Kind", Result, Progress, Pong, Status, Tokens, Embeddings, Warmth, Transcript)


def typed(reply: Mapping[str, Any], kind: type[Kind]) -> Kind:
    """The reply as a struct. One of another shape than the protocol's is the daemon's mistake: `Internal`."""
    try:
        return msgspec.convert({**reply, "raw": dict(reply)}, kind)
    except msgspec.ValidationError as error:
        raise Internal("internal", f"a reply that is none: {error}", raw=reply) from None


def is_result(reply: Mapping[str, Any]) -> bool:
    return isinstance(reply.get("finish_reason"), str) and isinstance(reply.get("text"), str)
