"""Every struct on either wire, declared once.

Two wires:

* the *client wire* (protocol.md): JSON objects, decoded by `edged.wire.codec` into the structs of the first half;
* the *link* between daemon and worker: a `socketpair(2)` carrying, per frame, a 4-byte big-endian length and one
  msgpack-encoded struct of the second half (`array_like`, tagged), see `edged.link`.

Only data: no behaviour, no I/O. A field's range is declared where the field is.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

# ---- the client wire -------------------------------------------------------------------------------------------

Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-]{1,64}\Z")]
Role = Literal["system", "user", "assistant", "tool"]
Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")
StopString = Annotated[str, Meta(min_length=1)]


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a conversation."""

    role: Role
    content: str


class Generate(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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


ClientRequest = Generate | Result | Cancel | TokenizeRequest | Ping | Status | Requests | LogLevel | Drain | Resume

# ---- the link: daemon → worker ---------------------------------------------------------------------------------
# `rid` is the daemon's running number of a request; the worker never learns ids, identities or topics.


class _Down(Struct, frozen=True, array_like=True, tag=True):
    pass


class Sampling(Struct, frozen=True, array_like=True):
    """Sampling parameters, all resolved. temperature 0 is greedy; top_k 0 is off."""

    temperature: float = 0.7
    top_k: int = 20
    top_p: float = 0.95
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0


class Load(_Down, frozen=True):
    """First frame on a new link: what to load and how. Counts of 0 mean: choose from the machine."""

    model_path: str
    context: int
    sequences: int
    threads: int
    prefill_threads: int
    reserve_cores: int  # -1: automatic
    batch: int
    prefill_chunk: int
    kv_type: str
    log_level: str


class Start(_Down, frozen=True):
    """Run a request. Exactly one of `prompt`, `messages`."""

    rid: int
    prompt: str | None
    messages: list[Message] | None
    max_tokens: int
    stop: list[str]
    sampling: Sampling


class Abort(_Down, frozen=True):
    """Forget a request within one step; nothing more is said about it. Unknown numbers are ignored."""

    rid: int


class Tokenize(_Down, frozen=True):
    rid: int
    text: str | None
    messages: list[Message] | None


class Quit(_Down, frozen=True):
    """Leave with status 0 as soon as the step at hand is done."""


Down = Load | Start | Abort | Tokenize | Quit

# ---- the link: worker → daemon ---------------------------------------------------------------------------------


class _Up(Struct, frozen=True, array_like=True, tag=True):
    pass


class Loading(_Up, frozen=True):
    """Progress of loading, 0…1."""

    fraction: float


class ThreadPin(Struct, frozen=True, array_like=True):
    """One compute thread as the kernel reports it: `cores` is its affinity read back, `core` the one wanted."""

    tid: int
    core: int
    cores: list[int]
    role: str  # "decode", "prefill" or "decode+prefill"


class Ready(_Up, frozen=True):
    """The model is loaded and warm."""

    name: str
    architecture: str
    description: str
    parameters: int
    size_bytes: int
    train_context: int
    context: int  # cells of the unified KV cache, = the longest sequence
    sequences: int
    prefill_chunk: int
    vocab: int
    chat_template: str  # "model", or "chatml" when the model's own is missing or broken
    threads: list[ThreadPin]
    load_ms: float
    kv_bytes: int
    build: str
    warnings: list[str]


class LoadFailed(_Up, frozen=True):
    """The model was refused; the worker leaves with status 1 after this."""

    kind: str
    message: str


class Prefilled(_Up, frozen=True):
    """`done` of `total` prompt tokens are in the KV cache; done = 0: a sequence was assigned. `cached` were reused."""

    rid: int
    done: int
    total: int
    cached: int


class Sampled(_Up, frozen=True):
    """Tokens sampled since the last one; `text` is what may be shown now (may be empty: held back)."""

    rid: int
    ids: list[int]
    text: str


class Done(_Up, frozen=True):
    """The request ended by itself. `reason`: "stop" or "length"; `stop`: the stop string that ended it.

    Text still held back and allowed out came in a `Sampled` before this (with empty `ids`).
    """

    rid: int
    reason: str
    stop: str | None


class Refused(_Up, frozen=True):
    """The prompt cannot be run: `code` of protocol 10 (`context_overflow`, `bad_request`, `internal`)."""

    rid: int
    code: str
    message: str


class Tokenized(_Up, frozen=True):
    rid: int
    tokens: list[int]
    fits: bool


class Slots(_Up, frozen=True):
    """Sequences and cells, after every change."""

    busy: int
    waiting: int  # prepared or preparing, not started
    set_aside: int
    cells_used: int
    cells_total: int
    set_aside_total: int  # how often a request was set aside since the start
    busy_seconds: float  # sum over time of sequences busy (sequence-seconds) since the start
    active_seconds: float  # time with work since the start


Up = Loading | Ready | LoadFailed | Prefilled | Sampled | Done | Refused | Tokenized | Slots
