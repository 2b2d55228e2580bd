"""The client library: `Client` for programs that wait, `AsyncClient` for asyncio.

    from edged.client import Client

    print(Client().generate("Why is the sky blue?").text)

It needs pyzmq and msgspec, nothing else: neither engine nor configuration. What it does when a message is lost, a box
is busy or a daemon restarts is written at the head of `edged.client.exchange`; docs/protocol.md has the wire itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.client.attempts import STARTING
from edged.client.bodies import new_id
from edged.client.boxes import Box
from edged.client.errors import (
    BadEndpoint,
    BadKey,
    BadRequest,
    Busy,
    ContextOverflow,
    DeadlineExceeded,
    EdgedError,
    Forbidden,
    IdConflict,
    Internal,
    Loading,
    LowMemory,
    MissingFeature,
    NoAnswer,
    NotAdmitted,
    NotFound,
    Overheated,
    ReplyError,
    ShuttingDown,
    TooLarge,
    Unavailable,
    UnknownOp,
    UnsupportedVersion,
    WorkerLost,
)
from edged.client.news import News
from edged.client.reading import Accepted, Anew, Ended, Event, Piece, Postponed, Prefill, Queued, Replaced
from edged.client.replies import (
    Embeddings,
    EmbedUsage,
    FunctionCall,
    Pong,
    Progress,
    Result,
    Status,
    Timing,
    TokenLogprob,
    Tokens,
    ToolCall,
    TopLogprob,
    Transcript,
    Turn,
    Usage,
    Warmth,
)
from edged.client.steps import Pace
from edged.client.sync import Client, Stream

if TYPE_CHECKING:
    from edged.client.aio import AsyncClient, AsyncStream

__all__ = [
    "STARTING",
    "Accepted",
    "Anew",
    "AsyncClient",
    "AsyncStream",
    "BadEndpoint",
    "BadKey",
    "BadRequest",
    "Box",
    "Busy",
    "Client",
    "ContextOverflow",
    "DeadlineExceeded",
    "EdgedError",
    "EmbedUsage",
    "Embeddings",
    "Ended",
    "Event",
    "Forbidden",
    "FunctionCall",
    "IdConflict",
    "Internal",
    "Loading",
    "LowMemory",
    "MissingFeature",
    "News",
    "NoAnswer",
    "NotAdmitted",
    "NotFound",
    "Overheated",
    "Pace",
    "Piece",
    "Pong",
    "Postponed",
    "Prefill",
    "Progress",
    "Queued",
    "Replaced",
    "ReplyError",
    "Result",
    "ShuttingDown",
    "Status",
    "Stream",
    "Timing",
    "TokenLogprob",
    "Tokens",
    "TooLarge",
    "ToolCall",
    "TopLogprob",
    "Transcript",
    "Turn",
    "Unavailable",
    "UnknownOp",
    "UnsupportedVersion",
    "Usage",
    "Warmth",
    "WorkerLost",
    "new_id",
]


def __getattr__(name: str) -> Any:
    """asyncio is imported when it is wanted: half of this package's import time otherwise."""
    if name in ("AsyncClient", "AsyncStream"):
        from edged.client import aio  # noqa: PLC0415 - see above

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
