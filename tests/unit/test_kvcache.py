import pytest

from edged.worker.kvcache import KvCache, Resident


def busy(owner: int, reserved: int, tokens: int = 0) -> Resident:
    return Resident(list(range(tokens)), [], owner=owner, reserved=reserved)


def test_cells_promised_are_not_free() -> None:
    kv = KvCache(100, 2, 2)
    a = kv.assign(busy(1, 60))
    assert (kv.free, kv.held, kv.busy, kv.spare_slots) == (40, 0, 1, 1)
    kv.fill(a, [7] * 60)
    kv.grow(a, 40)
    assert (kv.free, kv.held, kv[a].reserved) == (0, 60, 100)
    kv.release(a)
    assert (kv.free, kv.held, kv.busy, kv.occupied) == (100, 0, 0, 0)
    kv.check()


def test_no_cell_is_promised_twice() -> None:
    kv = KvCache(100, 2, 2)
    kv.assign(busy(1, 60))
    with pytest.raises(AssertionError):
        kv.assign(busy(2, 41))


def test_no_token_goes_where_nothing_was_reserved() -> None:
    kv = KvCache(100, 2, 2)
    a = kv.assign(busy(1, 3))
    with pytest.raises(AssertionError):
        kv.fill(a, [7] * 4)


def test_sequences_differ_and_come_back() -> None:
    kv = KvCache(100, 3, 3)
    seqs = [kv.assign(busy(rid, 1)) for rid in range(3)]
    assert sorted(seqs) == [0, 1, 2]
    kv.release(seqs[1])
    assert kv.assign(busy(9, 1)) == seqs[1]
    kv.check()


def test_idle_cells_count_as_free_and_shared_ones_once() -> None:
    kv = KvCache(100, 2, 4)
    a = kv.assign(busy(1, 60))
    kv.fill(a, list(range(60)))
    b = kv.copy(a, busy(2, 70, 40))
    assert (kv.held, kv.occupied, kv.free) == (60, 60, 10), "40 shared, 30 promised"
    kv.fill(b, [1] * 30)
    kv.rest(a)
    assert (kv.held, kv.occupied, kv.free) == (70, 90, 30), "20 of the idle one's cells may go"
    kv.evict(a)
    assert (kv.held, kv.occupied, kv.free) == (70, 70, 30)
    kv.check()


def test_what_is_promised_may_need_an_eviction() -> None:
    kv = KvCache(100, 2, 4)
    a = kv.assign(busy(1, 80))
    kv.fill(a, list(range(80)))
    kv.rest(a)
    kv.assign(busy(2, 30))
    assert kv.short
    kv.evict(kv.idle()[0])
    assert not kv.short


def test_a_sequence_that_is_taken_over_loses_its_tail() -> None:
    kv = KvCache(100, 1, 2)
    a = kv.assign(busy(1, 50))
    kv.fill(a, list(range(50)))
    kv.rest(a)
    kv.take_over(a, busy(2, 40, 30))
    assert (kv[a].owner, kv[a].used, kv.occupied, kv.free) == (2, 30, 30, 60)
    kv.check()


def test_the_least_recently_used_goes_first() -> None:
    kv = KvCache(100, 3, 4)
    a, b, c = (kv.assign(busy(rid, 9)) for rid in range(3))
    for seq in (a, b, c):
        kv.fill(seq, [1, 2, 3])
    for seq in (b, a, c):
        kv.rest(seq)
    assert kv.idle() == [b, a, c]
    kv.copy(b, busy(7, 9, 2))
    assert kv.idle() == [a, c, b]
