"""`edgectl doctor` as people call it: on this machine, with and without a daemon, as root and as somebody else."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import Daemon, open_to_others, running, tiny_gguf

from edged import __version__

ROOT = Path(__file__).parents[2]
NOBODY = 65534


BECOME = """
import os
import resource
from edged.cli import doctor, main
os.setgroups([]), os.setgid({0}), os.setuid({0})
main.main()
"""
"""The interpreter may lie where only root can read: what is imported is there before."""


def doctor(config: Path, *options: str, uid: int | None = None) -> subprocess.CompletedProcess[str]:
    program = ["-m", "edged.cli.main"] if uid is None else ["-c", BECOME.format(uid)]
    command = [sys.executable, *program, "--config", str(config), "doctor", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "USER": "somebody"}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environment, cwd="/")


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, str]]]:
    told = json.loads(done.stdout)
    assert told["version"] == __version__
    out: dict[str, list[dict[str, str]]] = {}
    for one in told["findings"]:
        out.setdefault(one["check"], []).append(one)
    return out


def test_beside_a_daemon(shared: Daemon):
    done = doctor(shared.config, "--json")
    found = findings(done)
    assert found["service"][0]["what"] == "it answers: ready"
    assert found["ports"][0]["severity"] == "ok"
    assert found["permissions"][0]["severity"] == "ok"
    assert found["versions"][0]["severity"] == "ok"
    assert found["groups"][0]["severity"] == "ok"
    assert done.returncode in (0, 10)  # the machine's own clock and disk are what they are
    assert done.stderr == ""


def test_without_one(tmp_path):
    config = tmp_path / "config.yaml"
    model = tiny_gguf(tmp_path / "m.gguf")
    model.chmod(0o644)
    config.write_text(f"runtime_dir: {tmp_path}/run\nstate_dir: {tmp_path}/state\nmodel: {{path: {model}}}\n")
    begun = time.monotonic()
    done = doctor(config)
    assert time.monotonic() - begun < 60  # four seconds and the start, on a machine that does something else too
    assert "the service does not answer" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(("warnings: ", "notes: "))
    assert done.stderr == ""


def test_a_configuration_that_is_wrong(tmp_path):
    """It is said, and the rest is looked at all the same."""
    config = tmp_path / "config.yaml"
    config.write_text("limits: {queu: 1}\n")
    done = doctor(config, "--json")
    found = findings(done)
    assert found["configuration"][0]["what"].endswith(
        "limits.queu: expected a key of config.yaml, found an unknown key"
    )
    assert len(found) > 20
    assert done.returncode == 20


def test_one_check_and_no_such_check(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("{}\n")
    done = doctor(config, "--check", "page-size", "--json")
    assert list(findings(done)) == ["page-size"]
    assert done.returncode == 0
    done = doctor(config, "--check", "pages")
    assert done.returncode == 2
    assert "no check 'pages'; there are board," in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_as_somebody_else(shared: Daemon):
    """What may not be seen is unknown, or a hint; nothing of it is an error of the box."""
    open_to_others(shared.directory)
    done = doctor(shared.config, "--json", uid=NOBODY)
    assert done.stderr == ""
    found = findings(done)
    assert found["groups"][0]["severity"] == "warning"
    assert "adduser" in found["groups"][0]["do"]
    assert "sudo edgectl doctor" in found["permissions"][0]["do"]
    assert {one["check"] for ones in found.values() for one in ones if one["severity"] == "error"} == set()


def test_open_files_are_those_of_this_box_s_daemon(shared: Daemon, tmp_path: Path):
    """Two boxes on one machine: the limit of the other one is nobody's business here."""
    with running(tmp_path / "other", script="") as other:
        assert other.process is not None
        resource.prlimit(other.process.pid, resource.RLIMIT_NOFILE, (300, 300))
        (found,) = findings(doctor(shared.config, "--json", "--check", "open-files"))["open-files"]
        assert found["severity"] == "ok"
        (found,) = findings(doctor(other.config, "--json", "--check", "open-files"))["open-files"]
        assert (found["severity"], found["what"]) == ("warning", "at most 300 open files")
        nobody = tmp_path / "nobody.yaml"
        nobody.write_text(f"runtime_dir: {tmp_path}/nothing\nstate_dir: {tmp_path}/nothing\n")
        (found,) = findings(doctor(nobody, "--json", "--check", "open-files"))["open-files"]
        assert (found["severity"], found["what"]) == ("info", "no daemon runs whose limit could be looked at")
