"""The order of admission, the shares, and `position`, which must foretell the order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edged.broker.admission import Queue
from edged.broker.table import Request
from edged.config import Limits
from edged.errors import Code
from edged.messages import PRIORITIES, Priority
from unit.rig import A, B, C, popped, request


def filled(*requests: Request) -> Queue:
    queue = Queue()
    for one in requests:
        queue.push(one)
    return queue


def drained(queue: Queue) -> list[int]:
    return [popped(queue).rid for _ in range(len(queue))]


def test_fifo_within_an_identity() -> None:
    assert drained(filled(*(request(n) for n in range(5)))) == [0, 1, 2, 3, 4]


def test_priority_goes_first() -> None:
    queue = filled(request(1, A, "low"), request(2, A, "normal"), request(3, A, "high"), request(4, B, "high"))
    assert drained(queue) == [3, 4, 2, 1]


def test_round_robin_over_identities() -> None:
    queue = filled(*(request(n, A) for n in (1, 2, 3)), request(4, B), request(5, B), request(6, C))
    assert drained(queue) == [1, 4, 6, 2, 5, 3]


def test_who_was_served_waits_for_its_turn() -> None:
    queue = filled(request(1, A), request(2, B), request(3, C))
    assert popped(queue).rid == 1
    queue.push(request(4, A))
    assert drained(queue) == [2, 3, 4]


def test_a_newcomer_is_not_behind_a_long_line() -> None:
    queue = filled(*(request(n, A) for n in range(50)))
    late = request(99, B)
    queue.push(late)
    assert queue.position(late) == 1


def test_the_head_goes_before_its_priority_only() -> None:
    queue = filled(request(1, A, "high"), request(2, A))
    queue.push_head(request(3, B))
    assert drained(queue) == [1, 3, 2]


def test_the_last_pushed_to_the_head_is_first() -> None:
    queue = filled(request(1))
    queue.push_head(request(2))
    queue.push_head(request(3))
    assert drained(queue) == [3, 2, 1]


def test_the_head_takes_no_turn() -> None:
    queue = filled(request(1, A), request(2, B))
    queue.push_head(request(3, A))
    assert drained(queue) == [3, 1, 2]


def test_an_empty_queue_has_nothing() -> None:
    assert Queue().first() is None


def test_the_queue_is_bounded() -> None:
    limits = Limits(queue=3, queue_per_identity=3)
    queue = filled(request(1, A), request(2, B))
    assert queue.refusal(C, limits, 100) is None
    queue.push(request(3, A))
    error = queue.refusal(C, limits, 1200)
    assert error is not None
    assert (error.code, error.retryable, error.retry_after_ms) == (Code.BUSY, True, 1200)
    assert "limits.queue" in error.message
    assert "3" in error.message


def test_a_share_is_bounded() -> None:
    limits = Limits(queue=10, queue_per_identity=2)
    queue = filled(request(1, A, "high"), request(2, A, "low"))
    error = queue.refusal(A, limits, 100)
    assert error is not None
    assert error.code == Code.BUSY
    assert "queue_per_identity" in error.message
    assert queue.refusal(B, limits, 100) is None


def test_a_share_counts_what_waits() -> None:
    limits = Limits(queue_per_identity=1)
    queue = filled(request(1, A))
    assert queue.refusal(A, limits, 100)
    popped(queue)
    assert queue.refusal(A, limits, 100) is None


def test_replace_takes_the_very_place() -> None:
    old = request(2, A)
    queue = filled(request(1, A), old, request(3, B), request(4, A))
    place = queue.position(old)
    new = request(9, A)
    queue.replace(old, new)
    assert queue.position(new) == place
    assert drained(queue) == [1, 3, 9, 4]


def test_replace_takes_the_place_at_the_head() -> None:
    old = request(2, A)
    queue = filled(request(1, A))
    queue.push_head(old)
    queue.replace(old, request(9, A))
    assert drained(queue) == [9, 1]


def test_replace_with_another_priority_keeps_the_share() -> None:
    old = request(1, A, "high")
    queue = filled(old, request(2, B), request(3, A))
    queue.replace(old, request(9, A, "normal"))
    assert (len(queue), queue.share(A)) == (3, 2)
    assert drained(queue) == [2, 3, 9]


def test_removal_leaves_the_others_in_order() -> None:
    one = request(2, A)
    queue = filled(request(1, A), one, request(3, A), request(4, B))
    queue.remove(one)
    assert drained(queue) == [1, 4, 3]


def test_lengths_by_priority() -> None:
    queue = filled(request(1, A, "high"), request(2, A), request(3, B))
    queue.push_head(request(4, A, "low"))
    assert queue.lengths() == {"high": 1, "normal": 2, "low": 1}


@given(st.lists(st.sampled_from([A, B, C, "uid:4"]), max_size=40))
def test_nobody_waits_longer_than_his_round(identities: list[str]) -> None:
    """An n-th request of one waits for at most n of each other."""
    queue = filled(*(request(n, who) for n, who in enumerate(identities)))
    nth: dict[str, int] = {}
    served: dict[str, int] = {}
    for _ in range(len(queue)):
        who = popped(queue).identity
        nth[who] = nth.get(who, 0) + 1
        for other, count in served.items():
            if other != who:
                assert count <= nth[who]
        served[who] = nth[who]


def test_what_the_level_holds_back_is_passed_over_and_counts_after_the_others() -> None:
    held_back: set[int] = set()
    queue = Queue(lambda one: one.rid not in held_back)
    one, two, three = request(1, A), request(2, A), request(3, B)
    for waiting in (one, two, three):
        queue.push(waiting)
    held_back.add(1)
    assert [queue.position(r) for r in (two, three)] == [0, 1]
    assert queue.position(one) == 0, "its place; who is held has no better figure"
    assert [popped(queue), popped(queue), popped(queue)] == [two, three, None]
    held_back.clear()
    assert popped(queue) is one


class QueueMachine(RuleBasedStateMachine):
    """A plain model beside it: what waits, and the order foretold by `position` is the order of `pop`."""

    @initialize()
    def begin(self) -> None:
        self.queue = Queue()
        self.waiting: list[Request] = []
        self.rid = 0

    def fresh(self, identity: str, priority: Priority) -> Request:
        self.rid += 1
        return request(self.rid, identity, priority)

    @rule(identity=st.sampled_from([A, B, C]), priority=st.sampled_from(PRIORITIES), head=st.booleans())
    def push(self, identity: str, priority: Priority, head: bool) -> None:
        one = self.fresh(identity, priority)
        self.waiting.append(one)
        (self.queue.push_head if head else self.queue.push)(one)
        if head:
            before = [r for r in self.waiting if PRIORITIES.index(r.body.priority) < PRIORITIES.index(priority)]
            assert self.queue.position(one) == len(before)

    @precondition(lambda self: self.waiting)
    @rule()
    def pop(self) -> None:
        places = {r.rid: self.queue.position(r) for r in self.waiting}
        one = popped(self.queue)
        assert places.pop(one.rid) == 0
        self.waiting.remove(one)
        for r in self.waiting:
            assert self.queue.position(r) == places[r.rid] - 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.waiting))
        order = self.order()
        self.queue.remove(one)
        self.waiting.remove(one)
        if len({r.identity for r in self.waiting} | {one.identity}) == 1:
            assert self.order() == [rid for rid in order if rid != one.rid]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), priority=st.sampled_from(PRIORITIES))
    def replace(self, data: st.DataObject, priority: Priority) -> None:
        old = data.draw(st.sampled_from(self.waiting))
        new = self.fresh(old.identity, priority)
        order = self.order()
        self.queue.replace(old, new)
        self.waiting[self.waiting.index(old)] = new
        if priority == old.body.priority:
            assert self.order() == [new.rid if rid == old.rid else rid for rid in order]

    def order(self) -> list[int]:
        return [r.rid for r in sorted(self.waiting, key=self.queue.position)]

    @invariant()
    def positions_are_a_permutation(self) -> None:
        assert sorted(map(self.queue.position, self.waiting)) == list(range(len(self.waiting)))

    @invariant()
    def shares_are_consistent(self) -> None:
        assert len(self.queue) == len(self.waiting) == sum(self.queue.lengths().values())
        for identity in (A, B, C):
            assert self.queue.share(identity) == sum(r.identity == identity for r in self.waiting)

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            foretold = self.order()
            assert drained(self.queue) == foretold
            assert not self.queue._share


QueueMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
