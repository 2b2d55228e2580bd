"""A cap on the clock: set, put back, and put back by the next daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import until
from plant.sysfs import Root

from edged.system.cpufreq import Clocks, FrequencyCap


@pytest.fixture
def root(tmp_path):
    made = Root(tmp_path / "root")
    made.put("sys/devices/system/cpu/cpufreq/policy4/cpuinfo_max_freq", 2_400_000)
    made.put("sys/devices/system/cpu/cpufreq/policy4/cpuinfo_min_freq", 1_000_000)
    made.put("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", 2_200_000)
    made.put("sys/devices/system/cpu/cpufreq/policy4/scaling_available_frequencies", "1000000 1800000 2200000 2400000")
    return made


def limits(root: Root) -> list[int]:
    base = root.path / "sys/devices/system/cpu/cpufreq"
    return [int((base / name / "scaling_max_freq").read_text()) for name in ("policy0", "policy4")]


def test_set_and_put_back(root, tmp_path):
    cap = Clocks(str(root.path), str(tmp_path / "clock"))
    assert cap.usable
    assert cap.steps() == [1_000_000, 1_800_000, 2_200_000]  # no higher than somebody else allows
    cap.set(1_800_000)
    assert limits(root) == [1_800_000, 1_800_000]
    cap.set(600_000)
    assert limits(root) == [600_000, 1_000_000]
    cap.set(None)
    assert limits(root) == [1_800_000, 2_200_000]
    assert not (tmp_path / "clock").exists()


def test_the_next_daemon_puts_it_back(root, tmp_path):
    Clocks(str(root.path), str(tmp_path / "clock")).set(1_000_000)  # and is killed
    cap = Clocks(str(root.path), str(tmp_path / "clock"))
    assert limits(root) == [1_800_000, 2_200_000]
    assert not (tmp_path / "clock").exists()
    cap.set(1_000_000)
    cap.restore()
    assert limits(root) == [1_800_000, 2_200_000]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"/etc/passwd": 5}', '{"x": "y"}'])
def test_a_foreign_file_does_nothing(root, tmp_path, text):
    (tmp_path / "clock").write_text(text)
    assert Clocks(str(root.path), str(tmp_path / "clock")).usable
    assert limits(root) == [1_800_000, 2_200_000]


def test_steps_where_none_are_listed(tmp_path):
    root = Root(tmp_path / "root", clocks=(800_000, 1_050_000))
    assert Clocks(str(root.path), str(tmp_path / "clock")).steps() == [800_000, 900_000, 1_000_000, 1_050_000]


def test_no_clock_to_set(tmp_path):
    root = Root(tmp_path / "root", clocks=None)
    cap = Clocks(str(root.path), str(tmp_path / "clock"))
    assert not cap.usable
    assert cap.steps() == []
    cap.set(600_000)
    cap.restore()


def test_a_box_that_refuses_is_left_alone(root, tmp_path):
    cap = Clocks(str(root.path), str(tmp_path / "clock"))
    limit = root.path / "sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"
    limit.unlink()
    os.mkdir(limit)
    cap.set(600_000)
    assert not cap.usable
    assert int((root.path / "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq").read_text()) == 1_800_000
    assert not (tmp_path / "clock").exists()


def test_the_loop_waits_for_no_file(root, tmp_path):
    cap = FrequencyCap(str(root.path), str(tmp_path / "clock"))
    assert cap.steps() == [1_000_000, 1_800_000, 2_200_000]
    cap.set(1_800_000)
    until(lambda: limits(root) == [1_800_000, 1_800_000], "the cap")
    cap.restore()
    assert limits(root) == [1_800_000, 2_200_000]


def hang(root: Root, name: str) -> Path:
    """A FIFO hangs at its opening like a driver's file at its reading."""
    path = root.path / "sys/devices/system/cpu/cpufreq" / name / "scaling_max_freq"
    path.unlink()
    os.mkfifo(path)
    return path


def test_a_clock_that_hangs_from_the_start_is_none(root, tmp_path):
    path = hang(root, "policy4")
    cap = FrequencyCap(str(root.path), str(tmp_path / "clock"))
    cap.set(1_000_000)
    cap.restore()
    assert cap.steps() == []
    release(path)


def test_a_clock_that_hangs_later_is_left_to_the_next_daemon(root, tmp_path):
    cap = FrequencyCap(str(root.path), str(tmp_path / "clock"))
    cap.set(1_000_000)
    until(lambda: limits(root) == [1_000_000, 1_000_000], "the cap")
    path = hang(root, "policy4")
    for khz in (1_800_000, 2_200_000, 1_000_000, 1_800_000):
        cap.set(khz)
    cap.restore()
    assert (tmp_path / "clock").exists()
    path.unlink()
    root.put("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", 1_800_000)
    Clocks(str(root.path), str(tmp_path / "clock"))
    assert limits(root)[1] == 2_200_000


def release(path: Path) -> None:
    """Lets the thread go on, which sits at the opening."""
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
