"""`edgectl verify` against real daemons."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon

from edged import __version__

EDGECTL = [sys.executable, "-m", "edged.cli.main"]
SCRIPT = ("--prompt", "n=40 delay=0.001")
TOKENS = hashlib.sha256(",".join(map(str, range(1, 17))).encode()).hexdigest()
"""The scripted worker's ids are 1, 2, …"""


def verify(box: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*EDGECTL, "--endpoint", box.request_endpoint, "verify", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, input="")


def model_sha256(box: Daemon) -> str:
    return hashlib.sha256(Path(box.settings["model"]["path"]).read_bytes()).hexdigest()


def test_everything_right(shared: Daemon) -> None:
    sha = model_sha256(shared)
    wanted = ("--version", __version__, "--model-sha256", sha.upper(), "--tokens-sha256", TOKENS, "--wait", "30")
    done = verify(shared, *SCRIPT, *wanted, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert found["problems"] == []
    assert found["model"] == {"name": "tiny", "sha256": sha}
    assert (found["version"], found["tokens"], found["tokens_sha256"]) == (__version__, 16, TOKENS)
    assert (found["restarts"], found["level"], found["state"]) == (0, "normal", "ready")
    assert found["text_bytes"] == len("".join(f"t{n} " for n in range(16)))
    again = verify(shared, *SCRIPT, *wanted)
    assert again.returncode == 0
    assert again.stdout.startswith(f"right: edged {__version__}, level normal")
    assert TOKENS in again.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--version", "9.9"), f"version is {__version__}, expected 9.9"),
        (("--model-sha256", "0" * 64), f"expected {'0' * 64}"),
        (("--tokens-sha256", "0" * 64), "the tokens' sha256 is"),
        (("--max-tokens", "15", "--tokens-sha256", TOKENS), "the tokens' sha256 is"),
        (("--prompt", "refuse=context_overflow"), "no answer was generated: context_overflow"),
        (("--prompt", "n=900 delay=0.05", "--max-tokens", "900", "--deadline", "0.5"), "it was cut off: deadline"),
        (("--prompt", "stall=1", "--deadline", "0.5"), "no answer was generated: deadline_exceeded"),
    ],
)
def test_one_thing_wrong(shared: Daemon, words: tuple[str, ...], why: str) -> None:
    done = verify(shared, *SCRIPT, "--wait", "5", *words, "--json")
    assert done.returncode == 1, done
    (problem,) = json.loads(done.stdout)["problems"]
    assert why in problem
    told = verify(shared, *SCRIPT, "--wait", "5", *words)
    assert (told.returncode, told.stdout.splitlines()[-1]) == (1, f"problem {problem}")


@pytest.mark.parametrize(
    "words",
    [("--model-sha256", "xyz"), ("--tokens-sha256", "00"), ("--prompt", ""), ("--max-tokens", "0"), ("--wait", "nan")],
)
def test_usage(shared: Daemon, words: tuple[str, ...]) -> None:
    assert verify(shared, *words).returncode == 2


def test_nothing_answers(tmp_path: Path) -> None:
    box = Daemon(tmp_path)
    box.close()
    done = verify(box, "--wait", "0.3")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nothing answers at" in done.stderr
    told = verify(box, "--json")
    assert told.returncode == 3
    assert json.loads(told.stdout)["ok"] is False


@pytest.fixture
def unready(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    boxes = []

    def start(**keys: Any) -> Daemon:
        boxes.append(Daemon(tmp_path / "box", **keys))
        return boxes[-1].start(ready=False)

    yield start
    for box in boxes:
        box.close()


def test_it_waits_for_the_model(unready: Callable[..., Daemon]) -> None:
    box = unready(script="load=2")
    done = verify(box, *SCRIPT, "--json")
    assert done.returncode == 1
    assert any(problem.startswith("not ready: loading") for problem in json.loads(done.stdout)["problems"])
    assert verify(box, *SCRIPT, "--wait", "30", "--tokens-sha256", TOKENS).returncode == 0


def test_a_box_that_is_busy_is_asked_again(unready: Callable[..., Daemon]) -> None:
    """Everybody who waited for a restart asks at once: no reason to take a good release back."""
    box = unready(limits={"queue": 2})
    box.wait_ready()
    with box.client() as crowd:
        for n in range(8):
            crowd.ask(op="generate", prompt="n=60 delay=0.03", id=f"crowd{n}", max_tokens=60)
        box.wait_status(lambda status: status["queue"]["length"] >= 2, "a full queue")
        assert verify(box, *SCRIPT, "--tokens-sha256", TOKENS).returncode == 0


def test_a_model_that_is_another(unready: Callable[..., Daemon]) -> None:
    box = unready()
    box.settings["model"]["sha256"] = "0" * 64
    box.write_config()
    box.stop()
    box.start(ready=False)
    done = verify(box, "--wait", "1", "--json")
    assert done.returncode == 1
    problems = json.loads(done.stdout)["problems"]
    assert any(problem.startswith("not ready: unavailable") and "sha256" in problem for problem in problems)


def test_the_box_goes_away_meanwhile(unready: Callable[..., Daemon]) -> None:
    box = unready()
    box.wait_ready()

    def kill() -> None:
        box.wait_status(lambda status: status["slots"]["busy"], "busy")
        box.stop(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    done = verify(box, "--prompt", "n=900 delay=0.05", "--max-tokens", "900", "--deadline", "3")
    killer.join()
    assert done.returncode == 3, done
