"""What a client knows of its boxes, shared by all its calls. Pure.

* **Load**: a box's load is how many requests of this client are with it now. It counts the machines themselves, weakly:
  one that is dropped without a word is gone from the count.
* **Turn**: among boxes of the same load they take turns. Each client begins elsewhere (`turn`), so that twelve devices
  that wake up together do not all ask the first of the list.
* **Rest**: who did not answer comes last for `Pace.avoid_s`, then for twice as long each time it fails again after its
  rest, up to `Pace.avoid_max_s`; an answer ends that. Failures during a rest are the same failure, seen by other calls.
  Who refuses (`busy`, `overheated` …) is alive: it rests for as long as it says. A rest is a preference: when nobody
  else is left, who rests is asked.

Single operations on dicts and sets only: calls in several threads share this.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence

from msgspec import Struct

from edged.client.steps import Pace


class Box(Struct, frozen=True, kw_only=True):
    """`outstanding`: requests of this client that are with it. `rests_s`: for so long it comes last, because of `why`
    (the last failure; empty when it answered since)."""

    endpoint: str
    outstanding: int = 0
    rests_s: float = 0.0
    why: str = ""


class Boxes:
    def __init__(self, pace: Pace, turn: int = 0) -> None:
        self._pace = pace
        self._turns = itertools.count(turn)
        self._until: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._why: dict[str, str] = {}
        self._with: dict[str, weakref.WeakSet[object]] = {}

    # ---- load --------------------------------------------------------------------------------------------------

    def in_turn(self, endpoints: Sequence[str]) -> list[str]:
        """All of them, another one in front each time."""
        first = next(self._turns) % len(endpoints)
        return [*endpoints[first:], *endpoints[:first]]

    def take(self, endpoint: str, who: object) -> None:
        """`who` is with this box from now on."""
        self._with.setdefault(endpoint, weakref.WeakSet()).add(who)

    def leave(self, endpoint: str, who: object) -> None:
        if endpoint in self._with:
            self._with[endpoint].discard(who)

    def load(self, endpoint: str) -> int:
        return len(self._with.get(endpoint, ()))

    # ---- rest --------------------------------------------------------------------------------------------------

    def silent(self, endpoint: str, now: float, why: str) -> None:
        self._why[endpoint] = why
        if self.rests(endpoint, now):
            return
        failures = self._failures.get(endpoint, 0)
        self._failures[endpoint] = failures + 1
        self._until[endpoint] = now + min(self._pace.avoid_s * 2.0 ** min(failures, 16), self._pace.avoid_max_s)

    def refused(self, endpoint: str, now: float, after_s: float, why: str) -> None:
        self._why[endpoint] = why
        self._failures.pop(endpoint, None)
        self._until[endpoint] = now + min(after_s, self._pace.avoid_max_s)

    def answered(self, endpoint: str) -> None:
        self._until.pop(endpoint, None)
        self._failures.pop(endpoint, None)
        self._why.pop(endpoint, None)

    def rests(self, endpoint: str, now: float) -> bool:
        return self._until.get(endpoint, now) > now

    def view(self, endpoints: Sequence[str], now: float) -> list[Box]:
        return [
            Box(
                endpoint=endpoint,
                outstanding=self.load(endpoint),
                rests_s=max(0.0, self._until.get(endpoint, now) - now),
                why=self._why.get(endpoint, ""),
            )
            for endpoint in endpoints
        ]
