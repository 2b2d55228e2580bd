"""`edgectl events`, `top`, `report` and the plots of `status` against real daemons, on a terminal that is looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
from harness import Daemon, running, until
from keys import Keys, apply, free_port
from terminal import CTRL_C, Terminal, lines, screen

from edged import keyfile
from edged.client.where import derived

EDGECTL = [sys.executable, "-m", "edged.cli.main"]
CANARY = "canary-5d1e"


def at(box: Daemon, *words: str) -> list[str]:
    return [*EDGECTL, "--config", str(box.config), *words]


def edgectl(box: Daemon, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(at(box, *words), check=False, capture_output=True, text=True, timeout=60, **options)


def begin(box: Daemon, number: int) -> None:
    with box.client() as client:
        prompt = f"n=4000 delay=0.1 word={CANARY}"
        fields = {"stream": True, "detach": True, "max_tokens": 4000, "id": f"seen-{number}"}
        assert client.call(op="generate", prompt=prompt, deadline_ms=900_000, **fields)["ok"]


def rows(box: Daemon) -> int:
    with box.client() as client:
        return len(client.call(op="history", seconds=60)["columns"]["queue"])


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Six requests, of which four are written."""
    with running(tmp_path_factory.mktemp("box"), limits={"drain_s": 0}) as box:
        for number in range(6):
            begin(box, number)
        until(lambda: rows(box) > 1, "rows")
        yield box


class Watched(Terminal):
    """A terminal with somebody who looks: `shown` is what stands on it."""

    def __init__(self, command: list[str], **size: Any) -> None:
        super().__init__(command, **size)
        self.screen = pyte.Screen(size.get("columns", 80), size.get("rows", 24))
        self._stream = pyte.ByteStream(self.screen)
        self._fed = 0

    def look(self) -> str:
        self._stream.feed(self.raw[self._fed :])
        self._fed = len(self.raw)
        return "\n".join(self.screen.display)

    def see(self, *words: str) -> str:
        """Reads until all of it stands there at once."""
        end = time.monotonic() + 30
        while not all(word in self.look() for word in words):
            assert self._read(end), self.look()
        return self.look()

    def resized(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.resize(columns, rows)


# ---- status ----------------------------------------------------------------------------------------------------


def test_status_shows_the_last_hour_on_a_terminal(busy: Daemon) -> None:
    until(lambda: rows_of_ten(busy), "a row of ten seconds")
    code, shown = screen(*at(busy, "status"), columns=90, PYTHONIOENCODING="utf-8")
    assert code == 0
    assert any(line.startswith("last hour") and "▁" in line for line in lines(shown)), shown
    assert max(map(len, lines(shown))) <= 90
    plain = screen(*at(busy, "status"), columns=90, PYTHONIOENCODING="ascii")[1]
    assert "last hour" in plain
    assert "_" in plain
    assert not set(plain) & set("▁▂▃▄▅▆▇█")
    assert "last hour" not in screen(*at(busy, "status", "--no-history"), columns=90)[1]
    assert "last hour" not in edgectl(busy, "status").stdout
    assert json.loads(edgectl(busy, "status", "--history", "--json").stdout)["history"]["interval_s"] == 10
    assert "history" not in json.loads(edgectl(busy, "status", "--json").stdout)


def rows_of_ten(box: Daemon) -> int:
    with box.client() as client:
        return len(client.call(op="history")["columns"]["queue"])


# ---- events ----------------------------------------------------------------------------------------------------


def test_events(busy: Daemon) -> None:
    first, second, *_ = edgectl(busy, "events").stdout.splitlines()
    assert first.endswith("  the daemon started, edged 0.1.0")
    assert "is ready, profile default" in second
    assert json.loads(edgectl(busy, "events", "--json").stdout)["events"][0]["event"] == "started"
    assert edgectl(busy, "events", "--since", "0.001s").stdout == "nothing happened\n"
    done = edgectl(busy, "events", "--since", "soon")
    assert (done.returncode, "no span of time" in done.stderr) == (2, True)


def test_events_are_followed_over_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits={"drain_s": 0}) as box:
        command = at(box, "events", "-f", "--json")
        with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as following:
            read = following.stdout.readline
            assert json.loads(read())["event"] == "started"
            assert json.loads(read())["event"] == "ready"
            with box.operator() as operator:
                operator.call(op="drain")
            assert json.loads(read())["event"] == "draining"
            box.stop(signal.SIGKILL)
            assert "not reachable, waiting: " in following.stderr.readline()
            box.start()
            again = [json.loads(read()), json.loads(read())]
            assert [event["event"] for event in again] == ["started", "ready"]
            assert "reachable again" in following.stderr.readline()
            following.send_signal(signal.SIGINT)
            assert following.wait(30) == 130
            assert following.stdout.read() == ""


# ---- top -------------------------------------------------------------------------------------------------------


def test_top(busy: Daemon) -> None:
    with Watched(at(busy, "top", "--interval", "0.2"), PYTHONIOENCODING="utf-8") as top:
        shown = top.see("REQUESTS  4 running, 2 waiting", "seen-3", "EVENTS", "q quit", "tokens/s", "5 min ago")
        assert CANARY not in shown
        assert "▁" in shown
        assert top.screen.cursor.hidden
        top.resized(50, 15)
        assert len(top.see("REQUESTS", "tokens/s").splitlines()) == 15
        top.resized(120, 40)
        top.see("REQUESTS", "seen-5")
        top.send("?")
        top.see("stop the picture, go on")
        top.send("x")
        top.see("REQUESTS")
        top.send("h")
        top.see("60 min ago")
        top.send("jc")
        top.see(f"cancel seen-1 of uid:{os.getuid()}? y/n")
        top.send("n")
        top.see("q quit")
        top.send("c")
        top.see("cancel seen-1")
        top.send("y")
        top.see("REQUESTS  4 running, 1 waiting")
        assert "seen-1 " not in top.look()
        top.send("p")
        top.see("PAUSED")
        top.send("q")
        assert top.end() == 0
        assert top.raw.endswith(b"\x1b[?25h\x1b[?1049l")
    begin(busy, 6)  # an id runs once


@pytest.mark.parametrize(("sent", "status"), [(CTRL_C, 130), ("TERM", 143), ("HUP", 129), ("q", 0)])
def test_top_gives_the_terminal_back(busy: Daemon, sent: str, status: int) -> None:
    command = at(busy, "top")
    with Watched(["bash", "-c", 'stty -g; "$@"; echo "left $?"; stty -g', "x", *command]) as top:
        top.see("REQUESTS", "seen-2")
        before = top.raw.split(b"\r\n")[0]
        if len(sent) == 1:
            top.send(sent)
        else:
            subprocess.run(["pkill", f"-{sent}", "-P", str(top.process.pid)], check=False)
        top.end()
        left, after = top.raw.rstrip().split(b"\r\n")[-2:]
        assert left.endswith(f"left {status}".encode()), left
        assert after == before
        assert b"\x1b[?1049l" in top.raw


def test_top_outlives_the_daemon(tmp_path: Path) -> None:
    with (
        running(tmp_path / "box", limits={"drain_s": 0}) as box,
        Watched(at(box, "top", "--interval", "0.2"), columns=200) as top,
    ):
        top.see("ready, edged", "nothing waits or runs")
        box.stop(signal.SIGKILL)
        top.see("not reachable since", "nobody listens at")
        box.start()
        top.see("ready, edged", "nothing waits or runs")
        os.kill(box.pid, signal.SIGSTOP)
        top.see("not reachable since", "does not answer")
        top.send("?")  # keys are heard meanwhile
        top.see("this help")
        top.send("?")
        os.kill(box.pid, signal.SIGCONT)
        top.see("ready, edged")
        top.send("q")
        assert top.end() == 0


def test_top_writes_little(busy: Daemon) -> None:
    """A slow line: 10 kB/s is the aim, some hundred bytes are what it takes."""
    with Watched(at(busy, "top", "--interval", "0.2"), columns=120, rows=40) as top:
        top.see("REQUESTS")
        begun, before = time.monotonic(), len(top.raw)
        while time.monotonic() - begun < 2:
            top._read(time.monotonic() + 30)
        looks = 5 * (time.monotonic() - begun)
        assert (len(top.raw) - before) / looks < 4000
        top.send("q")
        assert top.end() == 0


def test_top_where_there_is_no_colour_or_no_screen(busy: Daemon) -> None:
    with Watched(at(busy, "top"), NO_COLOR="1") as top:
        top.see("REQUESTS")
        top.send("q")
        top.end()
        assert not any(f"\x1b[{n}m".encode() in top.raw for n in (31, 32, 33, 36))
    with Watched(at(busy, "top"), TERM="dumb") as top:
        assert top.end() == 2
        assert "edgectl status" in top.look()
    done = edgectl(busy, "top")
    assert (done.returncode, "--once" in done.stderr) == (2, True)


def test_one_picture(busy: Daemon) -> None:
    done = edgectl(busy, "top", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "REQUESTS  4 running" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    told = json.loads(edgectl(busy, "top", "--once", "--json").stdout)
    assert (len(told["requests"]), told["hidden"], told["status"]["state"]) == (6, "", "ready")
    assert told["history"]["interval_s"] == 1
    assert edgectl(busy, "top", "--json").returncode == 2


def test_top_over_tcp_shows_no_requests(tmp_path: Path) -> None:
    directory, endpoint = tmp_path / "box", f"tcp://127.0.0.1:{free_port()}"
    listen = {"request": [f"ipc://{directory}/run/request.sock", endpoint]}
    with running(directory, listen=listen, security={"allow_insecure_tcp": True}):
        command = [*EDGECTL, "--endpoint", endpoint, "top", "--once"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        assert "over the control socket of the box itself" in done.stdout
        assert "ready, edged" in done.stdout


def test_a_device_with_a_key(tmp_path: Path) -> None:
    """Its keys go with every socket, that of the stream too; none of it is on the page."""
    keys = Keys(tmp_path / "keys")
    device = keys.admit("ada", name="ada")
    (tmp_path / "ada.key_secret").touch(0o600)
    (tmp_path / "ada.key_secret").write_text(keyfile.secret_text(device))
    request = f"tcp://127.0.0.1:{free_port()}"
    keys.request, keys.stream = request, derived(request)
    with running(tmp_path / "box", limits={"drain_s": 0}, **keys.settings(tmp_path / "box/run")) as box:
        here = ("--endpoint", request, "--key", str(tmp_path / "ada.key_secret"), "--server-key", keys.server.public)
        assert "ready, edged" in edgectl(box, *here, "top", "--once").stdout
        assert edgectl(box, *here, "health").returncode == 0
        page = edgectl(box, *here, "report", "-o", "-").stdout
        assert "the daemon started" in page
        assert "Doctor" in page
        for secret in (*(key for pair in (device, keys.server) for key in (pair.public, pair.secret)), "ada.key"):
            assert secret not in page
        with subprocess.Popen(at(box, *here, "events", "-f", "--json"), stdout=-1, stderr=-1, text=True) as following:
            assert [json.loads(following.stdout.readline())["event"] for _ in range(2)] == ["started", "ready"]
            with box.operator() as operator:
                operator.call(op="drain")
            assert json.loads(following.stdout.readline())["event"] == "draining"
            keys.remove("ada")
            apply(box)
            assert "refuses the connection: it does not know this key" in following.stderr.readline()
            following.send_signal(signal.SIGINT)
            following.communicate(timeout=30)
        with Watched(at(box, *here, "status", "--watch", "0.3"), columns=200) as watch:
            watch.see("refuses the connection")
        assert "refuses the connection" in edgectl(box, *here, "top", "--once").stderr


# ---- report ----------------------------------------------------------------------------------------------------


def test_report(busy: Daemon, tmp_path: Path) -> None:
    page = tmp_path / "box.html"
    done = edgectl(busy, "report", "-o", str(page), "--no-doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    text = page.read_text()
    assert (told["file"], told["bytes"], told["answered"]) == (str(page), len(text.encode()), True)
    for words in ("Tokens written per second", "the daemon started", "Machine and versions", str(busy.directory)):
        assert words in text
    for secret in (CANARY, "seen-1", "uid:"):
        assert secret not in text
    assert edgectl(busy, "report", "--no-doctor", cwd=tmp_path).stdout.startswith("edged-report-")
    assert edgectl(busy, "report", "-o", str(tmp_path / "no/where.html")).returncode == 1


def test_report_without_a_daemon_and_with_a_wrong_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"runtime_dir: {tmp_path}/run\n")
    command = [*EDGECTL, "--config", str(config), "report", "-o", "-", "--no-doctor"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "The daemon does not answer" in done.stdout
    assert done.stderr.endswith("the page says so\n")
    config.write_text("limits: {queu: 5}\n")
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "limits.queu: a key of config.yaml" in done.stdout.replace("expected ", "")
