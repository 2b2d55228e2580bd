"""Metrics of a real daemon: what Prometheus reads, and that nobody who asks holds anything up."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fakeroot import FakeRoot, write
from harness import Daemon, running, until

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/edged.rules.yml"
BOARD = ROOT / "deploy/grafana/edged.json"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def get(port: int, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def scraped(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Sample name → labels and value, as Prometheus' own parser reads it."""
    status, text = get(port)
    assert status == 200, text
    out: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            out.setdefault(sample.name, []).append((sample.labels, sample.value))
    return out


def value(found, name: str, **labels: str) -> float:
    values = [number for have, number in found[name] if all(have.get(k) == v for k, v in labels.items())]
    assert len(values) == 1, (name, labels, found[name])
    return values[0]


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """A daemon on a Pi of files, that has answered, refused, and lost a worker."""
    directory, port = tmp_path_factory.mktemp("metrics"), free_port()
    pi = FakeRoot(directory / "pi")
    at = pi.path / "sys/devices/system/cpu/cpufreq/policy0"
    at.mkdir(parents=True)
    for name in ("cpuinfo_max_freq", "scaling_cur_freq"):
        write(at / name, "1800000\n")
    pressure = pi.path / "proc/pressure/memory"
    pressure.parent.mkdir(parents=True)
    write(pressure, "some avg10=2.50 avg60=0.00 avg300=0.00 total=0\n")
    keys = {"watchdog": {"root": str(pi.path), "interval_s": 0.05}, "limits": {"drain_s": 0.2}}
    with running(directory / "box", metrics={"listen": f"127.0.0.1:{port}"}, **keys) as box:
        turn = [{"role": "user", "content": "n=7"}]
        with box.client() as client:
            assert client.call(op="generate", id="one", messages=turn, session="s")["finish_reason"] == "stop"
            died = client.call(op="generate", id="two", prompt="n=9 die=KILL@3 once=1", max_tokens=9)
            assert died["restarts"] == 1
            assert client.call(op="generate", id="old", prompt="refuse=context_overflow")["ok"] is False
            process = pi.path / f"proc/{box.worker_pid()}"
            process.mkdir()
            write(process / "status", "RssAnon: 2048 kB\nVmSwap: 1024 kB\n")
            until(lambda: "edged_worker_memory_bytes" in scraped(port), "a look at the board")
        yield port, box, pi


def test_what_is_told(board):
    port, _box, pi = board
    found = scraped(port)
    assert value(found, "edged_ready") == 1
    assert value(found, "edged_state", state="ready") == 1
    assert value(found, "edged_requests_accepted_total") == 3
    assert value(found, "edged_requests_total", outcome="stop") == 1
    assert value(found, "edged_requests_total", outcome="length") == 1
    assert value(found, "edged_requests_total", outcome="context_overflow") == 1
    assert value(found, "edged_completion_tokens_total") == 16
    assert value(found, "edged_prompt_tokens_total") == 4
    assert value(found, "edged_time_to_first_token_seconds_count") == 2
    assert value(found, "edged_time_to_first_token_seconds_bucket", le="+Inf") == 2
    assert value(found, "edged_token_interval_seconds_count") == 14
    assert value(found, "edged_worker_ends_total", cause="SIGKILL") == 1
    assert value(found, "edged_worker_starts_total") == 2
    assert value(found, "edged_temperature_celsius", zone="cpu-thermal") == 45
    assert value(found, "edged_memory_total_bytes") == 4000 << 20
    assert value(found, "edged_frequency_hertz") == 1.8e9
    assert value(found, "edged_memory_pressure_ratio") == 0.025
    assert value(found, "edged_level", kind="heat") == 0
    assert value(found, "edged_worker_memory_bytes") == 3 << 20
    assert 5e6 < value(found, "edged_daemon_memory_bytes") < 80e6
    pi.throttled(5)
    pi.heat(50)
    until(lambda: value(scraped(port), "edged_under_voltage") == 1, "the supply's bit")
    assert value(scraped(port), "edged_temperature_celsius", zone="cpu-thermal") == 50


def test_no_caller_is_in_it(board):
    """Ids, identities, sessions and texts are nobody's figures."""
    _, text = get(board[0])
    assert not re.search(r"uid:|\bone\b|\btwo\b|\bt0\b|tok/", text.partition("# HELP edged_slots ")[0])
    labels = {name for line in text.splitlines() for name in re.findall(r"(\w+)=\"", line)}
    known = {
        "version",
        "state",
        "kind",
        "outcome",
        "code",
        "priority",
        "le",
        "cause",
        "model",
        "profile",
        "zone",
        "place",
    }
    assert labels <= known


def test_names_are_as_prometheus_wants_them(board):
    _, text = get(board[0])
    families = list(text_string_to_metric_families(text))
    assert all(f.documentation.endswith(".") for f in families)
    for family in families:
        assert re.fullmatch(r"edged_[a-z_]+", family.name)
        assert (family.type == "counter") == all(sample.name.endswith("_total") for sample in family.samples)
        if re.search(r"bytes|seconds|hertz|celsius|ratio", family.name):
            assert re.search(r"(bytes|seconds|hertz|celsius|ratio|per_second)(_total)?$", family.name)


# ---- what is made of them -----------------------------------------------------------------------------------------

NAME = re.compile(r"\bedged_[a-z_]+")
SELECTOR = re.compile(r"\b(edged_[a-z_]+)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*[=!]~?\"")
LATER = {"edged_requests_refused_total": {"code"}, "edged_incidents_total": {"kind"}}
"""Told once there was one: their labels, by `edged.observe.metrics`."""


def expressions() -> list[str]:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    panels = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    return [*found, *(target["expr"] for panel in panels for target in panel["targets"])]


def test_dashboard_and_alerts_use_what_there_is(board):
    found = scraped(board[0])
    labels = {name: {label for have, _ in samples for label in have} for name, samples in found.items()}
    labels |= {name: have for name, have in LATER.items() if name not in labels}
    for expression in expressions():
        names = NAME.findall(expression)
        assert set(names) <= set(labels), expression
        used = {
            match for _, inside in SELECTOR.findall(expression) for match in re.findall(r"(\w+)\s*[=!]~?\"", inside)
        }
        used |= {word for inside in re.findall(r"by \(([^)]*)\)", expression) for word in re.findall(r"\w+", inside)}
        allowed = {"instance", "job", *(label for name in names for label in labels[name])}
        if names:
            assert used <= allowed, expression


def test_every_alert_has_its_runbook():
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert f"### {rule['alert']}\n" in page
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    told = re.findall(r"^### (Edged\w+)$", page, re.MULTILINE)
    assert told == [rule["alert"] for rule in rules]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian's package prometheus)")
def test_promtool_takes_the_rules():
    subprocess.run(["promtool", "check", "rules", str(RULES)], check=True, timeout=60)


# ---- bad askers ---------------------------------------------------------------------------------------------------


def test_what_is_no_question(board):
    port = board[0]
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics?x=1")[0] == 200
    assert get(port, method="POST")[0] == 405
    for junk in (b"\x16\x03\x01\x02\x00" + b"\xff" * 8000, b"GET\r\n\r\n", b"\0\n\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as asker:
            asker.sendall(junk)
            with contextlib.suppress(ConnectionResetError):
                assert asker.recv(100).startswith(b"HTTP/1.0 40")
    assert get(port)[0] == 200


# ---- on, off, and what is missing ---------------------------------------------------------------------------------


def test_file_and_port_by_sighup(tmp_path):
    port, taken = free_port(), socket.create_server(("127.0.0.1", 0))
    shm = Path("/dev/shm") / f"edged-test-{os.getpid()}"
    shm.mkdir()
    file = shm / "edged.prom"
    try:
        with taken, running(tmp_path / "box", limits={"drain_s": 0.2}, health_interval_s=0.1) as box:
            assert modules(box) == []
            box.settings["metrics"] = {"listen": f"127.0.0.1:{port}", "textfile": str(file), "interval_s": 0.05}
            hangup(box)
            until(file.exists, "the file")
            assert "edged_ready 1.0" in file.read_text()
            assert file.stat().st_mode & 0o777 == 0o644
            until(lambda: get_or_none(port) == 200, "the port")
            assert [path.name for path in shm.iterdir() if path.suffix == ".prom"] == ["edged.prom"]
            warned(box, "")
            later = taken.getsockname()[1]
            box.settings["metrics"] = {"listen": f"127.0.0.1:{later}"}
            hangup(box)
            until(lambda: not file.exists(), "the file is removed")
            warned(box, "cannot be had: Address already in use")
            assert get_or_none(port) is None
            taken.close()
            warned(box, "")
            assert get_or_none(later) == 200
            box.settings["metrics"] = {"textfile": str(tmp_path / "nowhere/edged.prom"), "interval_s": 0.05}
            hangup(box)
            warned(box, "No such file or directory")
            box.settings["metrics"] = {"textfile": str(file), "interval_s": 0.05}
            hangup(box)
            until(file.exists, "the file again")
            warned(box, "")
        assert not file.exists()
        assert "metrics_trouble" in box.log.read_text()
    finally:
        shutil.rmtree(shm)


def hangup(box: Daemon) -> None:
    box.write_config()
    with box.operator() as operator:
        assert operator.call(op="config", action="apply")["applied"]


def warned(box: Daemon, text: str) -> None:
    def as_it_should(status):
        said = [warning for warning in status["warnings"] if warning.startswith("metrics: ")]
        return any(text in warning for warning in said) if text else not said

    box.wait_status(as_it_should, text or "no warning")


def get_or_none(port: int) -> int | None:
    try:
        return get(port)[0]
    except OSError:
        return None


def modules(box: Daemon) -> list[str]:
    """Mapped files that prometheus_client brings along: none while metrics are off."""
    return [line for line in Path(f"/proc/{box.pid}/maps").read_text().splitlines() if "_ssl" in line]


def test_without_the_package(tmp_path):
    """The service serves, and says what to install."""
    code = "import sys; sys.modules['prometheus_client'] = None; from edged.__main__ import main; sys.exit(main())"
    port = free_port()
    box = Daemon(tmp_path / "box", metrics={"listen": f"127.0.0.1:{port}"})
    command = [sys.executable, "-c", code, "--config", str(box.config), "--worker", "scripted_worker"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}", "EDGED_SCRIPT": ""}
    with box.log.open("ab") as log:
        box.process = subprocess.Popen(command, stderr=log, env=environment)
    try:
        until(lambda: box.control_path.exists() or box.process.poll() is not None, "the sockets")
        box.wait_ready()
        assert until(lambda: get_or_none(port), "an answer") == 503
        warned(box, "pip install 'edged[metrics]'")
    finally:
        box.close()
