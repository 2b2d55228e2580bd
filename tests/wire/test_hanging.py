"""Files of /proc and /sys that hang (a FIFO that nobody writes hangs at its opening): the loop never waits for one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakeroot import FakeRoot
from harness import Daemon

MEMORY = ["proc/meminfo", "proc/self/cgroup", "proc/vmstat", "proc/sys/kernel/random/boot_id"]
CLOCK = "sys/devices/system/cpu/cpufreq/policy0"
ALL = [*MEMORY, "sys/class/thermal/thermal_zone0/temp", f"{CLOCK}/scaling_max_freq"]
ANSWER_S = 10
"""Far more than the 200 ms that are wanted: a busy machine may take its time, a file that hangs takes for ever."""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Daemon]:
    root = FakeRoot(tmp_path / "root")
    (root.path / CLOCK).mkdir(parents=True)
    for name, khz in (
        ("cpuinfo_min_freq", 1_500_000),
        ("cpuinfo_max_freq", 2_400_000),
        ("scaling_max_freq", 2_400_000),
    ):
        (root.path / CLOCK / name).write_text(f"{khz}\n")
    rules = {"root": str(root.path), "interval_s": 0.02, "stall_s": 5}
    box = Daemon(tmp_path, watchdog=rules, profiles=[{"name": "big"}, {"name": "small", "context": 512}])
    yield box
    box.close()


def hang(box: Daemon, names: list[str]) -> None:
    for name in names:
        path = Path(box.settings["watchdog"]["root"]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)


def lives(box: Daemon) -> None:
    """It answers, loads again, knows a death, and stops."""
    with box.client() as client, box.operator() as operator:
        for request in ({"op": "status"}, {"op": "profile"}, {"op": "reload"}, {"op": "status"}):
            operator.ask(**request)
            assert operator.socket.poll(1000 * ANSWER_S), request
            assert operator.receive()[1]["ok"], request
        worker = box.wait_status(lambda s: s["ready"] and not s["watchdog"]["reload"], "reloaded")["watchdog"]
        assert worker["worker_deaths"] == 0
        os.kill(box.worker_pid() or 0, signal.SIGKILL)
        box.wait_status(lambda s: s["ready"] and s["watchdog"]["worker_deaths"] == 1, "the next worker")
        assert client.call(op="generate", prompt="n=2", deadline_ms=30_000)["text"] == "t0 t1 "
    assert box.process is not None
    box.process.send_signal(signal.SIGTERM)
    assert box.process.wait(ANSWER_S) == 0


@pytest.mark.parametrize("names", [MEMORY[:1], ALL[-1:], ALL], ids=["memory", "clock", "all"])
def test_files_that_hang_from_the_start(box: Daemon, names: list[str]) -> None:
    hang(box, names)
    lives(box.start())


def test_files_that_hang_later(box: Daemon) -> None:
    box.start()
    box.wait_status(lambda s: s["watchdog"]["readings"].get("temperature_c"), "readings")
    hang(box, ALL)
    lives(box)
