"""The tool that switches on a box, with its places moved and a systemctl that only says yes: what a power cut, a full
card, another rollout and a second rollback leave. The real thing, with systemd, is tests/deploy."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/ansible/roles/edged/files/edged-deploy"
UNITS = ("edged.service", "edged.socket", "edged-control.socket")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="edged-deploy wants root")


class Box:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.at = root / "opt/edged/deployments"
        text = SCRIPT.read_text()
        text = re.sub(r"(?<![\w.])/(opt/edged|etc/edged|etc/systemd|usr/local)", rf"{root}/\1", text)
        self.script = root / "edged-deploy"
        self.script.write_text(text.replace("answer_s=60", "answer_s=1"))
        tools = root / "tools"
        tools.mkdir(parents=True)
        for name in ("systemctl", "journalctl"):
            self._program(tools / name)
        self.environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
        (root / "usr/local").mkdir(parents=True)

    @staticmethod
    def _program(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\nexit 0\n")
        path.chmod(0o755)

    def release(self, version: str) -> None:
        directory = self.root / "opt/edged/releases" / version
        for name in ("edged", "edgectl"):
            self._program(directory / "venv/bin" / name)
        for unit in UNITS:
            (directory / "deploy/systemd").mkdir(parents=True, exist_ok=True)
            (directory / "deploy/systemd" / unit).write_text(f"{unit} of {version}\n")

    def draft(self, version: str) -> None:
        (self.at / "next").mkdir(parents=True, exist_ok=True)
        (self.at / "next/release").write_text(f"{version}\n")
        (self.at / "next/config.yaml").write_text(f"# {version}\n")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(self.script), *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=30)

    def does(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def status(self) -> dict[str, dict[str, str]]:
        return json.loads(self.does("status"))

    def deploy(self, version: str) -> None:
        self.release(version)
        self.draft(version)
        assert self.does("switch", "next") == "changed"
        assert self.does("accept", self.status()["running"]["id"]) == "changed"


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path)
    made.deploy("0.1.0")
    made.deploy("0.1.1")
    return made


def test_a_deployment_is_in_force_whole_and_the_second_time_nothing_changes(box: Box) -> None:
    assert box.does("switch", "next") == "unchanged"
    assert box.status()["good"]["release"] == "0.1.1"
    assert box.status()["previous"]["release"] == "0.1.0"
    assert (box.root / "etc/edged/config.yaml").read_text() == "# 0.1.1\n"
    assert (box.root / "etc/systemd/system/edged.service").read_text() == "edged.service of 0.1.1\n"


def test_going_back_leaves_no_way_to_the_release_that_was_left(box: Box) -> None:
    box.does("switch", "previous")
    assert box.does("accept") == "changed"
    there = box.status()
    assert (there["good"]["release"], there["previous"]["id"]) == ("0.1.0", "")
    assert there["left"]["id"]
    assert box.run("switch", "previous").returncode == 1
    box.deploy("0.1.2")
    there = box.status()
    assert (there["good"]["release"], there["previous"]["release"], there["left"]["id"]) == ("0.1.2", "0.1.0", "")


def test_only_what_passed_is_accepted(box: Box) -> None:
    passed = box.status()["running"]["id"]
    box.release("0.1.2")
    box.draft("0.1.2")
    box.does("switch", "next")
    done = box.run("accept", passed)
    assert done.returncode == 1
    assert "another deployment came between" in done.stderr
    assert box.status()["good"]["id"] == passed


def test_what_a_power_cut_emptied_is_made_again(box: Box) -> None:
    box.release("0.1.2")
    box.draft("0.1.2")
    box.does("switch", "next")
    directory = box.at / box.status()["running"]["id"]
    for name in ("release", "config.yaml"):
        (directory / name).write_text("")
    assert box.does("switch", "next") == "unchanged", "what is in force is right"
    assert (directory / "release").read_text() == "0.1.2\n"
    (box.root / "etc/edged/config.yaml").write_text("")
    assert box.does("switch", "next") == "changed"
    assert (box.root / "etc/edged/config.yaml").read_text() == "# 0.1.2\n"


def test_a_write_that_fails_is_a_failure_and_what_was_good_comes_back(box: Box) -> None:
    box.release("0.1.2")
    (box.root / "opt/edged/releases/0.1.2/deploy/systemd/edged.socket").unlink()
    box.draft("0.1.2")
    done = box.run("switch", "next")
    assert done.returncode == 1
    assert "0.1.1 runs again" in done.stderr
    assert box.status()["running"]["release"] == "0.1.1"
    assert (box.root / "etc/edged/config.yaml").read_text() == "# 0.1.1\n"
