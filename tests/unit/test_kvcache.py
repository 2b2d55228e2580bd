import pytest

from edged.worker.kvcache import KvCache


def test_cells_promised_are_not_free() -> None:
    kv = KvCache(100, 2)
    a = kv.assign(1, 60)
    assert (kv.free, kv.used, kv.busy, kv.spare_sequences) == (40, 0, 1, 1)
    kv.fill(a, 60)
    kv.grow(a, 40)
    assert (kv.free, kv.used, kv.reserved(a)) == (0, 60, 100)
    kv.release(a)
    assert (kv.free, kv.used, kv.busy) == (100, 0, 0)
    kv.check()


def test_no_cell_is_promised_twice() -> None:
    kv = KvCache(100, 2)
    kv.assign(1, 60)
    with pytest.raises(AssertionError):
        kv.assign(2, 41)


def test_no_token_goes_where_nothing_was_reserved() -> None:
    kv = KvCache(100, 2)
    a = kv.assign(1, 3)
    with pytest.raises(AssertionError):
        kv.fill(a, 4)


def test_sequences_differ_and_come_back() -> None:
    kv = KvCache(100, 3)
    seqs = [kv.assign(rid, 1) for rid in range(3)]
    assert sorted(seqs) == [0, 1, 2]
    kv.release(seqs[1])
    assert kv.assign(9, 1) == seqs[1]
    kv.check()
