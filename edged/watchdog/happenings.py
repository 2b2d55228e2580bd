"""What the supervisor tells the daemon's loop, in order; between these, what the serving worker says. Data."""

from __future__ import annotations

from msgspec import Struct

from edged.messages import Up


class Lost(Struct, frozen=True):
    """The serving worker ended. `up`: it had been ready. `planned`: it was replaced or unloaded; `cause` says why."""

    cause: str
    up: bool
    planned: bool = False


class GaveUp(Struct, frozen=True):
    """No worker for now: `why` in words, `until` when another try is made (monotonic seconds)."""

    why: str
    until: float


class Looking(Struct, frozen=True):
    """Given up, and a bad file has not changed: it is looked at again at `until` (monotonic seconds)."""

    until: float


class Stepped(Struct, frozen=True):
    """A profile does not run here: the next smaller one is tried."""

    before: str
    after: str
    why: str


class Replacing(Struct, frozen=True):
    """A replacement is under way; `order` as in `fit`. Sizes in bytes, estimated; `available` as the kernel says."""

    reason: str
    before: str
    after: str
    order: str
    need: int
    available: int | None


class Replaced(Struct, frozen=True):
    """Its end: the new one serves. After its `Ready`."""

    reason: str
    profile: str
    seconds: float


class Kept(Struct, frozen=True):
    """Its other end: the old one serves on, or is started again."""

    reason: str
    wanted: int  # index of the profile
    profile: str
    why: str


class Unloaded(Struct, frozen=True):
    """There is no worker, on purpose."""

    reason: str


Happening = Up | Lost | GaveUp | Looking | Stepped | Replacing | Replaced | Kept | Unloaded
