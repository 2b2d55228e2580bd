"""The link between daemon and worker: a `socketpair(2)`, see `edged.link`.

Per frame a 4-byte big-endian length and a list of these structs in msgpack (`array_like`, tagged).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from edged.messages.client import Message, ToolCall

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
    logit_bias: list[tuple[int, float]] = []


class Shape(Struct, frozen=True, array_like=True):
    """What the answer must look like, and what is told beside it. Schemas and tools are JSON text."""

    json_schema: str | None = None
    grammar: str | None = None
    tools: str | None = None
    tool_choice: Literal["none", "auto", "required"] = "auto"
    tool_name: str | None = None  # the one function to be called; tool_choice is then "required"
    thinking: bool | None = None
    logprobs: int = 0


class CacheSettings(Struct, frozen=True, array_like=True):
    """What is remembered of prompts that were read. Directories are made (0700) when they are missing."""

    reuse: bool = True
    sharing: Literal["identity", "system", "all"] = "system"
    ram_dir: str = ""  # of snapshots on a RAM file system; empty: none are kept
    ram_bytes: int = 0
    disk_dir: str = ""
    disk_bytes: int = 0
    disk: Literal["sessions", "all", "off"] = "sessions"
    spill_bytes: int = 64 << 20  # per hour, of what the RAM tier has no room for


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
    cache: CacheSettings = CacheSettings()


class Start(_Down, frozen=True):
    """Run a request. Exactly one of `prompt`, `messages`.

    `scope` stands for the caller's identity: what may be reused of whose prompts (an opaque, stable name).
    `session`: the conversation goes on later, its KV is worth keeping. Of `messages`, the first `head` are the leading
    system messages, then come the whole turns of the history, oldest first, `turns[i]` messages each, then the new
    ones: when all of it does not fit, the worker leaves the oldest turns out.
    """

    rid: int
    prompt: str | None
    messages: list[Message] | None
    max_tokens: int
    stop: list[str]
    sampling: Sampling
    shape: Shape = Shape()
    scope: str = ""
    session: bool = False
    head: int = 0
    turns: list[int] = []


class Abort(_Down, frozen=True):
    """Forget a request within one step; nothing more is said about it. Unknown numbers are ignored."""

    rid: int


class Tokenize(_Down, frozen=True):
    rid: int
    text: str | None
    messages: list[Message] | None


class Embed(_Down, frozen=True):
    rid: int
    inputs: list[str]


class Warm(_Down, frozen=True):
    """Read the prompt of these messages (without the head of an answer) when nothing else wants to start."""

    rid: int
    messages: list[Message]
    scope: str


class Save(_Down, frozen=True):
    """Write snapshots of what is idle to the disk tier, newest first, for at most so many seconds; then `Saved`."""

    within_s: float


class Forget(_Down, frozen=True):
    """A caller had a conversation deleted: drop the snapshots of this scope, and what is idle of it."""

    scope: str


class Quit(_Down, frozen=True):
    """Leave with status 0 as soon as the step at hand is done; before that as `Save` says, when `within_s` > 0."""

    within_s: float = 0.0


Down = Load | Start | Abort | Tokenize | Embed | Warm | Save | Forget | Quit

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
    """`done` of `total` prompt tokens are in the KV cache, `cached` of them were reused.

    The first one, with `done` = `cached`, says that a sequence was assigned. `dropped`: turns of the history left out.
    """

    rid: int
    done: int
    total: int
    cached: int
    dropped: int = 0


class TopLogprob(Struct, frozen=True, array_like=True):
    """One alternative: natural logarithm of its probability in the model's own distribution."""

    id: int
    token: str
    logprob: float


class TokenLogprob(Struct, frozen=True, array_like=True):
    """One sampled token and the most probable ones at its place, best first."""

    id: int
    token: str
    logprob: float
    top: list[TopLogprob]


class Sampled(_Up, frozen=True):
    """Tokens sampled since the last one; `text` is what may be shown now (may be empty: held back)."""

    rid: int
    ids: list[int]
    text: str
    logprobs: list[TokenLogprob] = []


class Done(_Up, frozen=True):
    """The request ended by itself. `reason`: "stop" or "length"; `stop`: the stop string that ended it.

    Text still held back and allowed out came in a `Sampled` before this (with empty `ids`).
    """

    rid: int
    reason: str
    stop: str | None
    tool_calls: list[ToolCall] | None = None
    reasoning: str | None = None


class Refused(_Up, frozen=True):
    """The prompt cannot be run: `code` of protocol 10 (`context_overflow`, `bad_request`, `internal`)."""

    rid: int
    code: str
    message: str


class Tokenized(_Up, frozen=True):
    rid: int
    tokens: list[int]
    fits: bool


class Embedded(_Up, frozen=True):
    """One vector per input, L2-normalised: a JSON array of numbers with 7 decimals. `tokens`: read for all of them.

    JSON already, since a box's daemon would stand still over a quarter of a million numbers.
    """

    rid: int
    vectors: list[bytes]
    tokens: int


class Warmed(_Up, frozen=True):
    """The prefix is resident: `tokens` long, `cached` of them were there already."""

    rid: int
    tokens: int
    cached: int


class Saved(_Up, frozen=True):
    """The answer to `Save`."""

    files: int
    bytes: int
    left: int  # what the time did not suffice for


class CacheFacts(_Up, frozen=True):
    """What is remembered, after a change, at most once a second. Counts are since the worker's start."""

    idle_sequences: int
    idle_cells: int
    hits: int  # prompts that found a prefix
    misses: int
    reused_tokens: int
    evicted: int
    ram_files: int
    ram_bytes: int
    disk_files: int
    disk_bytes: int
    restored: int
    written_bytes: int  # to the disk tier
    set_aside_files: int  # bad or foreign files moved away


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


Up = (
    Loading
    | Ready
    | LoadFailed
    | Prefilled
    | Sampled
    | Done
    | Refused
    | Tokenized
    | Embedded
    | Warmed
    | Saved
    | CacheFacts
    | Slots
)
