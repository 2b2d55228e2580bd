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

from edged.cli import reach
from unit.fake_daemon import Daemon, events, streaming, ticket

EDGECTL = [sys.executable, "-m", "edged.cli.main"]
STATUS = {
    "ok": True,
    "version": "0.1.0",
    "state": "ready",
    "ready": True,
    "uptime_s": 3725.2,
    "model": {"name": "tiny", "sha256": "ab" * 32, "size_bytes": 98_362_432, "context": 4096},
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
        "profile   default, context of 4096 tokens",
        "level     normal",
        "queue     2 waiting of 128 (high 1)",
        "slots     1 busy of 4, 70 of 4096 KV cells in use",
        "speed     96.1 tokens/s",
        "threads   2 decode+prefill on core 0, 1 (runs on 0,1)",
        done.stdout.splitlines()[8],
        "warning   no pin[2J for thread 8",
    ]
    assert re.fullmatch(r"worker    died 2 times, last exit SIGABRT \d+ d \d+ h ago", done.stdout.splitlines()[8])
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


CACHE = {"idle_sequences": 2, "idle_cells": 900, "hits": 12, "misses": 3, "reused_tokens": 3400, "evicted": 1}
CACHE |= {"ram_files": 3, "ram_bytes": 12_340_000, "disk_files": 1, "disk_bytes": 40_000_000, "restored": 2}
CACHE |= {"written_bytes": 5, "set_aside_files": 1}


def test_status_with_cache_and_sessions(endpoint, serve):
    serve(
        lambda request, number: [{**STATUS, "cache": CACHE, "sessions": {"count": 4, "bytes": 81_920, "failures": 1}}]
    )
    lines = edgectl(endpoint, "status").stdout.splitlines()
    assert lines[6] == (
        "cache     12 of 15 prompts found their beginning (3400 tokens not read again), 900 cells kept in 2 sequences, "
        "3 snapshots in RAM, 12.3 MB, 1 snapshot on disk, 40.0 MB, bad files set aside: 1"
    )
    assert lines[7] == "sessions  4, 82 kB, failures: 1"
    assert lines[8] == "speed     96.1 tokens/s"


def test_status_of_an_empty_cache(endpoint, serve):
    serve(lambda request, number: [{**STATUS, "cache": dict.fromkeys(CACHE, 0)}])
    assert "cache" not in edgectl(endpoint, "status").stdout


# ---- what belongs to issue B -----------------------------------------------------------------------------------


def asking(serve, **result):
    return serve(lambda request, number: [ticket(), *events("yes", **result)])


def test_ask_sends_what_the_answer_must_look_like(endpoint, serve, tmp_path):
    daemon = asking(serve)
    schema, grammar = tmp_path / "s.json", tmp_path / "g.gbnf"
    schema.write_text('{"type": "object"}')
    grammar.write_text('root ::= "yes"')
    edgectl(endpoint, "ask", "x", "--schema", str(schema), "--session", "s", "--reset", "--no-thinking")
    edgectl(endpoint, "ask", "x", "--grammar", str(grammar), "--thinking", "--logprobs", "0")
    edgectl(endpoint, "ask", "x", "--schema", "-", input='{"type": "array"}')
    edgectl(endpoint, "ask", "x")
    first, second, third, last = daemon.seen
    assert (first["json_schema"], first["session"], first["reset"]) == ({"type": "object"}, "s", True)
    assert first["thinking"] is False
    assert (second["grammar"], second["thinking"], second["logprobs"]) == ('root ::= "yes"', True, 0)
    assert third["json_schema"] == {"type": "array"}
    assert set(last) == {"op", "id", "messages", "stream"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--reset"], "--reset needs --session"),
        (["--schema", "a", "--grammar", "b"], "one of --schema and --grammar"),
        (["--schema", "/nowhere/x"], "No such file"),
        (["--grammar", "/dev"], "Is a directory"),
        (["--schema", "-"], "expected a JSON object"),
        (["--raw", "--session", "s"], "--session needs the messages"),
    ],
)
def test_what_ask_does_not_take(endpoint, serve, words, why):
    asking(serve)
    done = edgectl(endpoint, "ask", "x", *words, input="[1]")
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_schema_on_stdin_leaves_no_place_for_the_prompt(endpoint, serve):
    asking(serve)
    done = edgectl(endpoint, "ask", "--schema", "-", input="{}")
    assert (done.returncode, "give the prompt as an argument" in done.stderr) == (2, True)


def test_ask_shows_likelihoods_and_remarks(endpoint, serve):
    top = [{"id": 1, "token": "yes", "logprob": -0.1}, {"id": 2, "token": "\x1b[2J", "logprob": -3.0}]
    asking(serve, logprobs=[{**top[0], "top": top}], dropped_turns=2, stored=False)
    done = edgectl(endpoint, "ask", "x", "--logprobs", "2", "--session", "s")
    assert done.stdout.splitlines() == [
        "yes",
        "TOKEN     %  LIKELIEST",
        '"yes"  90.5  "yes" 90.5 "\\u001b[2J" 5.0',
    ]
    assert done.stderr.splitlines() == [
        "edgectl: turns that no longer fit and were left out: 2",
        "edgectl: this turn could not be stored: the session goes on without it",
    ]


def test_an_older_daemon_is_told_by_the_feature(endpoint, serve):
    message = "field `session`: edged 0.1.0 has not got it (see `features` in `ping`)"
    error = {"code": "bad_request", "message": message, "retryable": False}
    serve(lambda request, number: [{"ok": False, "error": error}])
    done = edgectl(endpoint, "ask", "x", "--session", "s")
    assert done.returncode == 1
    assert "this daemon has no feature `session`" in done.stderr


def test_embed(endpoint, serve):
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    vector = [0.1234567, -0.5, *[0.25] * 6]
    daemon = serve(lambda request, number: [{"embeddings": [vector] * len(request["input"]), "usage": usage}])
    done = edgectl(endpoint, "embed", "one", "two")
    assert done.stdout == "8 numbers: 0.1235 -0.5000 0.2500 0.2500 0.2500 0.2500 …\n" * 2
    assert json.loads(edgectl(endpoint, "embed", "--json", input="a\n\nb\nc\n").stdout)["embeddings"] == [vector] * 3
    assert [request["input"] for request in daemon.seen] == [["one", "two"], ["a", "b", "c"]]
    for words in (["embed", ""], ["embed", "a", ""]):
        assert edgectl(endpoint, *words).returncode == 2
    assert edgectl(endpoint, "embed", input="\n").returncode == 2


def test_warm(endpoint, serve):
    daemon = serve(lambda request, number: [{"tokens": 40, "cached_tokens": 30}])
    assert edgectl(endpoint, "warm", "Be brief.").stdout == "40 tokens, 30 of them were read before\n"
    turns = [{"role": "user", "content": "x"}]
    assert json.loads(edgectl(endpoint, "warm", "--messages", "--json", input=json.dumps(turns)).stdout)["tokens"] == 40
    assert [r["messages"] for r in daemon.seen] == [[{"role": "system", "content": "Be brief."}], turns]


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
        "import os, sys; from edged.cli import reach\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print(reach.unreachable(sys.argv[1]))"
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
        return reach.connectable(reach.config.parse(data, "test"))

    assert of("tcp://*:5555") == "tcp://127.0.0.1:5555"
    assert of("tcp://0.0.0.0:5555", "ipc:///run/x.sock") == "ipc:///run/x.sock"
    assert of("tcp://10.0.0.1:5555") == "tcp://10.0.0.1:5555"


def test_a_directory_that_is_closed_to_us_is_where_the_service_is(monkeypatch, tmp_path):
    """/run/edged is for the service's group: that is said, and not that nothing runs elsewhere."""
    system = tmp_path / "system"
    stat = os.stat

    def closed(path, *rest, **more):
        if str(path).startswith(str(system)):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *rest, **more)

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "own"))
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setattr(reach, "SYSTEM_DIR", str(system))
    settings = reach.config.parse({}, "test")
    assert reach.connectable(settings) == f"ipc://{tmp_path}/own/edged/request.sock"
    monkeypatch.setattr(os, "stat", closed)
    assert reach.connectable(settings) == f"ipc://{system}/request.sock"
    assert "no permission for" in reach.unreachable(reach.connectable(settings))


def test_help_documents_the_exit_statuses():
    done = subprocess.run([*EDGECTL, "--help"], check=True, capture_output=True, text=True, timeout=60)
    assert "3 nothing answered" in " ".join(done.stdout.split())
    assert "78 the configuration" in " ".join(done.stdout.split())


def test_a_verb_imports_only_itself():
    code = "import sys, edged.cli.main as m; m.cli.get_command(None, 'status'); print('edged.cli.ask' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60).stdout == b"False\n"
    )
