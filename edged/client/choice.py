"""Which endpoint one request tries next, and when. Pure. What all calls of a client know together is in `boxes`.

* Order: `spread` takes the box with the least of one's own outstanding, then whose turn it is. By `affinity` instead:
  each endpoint's weight is a hash of both (rendezvous hashing), so that one session always finds the same box, and a
  box that goes or comes moves only its own share of the sessions.
* An endpoint is out of the running until its back-off is over; among those in it, who rests comes last, then who failed
  more often since its last answer, then the order.
* An endpoint that refuses the connection itself is tried again, since its keys may be just changing, and then left out
  (`TRIES`). A handshake that is only cut may mean the same, or a box that is starting behind a proxy: it gets a third
  of the time that the caller has, at most `CUT_S`. When all are left out, there is no use in waiting: `NotAdmitted`.
* What each endpoint said or did last is kept for the error: when all fail, each is named with its reason.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import TypeVar

from edged.client.boxes import Boxes
from edged.client.errors import CUTS, REASONS, EdgedError, NoAnswer, NotAdmitted, with_each
from edged.client.steps import Pace

TRIES = 2
CUT_S = 10.0
AWAY_S = 1.0
"""At most, between looks at a box where nobody listens: a daemon that comes back is to be found soon."""
OUT = float("inf")
SILENT, NOBODY, CUT_LINE, NOT_ASKED = "no answer", "nobody listens there", "the connection was cut", "not asked"

Failure = TypeVar("Failure", bound=EdgedError)


def ordered(endpoints: Sequence[str], affinity: str | None) -> list[str]:
    """All endpoints, the one to try first in front."""
    if affinity is None or len(endpoints) == 1:
        return list(endpoints)
    return sorted(endpoints, key=lambda e: hashlib.sha256(f"{affinity}\0{e}".encode()).digest(), reverse=True)


class Choice:
    """For one request that has `deadline_s`. `salt` spreads the back-off of many clients that were refused at the same
    moment."""

    def __init__(
        self,
        order: Sequence[str],
        boxes: Boxes,
        pace: Pace,
        salt: str,
        deadline_s: float = float("inf"),
        *,
        spread: bool = False,
    ) -> None:
        self.order = list(order)
        self._boxes = boxes
        self._pace = pace
        self._salt = salt
        self._spread = spread
        self._cut_s = min(CUT_S, deadline_s / 3)  # waits double: after half there may be no more handshake
        self._failures = dict.fromkeys(order, 0)
        self._ready_at = dict.fromkeys(order, float("-inf"))
        self._barred = dict.fromkeys(order, 0)
        self._cut_since: dict[str, float] = {}
        self._reason: dict[str, str] = {}  # of the last refusal of a connection, when nothing came since
        self._told: dict[str, str] = {}  # what went wrong there last, in words
        self._rank = {endpoint: rank for rank, endpoint in enumerate(order)}
        self._with: str | None = None

    # ---- asking ------------------------------------------------------------------------------------------------

    def next(self, now: float) -> tuple[str, float]:
        """The endpoint to try and the time from which on it may be."""

        def key(endpoint: str) -> tuple[float, bool, int, int, int]:
            ready = max(now, self._ready_at[endpoint])
            rests = self._boxes.rests(endpoint, now)
            load = self._boxes.load(endpoint) if self._spread else 0
            return ready, rests, self._failures[endpoint], load, self._rank[endpoint]

        endpoint = min(self.order, key=key)
        return endpoint, self.ready(endpoint, now)

    def ready(self, endpoint: str, now: float) -> float:
        return max(now, self._ready_at[endpoint])

    def others(self, endpoint: str, now: float) -> bool:
        """Somebody else could be asked at once."""
        return any(other != endpoint and self._ready_at[other] <= now for other in self.order)

    def unasked(self) -> bool:
        """Some box has not had its say yet."""
        return any(endpoint not in self._told for endpoint in self.order)

    def patience(self, endpoint: str) -> float:
        """How long a try at this endpoint waits."""
        return min(self._pace.try_max_s, self._pace.first_try_s * 2.0 ** min(self._failures[endpoint], 16))

    def out(self, endpoint: str) -> bool:
        """It is left out from here on."""
        return self._ready_at[endpoint] == OUT

    def take(self, endpoint: str) -> None:
        """The request is with this box now."""
        self.leave()
        self._with = endpoint
        self._boxes.take(endpoint, self)

    def leave(self) -> None:
        """It is with nobody."""
        if self._with is not None:
            self._boxes.leave(self._with, self)
        self._with = None

    # ---- what came of it ---------------------------------------------------------------------------------------

    def answered(self, endpoint: str) -> None:
        self._failures[endpoint] = self._barred[endpoint] = 0
        self._cut_since.pop(endpoint, None)
        self._reason.pop(endpoint, None)
        self._told.pop(endpoint, None)
        self._boxes.answered(endpoint)

    def note(self, endpoint: str, why: str) -> None:
        """For the error, should it come to one."""
        self._told[endpoint] = why

    def silent(self, endpoint: str, now: float, why: str = SILENT) -> None:
        self._failures[endpoint] += 1
        self._told[endpoint] = why
        self._boxes.silent(endpoint, now, why)

    def away(self, endpoint: str, now: float) -> None:
        """Nobody listens there, which is known at once: not again before a short while."""
        wait = min(AWAY_S, self._pace.backoff_s * 2.0 ** min(self._failures[endpoint], 16))
        self._ready_at[endpoint] = now + wait * self._spread_of(self._failures[endpoint])
        self.silent(endpoint, now, NOBODY)

    def refused(self, endpoint: str, now: float, after_s: float | None = None, why: str | None = None) -> None:
        """It answered, but not with what was asked for (`why` has its words), or cut the connection (None): not before
        a while."""
        failures = self._failures[endpoint]
        self._failures[endpoint] += 1
        wait = self._pace.backoff_s * 2.0 ** min(failures, 16)
        wait = (min(wait, self._pace.backoff_max_s) if after_s is None else after_s) * self._spread_of(failures)
        self._ready_at[endpoint] = now + wait
        self._told[endpoint] = why or CUT_LINE
        if why is not None and wait < OUT:
            self._boxes.refused(endpoint, now, wait, why)

    def barred(self, endpoint: str, now: float, reason: str) -> NotAdmitted | None:
        """The connection itself was refused; the error when nobody is left to ask."""
        self.refused(endpoint, now)
        self._reason[endpoint] = reason
        self._told[endpoint] = f"refuses the connection: {REASONS[reason]}"
        self._boxes.silent(endpoint, now, self._told[endpoint])
        if reason in CUTS:
            if now - self._cut_since.setdefault(endpoint, now) < self._cut_s:
                return None
        else:
            self._barred[endpoint] += 1
            if self._barred[endpoint] < TRIES:
                return None
        self._ready_at[endpoint] = OUT
        return self.each(NotAdmitted(endpoint, reason)) if min(self._ready_at.values()) == OUT else None

    def silence(self, waited_s: float) -> NoAnswer:
        """Nothing came in time."""
        refusing = next(iter(self._reason.items())) if len(self._reason) == len(self.order) else None
        return self.each(NotAdmitted(*refusing) if refusing else NoAnswer(", ".join(self.order), waited_s))

    def each(self, error: Failure) -> Failure:
        """All have failed: of several boxes each is named."""
        if len(self.order) == 1:
            return error
        return with_each(error, {endpoint: self._told.get(endpoint, NOT_ASKED) for endpoint in self.order})

    def _spread_of(self, failures: int) -> float:
        """1…1.25, the same for the same request and try."""
        return 1 + zlib.crc32(f"{self._salt} {failures}".encode()) % 256 / 1024
