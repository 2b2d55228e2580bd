"""Bytes for peers that do not read are bounded, and for those that do they are not."""

from __future__ import annotations

from edged.wire.outbox import _REMEMBERED, CONNECTION, IDENTITY, Outbox

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
    assert all(box.takes(b"a", BIG) for _ in range(1000))


def test_who_does_not_gets_no_more_than_two_of_the_largest() -> None:
    kernel = Kernel()
    kernel.stuck = {7}
    box = Outbox(kernel.keeps_up)
    box.heard(b"a", "uid:1", 7)
    assert sum(box.takes(b"a", BIG) for _ in range(100)) * BIG == CONNECTION
    assert not box.takes(b"a", 100)
    kernel.stuck.clear()
    assert box.takes(b"a", BIG)


def test_many_connections_of_one_caller_share_a_bound_and_others_have_their_own() -> None:
    kernel = Kernel()
    kernel.stuck = set(range(100))
    box = Outbox(kernel.keeps_up)
    taken = 0
    for number in range(100):
        box.heard(b"%d" % number, "uid:1", number)
        taken += box.takes(b"%d" % number, BIG)
    assert taken * BIG == IDENTITY
    box.heard(b"other", "uid:2", 1000)
    assert box.takes(b"other", BIG)


def test_a_reply_larger_than_any_bound_is_sent_alone() -> None:
    box = Outbox(lambda _: False)
    box.heard(b"a", "uid:1", 7)
    assert box.takes(b"a", 3 * CONNECTION)
    assert not box.takes(b"a", 1)


def test_the_kernel_is_not_asked_for_small_replies() -> None:
    kernel = Kernel()
    box = Outbox(kernel.keeps_up)
    box.heard(b"a", "uid:1", 7)
    for _ in range(1000):
        box.takes(b"a", 1000)
    assert not kernel.asked


def test_what_is_forgotten_is_given_back() -> None:
    box = Outbox(Kernel().keeps_up)
    for number in range(2 * _REMEMBERED):
        box.heard(b"%d" % number, "uid:1", number)
        box.takes(b"%d" % number, 10)
        if number % 2:
            box.forget(b"%d" % number)
    assert len(box._boxes) <= _REMEMBERED
    assert box._of["uid:1"] == 10 * len(box._boxes)
    box.clear()
    assert box._of == {}


def test_a_connection_without_a_descriptor_is_not_counted() -> None:
    box = Outbox(Kernel().keeps_up)
    box.heard(b"a", "uid:1", None)
    assert all(box.takes(b"a", BIG) for _ in range(100))
