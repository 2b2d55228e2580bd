"""The store of state files: tiers, budgets, damage, and what other users and crashes leave behind."""

import fcntl
import os
import threading
from dataclasses import replace

import pytest

from edged.worker import statedir, statefiles
from unit.state_rig import MIB, ORIGIN, Rig, found, loaded, settle

BIG = 400_000  # two fit into the RAM tier of 1 MiB


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def state(number, size=1000):
    return bytes([number]) * size


def test_a_state_is_found_again_by_the_next_worker(rig):
    first = rig.store()
    assert first.put([1, 2, 3], "a", state(1), session=True, public=2, floor=1)
    assert loaded(first, [1, 2, 3]) == state(1)
    second = rig.store()
    ((_, snapshot),) = second.entries()
    assert (snapshot.scope, snapshot.session, snapshot.public, snapshot.floor) == ("a", True, 2, 1)
    assert loaded(second, [1, 2, 3]) == state(1)
    assert second.counts.restored == 1


def test_files_and_directories_are_for_the_owner_alone(rig):
    rig.store().put([1], "a", state(1))
    (file,) = rig.files(rig.ram)
    assert [oct(path.stat().st_mode & 0o777) for path in (rig.ram, rig.disk, file)] == ["0o700", "0o700", "0o600"]


def test_an_open_directory_is_closed_to_others(rig):
    rig.ram.mkdir(mode=0o755)
    assert rig.store().warnings == []
    assert rig.ram.stat().st_mode & 0o777 == 0o700


# ---- replacing


def test_a_longer_state_replaces_what_it_extends(rig):
    store = rig.store()
    store.put([1, 2], "a", state(1))
    store.put([1, 2], "b", state(2))
    store.put([1, 3], "a", state(3))
    store.put([1, 2, 3], "a", state(4))
    assert sorted((s.scope, s.tokens.tolist()) for _, s in store.entries()) == [
        ("a", [1, 2, 3]),
        ("a", [1, 3]),
        ("b", [1, 2]),
    ]
    assert len(rig.files(rig.ram)) == 3
    assert store.counts.evicted == 0


def test_what_cannot_be_trimmed_that_far_replaces_nothing(rig):
    store = rig.store()
    store.put([1, 2], "a", state(1), floor=2)
    store.put([1, 2, 3], "a", state(2), floor=3)
    assert loaded(store, [1, 2]) == state(1)
    store.put([1, 2, 3, 4], "a", state(3), floor=3)  # a window reaches back to the third
    assert found(store, [1, 2, 3]) is None
    assert loaded(store, [1, 2]) == state(1)


def test_a_session_and_a_public_head_are_not_replaced_by_less(rig):
    store = rig.store()
    store.put([1, 2], "a", state(1), session=True)
    store.put([5, 6], "a", state(2), public=2)
    store.put([1, 2, 3], "a", state(3))
    store.put([5, 6, 7], "a", state(4))
    assert found(store, [1, 2])
    assert found(store, [5, 6])


def test_the_same_again_is_not_written_again(rig):
    store = rig.store()
    store.put([1, 2], "a", state(1))
    store.put([8], "a", state(8))
    before = rig.files(rig.ram)
    assert store.put([1, 2], "a", state(1))
    assert rig.files(rig.ram) == before


# ---- budgets and moving


def test_the_least_recently_used_leaves_the_ram(rig):
    store = rig.store(disk="off")
    store.put([1], "a", state(1, BIG))
    store.put([2], "a", state(2, BIG))
    assert loaded(store, [1])
    store.put([3], "a", state(3, BIG))
    assert [bool(found(store, [n])) for n in (1, 2, 3)] == [True, False, True]
    assert store.ram.bytes <= MIB
    assert len(rig.files(rig.ram)) == 2
    assert store.counts.evicted == 1
    assert not rig.disk.exists()


@pytest.mark.parametrize(
    ("disk", "session", "moved"), [("sessions", True, 1), ("sessions", False, 0), ("all", False, 1)]
)
def test_what_leaves_the_ram_moves_to_the_disk_if_it_may(rig, disk, session, moved):
    store = rig.store(disk=disk)
    for n in (1, 2, 3):
        store.put([n], "a", state(n, BIG), session=session)
    settle(store)
    assert (len(rig.files(rig.disk)), store.counts.written_files, store.counts.evicted) == (moved, moved, 1 - moved)
    assert loaded(store, [1]) == (state(1, BIG) if moved else None)
    assert len(rig.files(rig.ram)) == 2


class Gate:
    """Holds the disk's writes until it is opened."""

    def __init__(self, monkeypatch):
        self.open = threading.Event()
        write = statedir.StateDir.write

        def held(directory, *args, **more):
            if directory._durable:
                assert self.open.wait(30)
            return write(directory, *args, **more)

        monkeypatch.setattr(statedir.StateDir, "write", held)


def test_a_slow_disk_holds_nobody_and_takes_bounded_memory(rig, monkeypatch):
    gate = Gate(monkeypatch)
    store = rig.store(disk="all")
    for n in range(12):
        store.put([n], "a", state(n, BIG))
    assert loaded(store, [0]) == state(0, BIG)  # on its way, and still there
    assert sum(file.stat().st_size for file in rig.files(rig.ram)) <= 2 * MIB
    gate.open.set()
    settle(store)
    kept = [n for n in range(12) if loaded(store, [n]) == state(n, BIG)]
    assert kept == [0, 10, 11]  # half the budget was on its way: one; the others were dropped
    assert store.counts.evicted == 9
    assert len(rig.files(rig.ram)) == 2


def test_what_is_on_its_way_counts_in_the_budget_of_the_disk(rig, monkeypatch):
    gate = Gate(monkeypatch)
    store = rig.store(ram_bytes=8 * MIB, disk_bytes=2 * MIB)
    for n in range(7):
        store.put([n], "a", state(n, 3 * MIB // 2), session=True)
    gate.open.set()
    settle(store)
    assert len(rig.files(rig.disk)) == 1
    assert loaded(store, [0])
    assert found(store, [1]) is None


def test_what_is_replaced_on_its_way_arrives_and_goes_with_its_successor(rig, monkeypatch):
    gate = Gate(monkeypatch)
    store = rig.store()
    for n in (1, 2, 3):
        store.put([n], "a", state(n, BIG), session=True)
    store.put([1, 1], "a", state(7, 10), session=True)
    gate.open.set()
    settle(store)
    assert store.persist(rig.clock.now + 60).left == 0
    settle(store)
    assert sorted(s.tokens.tolist() for _, s in store.entries()) == [[1, 1], [2], [3]]
    assert len(rig.files(rig.disk)) == 3


def test_larger_than_the_ram_goes_straight_to_the_disk_or_nowhere(rig):
    store = rig.store()
    assert store.put([1], "a", state(1, 2 * MIB), session=True)
    assert not store.put([2], "a", state(2, 2 * MIB))
    assert not store.put([3], "a", state(3, 5 * MIB), session=True)
    settle(store)
    assert loaded(store, [1]) == state(1, 2 * MIB)
    assert rig.files(rig.ram) == []
    assert len(rig.files(rig.disk)) == 1


def test_without_ram_everything_goes_to_the_disk(rig):
    store = rig.store(ram_dir="", disk="all")
    store.put([1], "a", state(1))
    settle(store)
    assert loaded(store, [1]) == state(1)


def test_sessions_stay_on_the_disk_before_others(rig):
    store = rig.store(ram_dir="", disk="all")
    for n, session in ((1, True), (2, False), (3, True), (4, False)):
        store.put([n], "a", state(n, MIB), session=session)
        settle(store)
    assert [bool(found(store, [n])) for n in (1, 2, 3, 4)] == [True, False, True, True]
    assert not store.put([5], "a", state(5, 3 * MIB))  # would need a session to go
    assert store.put([6], "a", state(6, 2 * MIB), session=True)
    settle(store)
    assert [bool(found(store, [n])) for n in (1, 3, 4, 6)] == [False, True, False, True]
    assert sum(file.stat().st_size for file in rig.files(rig.disk)) <= 4 * MIB


def test_the_order_of_use_outlives_the_worker(rig):
    first = rig.store(ram_dir="", disk="all")
    for n in (1, 2, 3):
        first.put([n], "a", state(n, MIB))
        settle(first)
    for age, (_, path) in enumerate(sorted((p.stat().st_mtime_ns, p) for p in rig.files(rig.disk))):
        os.utime(path, (age, age))  # further apart than the file system's clock can tell
    assert loaded(first, [1])
    settle(first)
    second = rig.store(ram_dir="", disk="all")
    second.put([4], "a", state(4, MIB))
    settle(second)
    assert [bool(found(second, [n])) for n in (1, 2, 3, 4)] == [True, False, True, True]


def test_use_is_noted_on_the_disk_once_a_minute(rig):
    store = rig.store(ram_dir="", disk="all")
    store.put([1], "a", state(1))
    settle(store)
    (file,) = rig.files(rig.disk)

    def noted():
        os.utime(file, (5, 5))
        assert loaded(store, [1])
        settle(store)
        return file.stat().st_mtime != 5

    assert [noted(), noted()] == [True, False]
    rig.clock.now += statefiles.TOUCH_S
    assert noted()


def test_a_smaller_budget_holds_from_the_start(rig):
    first = rig.store()
    for n in (1, 2):
        first.put([n], "a", state(n, BIG))
    second = rig.store(ram_bytes=BIG * 3 // 2)
    assert len(list(second.entries())) == len(rig.files(rig.ram)) == 1


# ---- stopping


def test_stopping_moves_what_may_go_with_its_order_of_use(rig):
    store = rig.store()
    for n, session in ((1, True), (2, False), (3, True)):
        store.put([n], "a", state(n), session=session)
    for age, file in enumerate(sorted(rig.files(rig.ram), key=lambda file: file.stat().st_mtime_ns)):
        os.utime(file, (age, age))
    result = store.persist(rig.clock.now + 5)
    assert (result.files, result.left) == (2, 0)
    assert result.bytes == sum(file.stat().st_size for file in rig.files(rig.disk))
    assert sorted(file.stat().st_mtime for file in rig.files(rig.disk)) == [0, 2]
    store.close(remove_ram=True)
    assert rig.files(rig.ram) == []
    assert [bool(found(rig.store(), [n])) for n in (1, 2, 3)] == [True, False, True]


def test_stopping_late_leaves_everything_in_ram(rig):
    store = rig.store()
    store.put([1], "a", state(1), session=True)
    store.put([2], "a", state(2))
    result = store.persist(rig.clock.now)
    assert (result.files, result.bytes, result.left) == (0, 0, 1)
    assert loaded(store, [1]) == state(1)


def test_a_deadline_in_the_middle_of_a_file_leaves_nothing_half_written(rig, monkeypatch):
    store = rig.store(ram_bytes=8 * MIB, disk_bytes=8 * MIB)
    for n in (1, 2):
        store.put([n], "a", state(n, 3 * MIB), session=True)
    pieces = statedir.StateDir.pieces

    def passing(directory, name):
        for piece in pieces(directory, name):
            rig.clock.now += 1
            yield piece

    monkeypatch.setattr(statedir.StateDir, "pieces", passing)
    result = store.persist(rig.clock.now + 6)  # four pieces a file
    settle(store)
    assert (result.files, result.left) == (1, 1)
    assert len(os.listdir(rig.disk)) == 1
    assert [loaded(store, [n]) == state(n, 3 * MIB) for n in (1, 2)] == [True, True]
    assert found(rig.store(ram_dir=""), [2]), "the most recently used goes first"


# ---- damage


def damage_head(data):
    data[70] ^= 1


def damage_state(data):
    data[-500] ^= 0x80


def damage_checksum(data):
    data[-1] ^= 1


def cut(data):
    del data[-100:]


def empty(data):
    data.clear()


def grow(data):
    data += b"x"


DAMAGES = [damage_head, damage_state, damage_checksum, cut, empty, grow]


def spoil(file, damage):
    data = bytearray(file.read_bytes())
    damage(data)
    file.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("tier", ["ram", "disk"])
def test_a_damaged_file_is_a_miss_and_is_set_aside(rig, damage, tier):
    store = rig.store()
    store.put([1, 2], "a", state(1), session=True)
    if tier == "disk":
        store.persist(rig.clock.now + 5)
    (file,) = rig.files(getattr(rig, tier))
    spoil(file, damage)
    assert loaded(store, [1, 2]) is None
    settle(store)
    assert list(store.entries()) == []
    assert store.set_aside == 1
    assert not file.exists()
    assert [path.name for path in (file.parent / "bad").iterdir()] == [file.name]


@pytest.mark.parametrize("damage", [damage_head, cut, empty, grow])
def test_a_damaged_head_is_set_aside_at_the_start(rig, damage):
    rig.store().put([1, 2], "a", state(1))
    (file,) = rig.files(rig.ram)
    spoil(file, damage)
    store = rig.store()
    assert list(store.entries()) == []
    assert store.set_aside == 1
    assert not file.exists()


def test_a_sound_file_in_the_place_of_another_is_a_miss(rig):
    store = rig.store()
    store.put([1], "a", state(1))
    (file,) = rig.files(rig.ram)
    store.put([1], "b", state(2))
    (other,) = set(rig.files(rig.ram)) - {file}
    os.replace(other, file)
    assert loaded(store, [1]) is None
    assert [key for key, _ in store.entries()] == [other.name]


def test_few_damaged_files_are_kept(rig):
    store = rig.store(ram_bytes=400_000)
    for n in range(8):
        store.put([n], "a", state(n, 20_000), session=True)
    for file in rig.files(rig.ram):
        spoil(file, damage_state)
    for n in range(8):
        assert loaded(store, [n]) is None
    assert store.set_aside == 8
    assert len(list((rig.ram / "bad").iterdir())) == statedir.KEPT


def test_a_large_damaged_file_is_not_kept(rig):
    store = rig.store()
    store.put([1], "a", state(1, BIG))
    spoil(rig.files(rig.ram)[0], damage_state)
    assert loaded(store, [1]) is None
    assert list((rig.ram / "bad").iterdir()) == []


@pytest.mark.parametrize("other", [{"model": "x"}, {"context": "x"}, {"build": "x"}])
def test_a_foreign_file_stays_unseen_until_the_room_is_needed(rig, other):
    rig.store(replace(ORIGIN, **other)).put([1], "a", state(1, BIG))
    store = rig.store()
    assert list(store.entries()) == []
    assert store.ram.bytes > BIG
    assert loaded(rig.store(replace(ORIGIN, **other)), [1]) == state(1, BIG)
    store.put([2], "a", state(2, BIG))
    store.put([3], "a", state(3, BIG))
    assert loaded(store, [2])
    assert loaded(store, [3])
    assert len(rig.files(rig.ram)) == 2
    assert store.set_aside == 0


# ---- the world around


def test_a_vanished_file_is_a_miss(rig):
    store = rig.store()
    store.put([1], "a", state(1))
    rig.files(rig.ram)[0].unlink()
    assert loaded(store, [1]) is None
    assert (list(store.entries()), store.counts.failed, store.set_aside) == ([], 1, 0)


def test_a_vanished_directory_is_made_again(rig):
    store = rig.store()
    rig.ram.rmdir()
    assert store.put([1], "a", state(1))
    assert loaded(store, [1]) == state(1)


def test_a_full_or_failing_medium_keeps_nothing_and_raises_nothing(rig, monkeypatch):
    store = rig.store()

    def full(_fd, _data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(statedir.os, "write", full)
        assert not store.put([1], "a", state(1), session=True)
    assert os.listdir(rig.ram) == []
    store.put([1], "a", state(1), session=True)
    with monkeypatch.context() as patch:
        patch.setattr(statedir.os, "write", full)
        assert store.persist(rig.clock.now + 5).files == 0
        settle(store)
    assert os.listdir(rig.disk) == []
    assert loaded(store, [1]) == state(1)

    def broken(*_args, **_more):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(statedir.os, "readv", broken)
        assert loaded(store, [1]) is None


def test_an_errand_that_fails_in_an_unforeseen_way_holds_nobody(rig, monkeypatch):
    store = rig.store()
    store.put([1], "a", state(1), session=True)
    monkeypatch.setattr(statedir.StateDir, "pieces", lambda *_: 1 / 0)
    assert store.persist(rig.clock.now + 5).files == 0
    assert loaded(store, [1]) == state(1)


def test_leftovers_of_a_crash_go_and_what_is_being_written_stays(rig):
    rig.store()
    (rig.ram / "0123.kv.partial").write_bytes(b"left over")
    writing = rig.ram / "4567.kv.partial"
    with writing.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rig.store()
        assert os.listdir(rig.ram) == [writing.name]


def test_a_move_cut_off_at_its_end_is_one_entry(rig):
    rig.store().put([1], "a", state(1), session=True)
    (file,) = rig.files(rig.ram)
    (rig.disk / file.name).write_bytes(file.read_bytes())
    store = rig.store()
    assert len(list(store.entries())) == 1
    assert rig.files(rig.ram) == []


def test_other_things_in_the_directory_are_left_alone(rig):
    rig.ram.mkdir(mode=0o700)
    os.mkfifo(rig.ram / "pipe.kv")
    (rig.ram / "link.kv").symlink_to("/etc/passwd")
    (rig.ram / "notes.txt").write_text("mine")
    assert list(rig.store().entries()) == []
    assert sorted(os.listdir(rig.ram)) == ["link.kv", "notes.txt", "pipe.kv"]


def test_a_link_in_place_of_the_directory_is_refused(rig, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    rig.ram.symlink_to(tmp_path / "elsewhere")
    store = rig.store(disk="off")
    assert "link" in store.warnings[0]
    assert not store.put([1], "a", state(1))
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_directory_of_another_user_is_refused(rig, monkeypatch):
    rig.ram.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    store = rig.store(disk="off")
    assert "belongs to user" in store.warnings[0]
    assert not store.put([1], "a", state(1))


def test_a_directory_in_one_that_another_user_planted_is_refused(rig, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    planted = shared / "edged"
    planted.mkdir()
    real = os.lstat

    def lstat(path, **more):
        status = real(path, **more)
        return os.stat_result((*status[:4], 12345, *status[5:10])) if str(path) == str(planted) else status

    monkeypatch.setattr(os, "lstat", lstat)
    store = rig.store(ram_dir=str(planted / "ram"), disk="off")
    assert "another user" in store.warnings[0]


def test_a_file_in_place_of_the_directory_is_refused(rig):
    rig.ram.write_text("")
    assert rig.store().warnings


def test_two_workers_at_once_do_not_harm_each_other(rig):
    old = rig.store()
    old.put([1], "a", state(1))
    new = rig.store()
    old.put([2], "a", state(2))
    new.put([2], "a", state(3))
    old.close(remove_ram=True)
    assert loaded(new, [1]) is None
    assert loaded(new, [2]) == state(3)
