"""`edgectl fleet status` with a real Ansible: real daemons by its `local` connection, and hosts that are none."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import TESTS, Daemon, running, until

ANSIBLE = shutil.which("ansible", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
pytestmark = pytest.mark.skipif(ANSIBLE is None, reason="Ansible is not installed: pip install 'edged[fleet]'")

LOCAL = {"ansible_connection": "local"}
NOBODY = {"ansible_host": "127.0.0.2"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    one, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    with running(one, limits={"drain_s": 0.2}) as a, running(other, limits={"drain_s": 0.2}) as b:
        yield [a, b]


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def box(daemon: Daemon) -> dict[str, str]:
    """A host of the inventory."""
    python = f"PYTHONPATH={shlex.quote(str(TESTS.parent))} exec {shlex.quote(sys.executable)}"
    edgectl = script(daemon.directory / "edgectl", f'{python} -m edged.cli.main "$@"')
    return {**LOCAL, "edged_edgectl": edgectl, "edged_endpoint": daemon.request_endpoint}


def inventory(tmp_path: Path, hosts: dict[str, Any]) -> Path:
    path = tmp_path / "inventory.yml"
    path.write_text(yaml.safe_dump({"edged": {"hosts": hosts}}))
    return path


def fleet(*words: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edged.cli.main", "fleet", "status", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment, cwd=cwd, check=False)


def gone(pid: int) -> None:
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z", f"{pid} ends", 5)


def boxes(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(done.stdout)["boxes"]}


def test_all_well(two: list[Daemon], tmp_path: Path) -> None:
    for daemon in two:
        with daemon.client() as client:
            assert client.call(op="generate", prompt="n=30 delay=0.05")["ok"]
    hosts = inventory(tmp_path, {"pi-01": box(two[0]), "pi-02": box(two[1])})
    done = fleet("-i", hosts)
    assert (done.returncode, done.stderr) == (0, "")
    title, first, second, _, last = done.stdout.splitlines()
    assert title.split()[:5] == ["box", "state", "version", "model", "level"]
    assert first.split()[:2] == ["pi-01", "ready"]
    assert second.split()[:2] == ["pi-02", "ready"]
    assert last == "2 of 2 boxes ready"
    done = fleet("-i", hosts, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["ok"] is True
    assert all(one["tokens_per_s"] > 0 and one["uptime_s"] > 0 and one["queue"] == 0 for one in boxes(done).values())


def test_one_drained_one_dead_one_without_edged_one_that_is_not_there(two: list[Daemon], tmp_path: Path) -> None:
    with running(tmp_path / "dead", limits={"drain_s": 0.2}) as dead:
        gone = box(dead)
    with two[1].operator() as operator:
        operator.call(op="drain")
    hosts = {
        "well": box(two[0]),
        "drained": box(two[1]),
        "dead": gone,
        "bare": {**LOCAL, "edged_edgectl": "/nowhere/edgectl"},
        "away": NOBODY,
    }
    try:
        begun = time.monotonic()
        done = fleet("-i", inventory(tmp_path, hosts))
        assert time.monotonic() - begun < 25
    finally:
        with two[1].operator() as operator:
            operator.call(op="resume")
    assert done.returncode == 1
    found = {line.split(":")[0]: line for line in done.stdout.splitlines() if ": " in line}
    assert found["drained"].startswith("drained: draining")
    assert "nothing answers at" in found["dead"]
    assert found["bare"] == "bare: no answer: edged is not installed there"
    assert found["away"] == "away: unreachable: Connection refused"
    assert done.stdout.splitlines()[-1] == "1 of 5 boxes ready"


HOSTILE = {
    "loud": "yes '{\"status\": {}}' | head -c 50000000",
    "escapes": 'printf \'\\033[2J\\033]0;owned\\007{"status":{"state":"\\\\u001b[31mready","version":"\'; '
    "head -c 100000 /dev/zero | tr '\\0' x; printf '\"}}\\n'",
    "nothing": "exit 0",
    "noise": "head -c 100000 /dev/urandom",
    "deep": "head -c 100000 /dev/zero | tr '\\0' '['",
    "shapes": 'echo \'{"status":{"state":[1],"ready":"yes","model":7,"watchdog":[],"queue":"x","uptime_s":1e999}}\'',
    "wrong": "echo 'edgectl: no such verb' >&2; exit 2",
}


def test_hostile_boxes_do_not_break_the_table(two: list[Daemon], tmp_path: Path) -> None:
    hosts = {name: {**LOCAL, "edged_edgectl": script(tmp_path / name, text)} for name, text in HOSTILE.items()}
    done = fleet("-i", inventory(tmp_path, {"well": box(two[0]), **hosts}))
    assert done.returncode == 1
    assert all(text.isprintable() and len(text) < 400 for text in done.stdout.splitlines()), done.stdout
    assert done.stdout.splitlines()[-1] == f"1 of {len(HOSTILE) + 1} boxes ready"
    found = boxes(fleet("-i", inventory(tmp_path, {"well": box(two[0]), **hosts}), "--json"))
    assert found["well"]["ready"]
    assert not any(found[name]["ready"] for name in HOSTILE)


def test_a_box_that_hangs_holds_nobody_up(two: list[Daemon], tmp_path: Path) -> None:
    hangs = {**LOCAL, "edged_edgectl": script(tmp_path / "hangs", "sleep 600")}
    mark = tmp_path / "pid"
    stubborn = {
        **LOCAL,
        "edged_edgectl": script(tmp_path / "stubborn", f"trap '' TERM INT HUP; sleep 601 & echo $! > {mark}; wait"),
    }
    hosts = inventory(tmp_path, {"hangs": hangs, "stubborn": stubborn, "well": box(two[0])})
    begun = time.monotonic()
    done = fleet("-i", hosts, "--timeout", "6", "--json")
    assert time.monotonic() - begun < 15
    assert done.returncode == 1
    found = boxes(done)
    assert found["well"]["ready"]
    assert found["hangs"]["state"] in ("unreachable", "no answer")
    assert found["hangs"]["why"]
    gone(int(mark.read_text()))


def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    hangs = {**LOCAL, "edged_edgectl": script(tmp_path / "hangs", f"echo $$ > {mark}; exec sleep 600")}
    command = [sys.executable, "-m", "edged.cli.main", "fleet", "status", "-i", str(inventory(tmp_path, {"x": hangs}))]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pid = int(until(lambda: mark.exists() and mark.read_text().strip(), "the box is asked"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    gone(pid)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("-i", "nowhere.yml"), "nowhere.yml: no such inventory"),
        (("-i", "localhost,", "-l", "edged"), "no host `edged` in localhost,"),
        (("-i", "broken.yml"), "broken.yml"),
        (("-i", "localhost,", "-l", "localhost", "--forks", "0"), "--forks"),
        ((), "Missing option '-i'"),
    ],
)
def test_what_is_wrong_is_told(words: tuple[str, ...], what: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yml").write_text("edged: [")
    done = fleet(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert what in done.stderr
    assert not done.stdout


def test_without_ansible_it_says_so(tmp_path: Path) -> None:
    if Path(sys.executable).with_name("ansible").exists():
        pytest.skip("Ansible is beside this Python")
    done = fleet("-i", "localhost,", PATH=str(tmp_path))
    assert (done.returncode, "pip install 'edged[fleet]'" in done.stderr) == (2, True)
