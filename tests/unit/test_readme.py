"""The README's Python examples do what it says, against a daemon that answers as the protocol says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from unit.fake_daemon import RESULT, Daemon, streaming

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def answer(request, number):
    return streaming(request, number) if "stream" in request else [RESULT]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(tmp_path, example):
    endpoint = f"ipc://{tmp_path}/request.sock"
    daemon = Daemon(endpoint, answer)
    daemon.start()
    code = example.replace("ipc:///run/edged/request.sock", endpoint)
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    daemon.stop()
    assert (done.returncode, done.stderr) == (0, "")
    assert "Hello, world" in done.stdout


def test_there_are_examples():
    assert len(EXAMPLES) == 4
