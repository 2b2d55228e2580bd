"""Fault 5: a real OOM kill. The worker sits in a memory control group that is too small for it, beside a neighbour."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import running, tiny_gguf, until

LIMIT = 160 << 20
NEIGHBOUR = "import time; kept = bytearray(b'x') * (16 << 20); print('here', flush=True); time.sleep(600)"
CGROUP = Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own with a limit; v1 or v2. Skips where there is none to be had."""
    v2 = (CGROUP / "cgroup.controllers").exists()
    path = (CGROUP if v2 else CGROUP / "memory") / f"edged-test-{os.getpid()}"
    try:
        path.mkdir()
        (path / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(LIMIT))
    except OSError as error:
        with contextlib.suppress(OSError):
            path.rmdir()
        pytest.skip(f"no memory control group to be had: {error}")
    if v2:
        (path / "memory.swap.max").write_text("0")
    yield path
    until(lambda: not (path / "cgroup.procs").read_text().split(), "an empty group")
    path.rmdir()


def test_an_oom_kill_costs_the_worker_and_carries_the_request_into_a_smaller_profile(
    tmp_path: Path, group: Path
) -> None:
    profiles = [
        {"name": "big", "model": str(tiny_gguf(tmp_path / "big eat=8.gguf"))},
        {"name": "small", "model": str(tiny_gguf(tmp_path / "small.gguf")), "context": 512},
    ]
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE)
    try:
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline() == b"here\n"
        (group / "cgroup.procs").write_text(str(neighbour.pid))
        with running(tmp_path / "box", worker="named_worker", profiles=profiles) as box, box.client() as client:
            pid = box.pid
            (group / "cgroup.procs").write_text(str(box.worker_pid()))
            stream = client.stream(prompt="n=60 delay=0.02", deadline_ms=60_000)
            *events, end = stream
            status = box.wait_status(lambda s: s["profile"] == "small", "small")
            assert status["watchdog"]["last_exit"]["cause"] == "oom"
            assert [event["reason"] for event in events if event.get("type") == "restart"] == ["oom"]
            assert box.pid == pid
            assert status["watchdog"]["worker_deaths"] == 1
            told = "".join(event["text"] for event in events if event.get("type") == "token")
            assert end["text"] == told
            assert end["text"] == "".join(f"t{n} " for n in range(60))
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()
        if neighbour.stdout is not None:
            neighbour.stdout.close()


def test_a_kill_by_hand_is_no_oom_kill(tmp_path: Path, group: Path) -> None:
    with running(tmp_path / "box") as box:
        victim = box.worker_pid()
        assert victim is not None
        (group / "cgroup.procs").write_text(str(victim))
        os.kill(victim, 9)
        status = box.wait_status(lambda s: s["watchdog"]["worker_deaths"] == 1, "its death")
        assert status["watchdog"]["last_exit"]["cause"] == "SIGKILL"
