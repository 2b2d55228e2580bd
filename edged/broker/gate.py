"""Whether a new request may be accepted, and what it is told when not (protocol 10). Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from edged.errors import Code, WireError

_LOADING_RETRY_MS: Final = 2000
_STOPPING_RETRY_MS: Final = 5000
_DRAINED_RETRY_MS: Final = 10_000


class Phase(StrEnum):
    """What the worker is at."""

    LOADING = "loading"  # before the first model is ready
    READY = "ready"
    REPLACING = "replacing"  # a worker is being started again: requests queue
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

    @property
    def state(self) -> str:
        """`state` of `status` (protocol 7)."""
        if self.stopping or self.drained:
            return "draining"
        return "degraded" if self.phase is Phase.REPLACING else str(self.phase)

    @property
    def ready(self) -> bool:
        return self.phase is Phase.READY and not self.stopping and not self.drained

    def refusal(self, now: float) -> WireError | None:
        """The error for a new request, or None."""
        if self.stopping:
            return WireError(Code.SHUTTING_DOWN, "the service is stopping", _STOPPING_RETRY_MS)
        if self.drained:
            return WireError(Code.UNAVAILABLE, "an operator is draining the service", _DRAINED_RETRY_MS)
        if self.phase is Phase.UNAVAILABLE:
            return WireError(Code.UNAVAILABLE, self.why, max(100, round(1000 * (self.until - now))))
        if self.phase is Phase.LOADING:
            done = "" if self.loaded is None else f" ({self.loaded:.0%})"
            return WireError(Code.LOADING, f"the model is loading{done}", _LOADING_RETRY_MS)
        return None
