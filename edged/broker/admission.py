"""The waiting queue: bounded, by priority, fair between callers (protocol 3, `priority`). Pure.

Order of admission: priority; within one, first those that are owed a place at the head (taken back from a dead
worker, or replacing a running request); then round robin over identities; FIFO within one identity.

A request that may not go now keeps its place and is passed over: it is held by its session (`edged.broker.sessions`),
its acceptance is not on the disk yet (`edged.broker.ledger`), or the level holds it (`gives`, see `edged.broker.gate`).

Limits: `limits.queue` over all and `limits.queue_per_identity` for one caller (or its key's `max_queued`) count what
waits here. What returns to
the head was admitted before and is never refused.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from edged.broker.table import Request
from edged.config import Limits
from edged.errors import Code, WireError
from edged.messages import PRIORITIES, Priority


class _Lane:
    """One priority. `turns`: identity → its requests, in the order in which identities are served next."""

    def __init__(self, gives: Callable[[Request], bool]) -> None:
        self._gives = gives
        self.head: deque[Request] = deque()
        self.turns: OrderedDict[str, deque[Request]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.head) + sum(len(line) for line in self.turns.values())

    def first(self, *, sessions: bool) -> Request | None:
        """The next that may go; without `sessions` none whose transcript has to be fetched."""
        for line in self._lines():
            for request in line:
                if self._goes(request) and (sessions or request.talk is None or request.carried):
                    return request
        return None

    def take(self, request: Request) -> None:
        """It goes; its identity has had its turn."""
        served = request not in self.head
        self.remove(request)
        if served and request.identity in self.turns:
            self.turns.move_to_end(request.identity)

    def _goes(self, request: Request) -> bool:
        return not request.passed_over and self._gives(request)

    def remove(self, request: Request) -> None:
        if request in self.head:
            self.head.remove(request)
            return
        line = self.turns[request.identity]
        line.remove(request)
        if not line:
            del self.turns[request.identity]

    def ahead_of(self, request: Request) -> int:
        """How many of this lane would be admitted before `request`; what is held only before what is held too."""
        held = not self._goes(request)
        head = [other for other in self.head if held or self._goes(other)]
        if request in self.head:
            return head.index(request)
        own = [other for other in self.turns[request.identity] if held or self._goes(other)]
        round_of = own.index(request)
        count = len(head) + round_of
        before = True
        for identity, line in self.turns.items():
            if identity == request.identity:
                before = False
            else:
                going = len(line) if held else sum(map(self._goes, line))
                count += min(going, round_of + before)
        return count

    def going(self, request: Request) -> int:
        """How many go before `request` of a lower priority."""
        if not self._goes(request):
            return len(self)
        return sum(self._goes(other) for line in self._lines() for other in line)

    def _lines(self) -> Iterator[deque[Request]]:
        yield self.head
        yield from self.turns.values()


def _everything(_: Request) -> bool:
    return True


class Queue:
    """All waiting requests. `gives`: whether one may go to the worker as things stand."""

    def __init__(self, gives: Callable[[Request], bool] = _everything) -> None:
        self._lanes: dict[Priority, _Lane] = {priority: _Lane(gives) for priority in PRIORITIES}
        self._share: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self._share.values())

    def lengths(self) -> dict[str, int]:
        return {priority: len(lane) for priority, lane in self._lanes.items()}

    def share(self, identity: str) -> int:
        return self._share.get(identity, 0)

    def refusal(self, identity: str, limits: Limits, retry_after_ms: int, share: int | None = None) -> WireError | None:
        """`busy` when the queue, or this caller's share of it, is full; else None. `share`: one of its own."""
        if len(self) >= limits.queue:
            message = f"the queue is full ({len(self)} of limits.queue {limits.queue} waiting)"
        elif share is not None and self.share(identity) >= share:
            message = f"your share of the queue is full (max_queued of your key is {share})"
        elif share is None and self.share(identity) >= limits.queue_per_identity:
            message = f"your share of the queue is full (limits.queue_per_identity is {limits.queue_per_identity})"
        else:
            return None
        return WireError(Code.BUSY, message, retry_after_ms)

    def push(self, request: Request) -> None:
        lane = self._lanes[request.body.priority]
        lane.turns.setdefault(request.identity, deque()).append(request)
        self._count(request.identity, 1)

    def push_head(self, request: Request) -> None:
        """Before all others of its priority."""
        self._lanes[request.body.priority].head.appendleft(request)
        self._count(request.identity, 1)

    def replace(self, old: Request, new: Request) -> None:
        """`new` takes the very place of `old` (same identity); with another priority it goes to the end of that."""
        if old.body.priority != new.body.priority:
            self.remove(old)
            self.push(new)
            return
        lane = self._lanes[old.body.priority]
        line = lane.head if old in lane.head else lane.turns[old.identity]
        line[line.index(old)] = new

    def first(self, *, sessions: bool = True) -> Request | None:
        """The next to be admitted, if there is one that may go; without `sessions`, none that has to be fetched."""
        firsts = (lane.first(sessions=sessions) for lane in self._lanes.values())
        return next((request for request in firsts if request is not None), None)

    def take(self, request: Request) -> None:
        """It was admitted."""
        self._lanes[request.body.priority].take(request)
        self._count(request.identity, -1)

    def remove(self, request: Request) -> None:
        self._lanes[request.body.priority].remove(request)
        self._count(request.identity, -1)

    def position(self, request: Request) -> int:
        """Requests that would be admitted before this one as things stand; 0 = next."""
        count = 0
        for priority, lane in self._lanes.items():
            if priority == request.body.priority:
                return count + lane.ahead_of(request)
            count += lane.going(request)
        raise AssertionError("a priority without a lane")

    def _count(self, identity: str, change: int) -> None:
        left = self._share.get(identity, 0) + change
        if left:
            self._share[identity] = left
        else:
            self._share.pop(identity, None)
