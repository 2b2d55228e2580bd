"""edgectl against real daemons, in pipes and on terminals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Daemon, running, until
from terminal import CTRL_C, Terminal, lines, screen

EDGECTL = [sys.executable, "-m", "edged.cli.main"]


def at(box: Daemon, *words: str) -> list[str]:
    return [*EDGECTL, "--endpoint", box.request_endpoint, *words]


def edgectl(box: Daemon, *words: str, **options) -> subprocess.CompletedProcess[str]:
    options.setdefault("input", "")
    return subprocess.run(at(box, *words), check=False, capture_output=True, text=True, timeout=60, **options)


def said(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


def begin(box: Daemon, prompt: str, **fields) -> None:
    """A request that goes on by itself."""
    with box.client() as client:
        reply = client.call(op="generate", prompt=prompt, stream=True, detach=True, **fields)
        assert reply["ok"], reply


# ---- verbs that ask once ---------------------------------------------------------------------------------------


def test_tokenize(shared: Daemon) -> None:
    assert said(edgectl(shared, "tokenize", "hello")) == (0, "5 tokens, fits\n0 1 2 3 4\n", "")
    assert edgectl(shared, "tokenize", input="hello\n").stdout == "5 tokens, fits\n0 1 2 3 4\n"
    assert edgectl(shared, "tokenize", "--chat", "x" * 100).stdout.startswith("100 tokens, too many for the context\n")
    turns = json.dumps([{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}])
    assert json.loads(edgectl(shared, "tokenize", "--messages", "--json", input=turns).stdout)["count"] == 3
    code, shown = screen(*at(shared, "tokenize", "x" * 80), columns=40)
    assert code == 0
    assert max(map(len, lines(shown))) <= 40


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--messages", "{"], "not JSON"),
        (["--messages", "[1]"], "expected a list such as"),
        (["--messages", "--chat", "x"], "one of --chat and --messages"),
    ],
)
def test_tokenize_usage(shared: Daemon, words: list[str], why: str) -> None:
    done = edgectl(shared, "tokenize", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_result_and_cancel(shared: Daemon) -> None:
    begin(shared, "n=2 word=x\x1b[2J", id="done-1")
    assert said(edgectl(shared, "result", "done-1", "--wait", "30")) == (0, "x\x1b[2J" * 2 + "\n", "")
    assert screen(*at(shared, "result", "done-1"), columns=80) == (0, "x[2Jx[2J\n")
    assert json.loads(edgectl(shared, "result", "done-1", "--json").stdout)["finish_reason"] == "stop"
    assert said(edgectl(shared, "cancel", "done-1")) == (0, "it had finished already\n", "")
    begin(shared, "n=900 delay=0.05", id="long-1", max_tokens=1000)
    done = edgectl(shared, "result", "long-1", "--json")
    assert (done.returncode, done.stderr) == (4, "")
    assert json.loads(done.stdout)["state"] in ("queued", "running")
    assert edgectl(shared, "result", "long-1").stderr.startswith("edgectl: not finished yet: ")
    assert said(edgectl(shared, "cancel", "long-1")) == (0, "cancelled\n", "")
    assert json.loads(edgectl(shared, "cancel", "long-1", "--json").stdout)["state"] == "cancelled"
    assert edgectl(shared, "result", "long-1").stderr == "edgectl: cut off: cancelled\n"
    for verb in ("result", "cancel"):
        code, _, why = said(edgectl(shared, verb, "never"))
        assert code == 1
        assert why.startswith("edgectl: not_found: ")
    done = edgectl(shared, "result", "never", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "not_found")


def test_requests(shared: Daemon) -> None:
    assert said(edgectl(shared, "requests")) == (0, "nothing waits or runs\n", "")
    begin(shared, "n=900 delay=0.05", id="seen-1", max_tokens=1000)
    title, row = edgectl(shared, "requests").stdout.splitlines()
    assert title.split()[:3] == ["ID", "IDENTITY", "STATE"]
    assert row.split()[:2] == ["seen-1", f"uid:{os.getuid()}"]
    code, shown = screen(*at(shared, "requests"), columns=40)
    assert (code, max(map(len, lines(shown))) <= 40) == (0, True)
    assert json.loads(edgectl(shared, "requests", "--json").stdout)["requests"][0]["id"] == "seen-1"
    mine = f"uid:{os.getuid()}"
    assert edgectl(shared, "cancel", "seen-1", "--identity", mine).stdout == "cancelled\n"


def test_drain_health_and_resume(shared: Daemon) -> None:
    assert said(edgectl(shared, "health")) == (0, "ready\n", "")
    assert edgectl(shared, "drain").stdout == "draining: new requests are refused until `edgectl resume`\n"
    assert said(edgectl(shared, "health")) == (1, "not ready: draining (new requests are refused)\n", "")
    assert edgectl(shared, "status").stdout.startswith("state     draining (new requests are refused), edged ")
    with subprocess.Popen(at(shared, "health", "--wait", "60"), stdout=-1, stderr=-1, text=True) as waiting:
        assert waiting.stderr.readline() == "edgectl: draining (new requests are refused)\n"
        assert edgectl(shared, "resume").stdout == "ready: no longer draining\n"
        assert waiting.communicate(timeout=30) == ("ready\n", "")
    assert waiting.returncode == 0
    health = json.loads(edgectl(shared, "health", "--json").stdout)
    assert (health["ready"], health["state"], health["words"]) == (True, "ready", "ready")


def test_loglevel(shared: Daemon) -> None:
    assert said(edgectl(shared, "loglevel", "debug")) == (0, "log level debug\n", "")
    assert json.loads(edgectl(shared, "--json", "loglevel", "info").stdout)["level"] == "info"
    assert edgectl(shared, "loglevel", "loud").returncode == 2


def test_operators_verbs_never_go_over_tcp() -> None:
    done = subprocess.run([*EDGECTL, "--endpoint", "tcp://127.0.0.1:9", "drain"], check=False, capture_output=True)
    assert done.returncode == 2
    assert b"never over TCP" in done.stderr


def test_the_reader_goes_away(shared: Daemon) -> None:
    with subprocess.Popen(at(shared, "status", "--watch", "0.1"), stdout=-1, stderr=-1) as process:
        assert process.stdout.readline().startswith(b"time ")
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


# ---- status, seen ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [26, 80, 120])
def test_status_on_a_terminal(shared: Daemon, columns: int) -> None:
    code, shown = screen(*at(shared, "status"), columns=columns)
    assert code == 0
    assert max(map(len, lines(shown))) <= columns
    assert shown.startswith("state     \x1b[32m● ready\x1b[0m")
    _, plain = screen(*at(shared, "status"), columns=columns, NO_COLOR="1")
    assert plain.startswith("state     ● ready")
    assert "\x1b" not in plain


def test_status_in_a_pipe_has_neither_dot_nor_colour(shared: Daemon) -> None:
    shown = edgectl(shared, "status").stdout
    assert shown.startswith("state     ready, edged ")
    assert re.search("[●\x1b]", shown) is None
    assert [line.split()[0] for line in shown.splitlines()][:4] == ["state", "model", "profile", "level"]


def test_status_imports_little() -> None:
    """What makes a start slow on a small board."""
    code = (
        "import sys, edged.cli.main as m\n"
        "try: m.cli.main(['--endpoint', 'ipc:///nowhere/request.sock', 'status'], standalone_mode=False)\n"
        "except SystemExit as end: assert end.code == 3\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), 'edged.client.aio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    heavy = {"rich", "numpy", "llama_cpp", "jinja2", "asyncio", "readline", "ssl", "http", "concurrent"}
    assert heavy.isdisjoint(done.stdout.split())
    assert done.stdout.endswith("False\n")


def test_no_daemon_and_one_that_was_killed(tmp_path: Path) -> None:
    box = Daemon(tmp_path / "box")
    where = box.request_endpoint
    start = "start it with `make serve` or `systemctl start edged`"
    try:
        assert said(edgectl(box, "status")) == (3, "", f"edgectl: nothing answers at {where}: {start}\n")
        done = edgectl(box, "health", "--wait", "0.1", "--json")
        assert (done.returncode, json.loads(done.stdout)["state"]) == (1, None)
        box.start(ready=False)
        box.process.kill()
        box.process.wait()
        assert said(edgectl(box, "status")) == (3, "", f"edgectl: nobody listens at {where} any more: {start}\n")
        assert said(edgectl(box, "health")) == (1, "", f"edgectl: nobody listens at {where} any more: {start}\n")
    finally:
        box.close()


def test_a_daemon_that_hangs(daemon: Daemon) -> None:
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        code, shown, why = said(edgectl(daemon, "--timeout", "0.3", "status"))
        with Terminal(at(daemon, "--timeout", "0.3", "status", "--watch", "0.1")) as terminal:
            terminal.expect("no answer")
            os.kill(daemon.pid, signal.SIGCONT)
            terminal.expect("● ready")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert (code, shown) == (3, "")
    assert why == (
        f"edgectl: the daemon at {daemon.request_endpoint} does not answer within 0.3 s: it is stopped or hangs; "
        "look with `systemctl status edged`, or at its log\n"
    )


def test_watch_outlives_the_daemon(tmp_path: Path) -> None:
    with (
        running(tmp_path / "box") as box,
        Terminal(at(box, "status", "--watch", "0.1"), columns=80, rows=8) as terminal,
    ):
        terminal.expect("\x1b[2J\x1b[H")
        terminal.expect("● ready")
        terminal.expect("\x1b[H")
        box.process.kill()
        box.process.wait()
        terminal.expect("● no answer")
        terminal.expect("nobody listens at")
        box.start()
        terminal.expect("● ready")
        picture = terminal.expect("\x1b[H")
        assert picture.count("\n") <= 7, "a picture is never higher than the terminal"
        terminal.send(CTRL_C)
        assert terminal.end() == 130
        assert "Traceback" not in terminal.seen


def test_watch_in_a_pipe_is_plain_blocks(shared: Daemon) -> None:
    with subprocess.Popen(at(shared, "status", "--watch", "0.1"), stdout=-1, text=True) as process:
        for _ in range(2):
            block = list(iter(process.stdout.readline, "\n"))
            assert [line.split()[0] for line in block[:3]] == ["time", "state", "model"]
            assert "\x1b" not in "".join(block)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 130


def test_watch_as_json_is_one_object_a_line(tmp_path: Path) -> None:
    with running(tmp_path / "box") as box:
        with subprocess.Popen(at(box, "status", "--watch", "0.1", "--json"), stdout=-1, text=True) as process:
            assert json.loads(process.stdout.readline())["state"] == "ready"
            box.process.kill()
            box.process.wait()
            gone = until(lambda: not (reply := json.loads(process.stdout.readline()))["ok"] and reply, "the loss")
            process.kill()
        assert gone["error"]["code"] == "no_answer"
        box.start()


def test_reload_profile_and_config_apply(tmp_path: Path) -> None:
    profiles = [{"name": "big"}, {"name": "small", "context": 512}]
    with running(tmp_path, profiles=profiles) as box, box.client() as client:
        stream = client.stream(prompt="n=60 delay=0.02", deadline_ms=60_000)
        next(stream)
        status, out, err = said(edgectl(box, "reload"))
        assert (status, err) == (0, "")
        assert out.startswith("reloading: profile big")
        *_, end = stream
        assert end["text"] == "".join(f"t{n} " for n in range(60))
        box.wait_status(lambda s: s["ready"] and s["watchdog"]["reload"] is None, "done")
        assert json.loads(edgectl(box, "profile", "small", "--json").stdout)["pinned"] == "small"
        box.wait_status(lambda s: s["profile"] == "small" and s["ready"] is True, "small")
        listing = edgectl(box, "profile").stdout.splitlines()
        assert "current, pinned" in listing[2]
        assert "small (pinned)" in edgectl(box, "status").stdout
        edgectl(box, "profile", "--auto")
        status, _, err = said(edgectl(box, "reload", "--profile", "huge"))
        assert (status, "there are big, small" in err) == (1, True)
        box.settings["limits"] = {"waiters": 3}
        box.write_config()
        status, out, err = said(edgectl(box, "config", "apply"))
        assert (status, err) == (0, "")
        assert "applied, the worker stays" in out
        box.config.write_text("limits: {waiters: no}\n")
        status, _, err = said(edgectl(box, "config", "apply"))
        assert (status, "limits.waiters" in err) == (1, True)
