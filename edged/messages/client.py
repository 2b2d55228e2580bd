"""The client wire (docs/protocol.md): JSON objects, decoded by `edged.wire.codec` into these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-]{1,64}\Z")]
Role = Literal["system", "user", "assistant", "tool"]
Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")
ProfileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._\-]{1,64}\Z")]
StopString = Annotated[str, Meta(min_length=1)]


class FunctionCall(Struct, frozen=True, forbid_unknown_fields=True):
    """`arguments` is JSON text, as in the OpenAI chat API."""

    name: str
    arguments: str


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call that an assistant made."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class Message(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message of a conversation; an assistant's may have no content when it has `tool_calls`."""

    role: Role
    content: str = ""
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class ToolFunction(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`parameters` is a JSON schema; none: no arguments."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_\-]{1,64}\Z")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct, frozen=True, forbid_unknown_fields=True):
    """As in the OpenAI chat API."""

    function: ToolFunction
    type: Literal["function"] = "function"


class ChosenName(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class ChosenTool(Struct, frozen=True, forbid_unknown_fields=True):
    """`tool_choice` that names one function."""

    function: ChosenName
    type: Literal["function"] = "function"


Bias = tuple[Annotated[int, Meta(ge=0, le=2**31 - 1)], Annotated[float, Meta(ge=-100, le=100)]]
"""Token id and what is added to its logit."""


class Generate(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Protocol 3. None means: not given, the configured default applies."""

    id: Id | None = None
    prompt: Annotated[str, Meta(min_length=1)] | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    stream: bool | Literal["pub", "reply"] = False
    detach: bool = False
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1000)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Meta(ge=0.5, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    stop: Annotated[list[StopString], Meta(min_length=1, max_length=8)] | None = None
    priority: Priority = "normal"
    deadline_ms: Annotated[int, Meta(ge=1, le=86_400_000)] | None = None
    supersedes: Id | None = None
    session: Id | None = None
    reset: bool = False
    logit_bias: Annotated[list[Bias], Meta(max_length=256)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] = 0
    json_schema: dict[str, Any] | None = None
    grammar: Annotated[str, Meta(min_length=1)] | None = None
    tools: Annotated[list[Tool], Meta(min_length=1, max_length=64)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    thinking: bool | None = None


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 5."""

    id: Id
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0


class Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 6; `identity` is for `control` only."""

    id: Id
    identity: Annotated[str, Meta(min_length=1, max_length=128)] | None = None


class TokenizeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 7: exactly one of `text`, `messages`."""

    id: Id | None = None
    text: Annotated[str, Meta(min_length=1)] | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None


class Ping(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 7."""

    id: Id | None = None


class Status(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 7."""

    id: Id | None = None


class HistoryRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 7: the last `seconds`, and so many of the newest events."""

    id: Id | None = None
    seconds: Annotated[int, Meta(ge=1, le=3600)] = 3600
    events: Annotated[int, Meta(ge=0, le=200)] = 0


class Requests(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8: what is waiting and running, for operators."""

    id: Id | None = None


class LogLevel(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8."""

    level: Literal["debug", "info", "warning", "error"]
    id: Id | None = None


class Drain(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8: stop admitting, finish what is accepted."""

    id: Id | None = None


class Resume(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8: admit again."""

    id: Id | None = None


class EmbedRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 7."""

    input: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=64)]
    id: Id | None = None


class WarmRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 7: read this prefix ahead."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    id: Id | None = None


class SessionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 7."""

    session: Id
    action: Literal["get", "delete"]
    id: Id | None = None


class SessionsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8: every session of every identity, for operators; no text. `get` and `delete` of one: `identity`."""

    id: Id | None = None
    session: Id | None = None
    identity: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    action: Literal["list", "get", "delete"] = "list"


class Reload(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8: replace the worker, by one of this profile if given; running requests go on."""

    id: Id | None = None
    profile: ProfileName | None = None


class ProfileRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8: the profiles; `profile` pins one, `auto` lets the watchdog choose again."""

    id: Id | None = None
    profile: ProfileName | None = None
    auto: bool = False


class ConfigRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Protocol 8: read the daemon's own configuration file again, as SIGHUP does."""

    action: Literal["check", "apply"]
    id: Id | None = None


ClientRequest = (
    Generate
    | Result
    | Cancel
    | TokenizeRequest
    | EmbedRequest
    | WarmRequest
    | SessionRequest
    | Ping
    | Status
    | HistoryRequest
    | Requests
    | LogLevel
    | Drain
    | Resume
    | SessionsRequest
    | Reload
    | ProfileRequest
    | ConfigRequest
)
