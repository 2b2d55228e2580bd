"""The link between daemon and worker: what the worker says. Framing as in `down`."""

from __future__ import annotations

from msgspec import Struct

from edged.messages.client import ToolCall


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
    fingerprint: str = ""  # of the model file: equal ones have equal token ids
    variant: str | None = None  # of the engine's CPU code, in builds that have several


class LoadFailed(_Up, frozen=True):
    """The model was refused; the worker leaves with status 1 after this."""

    kind: str
    message: str


class Prompted(_Up, frozen=True):
    """The prompt as tokens (uint32, little endian), before its first `Prefilled`. Not for one that is `carried`."""

    rid: int
    prompt: bytes
    public: int
    cuts: list[int]


class Beat(_Up, frozen=True):
    """Progress, at most twice a second: tokens sampled, read, replayed or embedded since the start."""

    tokens: int


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


class Gone(_Up, frozen=True):
    """The answer to every `Abort`, unknown numbers included: nothing here runs or prepares it any more."""

    rid: int


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
    | Prompted
    | Beat
    | Prefilled
    | Sampled
    | Done
    | Refused
    | Gone
    | Tokenized
    | Embedded
    | Warmed
    | Saved
    | CacheFacts
    | Slots
)
