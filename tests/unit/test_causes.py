"""An OOM kill told from another: the kernel's counters in a root of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.watchdog.causes import OomCounters
from edged.watchdog.fit import MARGIN_BYTES, Order, order

V1, V2 = "4:memory:/box\n0::/\n", "0::/box\n"
FILES = {
    "vmstat": ("", "proc/vmstat", "nr_free_pages 9\noom_kill {}\n"),
    "v1": (V1, "sys/fs/cgroup/memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"),
    "v2": (V2, "sys/fs/cgroup/box/memory.events", "low 0\noom 3\noom_kill {}\noom_group_kill 0\n"),
}


def counted(root: Path, kind: str, kills: int) -> None:
    group, path, text = FILES[kind]
    for name, content in (("proc/7/cgroup", group), (path, text.format(kills))):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


@pytest.mark.parametrize("kind", FILES)
def test_a_count_that_rose_is_an_oom_kill(tmp_path: Path, kind: str) -> None:
    counted(tmp_path, kind, 2)
    one = OomCounters(str(tmp_path), 7)
    assert not one.rose()
    counted(tmp_path, kind, 3)
    (tmp_path / "proc/7/cgroup").unlink()  # a dead process has none
    assert one.rose()


@pytest.mark.parametrize("kind", FILES)
def test_one_of_long_ago_is_none(tmp_path: Path, kind: str) -> None:
    counted(tmp_path, kind, 2)
    one = OomCounters(str(tmp_path), 7)
    counted(tmp_path, kind, 3)
    one.look()
    assert one.rose()  # it may be the one that is just ending
    one.look()
    assert not one.rose()


def test_a_kernel_that_counts_nothing_and_files_of_nonsense(tmp_path: Path) -> None:
    one = OomCounters(str(tmp_path), 7)
    one.look()
    assert not one.rose()
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_bytes(b"\xff\n:::\n9:memory\n0::/../../etc\n")
    (tmp_path / "proc/vmstat").write_text("oom_kill many\noom_kill\n")
    two = OomCounters(str(tmp_path), 7)
    two.look()
    assert not two.rose()


sizes = st.integers(0, 1 << 35)


@given(sizes, st.none() | sizes, sizes, st.booleans())
def test_two_at_a_time_only_with_room_for_both(need: int, available: int | None, freed: int, old_first: bool) -> None:
    found = order(need, available, freed, old_first=old_first)
    if found is Order.NEW_FIRST:
        assert available is not None
        assert not old_first
        assert available >= need + MARGIN_BYTES
    if found is Order.NEITHER:
        assert available is not None
        assert need > available + freed
    if available is None:
        assert found is Order.OLD_FIRST
