"""Life and death: workers that die, daemons that stop, sockets that are taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from harness import Daemon, running, tiny_gguf, until

QUICK = {"restart": {"max": 1000, "backoff_s": 0.01, "backoff_max_s": 0.02}}


def run_edged(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edged", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("name", ["KILL", "ABRT", "BUS", "SEGV"])
def test_a_dead_worker_is_named_and_replaced_and_the_answer_goes_on(tmp_path: Path, name: str) -> None:
    with running(tmp_path, watchdog=QUICK) as box, box.client() as client:
        _, *events = client.stream(prompt=f"n=50 delay=0.001 once=1 die={name}@3", id="victim")
        assert [e["reason"] for e in events if e["type"] == "restart"] == [f"SIG{name}"]
        assert [e["seq"] for e in events] == list(range(len(events)))
        end = events[-1]
        assert end["text"] == "".join(e["text"] for e in events if e["type"] == "token")
        assert (end["text"], end["restarts"]) == ("".join(f"t{n} " for n in range(50)), 1)
        assert end["usage"]["completion_tokens"] == 50
        status = box.wait_status(lambda s: s["ready"], "a new worker")
        assert status["watchdog"]["last_exit"]["cause"] == f"SIG{name}"
        assert status["watchdog"]["worker_deaths"] == 1
        assert client.call(op="generate", prompt="n=2")["text"] == "t0 t1 "


def test_a_prompt_that_kills_is_found_among_others_and_kills_no_more(tmp_path: Path) -> None:
    with running(tmp_path, watchdog=QUICK) as box, box.client() as client, box.client() as crowd:
        others = [crowd.ask(op="generate", prompt=f"n=60 delay=0.01 tag={n}.") for n in range(3)]
        error = client.call(op="generate", prompt="n=50 die=SEGV@3", id="poison")["error"]
        assert (error["code"], error["retryable"]) == ("worker_lost", False)
        replies = dict(crowd.receive() for _ in others)
        for number, tag in enumerate(others):
            assert replies[tag]["text"] == "".join(f"{number}.{n} " for n in range(60))
            assert replies[tag]["restarts"] in (1, 2, 3)
        deaths = box.wait_status(lambda s: s["ready"], "ready")["watchdog"]["worker_deaths"]
        assert deaths == 3
        assert client.call(op="generate", prompt="n=50 die=SEGV@3", id="poison")["error"] == error
        assert client.call(op="result", id="poison")["error"] == error
        assert client.call(op="status")["watchdog"]["worker_deaths"] == 3


def test_a_suspect_does_not_answer_for_one_that_was_cancelled(tmp_path: Path) -> None:
    """The worker dies of it before it reads that it was cancelled; what waits as a suspect was not given meanwhile."""
    keys = {"script": "load=1", "watchdog": QUICK, "limits": {"max_restarts": 1}}
    with running(tmp_path, **keys) as box, box.client() as client, box.client() as crowd:
        crowd.ask(op="generate", prompt="n=15 delay=0.2", id="innocent", priority="low")
        box.wait_status(lambda s: s["slots"]["busy"] == 1, "work")
        os.kill(box.worker_pid(), signal.SIGABRT)
        events = client.stream(prompt="n=50 die=ABRT@2 deaf=1", id="guilty")
        said = 0
        while said < 2:
            said += next(events).get("n", 0)
        with box.client() as other:
            assert other.call(op="cancel", id="guilty")["state"] == "cancelled"
        _, reply = crowd.receive()
        assert reply.get("text") == "".join(f"t{n} " for n in range(15)), reply
        assert box.wait_status(lambda s: s["ready"], "ready")["watchdog"]["worker_deaths"] == 2


def test_killed_too_often_everything_ends_at_once_and_the_daemon_stays(tmp_path: Path) -> None:
    """Fault 4. A request that its worker is killed under time and again is not to blame, but nobody can carry it on."""
    rules = {"restart": {"max": 3, "backoff_s": 0.01, "backoff_max_s": 0.02, "window_s": 300}}
    with running(tmp_path, watchdog=rules) as box, box.client() as client, box.client() as crowd:
        tags = {crowd.ask(op="generate", prompt="n=4000 delay=0.01", max_tokens=4096) for _ in range(6)}
        pid = box.pid
        for _ in range(4):
            box.wait_status(lambda s: s["ready"] and s["slots"]["busy"], "work")
            os.kill(box.worker_pid(), signal.SIGKILL)
            until(lambda: client.call(op="status")["state"] != "ready", "its end to be noticed")
        replies = dict(crowd.receive() for _ in tags)
        assert set(replies) == tags
        assert {reply["error"]["code"] for reply in replies.values()} == {"unavailable"}
        assert {reply["error"]["retryable"] for reply in replies.values()} == {True}
        assert client.call(op="generate", prompt="n=1")["error"]["code"] == "unavailable"
        assert (box.pid, box.process.poll()) == (pid, None)


def test_what_was_only_given_goes_to_the_next_worker(tmp_path: Path) -> None:
    with running(tmp_path, watchdog=QUICK) as box, box.client() as client:
        tags = {client.ask(op="generate", prompt="n=100 delay=0.02"): "running" for _ in range(4)}
        box.wait_status(lambda s: s["slots"]["busy"] == 4, "four running")
        for _ in range(5):
            tags[client.ask(op="generate", prompt="n=2")] = "waiting"
        box.wait_status(lambda s: s["queue"]["accepted"] == 9, "all accepted")
        os.kill(box.worker_pid(), signal.SIGKILL)
        replies = [client.receive() for _ in tags]
    outcome = {tag: reply.get("text") or reply["error"]["code"] for tag, reply in replies}
    whole = "".join(f"t{n} " for n in range(100))
    assert {outcome[tag] for tag, kind in tags.items() if kind == "running"} == {whole}
    assert {outcome[tag] for tag, kind in tags.items() if kind == "waiting"} == {"t0 t1 "}


def test_fifty_kills_under_load_lose_nothing_and_spare_the_daemon(tmp_path: Path) -> None:
    """Every accepted request ends exactly once; the service is back after each kill."""
    with running(tmp_path, watchdog=QUICK) as box:
        pid = box.pid
        stop = threading.Event()
        ended: list[int] = []
        whole = "".join(f"t{n} " for n in range(30))

        def load(number: int) -> None:
            with box.client() as client:
                count = 0
                while not stop.is_set():
                    *_, end = client.stream(prompt="n=30 delay=0.003", id=f"l{number}-{count}")
                    assert (end.get("finish_reason"), end.get("text")) == ("stop", whole), end
                    count += 1
                ended.append(count)

        threads = [threading.Thread(target=load, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            victim = until(box.worker_pid, "a worker")
            box.wait_status(lambda s: s["ready"] and s["slots"]["busy"], "work")
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: box.worker_pid() not in (None, victim), "another worker")
        stop.set()
        for thread in threads:
            thread.join(30)
        status = box.wait_status(lambda s: s["ready"] and not s["queue"]["accepted"], "rest")
        assert len(ended) == 6
        assert box.pid == pid
        assert status["watchdog"]["worker_deaths"] == 50
        counters = status["counters"]
        ends = sum(n for key, n in counters.items() if key.startswith(("finished_", "failed_")))
        assert ends == counters["accepted"]


def test_the_budget_ends_in_unavailable_and_the_daemon_stays(tmp_path: Path) -> None:
    rules = {"restart": {"max": 2, "backoff_s": 0.01, "window_s": 300}}
    box = Daemon(tmp_path, script="load=die", watchdog=rules)
    try:
        box.start(ready=False)
        status = box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
        assert status["watchdog"]["worker_deaths"] == 3
        assert status["watchdog"]["last_exit"]["cause"] == "SIGABRT"
        with box.client() as client:
            error = client.call(op="generate", prompt="n=1")["error"]
            assert (error["code"], error["retryable"]) == ("unavailable", True)
            assert client.call(op="ping")["ok"]
        assert box.stop() == 0
    finally:
        box.close()


def test_a_worker_that_refuses_the_model_says_why(tmp_path: Path) -> None:
    box = Daemon(tmp_path, script="load=fail", watchdog={"restart": {"max": 1, "backoff_s": 0.01}})
    try:
        box.start(ready=False)
        status = box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
        assert any("told to fail" in warning for warning in status["warnings"])
        assert status["watchdog"]["last_exit"]["cause"] == "exit 1"
    finally:
        box.close()


def test_nonsense_on_the_link_costs_the_worker_only(tmp_path: Path) -> None:
    box = Daemon(tmp_path, script="load=garbage", watchdog={"restart": {"max": 1, "backoff_s": 0.01}})
    try:
        box.start(ready=False)
        box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
    finally:
        box.close()


def test_while_the_model_loads_the_sockets_answer(tmp_path: Path) -> None:
    box = Daemon(tmp_path, script="load=1.5")
    try:
        box.start(ready=False)
        with box.client() as client:
            status = box.wait_status(lambda s: s["model"].get("loaded") == 0.5, "progress")
            assert (status["state"], status["ready"]) == ("loading", False)
            error = client.call(op="generate", prompt="n=1")["error"]
            assert (error["code"], error["retryable"]) == ("loading", True)
            assert client.call(op="tokenize", text="x")["error"]["code"] == "loading"
        box.wait_ready()
    finally:
        box.close()


def test_a_stop_while_loading_is_clean(tmp_path: Path) -> None:
    box = Daemon(tmp_path, script="load=never")
    try:
        box.start(ready=False)
        assert box.stop() == 0
        assert not box.control_path.exists()
    finally:
        box.close()


BAD_FILES = {
    "not GGUF": (b"PK\x03\x04" + b"x" * 5000, "GGUF"),
    "zero bytes": (b"", "GGUF"),
    "truncated": (None, "bytes"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_model_file_is_told_and_a_good_one_is_picked_up(tmp_path: Path, name: str) -> None:
    path = tiny_gguf(tmp_path / "model.gguf")
    good = path.read_bytes()
    content, word = BAD_FILES[name]
    path.write_bytes(good[:-8] if content is None else content)
    box = Daemon(tmp_path / "box", model=path)
    try:
        box.start(ready=False)
        status = box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
        assert any(word in warning for warning in status["warnings"]), status["warnings"]
        assert status["watchdog"]["worker_starts"] == 0
        path.write_bytes(good)
        box.wait_ready()
        assert box.stop() == 0
    finally:
        box.close()


def test_a_wrong_sha256_is_told(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "model.gguf")
    box = Daemon(tmp_path / "box")
    box.settings["model"] = {"path": str(path), "sha256": "0" * 64}
    box.write_config()
    try:
        box.start(ready=False)
        status = box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
        assert any("sha256" in warning for warning in status["warnings"])
    finally:
        box.close()


def test_sigterm_finishes_what_runs_and_refuses_the_new(tmp_path: Path) -> None:
    box = Daemon(tmp_path, limits={"drain_s": 20}).start()
    try:
        with box.client() as client, box.client() as other:
            events = client.stream(prompt="n=60 delay=0.01", id="last")
            next(events)
            box.process.send_signal(signal.SIGTERM)
            until(lambda: other.call(op="status")["state"] == "draining", "draining")
            assert other.call(op="generate", prompt="n=1")["error"]["code"] == "shutting_down"
            assert other.call(op="generate", prompt="n=60 delay=0.01", id="last", stream="reply")["ok"] is True
            *_, end = other.stream(prompt="n=60 delay=0.01", id="last")
            assert end["usage"]["completion_tokens"] == 60
        assert box.process.wait(30) == 0
    finally:
        box.close()


def test_what_does_not_finish_in_time_is_told_so(tmp_path: Path) -> None:
    box = Daemon(tmp_path, limits={"drain_s": 0.3}).start()
    try:
        with box.client() as client:
            events = client.stream(prompt="n=100000 delay=0.01", max_tokens=4000)
            next(events)
            box.process.send_signal(signal.SIGTERM)
            *_, end = events
            assert end["error"]["code"] == "shutting_down"
        assert box.process.wait(30) == 0
    finally:
        box.close()


def test_a_second_sigterm_stops_at_once(tmp_path: Path) -> None:
    box = Daemon(tmp_path, limits={"drain_s": 3600}).start()
    try:
        with box.client() as client:
            next(client.stream(prompt="n=100000 delay=0.01", max_tokens=4000))
            box.process.send_signal(signal.SIGTERM)
            until(lambda: client.call(op="status")["state"] == "draining", "draining")
        assert box.stop() == 0
    finally:
        box.close()


def test_the_worker_dies_with_the_daemon(tmp_path: Path) -> None:
    box = Daemon(tmp_path).start()
    try:
        worker = box.worker_pid()
        box.process.kill()
        box.process.wait(30)
        until(lambda: not Path(f"/proc/{worker}").exists() or _is_zombie(worker), "the worker's end")
        box.start()
        assert box.stop() == 0
    finally:
        box.close()


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_second_daemon_is_refused_and_the_first_goes_on(daemon: Daemon) -> None:
    second = run_edged(daemon.config)
    assert second.returncode == 1
    assert "another daemon" in second.stderr
    with daemon.client() as client:
        assert client.call(op="ping")["ok"]


def test_a_file_at_the_path_is_left_alone(tmp_path: Path) -> None:
    box = Daemon(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/request.sock").write_text("precious")
    refused = run_edged(box.config)
    assert refused.returncode == 1
    assert "not a socket" in refused.stderr
    assert (tmp_path / "run/request.sock").read_text() == "precious"
    assert not (tmp_path / "run/control.sock").exists()
    box.close()


def test_a_wrong_configuration_is_one_line_and_78(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("limits: {queue: many}\n")
    refused = run_edged(config)
    assert refused.returncode == 78
    assert refused.stderr.count("\n") == 1
    for part in (str(config), "limits.queue", "int", "'many'"):
        assert part in refused.stderr


def test_the_journal_stays_where_it_is_until_a_restart(daemon: Daemon) -> None:
    daemon.settings |= {"journal": "off", "state_dir": str(daemon.directory / "elsewhere"), "log_level": "debug"}
    daemon.write_config()
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: "configuration_applied" in daemon.log.read_text(), "the new configuration")
    assert "journal_unchanged" in daemon.log.read_text()
    with daemon.client() as client:
        told = client.call(op="status")
        assert told["journal"]["mode"] == "ram"
        assert any(one.startswith("journal or state_dir on the disk is another") for one in told["warnings"])
    assert not (daemon.directory / "elsewhere").exists()


def test_sighup_applies_all_or_nothing(tmp_path: Path) -> None:
    with running(tmp_path, limits={"drain_s": 0.2}) as box, box.client() as client:
        events = client.stream(prompt="n=200 delay=0.005", id="through")
        next(events)
        box.config.write_text("limits: {waiters: 3}\nbogus: 1\n")
        box.process.send_signal(signal.SIGHUP)
        until(lambda: "configuration_refused" in box.log.read_text(), "the refusal")
        told = client.call(op="status")
        assert told["limits"]["waiters"] == 8
        warned = [one for one in told["warnings"] if one.startswith("the configuration of ")]
        assert len(warned) == 1
        assert (
            f"was refused: {box.config}: bogus: expected a key of config.yaml; the one before is in force" in warned[0]
        )
        box.write_config()
        box.process.send_signal(signal.SIGHUP)
        box.wait_status(lambda s: not s["warnings"], "the warning to go")
        box.settings["limits"] = {"waiters": 3, "drain_s": 0.2}
        box.write_config()
        box.process.send_signal(signal.SIGHUP)
        box.wait_status(lambda s: s["limits"]["waiters"] == 3, "the new limit")
        assert client.call(op="result", id="through", wait_ms=30_000)["usage"]["completion_tokens"] == 200


def test_sighup_ends_unavailable(tmp_path: Path) -> None:
    box = Daemon(tmp_path, model=tmp_path / "later.gguf")
    try:
        box.start(ready=False)
        box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
        tiny_gguf(tmp_path / "later.gguf")
        box.process.send_signal(signal.SIGHUP)
        box.wait_ready()
    finally:
        box.close()
