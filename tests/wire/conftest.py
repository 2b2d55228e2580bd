"""Fixtures of the wire floor: a daemon with the scripted worker, strangers in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, running

HERE = Path(__file__).parent


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "box", limits={"drain_s": 0.2}) as box:
        yield box


class Stranger:
    """tests/wire/stranger.py as a process, as `uid` when given (root only)."""

    def __init__(self, box: Daemon, uid: int = -1) -> None:
        command = [sys.executable, str(HERE / "stranger.py"), str(box.directory / "run"), str(uid)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, **command: Any) -> Any:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def subscribe(self, topic: str) -> None:
        self.do(sub=topic.encode().hex())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for a whole module, where tests leave no traces."""
    with running(tmp_path_factory.mktemp("box"), limits={"drain_s": 0.2}) as box:
        yield box
