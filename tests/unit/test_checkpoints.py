"""Checkpoints: the format under damage, the directory, when pieces are due, and the pauses of `Pace`."""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.messages import CheckpointSettings
from edged.worker import checkformat
from edged.worker.checkdir import CheckDir, is_name
from edged.worker.checkpoints import PENDING, Checkpoints, Kept, Recalled
from edged.worker.copying import HOLD_S, LEAST, MOST, SHARE, Copying
from edged.worker.pacing import LEAST_DUTY, Pacer
from edged.worker.pacing import MOST as LONGEST
from edged.worker.stateformat import Origin

ORIGIN = Origin("model", "context", "build")
PROMPT = list(range(40))
IDS = list(range(100, 160))
KNOWN = PROMPT + IDS
ENDS = (0, 32, 40, 72, 100)


def state(start: int, stop: int) -> bytes:
    return bytes(n % 251 for n in range(7 * start, 7 * stop))


def whole_file(known: list[int] = KNOWN) -> bytes:
    head, key = checkformat.head(ORIGIN, PROMPT, whole=False)
    parts = [head]
    for start, stop in pairwise(ENDS):
        parts += checkformat.record(key, start, known[start:stop], state(start, stop))
    return b"".join(map(bytes, parts))


FILE = whole_file()


def read(data: bytes, known: list[int] = KNOWN, origin: Origin = ORIGIN, *, whole: bool = False):
    return checkformat.read(memoryview(data), origin, PROMPT, known, whole=whole)


def ends(data: bytes, known: list[int] = KNOWN) -> list[int]:
    found = read(data, known)
    return [] if found is None else [piece.same for piece in found.pieces]


# ---- the format


def test_pieces_come_back_as_they_were() -> None:
    found = read(FILE)
    assert found is not None
    assert [(p.start, p.stop, p.same) for p in found.pieces] == [(a, b, b) for a, b in pairwise(ENDS)]
    assert all(bytes(p.state) == state(p.start, p.stop) for p in found.pieces)
    assert found.pieces[-1].end == len(FILE)


def test_a_piece_counts_as_far_as_it_is_known() -> None:
    assert ends(FILE, KNOWN[:90]) == [32, 40, 72, 90]
    assert ends(FILE, KNOWN[:72]) == [32, 40, 72]
    assert ends(FILE, KNOWN[:41]) == [32, 40, 41]
    assert ends(FILE, [*KNOWN[:50], 7, *KNOWN[51:]]) == [32, 40, 50], "another token: what follows is of no use"
    assert ends(FILE, [*KNOWN[:40], 7, *KNOWN[41:]]) == [32, 40]


@pytest.mark.parametrize("origin", [Origin("m", "context", "build"), Origin("model", "c", "build"), Origin("", "", "")])
def test_another_models_file_is_of_no_use(origin: Origin) -> None:
    assert read(FILE, origin=origin) is None


def test_another_prompts_or_anothers_kind_of_file_is_of_no_use() -> None:
    assert checkformat.read(memoryview(FILE), ORIGIN, PROMPT[1:], KNOWN[1:], whole=False) is None
    assert read(FILE, whole=True) is None


def test_a_record_of_another_file_does_not_fit_in() -> None:
    _, key = checkformat.head(ORIGIN, [*PROMPT, 1], whole=False)
    foreign = b"".join(map(bytes, checkformat.record(key, 0, KNOWN[:32], state(0, 32))))
    head, _ = checkformat.head(ORIGIN, PROMPT, whole=False)
    assert ends(head + foreign) == []


@settings(max_examples=150)
@given(st.integers(0, len(FILE) - 1), st.integers(0, 7))
def test_no_flipped_bit_is_taken_for_a_state(at: int, bit: int) -> None:
    data = bytearray(FILE)
    data[at] ^= 1 << bit
    found = read(bytes(data))
    pieces = found.pieces if found else ()
    assert all(bytes(p.state) == state(p.start, p.stop) for p in pieces)
    assert all(p.end <= at for p in pieces), "what stands before the damage, and nothing behind it"


@settings(max_examples=60)
@given(st.integers(0, len(FILE)), st.binary(max_size=64))
def test_a_torn_tail_costs_its_own_piece_only(length: int, tail: bytes) -> None:
    intact = [p.same for p in read(FILE).pieces if p.end <= length]
    assert ends(FILE[:length])[: len(intact)] == intact
    assert ends(FILE[:length] + tail)[: len(intact)] == intact


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_noise_is_nothing(data: bytes) -> None:
    assert read(data) is None
    assert ends(FILE[: len(checkformat.head(ORIGIN, PROMPT, whole=False)[0])] + data) == []


# ---- the directory


def filled(path: Path, name: str = "a", upto: int = 100) -> CheckDir:
    files = CheckDir(str(path), ORIGIN, whole=False)
    for start, stop in pairwise(ENDS):
        if stop <= upto:
            assert files.append(name, PROMPT, start, KNOWN[start:stop], state(start, stop))[0] == stop
    return files


def test_a_second_worker_goes_on_where_the_first_was(tmp_path: Path) -> None:
    filled(tmp_path, upto=72)
    with (tmp_path / "a.ck").open("ab") as file:
        file.write(b"torn")
    second = CheckDir(str(tmp_path), ORIGIN, whole=False)
    assert [p.stop for p in second.recall("a", PROMPT, KNOWN)] == [32, 40, 72]
    assert second.append("a", PROMPT, 72, KNOWN[72:100], state(72, 100))[0] == 100
    assert (tmp_path / "a.ck").read_bytes() == FILE


def test_what_goes_beyond_what_is_known_is_written_over(tmp_path: Path) -> None:
    filled(tmp_path)
    second = CheckDir(str(tmp_path), ORIGIN, whole=False)
    other = [*KNOWN[:80], *range(500, 520)]
    assert [p.same for p in second.recall("a", PROMPT, other[:81])] == [32, 40, 72, 80]
    assert second.append("a", PROMPT, 72, other[72:100], state(72, 100))[0] == 100
    assert (tmp_path / "a.ck").read_bytes() == whole_file(other)


def test_a_gap_is_not_written(tmp_path: Path) -> None:
    files = filled(tmp_path, upto=40)
    assert files.append("a", PROMPT, 72, KNOWN[72:100], b"x")[0] == 40
    assert files.append("b", PROMPT, 72, KNOWN[72:100], b"x") == (0, 0)
    assert sorted(os.listdir(tmp_path)) == ["a.ck"]


def test_files_are_ours_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(FILE)
    (tmp_path / "a.ck").symlink_to(target)
    files = CheckDir(str(tmp_path), ORIGIN, whole=False)
    assert files.recall("a", PROMPT, KNOWN) == ()
    filled(tmp_path)
    assert target.read_bytes() == FILE
    assert (tmp_path / "a.ck").stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_emptied_or_gone_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "ck"
    files = filled(path, upto=72)
    (path / "a.ck").unlink()
    path.rmdir()
    assert files.append("a", PROMPT, 72, KNOWN[72:100], b"x") == (0, 0)
    assert files.append("a", PROMPT, 0, KNOWN[:32], state(0, 32))[0] == 32


def test_a_file_system_that_is_full_costs_the_piece_only(tmp_path: Path) -> None:
    files = filled(tmp_path, upto=40)
    size = (tmp_path / "a.ck").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
    try:
        assert files.append("a", PROMPT, 40, KNOWN[40:72], state(40, 72)) == (40, size)
        assert files.append("b", PROMPT, 0, KNOWN[:32], bytes(1000))[0] == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.stop for p in filled(tmp_path, "c", upto=32).recall("a", PROMPT, KNOWN)] == [32, 40], "torn, but of use"
    assert files.append("a", PROMPT, 40, KNOWN[40:72], state(40, 72))[0] == 72
    assert (tmp_path / "a.ck").read_bytes() == FILE[: (tmp_path / "a.ck").stat().st_size]


def test_a_bad_head_goes(tmp_path: Path) -> None:
    (tmp_path / "a.ck").write_bytes(b"edgedKV\n" + FILE)
    assert CheckDir(str(tmp_path), ORIGIN, whole=False).recall("a", PROMPT, KNOWN) == ()
    assert os.listdir(tmp_path) == []


def test_a_whole_state_replaces_the_one_before(tmp_path: Path) -> None:
    files = CheckDir(str(tmp_path), ORIGIN, whole=True)
    for stop in (40, 72):
        assert files.replace("a", PROMPT, KNOWN[:stop], state(0, stop))[0] == stop
    (piece,) = CheckDir(str(tmp_path), ORIGIN, whole=True).recall("a", PROMPT, KNOWN)
    assert (piece.start, piece.same, bytes(piece.state)) == (0, 72, state(0, 72))
    assert os.listdir(tmp_path) == ["a.ck"]


@pytest.mark.parametrize("name", ["", "a/b", "/etc/x", "a\n", "ä", "x" * 65, "a b"])
def test_a_name_is_never_a_path(name: str) -> None:
    assert not is_name(name)


# ---- the thread


@pytest.fixture
def wake():
    fd = os.eventfd(0)
    yield fd
    os.close(fd)


def thread(path: Path, wake: int, size: int, *live: str) -> Checkpoints:
    return Checkpoints(
        CheckpointSettings(str(path), size, list(live)), ORIGIN, os.sched_getaffinity(0), wake, whole=False
    )


def test_the_budget_is_for_all_files(tmp_path: Path, wake: int) -> None:
    filled(tmp_path, "left")
    filled(tmp_path, "over")
    files = thread(tmp_path, wake, 20_000, "left")
    assert os.listdir(tmp_path) == ["left.ck"]
    assert files.room(14_000)
    assert not files.room(16_000)
    files.put("a", PROMPT, 0, KNOWN[:32], bytearray(12_000))
    assert not files.room(4_000)
    assert files.take(10) == [Kept("a", 32, 32, (tmp_path / "a.ck").stat().st_size, 12_000)]
    assert not files.room(4_000)
    files.remove("left")
    assert files.room(3_000)
    files.recall(7, "a", PROMPT, KNOWN)
    (recalled,) = files.take(10)
    assert isinstance(recalled, Recalled)
    assert [p.stop for p in recalled.pieces] == [32]
    files.clear()
    files.close(remove=True, timeout=10)
    assert not tmp_path.exists()


def test_states_do_not_pile_up(tmp_path: Path, wake: int) -> None:
    files = thread(tmp_path, wake, 1 << 30)
    assert files.room(PENDING + 1), "one, however large"
    files.put("a", PROMPT, 0, KNOWN[:32], bytearray(PENDING))
    assert not files.room(1)
    files.take(10)
    assert files.room(1)
    files.close(remove=True, timeout=10)


# ---- when


def test_due_are_new_tokens_after_a_pause() -> None:
    copying = Copying(32, whole=False)
    copying.begin(1)
    assert copying.due([(1, 5, 31)], 0.0) is None
    due = copying.due([(1, 5, LEAST)], 0.0)
    assert due is not None
    assert (due.seq, due.start, due.stop) == (5, 0, 32)
    copying.taken(due, 1.0, 0.002)
    assert copying.due([(1, 5, 300)], 1.0 + SHARE * 0.002 - 0.001) is None
    due = copying.due([(1, 5, 300)], 1.0 + SHARE * 0.002)
    assert due is not None
    assert (due.start, due.stop) == (32, 32 + MOST)
    assert copying.due([(2, 5, 300)], 9.0) is None, "one without checkpoints"


@given(
    st.sampled_from([8, 16, 32, 48, 128, 256]),
    st.sampled_from([0, 16, 512]),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 400), st.floats(1e-5, 0.05)), max_size=60),
)
def test_copying_takes_one_percent_at_most_and_leaves_no_hole(chunk: int, window: int, steps: list) -> None:
    copying = Copying(chunk, whole=False, window=window)
    filled = dict.fromkeys((1, 2, 3), 0)
    held = dict.fromkeys((1, 2, 3), 0)
    now, spent = 0.0, 0.0
    for rid in filled:
        copying.begin(rid)
    for rid, more, took in steps:
        now += 0.1
        filled[rid] += more
        due = copying.due([(r, r, n) for r, n in filled.items()], now)
        if due is None:
            continue
        assert due.start == held[due.rid], "no hole"
        assert due.stop - due.start <= max(MOST, chunk)
        assert due.stop == filled[due.rid] or due.stop % chunk == due.start % chunk
        assert spent <= now / SHARE
        held[due.rid] = due.stop
        now, spent = now + took, spent + took
        copying.taken(due, now, took)


def test_what_fails_holds_everything_for_a_while() -> None:
    copying = Copying(32, whole=True)
    copying.begin(1, at=64)
    copying.hold(10.0)
    assert copying.due([(1, 0, 200)], 10.0 + HOLD_S - 0.1) is None
    due = copying.due([(1, 0, 200)], 10.0 + HOLD_S)
    assert due is not None
    assert (due.start, due.stop) == (0, 200)
    left = copying.left(1, 0, 65)
    assert left is not None
    assert copying.left(1, 0, 64) is None


# ---- pace


@given(
    st.floats(0.05, 1.0), st.lists(st.tuples(st.floats(0.001, 0.05), st.floats(0, 0.002)), min_size=50, max_size=200)
)
def test_steps_take_the_part_of_the_time_that_was_asked_for(duty: float, steps: list) -> None:
    pacer = Pacer()
    pacer.set(duty)
    worked = waited = 0.0
    for took, late in steps:
        pacer.worked(took)
        worked += took
        wait = pacer.wait_ms / 1000
        assert wait <= LONGEST
        waited += wait + (late if wait else 0)
        pacer.waited(wait + (late if wait else 0))
    assert waited == pytest.approx(worked * (1 / duty - 1), abs=0.02)


def test_without_pace_nothing_is_waited() -> None:
    pacer = Pacer()
    pacer.worked(0.5)
    assert pacer.wait_ms == 0
    pacer.set(0.0)
    pacer.worked(0.001)
    assert pacer.wait_ms == int(1000 * 0.001 * (1 / LEAST_DUTY - 1))
    pacer.worked(60)
    assert pacer.wait_ms == 1000
    pacer.cut()
    assert pacer.wait_ms == 0
