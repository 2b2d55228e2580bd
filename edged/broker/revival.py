"""A request that ends the daemon itself, again and again, ends (ADR 17). Pure.

A daemon that died tells nobody of what. But one that brought requests back and, with them, *got nowhere* is told by the
journal: before anything else is done, each has one more `revived` on record, and that is taken back as soon as the
daemon gets somewhere:

* a token of any request was read or sampled, or any request ended; or
* it has lived for LIVED_S.

So only daemons that die at once, one after the other, are counted, whoever kills them; load, however heavy, makes
tokens. More than `limits.max_restarts` + 1 of them in a row end every request that was brought back so often: which of
them it was is not known, and without an end none would ever run. After a power cut, or a file on the disk alone,
nothing is counted: what was taken back is in the RAM file only.
"""

from __future__ import annotations

from typing import Final

from edged.broker.ledger import Ledger
from edged.broker.table import Request
from edged.errors import Code, WireError

LIVED_S: Final = 10.0


class Revival:
    def __init__(self) -> None:
        self._doubtful: list[Request] = []
        self._until = float("inf")

    @staticmethod
    def count(requests: list[Request], most: int) -> list[tuple[Request, WireError]]:
        """They were brought back once more; those that are not tried again, and what they are told."""
        over = []
        for request in requests:
            request.revived += 1
            if request.revived > most + 1:
                message = f"the service ended {request.revived - 1} times at once with this request; do not repeat it"
                over.append((request, WireError(Code.WORKER_LOST, message, final=True)))
        return over

    def begin(self, requests: list[Request], now: float) -> None:
        """With these."""
        self._doubtful, self._until = requests, now + LIVED_S if requests else float("inf")

    def somewhere(self, ledger: Ledger) -> None:
        """This daemon got."""
        doubtful, self._doubtful, self._until = self._doubtful, [], float("inf")
        for request in doubtful:
            request.revived = 0
            ledger.standing(request)

    def tick(self, ledger: Ledger, now: float) -> None:
        if now >= self._until:
            self.somewhere(ledger)

    def next_wake(self) -> float:
        return self._until
