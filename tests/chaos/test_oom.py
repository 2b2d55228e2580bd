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
from real import needs_model, real

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


@needs_model
def test_a_real_context_that_grows_over_the_limit(tmp_path: Path, group: Path, capsys: pytest.CaptureFixture) -> None:
    """Real weights. What the worker took before it came into the group is not counted, so the limit is for what grows
    with its context: checkpoints of its cells in RAM (22 kB a token), buffers, answers."""
    limit = 40 << 20
    name = "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
    (group / name).write_text(str(limit))
    profiles = [{"name": "big", "context": 4096}, {"name": "small", "context": 2560, "sequences": 1}]
    ask = {"prompt": "The river flows past the old mill and the children wave. " * 160, "temperature": 0}
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE)
    try:
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline() == b"here\n"
        (group / "cgroup.procs").write_text(str(neighbour.pid))
        with real(tmp_path / "box", profiles=profiles) as box, box.client() as client:
            pid = box.pid
            (group / "cgroup.procs").write_text(str(box.worker_pid()))
            *events, end = client.stream(max_tokens=20, deadline_ms=300_000, **ask)
            status = box.wait_status(lambda s: s["ready"], "a worker")
            with capsys.disabled():
                told = {key: status["watchdog"][key] for key in ("worker_deaths", "last_exit")}
                sys.stdout.write(f"\n  {end['usage']}: {told}, profile {status['profile']}\n")
            assert status["watchdog"]["last_exit"]["cause"] == "oom"
            assert status["profile"] == "small"
            assert [event["reason"] for event in events if event.get("type") == "restart"] == ["oom"]
            assert end["finish_reason"] in ("stop", "length")
            assert box.pid == pid
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()
        if neighbour.stdout is not None:
            neighbour.stdout.close()
