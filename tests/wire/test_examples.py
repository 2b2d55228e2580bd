"""examples/python and examples/shell, as they are, against a real daemon."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest
from harness import TESTS, Daemon

EXAMPLES = TESTS.parent / "examples"
SCRIPTS = sorted(EXAMPLES.rglob("*.py"))


def run(box: Daemon, *command: str, **options) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "EDGED_ENDPOINT": box.request_endpoint}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env, **options)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_it_compiles(script: Path, tmp_path: Path) -> None:
    py_compile.compile(str(script), cfile=str(tmp_path / "out"), doraise=True)


def test_ask_sync(shared: Daemon) -> None:
    script = str(EXAMPLES / "python/ask_sync.py")
    good = run(shared, sys.executable, script, "n=3")
    assert (good.returncode, good.stdout, good.stderr) == (0, "t0 t1 t2 \n", "3 tokens, stop\n")
    bad = run(shared, sys.executable, script, "refuse=context_overflow")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.startswith("refused: context_overflow")


def test_ask_sync_over_a_restart(daemon: Daemon) -> None:
    env = {**os.environ, "EDGED_ENDPOINT": daemon.request_endpoint}
    command = [sys.executable, str(EXAMPLES / "python/ask_sync.py"), "n=40 delay=0.02"]
    with subprocess.Popen(command, env=env, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout.read(3) == "t0 "
        daemon.process.kill()
        daemon.process.wait()
        daemon.start()
        text, errors = process.communicate(timeout=60)
    assert "t0 " + text == "".join(f"t{n} " for n in range(40)) + "\n", errors
    assert process.returncode == 0


def test_ask_async(shared: Daemon) -> None:
    script = str(EXAMPLES / "python/ask_async.py")
    done = run(shared, sys.executable, script, "n=1 word=a", "n=1 word=b", "refuse=context_overflow")
    assert sorted(done.stdout.splitlines()) == ["n=1 word=a -> a", "n=1 word=b -> b"]
    assert (done.returncode, done.stderr.count("context_overflow")) == (1, 2)


def test_ask_sh(shared: Daemon) -> None:
    done = run(shared, str(EXAMPLES / "shell/ask.sh"), "Short.", input="n=2 word=ä\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ää\n", "ready\n")
