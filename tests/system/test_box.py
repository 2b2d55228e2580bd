"""edged as a service of a real box (Debian 12, systemd 252): one box for all, each test leaves it serving."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import ENDPOINT, Box, box, end
from clients import ASK, STREAM
from wheels import install, wheelhouse

from edged.places import EMBEDDED_MODEL

PROMPT = "Write a long story about a lighthouse and the storm."
LONG = 100
"""Tokens: a second or some, and time enough to do something meanwhile."""

DROP_IN = "/etc/systemd/system/edged.service.d/quick.conf"
QUICK = "[Service]\nWatchdogSec=3\n"
"""30 s is for boards; the same happens sooner."""

CONFIG = "/etc/edged/config.yaml"


USERS = {"dev": "edged", "boss": "edged,edged-admin", "stranger": ""}
"""Each with a primary group of its own, and these beside."""


@pytest.fixture(scope="module")
def pi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with box("bookworm") as made:
        wheelhouse(made)
        made.boot()
        install(made)
        for user, groups in USERS.items():
            made.run("useradd", "--groups", groups, user)
        made.run("mkdir", "-p", "/etc/systemd/system/edged.service.d")
        made.write(DROP_IN, QUICK)
        made.run("systemctl", "daemon-reload")
        made.run("systemctl", "restart", "edged")
        made.ready()
        yield made


@pytest.fixture
def restarts(pi: Box) -> Iterator[list[int]]:
    """The test sets the first item: how many restarts by systemd it expects. A start by hand sets the count to 0."""
    pi.ready()
    before, expected = pi.restarts(), [0]
    yield expected
    pi.ready()
    assert pi.restarts() in ([before + expected[0]] if expected[0] else [before, 0])
    assert pi.show("ActiveState")["ActiveState"] == "active"


@pytest.fixture
def good(pi: Box) -> Iterator[str]:
    """The configuration, which the test may change."""
    text = pi.run("cat", CONFIG).stdout
    yield text
    if pi.run("cat", CONFIG).stdout != text:
        pi.write(CONFIG, text)
        pi.run("systemctl", "reload-or-restart", "edged")


@pytest.fixture(scope="module")
def undisturbed(pi: Box) -> str:
    return output(pi.python(ASK, "undisturbed", PROMPT, str(LONG), user="dev"))


def output(process: subprocess.Popen[str], seconds: float = 120.0) -> str:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, out + err
    return out


def asking(pi: Box, name: str) -> subprocess.Popen[str]:
    """When its tokens come."""
    process = pi.python(ASK, name, PROMPT, str(LONG), user="dev")
    assert process.stderr is not None
    assert process.stderr.readline() == "token\n", output(process)
    return process


# ---- who may what, and what it runs under --------------------------------------------------------------------


@pytest.mark.usefixtures("restarts")
def test_a_member_asks_a_stranger_is_refused_and_operators_operate(pi: Box) -> None:
    assert pi.run("edgectl", "ask", "--max-tokens", "8", "Say hello.", user="dev").stdout.strip()
    refused = pi.run("edgectl", "ask", "Say hello.", user="stranger", check=False)
    assert refused.returncode == 3
    assert "no permission" in refused.stderr
    not_you = pi.run("edgectl", "requests", user="dev", check=False)
    assert (not_you.returncode, "no permission" in not_you.stderr) == (3, True)
    assert pi.run("edgectl", "requests", user="boss")
    modes = pi.run("stat", "-c", "%n %a %U:%G", "/run/edged", *(f"/run/edged/{n}.sock" for n in SOCKETS)).stdout
    assert modes.split("\n")[:4] == [
        "/run/edged 750 edged:edged",
        "/run/edged/request.sock 660 edged:edged",
        "/run/edged/stream.sock 660 edged:edged",
        "/run/edged/control.sock 660 edged:edged-admin",
    ]


SOCKETS = ("request", "stream", "control")


@pytest.mark.usefixtures("restarts")
def test_the_score_and_that_everything_works_under_it(pi: Box) -> None:
    security = pi.run("systemd-analyze", "security", "--threshold=15", "--no-pager", "edged.service").stdout
    assert float(security.rsplit("edged.service: ", 1)[1].split()[0]) <= 1.5
    assert pi.run("systemd-analyze", "verify", *(f"/etc/systemd/system/{u}" for u in UNITS)).stderr == ""
    status = pi.ready()
    cores = [thread["core"] for thread in status["threads"]]
    assert len(set(cores)) == len(cores) > 0  # each pinned to its own and read back
    assert status["watchdog"]["readings"]["available_mb"] > 0
    assert status["warnings"] == []
    assert status["journal"]["ram_bytes"] > 0
    assert "ram" in pi.run("ls", "/run/edged").stdout
    pid = pi.main_pid()
    worker = int(pi.run("cat", f"/proc/{pid}/task/{pid}/children").stdout.split()[0])
    scores = [int(pi.run("cat", f"/proc/{p}/oom_score_adj").stdout) for p in (pid, worker)]
    assert pi.show("OOMScoreAdjust") == {"OOMScoreAdjust": "-100"}  # which a container may not be allowed
    assert scores[0] in (-100, 0)
    assert scores[1] > 100
    for process in (pid, worker):
        facts = dict(line.split(":\t", 1) for line in pi.run("cat", f"/proc/{process}/status").stdout.splitlines())
        assert (facts["Seccomp"], facts["NoNewPrivs"], facts["CapBnd"].strip("0")) == ("2", "1", "")
        assert pi.run("stat", "-c", "%U", f"/proc/{process}").stdout.strip() == "edged"
        if process == pid:
            assert int(facts["VmRSS"].split()[0]) < 40_000
    pi.run("edgectl", "ask", "--session", "kitchen", "--max-tokens", "8", "Remember the number 7.", user="dev")
    assert "kitchen" in pi.run("edgectl", "session", "list", user="boss").stdout


UNITS = ("edged.service", "edged.socket", "edged-control.socket")


@pytest.mark.usefixtures("restarts")
def test_without_a_network_it_serves_local_callers(pi: Box) -> None:
    """deploy/systemd/options/local-only.conf."""
    option = "/etc/systemd/system/edged.service.d/local-only.conf"
    try:
        pi.run("cp", "/opt/edged/current/deploy/systemd/options/local-only.conf", option)
        pi.run("systemctl", "daemon-reload")
        pi.run("systemctl", "restart", "edged")
        pi.ready()
        assert pi.run("edgectl", "ask", "--max-tokens", "8", "Say hello.", user="dev").stdout.strip()
        security = pi.run("systemd-analyze", "security", "--no-pager", "edged.service").stdout
        assert float(security.rsplit("edged.service: ", 1)[1].split()[0]) < 1.0
    finally:
        pi.run("rm", option)
        pi.run("systemctl", "daemon-reload")
        pi.run("systemctl", "restart", "edged")


@pytest.mark.usefixtures("restarts")
def test_the_journal_has_fields_and_never_a_prompt(pi: Box) -> None:
    marker = "Xylophonquartett"
    answer = pi.run("edgectl", "ask", "--max-tokens", "12", f"Say {marker} twice.", user="dev").stdout.strip()
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: pi.journal("EDGED_EVENT=configuration_applied"), "the reload in the journal")
    entry = pi.journal("EDGED_EVENT=model_ready")[-1]
    assert entry["EDGED_MODEL"] == "smollm2-135m-instruct"
    assert entry["MESSAGE"].startswith("model_ready model=")
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"]) == ("6", "edged")
    everything = json.dumps(pi.journal())
    assert marker not in everything
    assert len(answer) > 10
    assert answer[:40] not in everything
    ready = "ready, level normal, smollm2-135m-instruct"
    pi.until(lambda: pi.show("StatusText")["StatusText"].startswith(ready), "its state in words, within a second")


# ---- restarts, reloads ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("restarts")
def test_who_asks_across_a_restart_is_served_by_the_same_call(pi: Box, undisturbed: str) -> None:
    before = asking(pi, "before")
    restart = pi.popen("systemctl", "restart", "edged")
    meanwhile = pi.python(ASK, "meanwhile", PROMPT, str(LONG), user="dev")
    output(restart)
    assert output(pi.python(ASK, "afterwards", "Say hello.", "8", user="dev"))
    assert output(meanwhile) == undisturbed
    assert output(before) == undisturbed


@pytest.mark.usefixtures("restarts")
def test_reload_with_a_good_and_with_a_bad_configuration(pi: Box, good: str) -> None:
    pid = pi.main_pid()
    pi.write(CONFIG, good.replace("  queue: 128", "  queue: 77"))
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: pi.status()["queue"]["limit"] == 77, "the new limit")
    pi.write(CONFIG, good.replace("  queue: 128", "  queue: many"))
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: pi.journal("EDGED_EVENT=configuration_refused"), "a refusal in the journal")
    assert "limits.queue: expected int" in pi.journal("EDGED_EVENT=configuration_refused")[-1]["EDGED_ERROR"]
    assert pi.status()["queue"]["limit"] == 77
    pi.write(CONFIG, good)
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: pi.status()["queue"]["limit"] == 128, "the old limit")
    assert pi.main_pid() == pid


@pytest.mark.usefixtures("restarts")
def test_a_bad_configuration_at_the_start_while_clients_wait(pi: Box, good: str, undisturbed: str) -> None:
    pi.run("systemctl", "stop", "edged")
    pi.write(CONFIG, "limits: {queu: 3}\n")
    waiting = pi.python(ASK, "waiting", PROMPT, str(LONG), user="dev")  # starts the service
    status = pi.until(lambda: (s := pi.status()).get("state") == "unavailable" and s, "unavailable")
    assert "limits.queu: expected a key of config.yaml" in status["warnings"][0]
    assert "limits.queu" in pi.show("StatusText")["StatusText"]
    assert pi.show("ActiveState")["ActiveState"] == "active"
    refused = pi.run("edgectl", *ENDPOINT, "--timeout", "1", "tokenize", "Hello?", user="dev", check=False)
    assert (refused.returncode, "limits.queu" in refused.stderr) == (1, True)
    assert pi.run("edgectl", "status", check=False).returncode == 78  # it reads the same file
    pid = pi.main_pid()
    pi.write(CONFIG, good)
    pi.run("systemctl", "reload", "edged")
    assert output(waiting) == undisturbed
    assert pi.main_pid() == pid


def test_alone_a_bad_configuration_ends_it_once(pi: Box) -> None:
    """Fault 28, without activation: status 78, no loop."""
    unit = pi.run("cat", "/etc/systemd/system/edged.service").stdout
    alone = unit.replace("Requires=edged.socket edged-control.socket\n", "").replace(CONFIG, "/etc/edged/alone.yaml")
    pi.write("/etc/edged/alone.yaml", "runtime_dir: /run/edged/alone\nlimits: {queu: 3}\n")
    pi.write("/run/systemd/system/edged-alone.service", alone)
    pi.run("systemctl", "daemon-reload")
    assert pi.run("systemctl", "start", "edged-alone", check=False).returncode != 0
    time.sleep(2.5)
    shown = pi.show("NRestarts", "ExecMainStatus", "ActiveState", unit="edged-alone.service")
    assert shown == {"NRestarts": "0", "ExecMainStatus": "78", "ActiveState": "failed"}
    pi.run("systemctl", "reset-failed", "edged-alone")
    pi.run("rm", "/run/systemd/system/edged-alone.service")
    pi.run("systemctl", "daemon-reload")


# ---- death, hangs, stops -------------------------------------------------------------------------------------


def test_a_daemon_that_hangs_is_killed_and_the_request_goes_on(pi: Box, restarts: list[int], undisturbed: str) -> None:
    pid = pi.main_pid()
    stream = asking(pi, "hang")
    pi.signal("STOP", pid)
    assert output(stream) == undisturbed
    restarts[0] = 1
    assert any("watchdog" in entry["MESSAGE"].lower() for entry in pi.journal("_PID=1"))


def test_a_daemon_that_is_killed_leaves_no_worker_and_the_stream_goes_on(
    pi: Box, restarts: list[int], undisturbed: str
) -> None:
    pid = pi.main_pid()
    worker = pi.run("cat", f"/proc/{pid}/task/{pid}/children").stdout.split()[0]
    stream = asking(pi, "killed")
    pi.signal("KILL", pid)
    died = time.monotonic()
    pi.until(lambda: pi.run("test", "-e", f"/proc/{worker}", check=False).returncode, "no orphan", 1.0)
    second = pi.python(ASK, "killed", PROMPT, str(LONG), user="dev")
    assert pi.until(pi.status, "an answer", 30)
    assert time.monotonic() - died < 30
    assert [output(stream), output(second)] == [undisturbed] * 2
    restarts[0] = 1


@pytest.mark.usefixtures("restarts")
def test_an_operator_may_restart_it_many_times_in_a_minute(pi: Box) -> None:
    """systemd counts good starts towards its limit, too, and beyond it takes the sockets down."""
    for _ in range(8):
        pi.run("systemctl", "restart", "edged")
    assert [pi.show("ActiveState", unit=unit)["ActiveState"] for unit in UNITS] == ["active"] * len(UNITS)


@pytest.mark.usefixtures("restarts")
def test_a_stop_in_mid_stream_ends_it_with_its_type(pi: Box, good: str) -> None:
    pi.write(CONFIG, good.replace("  drain_s: 10", "  drain_s: 0.5"))
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: pi.status()["limits"]["drain_s"] == 0.5, "the shorter drain")
    stream = pi.python(STREAM, "stopped", PROMPT, "3000", user="dev")
    assert stream.stdout is not None
    assert any(json.loads(line).get("type") == "token" for line in stream.stdout)
    begun = time.monotonic()
    pi.run("systemctl", "stop", "edged")
    assert time.monotonic() - begun < 30
    shown = pi.show("Result", "ExecMainStatus", "ActiveState")
    assert shown == {"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"}
    last = next(event for line in stream.stdout if (event := json.loads(line)).get("type") == "end")
    assert last["error"]["code"] == "shutting_down"
    end(stream)
    pi.write(CONFIG, good)
    assert output(pi.python(ASK, "woken", "Say hello.", "8", user="dev"))  # the socket starts it


@pytest.mark.usefixtures("restarts")
def test_systemd_and_the_journal_are_restarted_under_it(pi: Box, undisturbed: str) -> None:
    """Fault 29: nothing."""
    pid = pi.main_pid()
    stream = asking(pi, "calm")
    pi.run("systemctl", "daemon-reload")
    option = "/opt/edged/current/deploy/systemd/options/hardware-watchdog.conf"
    pi.run("install", "-D", option, "/etc/systemd/system.conf.d/hardware-watchdog.conf")
    pi.run("systemctl", "daemon-reexec")
    assert pi.run("systemctl", "show", "-pRuntimeWatchdogUSec").stdout.strip() == "RuntimeWatchdogUSec=10s"
    pi.run("systemctl", "restart", "systemd-journald")
    assert output(stream) == undisturbed
    time.sleep(4)  # more than WatchdogSec: pings reach the new PID 1
    assert pi.main_pid() == pid
    before = len(pi.journal("EDGED_EVENT=configuration_applied"))
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: len(pi.journal("EDGED_EVENT=configuration_applied")) > before, "an entry after the restart")


# ---- upgrade, uninstall --------------------------------------------------------------------------------------


def test_an_upgrade_serves_who_asks_meanwhile_and_keeps_the_one_before(pi: Box, undisturbed: str) -> None:
    pi.ready()
    before = pi.run("readlink", "/opt/edged/current").stdout
    busy = pi.python(UNTIL_STOPPED, user="dev")
    install(pi)
    pi.run("touch", "/tmp/stop")
    out = output(busy).split()
    assert int(out[0]) > 0
    assert out[1:] == ["0"]
    after = pi.run("readlink", "/opt/edged/current").stdout
    assert after != before
    assert output(pi.python(ASK, "upgraded", PROMPT, str(LONG), user="dev")) == undisturbed
    assert len(pi.run("ls", "/opt/edged/releases").stdout.split()) == 2


def test_a_terminal_that_goes_away_after_the_switch_takes_nothing_along(pi: Box) -> None:
    pi.ready()
    pi.run("bash", "-c", HANG_UP, seconds=150)
    assert pi.run("/opt/edged/current/venv/bin/edged", "--version").stdout
    pi.run("systemctl", "restart", "edged")
    pi.ready()


HANG_UP = """
cd /root/edged
before=$(readlink /opt/edged/current)
WHEELS=/root/wheels setsid bash scripts/install.sh &
while [ "$(readlink /opt/edged/current)" = "$before" ]; do sleep 0.02; done
kill -HUP -- "-$!"
wait || true
"""

UNTIL_STOPPED = """
import os, time
from edged.client import Client
good = bad = 0
with Client("ipc:///run/edged/request.sock") as edged:
    while not os.path.exists("/tmp/stop"):
        try:
            edged.generate("Say hello.", max_tokens=4, deadline_s=60)
            good += 1
        except Exception as error:
            bad += 1
        time.sleep(0.05)
print(good, bad)
"""


def test_uninstall_keeps_data_and_purge_does_not(pi: Box) -> None:
    pi.run("sh", "-c", "cd /root/edged && bash scripts/uninstall.sh")
    assert pi.run("test", "-e", "/opt/edged", check=False).returncode
    assert pi.run("test", "-e", "/run/edged", check=False).returncode
    assert pi.run("ls", "/var/lib/edged/models").stdout.split() == [EMBEDDED_MODEL]
    assert pi.run("test", "-e", CONFIG)
    pi.run("sh", "-c", "cd /root/edged && PURGE=1 bash scripts/uninstall.sh")
    assert pi.run("test", "-e", "/var/lib/edged", "-o", "-e", "/etc/edged", check=False).returncode
    assert pi.run("getent", "passwd", "edged", check=False).returncode
    leftovers = pi.run(
        "sh", "-c", "ls -d /etc/*/*edged* /etc/systemd/system/*edged* /usr/local/bin/edgectl", check=False
    )
    assert leftovers.stdout.replace(str(Path(DROP_IN).parent), "").strip() == ""
