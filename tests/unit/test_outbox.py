"""Bytes for peers that do not read are bounded, and for those that do they are not."""

from __future__ import annotations

from edged.wire.outbox import _REMEMBERED, CONNECTION, IDENTITY, PASSED_S, Outbox

BIG = 1 << 20


class Kernel:
    def __init__(self) -> None:
        self.stuck: set[int] = set()
        self.asked = 0

    def keeps_up(self, fd: int) -> bool:
        self.asked += 1
        return fd not in self.stuck


def test_who_reads_gets_everything() -> None:
    kernel = Kernel()
    box = Outbox(kernel.keeps_up)
    box.heard(b"a", "uid:1", 7)
    assert all(box.takes(b"a", BIG, 2 * PASSED_S * n) for n in range(1000))


def test_who_does_not_gets_no_more_than_two_of_the_largest() -> None:
    kernel = Kernel()
    kernel.stuck = {7}
    box = Outbox(kernel.keeps_up)
    box.heard(b"a", "uid:1", 7)
    assert sum(box.takes(b"a", BIG, 1.0 * n) for n in range(100)) * BIG == CONNECTION
    assert not box.takes(b"a", 100, 100.0)
    kernel.stuck.clear()
    assert box.takes(b"a", BIG, 101.0)


def test_a_buffer_that_is_empty_because_nothing_was_passed_on_yet_proves_nothing() -> None:
    box = Outbox(Kernel().keeps_up)
    box.heard(b"a", "uid:1", 7)
    assert sum(box.takes(b"a", BIG, 1.0) for _ in range(100)) * BIG == CONNECTION
    assert not box.takes(b"a", BIG, 1.0 + PASSED_S / 2)
    box.takes(b"a", BIG, 1.0 + PASSED_S)
    assert box.takes(b"a", BIG, 1.0 + 2 * PASSED_S)


def test_many_connections_of_one_caller_share_a_bound_and_others_have_their_own() -> None:
    """Beyond it each gets one reply, for the large one that it may need; what that comes to is the guard's affair."""
    kernel = Kernel()
    kernel.stuck = set(range(100))
    box = Outbox(kernel.keeps_up)
    taken = [0] * 20
    for _ in range(10):
        for number in range(20):
            box.heard(b"%d" % number, "uid:1", number)
            taken[number] += box.takes(b"%d" % number, BIG // 2, 1.0)
    assert sum(taken) * BIG // 2 <= IDENTITY + 20 * BIG // 2
    assert min(taken) == 1
    box.heard(b"other", "uid:2", 1000)
    assert all(box.takes(b"other", BIG, 200.0 + n) for n in range(20))


def test_a_reply_larger_than_any_bound_is_sent_alone() -> None:
    box = Outbox(lambda _: False)
    box.heard(b"a", "uid:1", 7)
    assert box.takes(b"a", 3 * CONNECTION, 1.0)
    assert not box.takes(b"a", 1, 9.0)


def test_the_kernel_is_not_asked_for_small_replies() -> None:
    kernel = Kernel()
    box = Outbox(kernel.keeps_up)
    box.heard(b"a", "uid:1", 7)
    for _ in range(1000):
        box.takes(b"a", 1000, 1.0)
    assert not kernel.asked


def test_what_is_forgotten_is_given_back() -> None:
    box = Outbox(Kernel().keeps_up)
    for number in range(2 * _REMEMBERED):
        box.heard(b"%d" % number, "uid:1", number)
        assert box.takes(b"%d" % number, 10, 1.0)
        if number % 2:
            box.forget(b"%d" % number)
    assert len(box._boxes) <= _REMEMBERED
    assert box._of["uid:1"] == 10 * len(box._boxes)
    box.clear()
    assert box._of == {}


def test_a_connection_without_a_descriptor_is_not_counted() -> None:
    box = Outbox(Kernel().keeps_up)
    box.heard(b"a", "uid:1", None)
    assert all(box.takes(b"a", BIG, 1.0) for _ in range(100))
