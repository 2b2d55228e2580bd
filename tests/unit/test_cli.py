"""edgectl against a small real ROUTER that answers as docs/protocol.md says."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from edged.cli import output
from unit.fake_daemon import Daemon, events, streaming, ticket

EDGECTL = [sys.executable, "-m", "edged.cli.main"]
STATUS = {
    "ok": True,
    "version": "0.1.0",
    "state": "ready",
    "ready": True,
    "uptime_s": 3725.2,
    "model": {"name": "tiny", "sha256": "ab" * 32, "size_bytes": 98_362_432},
    "profile": "default",
    "queue": {"length": 2, "limit": 128, "by_priority": {"high": 1, "normal": 1, "low": 0}, "accepted": 3},
    "slots": {"total": 4, "busy": 1, "set_aside": 0, "cells_used": 70, "cells_total": 4096},
    "speed": {"tokens_per_second": 96.12, "service_s": 1.0},
    "threads": [
        {"tid": 7, "core": 0, "cores": [0], "role": "decode+prefill"},
        {"tid": 8, "core": 1, "cores": [0, 1], "role": "decode+prefill"},
    ],
    "watchdog": {"level": "normal", "worker_deaths": 2, "last_exit": {"cause": "SIGABRT", "time": 1.5}},
    "warnings": ["no pin\x1b[2J for thread 8"],
}


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/request.sock"


@pytest.fixture
def serve(endpoint):
    running = []

    def start(answer):
        daemon = Daemon(endpoint, answer)
        daemon.start()
        running.append(daemon)
        return daemon

    yield start
    for daemon in running:
        daemon.stop()


def edgectl(endpoint, *args, **kwargs):
    command = [*EDGECTL, "--endpoint", endpoint, *args]
    kwargs.setdefault("stdin", None if "input" in kwargs else subprocess.DEVNULL)
    if kwargs["stdin"] is None:
        del kwargs["stdin"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, **kwargs)


# ---- edgectl ---------------------------------------------------------------------------------------------------


def test_ask_prints_the_answer(endpoint, serve):
    daemon = serve(streaming)
    options = ["--max-tokens", "9", "--temperature", "0", "--seed", "5", "--system", "Be brief", "--deadline", "7"]
    done = edgectl(endpoint, "ask", *options, "Hi there")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, world\n", "")
    sent = daemon.seen[0]
    assert sent["messages"] == [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi there"}]
    assert {key: sent[key] for key in ("max_tokens", "temperature", "seed", "deadline_ms")} == {
        "max_tokens": 9, "temperature": 0, "seed": 5, "deadline_ms": 7000,
    }  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{32}", sent["id"])


def test_ask_raw_from_stdin(endpoint, serve):
    daemon = serve(streaming)
    done = edgectl(endpoint, "ask", "--raw", input="Once upon 時\n")
    assert done.returncode == 0
    assert daemon.seen[0]["prompt"] == "Once upon 時"
    assert "messages" not in daemon.seen[0]


@pytest.mark.parametrize("place", ["before", "after"])
def test_ask_json_is_one_object(endpoint, serve, place):
    serve(streaming)
    args = ["--json", "ask", "Hi"] if place == "before" else ["ask", "--json", "Hi"]
    done = edgectl(endpoint, *args)
    result = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert result["text"] == "Hello, world"
    assert result["usage"]["completion_tokens"] == 2


def test_ask_streams_as_the_tokens_come(endpoint, serve):
    """The first token is on stdout before the daemon has sent the second."""
    shown = threading.Event()

    def answer(request, number):
        yield from [ticket(), *list(events("Hello", " again"))[:3]]
        assert shown.wait(30)
        yield from list(events("Hello", " again"))[3:]

    serve(answer)
    with subprocess.Popen([*EDGECTL, "--endpoint", endpoint, "ask", "Hi"], stdout=subprocess.PIPE) as process:
        assert os.read(process.stdout.fileno(), 100) == b"Hello"
        shown.set()
        assert process.stdout.read() == b" again\n"
    assert process.returncode == 0


def test_refused(endpoint, serve):
    error = {"code": "busy", "message": "queue\nfull\x1b[31m", "retryable": True, "retry_after_ms": 1200}
    serve(lambda request, number: [{"ok": False, "error": error}])
    done = edgectl(endpoint, "ask", "Hi")
    assert done.returncode == 1
    assert done.stderr == "edgectl: busy: queue full[31m (try again in 1.2 s)\n"


def test_ended_by_an_error_after_some_text(endpoint, serve):
    error = {"code": "worker_lost", "message": "the worker died", "retryable": False}

    def answer(request, number):
        yield from [ticket(), *list(events("Hel"))[:3]]
        yield {"type": "end", "seq": 3, "ok": False, "error": error}

    serve(answer)
    done = edgectl(endpoint, "ask", "Hi")
    assert (done.returncode, done.stdout) == (1, "Hel\n")
    assert done.stderr == "edgectl: worker_lost: the worker died\n"


def test_json_of_an_error_is_one_object_too(endpoint, serve):
    error = {"code": "worker_lost", "message": "the worker died", "retryable": False}
    serve(lambda request, number: [ticket(), {"type": "end", "seq": 0, "ok": False, "error": error}])
    done = edgectl(endpoint, "ask", "--json", "Hi")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == error


def test_cut_off_is_said(endpoint, serve):
    serve(lambda request, number: [ticket(), *events("Hel", finish_reason="deadline")])
    done = edgectl(endpoint, "ask", "Hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hel\n", "edgectl: cut off: deadline\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["ask", ""], "the prompt is empty"),
        (["ask", b"\xff"], "not UTF-8"),
        (["ask", "--raw", "--system", "x", "y"], "--raw"),
        (["ask", "--temperature", "9", "y"], "temperature"),
        (["nonsense"], "No such command"),
    ],
)
def test_usage(endpoint, args, message):
    done = edgectl(endpoint, *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_control_characters_do_not_reach_a_terminal(endpoint, serve):
    serve(lambda request, number: [ticket(), *events("a\x1b[2J\tb\n", "\x9bc\x07", "時")])
    leader, follower = pty.openpty()
    command = [*EDGECTL, "--endpoint", endpoint, "ask", "Hi"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=follower) as process:
        os.close(follower)
        shown = b""
        while b"\xe6\x99\x82\r\n" not in shown:
            shown += os.read(leader, 1000)
    os.close(leader)
    assert shown.decode() == "a[2J\tb\r\nc時\r\n"
    assert process.returncode == 0
    assert edgectl(endpoint, "ask", "Hi").stdout == "a\x1b[2J\tb\n\x9bc\x07時\n"


def test_interrupt_cancels(endpoint, serve):
    def answer(request, number):
        if request["op"] == "cancel":
            return [{"state": "cancelled"}]
        return [ticket(), *list(events("Hel"))[:3]]

    daemon = serve(answer)
    with subprocess.Popen([*EDGECTL, "--endpoint", endpoint, "ask", "Hi"], stdout=subprocess.PIPE) as process:
        assert os.read(process.stdout.fileno(), 100) == b"Hel"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    daemon.wait_for("cancel")
    assert daemon.seen[1]["id"] == daemon.seen[0]["id"]


def test_reader_gone_cancels(endpoint, serve):
    gone = threading.Event()

    def answer(request, number):
        if request["op"] == "cancel":
            return [{"state": "cancelled"}]
        assert gone.wait(30)
        return [ticket(), *list(events("Hello", " again"))[:4]]

    daemon = serve(answer)
    command = [*EDGECTL, "--endpoint", endpoint, "ask", "Hi"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        gone.set()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    daemon.wait_for("cancel")


def test_status_at_a_glance(endpoint, serve):
    serve(lambda request, number: [STATUS])
    done = edgectl(endpoint, "status")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "state     ready, edged 0.1.0, up 1 h 2 min",
        f"model     tiny, 98 MB, sha256 {'ab' * 6}…",
        "profile   default",
        "queue     2 waiting of 128 (high 1)",
        "slots     1 busy of 4, 70 of 4096 KV cells in use",
        "threads   2 decode+prefill on core 0, 1 (runs on 0,1)",
        "speed     96.1 tokens/s",
        "watchdog  level normal, worker died 2 times, last exit SIGABRT",
        "warning   no pin[2J for thread 8",
    ]
    assert json.loads(edgectl(endpoint, "status", "--json").stdout)["threads"][1]["cores"] == [0, 1]


def test_status_while_loading(endpoint, serve):
    serve(
        lambda request, number: [{**STATUS, "state": "loading", "ready": False, "model": {"name": "x", "loaded": 0.43}}]
    )
    assert edgectl(endpoint, "status").stdout.startswith("state     loading 43%, edged 0.1.0")


def test_status_of_a_strange_daemon(endpoint, serve):
    serve(lambda request, number: [{"state": "new", "model": None, "threads": {"a": [1, 2.5]}, "queue": [], "x": 1}])
    done = edgectl(endpoint, "status")
    assert done.returncode == 0
    assert done.stdout == "state     new (not ready), edged ?\nthreads   a 1, 2.5\n"


def test_ping(endpoint, serve):
    serve(lambda request, number: [{"version": "0.1.0", "features": ["generate"], "time": 1}])
    done = edgectl(endpoint, "ping")
    assert done.returncode == 0
    assert re.fullmatch(r"edged 0\.1\.0 answered in [0-9.]+ ms \(generate\)\n", done.stdout)


def test_nobody_there(endpoint, tmp_path):
    done = edgectl(endpoint, "status")
    assert done.returncode == 3
    message = f"edgectl: nothing answers at {endpoint}: start it with `make serve` or `systemctl start edged`\n"
    assert done.stderr == message
    (tmp_path / "request.sock").write_text("a file")
    assert "is not a socket" in edgectl(endpoint, "status").stderr


def test_somebody_silent(endpoint, serve):
    serve(lambda request, number: [])
    done = edgectl(endpoint, "--timeout", "0.2", "ask", "Hi")
    assert done.returncode == 3
    assert "within 0.2 s" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be somebody else")
def test_no_permission():
    with tempfile.TemporaryDirectory() as directory:  # pytest's own directories are closed to others
        os.chmod(directory, 0o755)
        endpoint = f"ipc://{directory}/request.sock"
        daemon = Daemon(endpoint, streaming)
        os.chmod(f"{directory}/request.sock", 0o600)
        daemon.start()
        why = as_nobody(endpoint)
        daemon.stop()
    assert "no permission" in why


def as_nobody(endpoint):
    code = (  # imports first: root's Python may lie where others cannot read
        "import os, sys; from edged.cli import output\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print(output._unreachable(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, endpoint]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_configuration_error(tmp_path):
    file = tmp_path / "edged.yaml"
    file.write_text("limits: {queu: 1}")
    command = [*EDGECTL, "--config", str(file), "status"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78
    assert done.stderr == f"edgectl: {file}: limits.queu: expected a key of config.yaml, found an unknown key\n"


def test_the_configuration_tells_where(tmp_path, endpoint, serve):
    serve(lambda request, number: [STATUS])
    file = tmp_path / "edged.yaml"
    file.write_text(f"runtime_dir: {tmp_path}")
    done = subprocess.run(
        [*EDGECTL, "status"], env={**os.environ, "EDGED_CONFIG": str(file)}, capture_output=True, check=True, timeout=60
    )
    assert b"ready" in done.stdout


def test_connectable():
    def of(*endpoints):
        data = {"listen": {"request": list(endpoints)}, "security": {"allow_insecure_tcp": True}}
        return output.connectable(output.config.parse(data, "test"))

    assert of("tcp://*:5555") == "tcp://127.0.0.1:5555"
    assert of("tcp://0.0.0.0:5555", "ipc:///run/x.sock") == "ipc:///run/x.sock"
    assert of("tcp://10.0.0.1:5555") == "tcp://10.0.0.1:5555"


def test_help_documents_the_exit_statuses():
    done = subprocess.run([*EDGECTL, "--help"], check=True, capture_output=True, text=True, timeout=60)
    assert "3 nothing answered" in " ".join(done.stdout.split())
    assert "78 the configuration" in " ".join(done.stdout.split())


def test_a_verb_imports_only_itself():
    code = "import sys, edged.cli.main as m; m.cli.get_command(None, 'status'); print('edged.cli.ask' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60).stdout == b"False\n"
    )
