"""`--json`: stdout has one JSON object, whatever goes wrong and wherever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from edged.cli import failure
from unit.fake_daemon import Daemon

EDGECTL = [sys.executable, "-m", "edged.cli.main"]
AWAY = ["--endpoint", "ipc:///nonexistent/request.sock"]


def edgectl(*words, cwd, **more):
    env = {**os.environ, "XDG_CONFIG_HOME": str(cwd), "XDG_DATA_HOME": str(cwd), "XDG_RUNTIME_DIR": str(cwd)}
    env = {name: value for name, value in env.items() if name not in ("EDGED_CONFIG", "EDGED_ENDPOINT")}
    command = [*EDGECTL, *map(str, words)]
    stdin = subprocess.DEVNULL
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, cwd=cwd, env=env, stdin=stdin, **more
    )


def one_error(done):
    """The error object; stderr says the same in words."""
    assert done.stdout.count("\n") == 1, (done.stdout, done.stderr)
    said = json.loads(done.stdout)
    assert said["ok"] is False
    assert "Traceback" not in done.stderr
    assert done.stderr
    return said["error"]


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        ([*AWAY, "status", "--json"], 3, "no_answer"),
        ([*AWAY, "--json", "ask", "Hi"], 3, "no_answer"),
        ([*AWAY, "events", "--json"], 3, "no_answer"),
        ([*AWAY, "events", "-f", "--json"], 3, "no_answer"),
        ([*AWAY, "top", "--once", "--json"], 3, "no_answer"),
        ([*AWAY, "requests", "--json"], 3, "no_answer"),
        ([*AWAY, "verify", "--json"], 3, "no_answer"),
        ([*AWAY, "chat", "--json"], 3, "no_answer"),
        (["--config", "bad.yaml", "status", "--json"], 78, "configuration"),
        (["--config", "bad.yaml", "config", "check", "--json"], 78, "configuration"),
        (["keys", "show-public", "--json"], 1, "failed"),
        (["keys", "revoke", "nobody", "--json"], 78, "configuration"),
        (["--json", "model", "import", "none.gguf"], 1, "failed"),
        (["--json", "model", "import", "bad.yaml"], 1, "failed"),
        (["--json", "model", "use", "none"], 1, "failed"),
        ([*AWAY, "report", "--no-doctor", "-o", "/nonexistent/x", "--json"], 1, "failed"),
        (["ask", "--json", "--temperature", "9", "Hi"], 2, "usage"),
        (["--json", "nonsense"], 2, "usage"),
        (["--json"], 2, "usage"),
        (["keys", "--json"], 2, "usage"),
        (["--json", "completion", "tcsh"], 2, "usage"),
    ],
)
def test_an_error_is_one_object_too(tmp_path, words, status, code):
    (tmp_path / "bad.yaml").write_text("limits: {queu: 1}")
    done = edgectl(*words, cwd=tmp_path)
    assert done.returncode == status
    error = one_error(done)
    assert error["code"] == code
    assert error["message"]


def test_without_json_stdout_stays_empty(tmp_path):
    for words in ([*AWAY, "status"], [*AWAY, "ask", "--", "--json"]):
        done = edgectl(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (3, "")


def test_a_reply_is_printed_as_it_came(tmp_path):
    endpoint = f"ipc://{tmp_path}/request.sock"
    error = {"code": "busy", "message": "full", "retryable": True, "retry_after_ms": 1200}
    daemon = Daemon(endpoint, lambda request, number: [{"ok": False, "error": error}])
    daemon.start()
    try:
        done = edgectl("--endpoint", endpoint, "ask", "--json", "Hi", cwd=tmp_path)
    finally:
        daemon.stop()
    assert done.returncode == 1
    assert one_error(done) == error


def test_rows_that_go_on(tmp_path):
    """One object a line; that it was interrupted is how it ends."""
    command = [*EDGECTL, *AWAY, "status", "--watch", "0.2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stdout.readline())["error"]["code"] == "no_answer"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 130
    assert all(json.loads(line)["error"]["code"] == "no_answer" for line in rest.splitlines())


def test_completion(tmp_path):
    for words in (["--json", "completion", "bash"], ["completion", "bash", "--json"]):
        done = edgectl(*words, cwd=tmp_path)
        assert "_EDGECTL_COMPLETE" in json.loads(done.stdout)["script"]


@pytest.mark.parametrize("json_too", [True, False])
def test_a_disk_without_room(tmp_path, json_too):
    with open("/dev/full", "w") as full:
        command = [*EDGECTL, "completion", "bash", *["--json"] * json_too]
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "edgectl: No space left on device\n"


def test_every_exit_status_has_a_code():
    assert failure.is_json(["status", "--json"])
    assert not failure.is_json(["ask", "--", "--json"])
    assert failure.CODES.keys() >= {1, 2, 3, 4, 78, 130}
