"""examples/c/ask.c: compiled, run, and run while what it talks to dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import TESTS, Daemon, running, until
from keys import Keys, pair
from proxy import Proxy

from edged import keyfile

SOURCE = TESTS.parent / "examples/c/ask.c"
WHOLE = "".join(f"t{n} " for n in range(60)) + "\n"
QUICK = {"restart": {"max": 100, "backoff_s": 0.01}}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("c") / "ask"
    if shutil.which("cc") is None or not Path("/usr/include/zmq.h").exists():
        pytest.skip("a C compiler and libzmq's headers (libzmq3-dev) are not here")
    command = ["cc", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCE), "-lzmq"]
    subprocess.run(command, check=True, timeout=60)
    return program


def begin(program: Path, box: Daemon, prompt: str, before: list[str] | None = None) -> subprocess.Popen[str]:
    command = [*(before or []), str(program), box.request_endpoint, prompt]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_has_at_most_230_lines() -> None:
    assert len(SOURCE.read_text().splitlines()) <= 230


def test_it_prints_the_answer_and_tells_errors(ask: Path, daemon: Daemon) -> None:
    good = begin(ask, daemon, 'n=3 word=ä"\\n "quoted" \\ \t\n')
    assert good.communicate(timeout=30) == ('ä"\\n' * 3 + "\n", "")
    assert good.returncode == 0
    bad = begin(ask, daemon, "refuse=context_overflow")
    text, errors = bad.communicate(timeout=30)
    assert (text, bad.returncode) == ("", 1)
    assert "context_overflow" in errors


@pytest.mark.parametrize("checker", [[], ["valgrind"]], ids=["plain", "valgrind"])
def test_it_gets_the_whole_text_though_worker_and_daemon_are_killed(
    ask: Path, tmp_path: Path, checker: list[str]
) -> None:
    if checker and shutil.which("valgrind") is None:
        pytest.skip("valgrind is not here")
    flags = ["-q", "--leak-check=full", "--error-exitcode=99", "--errors-for-leak-kinds=definite,possible"]
    with running(tmp_path / "box", watchdog=QUICK) as box, box.client() as client:
        one = begin(ask, box, "n=60 delay=0.03", checker + (flags if checker else []))
        until(lambda: client.call(op="status")["slots"]["busy"], "the request")
        os.kill(box.worker_pid(), signal.SIGKILL)
        until(lambda: client.call(op="status")["counters"].get("carried"), "the loss")
        until(lambda: client.call(op="status")["slots"]["busy"], "the next worker")
        box.process.kill()
        box.process.wait()
        box.start()
        text, errors = one.communicate(timeout=60)
    assert one.returncode == 0, errors
    assert text.endswith(WHOLE)
    assert "worker_lost" not in errors
    assert "begins anew" not in errors, "the next daemon goes on with it"


def test_it_waits_while_the_box_is_busy(ask: Path, tmp_path: Path) -> None:
    limits = {"queue": 1, "queue_per_identity": 1, "drain_s": 0.2}
    with running(tmp_path / "box", script="sequences=1", limits=limits) as box, box.client() as client:
        for number in range(4):
            client.call(op="generate", prompt="n=4000 delay=0.02", id=f"f{number}", stream=True, max_tokens=4000)
        one = begin(ask, box, "n=3")
        until(lambda: client.call(op="status")["counters"].get("refused_busy"), "the refusal")
        for number in range(4):
            client.call(op="cancel", id=f"f{number}")
        text, errors = one.communicate(timeout=60)
    assert (one.returncode, text) == (0, "t0 t1 t2 \n")
    assert "busy" in errors


def test_a_lost_event_is_made_up_for(ask: Path, daemon: Daemon, tmp_path: Path) -> None:
    proxy = Proxy(daemon.context, f"ipc://{tmp_path}/p.sock", daemon.request_endpoint)
    lost = {3, 6}
    proxy.down = lambda m: not (m.get("seq") in lost and m["type"] == "token" and not lost.discard(m["seq"]))
    proxy.start()
    try:
        command = [str(ask), proxy.endpoint, "n=60 delay=0.01"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    finally:
        proxy.stop()
    assert proxy.lost >= 2
    assert done.stdout == WHOLE


@pytest.mark.parametrize("checker", [[], ["valgrind"]], ids=["plain", "valgrind"])
def test_with_keys_over_tcp(ask: Path, tmp_path: Path, checker: list[str]) -> None:
    if checker and shutil.which("valgrind") is None:
        pytest.skip("valgrind is not here")
    flags = ["-q", "--leak-check=full", "--error-exitcode=99", "--errors-for-leak-kinds=definite,possible"]
    keys = Keys(tmp_path / "keys")
    ada, stranger = keys.admit("ada"), pair()
    files = {"ada": keyfile.secret_text(ada), "stranger": keyfile.secret_text(stranger)}
    for name, text in (files | {"box": keyfile.public_text(keys.server)}).items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    with running(tmp_path / "run", **keys.settings(tmp_path / "run/run")):
        for name, status, text, error in (
            ("ada", 0, "t0 t1 t2 \n", ""),
            ("stranger", 1, "", f"[{keys.request} does not know this key]\n"),
            ("box", 2, "", f"{tmp_path}/box: no such key\n"),
        ):
            command = [*checker, *(flags if checker else []), str(ask), keys.request, "n=3"]
            command += [str(tmp_path / name), str(tmp_path / "box")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout, done.stderr) == (status, text, error)


@pytest.mark.parametrize("checker", [[], ["valgrind"]], ids=["plain", "valgrind"])
def test_ctrl_c_cancels_the_request(ask: Path, daemon: Daemon, checker: list[str]) -> None:
    if checker and shutil.which("valgrind") is None:
        pytest.skip("valgrind is not here")
    flags = ["-q", "--leak-check=full", "--error-exitcode=99", "--errors-for-leak-kinds=definite,possible"]
    with daemon.client() as client:
        one = begin(ask, daemon, "n=255 delay=0.05", checker + (flags if checker else []))
        until(lambda: client.call(op="status")["slots"]["busy"], "the request")
        one.send_signal(signal.SIGINT)
        _, errors = one.communicate(timeout=30)
        assert one.returncode == 130, errors
        until(lambda: client.call(op="status")["counters"].get("finished_cancelled"), "the cancel")


def test_a_text_that_was_cut_off_is_told(ask: Path, daemon: Daemon) -> None:
    one = begin(ask, daemon, "n=255 delay=0.05")
    with daemon.operator() as operator, daemon.client() as client:
        (row,) = until(lambda: operator.call(op="requests")["requests"], "the request")
        until(lambda: client.call(op="status")["slots"]["busy"], "its turn")
        client.call(op="cancel", id=row["id"])
    text, errors = one.communicate(timeout=30)
    assert (one.returncode, errors) == (1, "\n[cut off: cancelled]\n")
    assert "t254" not in text


def with_keys(program: Path, endpoint: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(program), endpoint, "n=3", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_secret_that_others_can_read_is_refused(ask: Path, tmp_path: Path) -> None:
    key, server = tmp_path / "ada", tmp_path / "box"
    key.write_text(keyfile.secret_text(pair()))
    server.write_text(keyfile.public_text(pair()))
    for mode in (0o644, 0o640, 0o604):
        key.chmod(mode)
        done = with_keys(ask, "tcp://127.0.0.1:1", key, server)
        assert (done.returncode, done.stderr) == (2, f"{key}: others can read this secret: chmod 600 it\n")


def test_keys_that_do_not_fit_are_told_long_before_the_deadline(ask: Path, tmp_path: Path) -> None:
    """All at once: each takes as long as the silence rule."""
    keys, none = Keys(tmp_path / "keys"), Keys(tmp_path / "none")
    key, server = tmp_path / "ada", tmp_path / "box"
    key.write_text(keyfile.secret_text(keys.admit("ada")))
    key.chmod(0o600)
    server.write_text(keyfile.public_text(pair()))
    open_box = none.settings(tmp_path / "open/run") | {"security": {"allow_insecure_tcp": True}}
    with running(tmp_path / "run", **keys.settings(tmp_path / "run/run")), running(tmp_path / "open", **open_box):
        cases = ((keys.request, [key, server]), (keys.request, []), (none.request, [key, server]))
        with ThreadPoolExecutor(len(cases)) as pool:
            ended = list(pool.map(lambda case: (case[0], with_keys(ask, case[0], *case[1])), cases))
    for endpoint, done in ended:
        told = f"[{endpoint} ends the handshake: wrong keys, or keys on one side only]\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", told)
