"""Which endpoint is tried next, and when. Pure.

* Order: as given, or by `affinity`: each endpoint's weight is a hash of both (rendezvous hashing), so that one session
  always finds the same box, and a box that goes or comes moves only its own share of the sessions.
* An endpoint is out of the running until its back-off is over; among those in it, the one with fewer failures since its
  last answer goes first, then the order.
* An endpoint that refuses the connection itself is tried again, since its keys may be just changing, and then left out
  (`TRIES`). A handshake that is only cut may mean the same, or a box that is starting behind a proxy: it gets a third
  of the time that the caller has, at most `CUT_S`. When all are left out, there is no use in waiting: `NotAdmitted`.
* `Health` is shared by all calls of a client: who was silent comes last for a while, so that not every call has to find
  that out again.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

from edged.client.errors import CUTS, NoAnswer, NotAdmitted
from edged.client.steps import Pace

TRIES = 2
CUT_S = 10.0
OUT = float("inf")


def ordered(endpoints: Sequence[str], affinity: str | None) -> list[str]:
    """All endpoints, the one to try first in front."""
    if affinity is None or len(endpoints) == 1:
        return list(endpoints)
    return sorted(endpoints, key=lambda e: hashlib.sha256(f"{affinity}\0{e}".encode()).digest(), reverse=True)


class Health:
    """Who did not answer lately. Single dict operations only: calls in several threads may share it."""

    def __init__(self, avoid_s: float) -> None:
        self._avoid_s = avoid_s
        self._until: dict[str, float] = {}

    def silent(self, endpoint: str, now: float) -> None:
        self._until[endpoint] = now + self._avoid_s

    def answered(self, endpoint: str) -> None:
        self._until.pop(endpoint, None)

    def avoided(self, endpoint: str, now: float) -> bool:
        return self._until.get(endpoint, now) > now


class Choice:
    """For one request that has `deadline_s`. `salt` spreads the back-off of many clients that were refused at the same
    moment."""

    def __init__(
        self, order: Sequence[str], health: Health, pace: Pace, salt: str, deadline_s: float = float("inf")
    ) -> None:
        self.order = list(order)
        self._health = health
        self._pace = pace
        self._salt = salt
        self._cut_s = min(CUT_S, deadline_s / 3)  # waits double: after half there may be no more handshake
        self._failures = dict.fromkeys(order, 0)
        self._ready_at = dict.fromkeys(order, float("-inf"))
        self._barred = dict.fromkeys(order, 0)
        self._cut_since: dict[str, float] = {}
        self._reason: dict[str, str] = {}  # of the last refusal, when nothing came since
        self._rank = {endpoint: rank for rank, endpoint in enumerate(order)}

    def next(self, now: float) -> tuple[str, float]:
        """The endpoint to try and the time from which on it may be."""

        def key(endpoint: str) -> tuple[float, bool, int, int]:
            ready = max(now, self._ready_at[endpoint])
            avoided = self._health.avoided(endpoint, now)
            return ready, avoided, self._failures[endpoint], self._rank[endpoint]

        endpoint = min(self.order, key=key)
        return endpoint, max(now, self._ready_at[endpoint])

    def others(self, endpoint: str, now: float) -> bool:
        """Somebody else could be asked at once."""
        return any(other != endpoint and self._ready_at[other] <= now for other in self.order)

    def patience(self, endpoint: str) -> float:
        """How long a try at this endpoint waits."""
        return min(self._pace.try_max_s, self._pace.first_try_s * 2.0 ** min(self._failures[endpoint], 16))

    def barred(self, endpoint: str, now: float, reason: str) -> NotAdmitted | None:
        """The connection itself was refused; the error when nobody is left to ask."""
        self.refused(endpoint, now)
        self._reason[endpoint] = reason
        if reason in CUTS:
            if now - self._cut_since.setdefault(endpoint, now) < self._cut_s:
                return None
        else:
            self._barred[endpoint] += 1
            if self._barred[endpoint] < TRIES:
                return None
        self._ready_at[endpoint] = OUT
        return NotAdmitted(endpoint, reason) if min(self._ready_at.values()) == OUT else None

    def silence(self, waited_s: float) -> NoAnswer:
        """Nothing came in time."""
        refusing = next(iter(self._reason.items())) if len(self._reason) == len(self.order) else None
        return NotAdmitted(*refusing) if refusing else NoAnswer(", ".join(self.order), waited_s)

    def out(self, endpoint: str) -> bool:
        """It is left out from here on."""
        return self._ready_at[endpoint] == OUT

    def answered(self, endpoint: str) -> None:
        self._failures[endpoint] = self._barred[endpoint] = 0
        self._cut_since.pop(endpoint, None)
        self._reason.pop(endpoint, None)
        self._health.answered(endpoint)

    def silent(self, endpoint: str, now: float) -> None:
        self._failures[endpoint] += 1
        self._health.silent(endpoint, now)

    def refused(self, endpoint: str, now: float, after_s: float | None = None) -> None:
        """It answered, but not with what was asked for, or cut the connection: not before a while."""
        failures = self._failures[endpoint]
        self._failures[endpoint] += 1
        wait = self._pace.backoff_s * 2.0 ** min(failures, 16)
        wait = min(wait, self._pace.backoff_max_s) if after_s is None else after_s
        self._ready_at[endpoint] = now + wait * self._spread(failures)

    def _spread(self, failures: int) -> float:
        """1…1.25, the same for the same request and try."""
        return 1 + zlib.crc32(f"{self._salt} {failures}".encode()) % 256 / 1024
