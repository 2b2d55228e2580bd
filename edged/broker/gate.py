"""Whether a new request may be accepted, and what it is told when not (protocol 10). Pure.

What the board's level (`edged.level`, design 4) does here:

| level | new requests | queued ones | `ready` | `state` |
|---|---|---|---|---|
| normal | accepted | given | yes | ready |
| warm | accepted | low priority waits | yes | degraded |
| hot | only high priority, the rest get the level's code | only high priority is given | no | degraded |
| critical | none | none is given | no | degraded |

Requests that have run before go on at every level but critical: half an answer was paid for already.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from edged.broker.table import Request
from edged.errors import Code, WireError
from edged.level import Level
from edged.messages import PRIORITIES, Priority

_LOADING_RETRY_MS: Final = 2000
_STOPPING_RETRY_MS: Final = 5000
_DRAINED_RETRY_MS: Final = 10_000
_LEVEL_RETRY_MS: Final = 10_000
_ACCEPTED: Final[dict[Level, int]] = {Level.NORMAL: 3, Level.WARM: 3, Level.HOT: 1, Level.CRITICAL: 0}
_GIVEN: Final[dict[Level, int]] = {Level.NORMAL: 3, Level.WARM: 2, Level.HOT: 1, Level.CRITICAL: 0}
"""How many of PRIORITIES, highest first."""


class Phase(StrEnum):
    """What the worker is at."""

    LOADING = "loading"  # before the first model is ready
    READY = "ready"
    REPLACING = "replacing"  # a worker is being started again: requests queue
    UNLOADED = "unloaded"  # there is none, on purpose: what was accepted waits for its deadline
    UNAVAILABLE = "unavailable"


class Gate:
    """The daemon sets, the broker asks."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.loaded: float | None = 0.0  # fraction
        self.why = ""  # unavailable
        self.until = 0.0  # unavailable: when another try is made, monotonic seconds
        self.stopping = False
        self.drained = False
        self.clogged = False  # the worker does not read: it is given no more
        self.smaller = False  # the worker runs another profile than the first
        self.level = Level.NORMAL
        self.code: Code | None = None  # of the level
        self.retry_after_ms: int | None = None
        self.pressed_by = ""  # in words

    @property
    def state(self) -> str:
        """`state` of `status` (protocol 7)."""
        if self.stopping or self.drained:
            return "draining"
        if self.phase in (Phase.LOADING, Phase.UNAVAILABLE):
            return str(self.phase)
        return "degraded" if self.phase is not Phase.READY or self.level or self.smaller else "ready"

    @property
    def ready(self) -> bool:
        return self.phase is Phase.READY and self.level < Level.HOT and not self.stopping and not self.drained

    def refusal(self, now: float, priority: Priority = "normal") -> WireError | None:
        """The error for a new request, or None."""
        if self.stopping:
            return WireError(Code.SHUTTING_DOWN, "the service is stopping", _STOPPING_RETRY_MS)
        if self.drained:
            return WireError(Code.UNAVAILABLE, "an operator is draining the service", _DRAINED_RETRY_MS)
        if self.phase is Phase.UNAVAILABLE:
            return WireError(Code.UNAVAILABLE, self.why, max(100, round(1000 * (self.until - now))))
        if self.phase is Phase.UNLOADED or PRIORITIES.index(priority) >= _ACCEPTED[self.level]:
            return self.pressure()
        if self.phase is Phase.LOADING:
            done = "" if self.loaded is None else f" ({self.loaded:.0%})"
            return WireError(Code.LOADING, f"the model is loading{done}", _LOADING_RETRY_MS)
        return None

    def pressure(self) -> WireError:
        """The level's error."""
        why = self.pressed_by or "the model is unloaded for now"
        return WireError(self.code or Code.UNAVAILABLE, why, self.retry_after_ms or _LEVEL_RETRY_MS)

    def gives(self, request: Request) -> bool:
        """Whether the level lets a queued request go to the worker."""
        if request.ran:
            return self.level < Level.CRITICAL
        return PRIORITIES.index(request.body.priority) < _GIVEN[self.level]
