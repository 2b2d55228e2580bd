"""edgectl config and completion: no daemon needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edged.cli.main import cli
from edged.errors import EXIT_CONFIG


def edgectl(*words: str):
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_check_says_good_or_where_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("limits: {queue: 5}\n")
    good = edgectl("config", "check", str(file))
    assert (good.exit_code, good.output) == (0, f"{file}: good\n")
    file.write_text("limits: {queue: five}\n")
    bad = edgectl("config", "check", str(file))
    assert bad.exit_code == EXIT_CONFIG
    assert "limits.queue: expected int, found 'five'" in bad.output


def test_show_marks_defaults(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("limits: {queue: 5}\n")
    lines = edgectl("--config", str(file), "config", "show").output.splitlines()
    (queue,) = [line for line in lines if line.startswith("limits.queue:")]
    (waiters,) = [line for line in lines if line.startswith("limits.waiters:")]
    assert queue.split()[1:] == ["5"]
    assert waiters.split()[1:] == ["8", "#", "default"]
    assert any(line.startswith("profiles[0].context:") for line in lines)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_that_shell(shell: str) -> None:
    done = edgectl("completion", shell)
    assert done.exit_code == 0
    assert "_EDGECTL_COMPLETE" in done.output
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.output, text=True, check=True, timeout=30)


@pytest.mark.parametrize("words", ["config show > /dev/full", "--help > /dev/full", "completion bash >&-", "ask x <&-"])
def test_no_way_out_is_a_traceback(words: str) -> None:
    command = f"{sys.executable} -m edged.cli.main --endpoint ipc:///nowhere/request.sock {words}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 3)


def test_nan_is_no_number() -> None:
    done = edgectl("ask", "--deadline", "nan", "x")
    assert done.exit_code == 2
    assert "not a number" in done.output
