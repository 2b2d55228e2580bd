"""The link between daemon and worker (a `socketpair(2)`, see `edged.link`): what the worker is told.

Per frame a 4-byte big-endian length and a list of these structs in msgpack (`array_like`, tagged).
`rid` is the daemon's running number of a request; the worker never learns ids, identities or topics.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from edged.messages.client import Message


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


class CheckpointSettings(Struct, frozen=True, array_like=True):
    """Cells of running requests, copied to a RAM file system while they run. An empty `dir` or 0 bytes: none are.

    `live`: names of requests that are carried on; files of others are left over and go.
    """

    dir: str = ""
    bytes: int = 0
    live: list[str] = []


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
    checkpoints: CheckpointSettings = CheckpointSettings()


class Carried(Struct, frozen=True, array_like=True):
    """Where a request stood when its worker went. Token ids are uint32, little endian.

    `prompt`, `public`, `cuts`: as an earlier worker told in `Prompted`; the prompt is not rendered again. `ids`: what
    was sampled so far; its text was told and is not told again.
    """

    prompt: bytes
    public: int
    cuts: list[int]
    ids: bytes


class Start(_Down, frozen=True):
    """Run a request. Exactly one of `prompt`, `messages`.

    `scope` stands for the caller's identity: what may be reused of whose prompts (an opaque, stable name).
    `session`: the conversation goes on later, its KV is worth keeping. Of `messages`, the first `head` are the leading
    system messages, then come the whole turns of the history, oldest first, `turns[i]` messages each, then the new
    ones: when all of it does not fit, the worker leaves the oldest turns out.

    `name`: of its checkpoint, the same over all workers (of the id alphabet, not to be guessed); empty: none is kept.
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
    name: str = ""
    carried: Carried | None = None


class Abort(_Down, frozen=True):
    """Forget a request within one step; nothing more is said about it but `Gone`, when nothing is left of it.

    That comes later for one that is being prepared. For an unknown number it comes at once.
    """

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


class Discard(_Down, frozen=True):
    """The request of this checkpoint ended while no worker had it."""

    name: str


class Pace(_Down, frozen=True):
    """How hard to work from the next step on. `duty`: part of the time that steps take, 0 < duty ≤ 1, the rest is
    waited between steps; `threads`: compute threads at most, 0: all."""

    duty: float = 1.0
    threads: int = 0


class Shrink(_Down, frozen=True):
    """Memory is short: drop what only saves time (checkpoints, snapshots in RAM, idle sequences), give it back."""


class Quit(_Down, frozen=True):
    """Leave with status 0 as soon as the step at hand is done; before that as `Save` says, when `within_s` > 0.

    `carry`: another worker goes on with what runs: checkpoints are brought up to date and stay.
    """

    within_s: float = 0.0
    carry: bool = False


Down = Load | Start | Abort | Tokenize | Embed | Warm | Save | Forget | Discard | Pace | Shrink | Quit
