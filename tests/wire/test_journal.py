"""The daemon is killed: what was accepted ends once, with its whole text; who asks again by id gets it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Client, until
from harness import Daemon as Plain

from edged import client
from edged.journal import format as form
from edged.system.ramdir import ram_dir

LIMITS = {"drain_s": 0.2, "orphan_grace_ms": 2000}
PROMPT = "n=60 delay=0.01"
WHOLE = "".join(f"t{n} " for n in range(60))


class Daemon(Plain):
    """Its clients are held until the end: they outlive the process that they talk to."""

    def client(self) -> Client:
        self._sockets.append((one := super().client()).socket)
        return one


@contextlib.contextmanager
def running(directory: Path, **keys: Any) -> Iterator[Daemon]:
    box = Daemon(directory, **keys)
    try:
        yield box.start()
    finally:
        box.close()


def ram(box: Daemon) -> Path:
    return Path(ram_dir(box.settings["runtime_dir"]))


def kill(box: Daemon) -> None:
    """kill -9, and its worker is gone with it."""
    worker = box.worker_pid()
    box.stop(signal.SIGKILL)
    until(lambda: worker is None or not Path(f"/proc/{worker}").exists(), "the worker's end")


def told_so_far(asker: Client, text: str) -> None:
    """Waits until a stream told `text`."""
    while text not in asker.receive()[1].get("text", ""):
        pass


def ends(box: Daemon, request_id: str) -> int:
    return box.log.read_text().count(f" id={request_id} ")


@pytest.mark.parametrize("stopped", [False, True], ids=["at work", "stopped"])
def test_streams_and_plain_ones_go_on(tmp_path: Path, stopped: bool) -> None:
    with running(tmp_path / "box", limits=LIMITS) as box:
        asker = box.client()
        asker.ask(op="generate", id="plain", prompt=PROMPT)
        ticket = asker.call(op="generate", id="pub", prompt=PROMPT, stream=True)
        listener = box.subscriber(ticket["topic"])
        asker.ask(op="generate", id="reply", prompt=PROMPT, stream="reply")
        told_so_far(asker, "t10 ")
        if stopped:
            os.kill(box.pid, signal.SIGSTOP)
        kill(box)
        box.start(ready=False)
        again = box.client()
        first, *rest = again.stream(id="reply", prompt=PROMPT)
        assert first["topic"].startswith("tok/")
        assert rest[0]["type"] == "snapshot"
        assert rest[0]["text"].startswith("t0 t1 ")
        assert [e["seq"] for e in rest] == list(range(rest[0]["seq"], rest[-1]["seq"] + 1))
        assert rest[0]["text"] + "".join(e["text"] for e in rest if e["type"] == "token") == WHOLE == rest[-1]["text"]
        assert rest[-1]["restarts"] == 1
        text, end, _ = listener.whole()
        assert text == end["text"] == WHOLE
        plain = again.call(op="generate", id="plain", prompt=PROMPT)
        assert plain["text"] == WHOLE
        assert again.call(op="generate", id="plain", prompt=PROMPT) == plain, "the kept result"
        assert [ends(box, one) for one in ("plain", "pub", "reply")] == [1, 1, 1]
        status = again.call(op="status")
        assert status["counters"]["recovered"] == 3
        assert "accepted" not in status["counters"], "nothing was begun anew"
        assert status["warnings"] == []


def test_the_library_gets_the_whole_text(tmp_path: Path) -> None:
    """Killed twice on the way; `generate` in another thread of the same client's process is in test_client.py."""
    with running(tmp_path / "box", limits=LIMITS) as box:
        edged = client.Client(box.request_endpoint)
        with edged.stream("n=200 delay=0.005", deadline_s=60) as stream:
            text = ""
            for number, piece in enumerate(stream):
                text += piece
                if number in (10, 60):
                    kill(box)
                    box.start(ready=False)
        assert text == stream.result.text == "".join(f"t{n} " for n in range(200))
        assert stream.run == 1
        assert stream.result.restarts == 2


def test_turns_of_a_session_stay_in_order_and_enter_once(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits=LIMITS) as box:
        asker = box.client()
        asker.call(op="generate", id="one", session="s", messages=[{"role": "user", "content": "n=2"}])
        for number, words in (("two", "n=60 delay=0.01"), ("three", "n=3 show=1")):
            asker.ask(
                op="generate", id=number, session="s", stream="reply", messages=[{"role": "user", "content": words}]
            )
        told_so_far(asker, "t10 ")
        kill(box)
        box.start(ready=False)
        again = box.client()
        two = again.call(op="result", id="two", wait_ms=30_000)
        three = again.call(op="result", id="three", wait_ms=30_000)
        assert two["text"] == WHOLE
        assert "messages=5" in three["text"], "both turns before it"
        turns = again.call(op="session", session="s", action="get")["turns"]
        assert [turn["id"] for turn in turns] == ["one", "two", "three"]
        kill(box)
        box.start()
        turns = box.client().call(op="session", session="s", action="get")["turns"]
        assert [turn["id"] for turn in turns] == ["one", "two", "three"]


def test_a_deadline_that_passed_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits=LIMITS) as box:
        asker = box.client()
        asker.ask(op="generate", id="some", prompt="n=4000 delay=0.01", stream="reply", deadline_ms=300, detach=True)
        asker.ask(op="generate", id="none", prompt="stall=1", deadline_ms=300)
        told_so_far(asker, "t2 ")
        kill(box)
        subprocess.run(["sleep", "0.4"], check=True)
        box.start(ready=False)
        again = box.client()
        some = again.call(op="result", id="some", wait_ms=10_000)
        assert some["finish_reason"] == "deadline"
        assert some["text"].startswith("t0 t1 t2 ")
        assert again.call(op="result", id="none", wait_ms=10_000)["error"]["code"] == "deadline_exceeded"


def test_another_model_ends_what_has_text(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits=LIMITS) as box:
        asker = box.client()
        asker.ask(op="generate", id="text", prompt=PROMPT, stream="reply")
        told_so_far(asker, "t5 ")
        kill(box)
        model = Path(box.settings["model"]["path"])
        model.write_bytes(model.read_bytes() + b"\0" * 64)
        box.start(ready=False)
        ended = box.client().call(op="result", id="text", wait_ms=30_000)
        assert ended["finish_reason"] == "length"
        assert ended["text"].startswith("t0 t1 t2 t3 t4 t5 ")


def test_results_survive_a_clean_stop(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits={**LIMITS, "result_ttl_s": 60}) as box:
        body = {"op": "generate", "id": "kept", "prompt": "n=3"}
        before = box.client().call(**body)
        assert box.stop() == 0
        assert os.stat(ram(box) / "journal").st_mode & 0o777 == 0o600
        box.start(ready=False)
        after = box.client().call(**body)  # while the model loads
        assert after["instance"] != before["instance"]
        assert after | {"instance": 0} == before | {"instance": 0}
        assert box.stop() == 0
        box.settings["limits"]["result_ttl_s"] = 0.001
        box.write_config()
        box.start()
        assert box.client().call(op="result", id="kept")["error"]["code"] == "not_found"
        box.wait_status(lambda s: not s["results"]["kept"], "nothing kept")
        assert box.stop() == 0
        assert not (ram(box) / "journal").exists()


def test_without_a_journal_nothing_is_known(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits=LIMITS, journal="off") as box:
        asker = box.client()
        asker.call(op="generate", id="kept", prompt="n=3")
        kill(box)
        box.start()
        assert box.client().call(op="result", id="kept")["error"]["code"] == "not_found"
        assert not (ram(box) / "journal").exists()


def test_damaged_and_foreign_files_are_no_harm(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits=LIMITS) as box:
        directory = ram(box)
        box.client().call(op="generate", id="kept", prompt="n=3")
        kill(box)
        with (directory / "journal").open("ab") as file:
            file.write(b"\x40\0\0\0torn")
        box.start()
        assert box.client().call(op="result", id="kept")["text"] == "t0 t1 t2 "
        kill(box)
        (directory / "journal").write_bytes(b"something else")
        box.start()
        warnings = box.client().call(op="status")["warnings"]
        assert any("moved aside" in one for one in warnings), warnings
        assert (directory / "journal.bad").exists()
        assert box.client().call(op="generate", id="new", prompt="n=3")["ok"]
        kill(box)
        (directory / "journal").unlink()
        (directory / "journal").symlink_to("/etc/hostname")
        box.start()
        assert box.client().call(op="generate", id="new2", prompt="n=3")["ok"]


def test_disk_keeps_the_ticket_and_the_end(tmp_path: Path) -> None:
    """Killed right after the ticket, and the RAM is gone too."""
    with running(tmp_path / "box", limits=LIMITS, journal="disk") as box:
        asker = box.client()
        ended = asker.call(op="generate", id="ended", prompt="n=3")
        for number in ("1", "2"):
            ticket = asker.call(op="generate", id=number, prompt=PROMPT, stream=True)
            kill(box)
            shutil.rmtree(ram(box))
            box.start(ready=False)
            asker = box.client()
            assert asker.call(op="generate", id=number, prompt=PROMPT, stream=True)["topic"] == ticket["topic"]
            assert asker.call(op="result", id=number, wait_ms=30_000)["text"] == WHOLE
        assert asker.call(op="result", id="ended") | {"instance": 0} == ended | {"instance": 0}
        assert (Path(box.settings["state_dir"]) / "journal").stat().st_mode & 0o777 == 0o600
        assert asker.call(op="status")["journal"]["mode"] == "disk"


def test_over_a_power_cut_the_deadline_counts_on(tmp_path: Path) -> None:
    """After another boot the clock is another, and the time without power does not count."""
    with running(tmp_path / "box", limits=LIMITS, journal="disk") as box:
        asker = box.client()
        asker.ask(
            op="generate",
            id="one",
            prompt="n=4000 delay=0.01",
            max_tokens=4000,
            stream=True,
            detach=True,
            deadline_ms=3000,
        )
        asker.receive()
        kill(box)
        shutil.rmtree(ram(box))
        path = Path(box.settings["state_dir"]) / "journal"
        contents = form.decode(path.read_bytes())
        path.write_bytes(form.head("another boot", contents.head.now) + form.encode(contents.records))
        time.sleep(3.1)
        box.start(ready=False)
        ended = box.client().call(op="result", id="one", wait_ms=10_000)
        assert ended["finish_reason"] == "deadline", ended
        assert 2900 < ended["timing"]["total_ms"] < 4000


def test_a_disk_that_is_full_takes_nothing_new_and_recovers(tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk: writes fail half way."""
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not here")
    with running(tmp_path / "box", limits=LIMITS, journal="disk") as box:
        asker = box.client()
        asker.ask(op="generate", id="before", prompt="n=200 delay=0.01")
        box.wait_status(lambda s: s["slots"]["busy"], "work")
        subprocess.run(["prlimit", f"--pid={box.pid}", "--fsize=1:"], check=True)
        refused = asker.call(op="generate", id="new", prompt="n=1")
        assert refused["error"]["code"] == "unavailable"
        again = box.client().call(op="generate", id="new2", prompt="n=1", stream=True)
        assert again["error"]["code"] == "unavailable"
        assert "disk" in again["error"]["message"]
        warnings = box.client().call(op="status")["warnings"]
        assert any("journal (disk)" in one for one in warnings), warnings
        result = box.client().call(op="result", id="before", wait_ms=30_000)
        assert result["usage"]["completion_tokens"] == 200, "what runs is not held up"
        subprocess.run(["prlimit", f"--pid={box.pid}", "--fsize=unlimited:"], check=True)
        with box.client() as other:
            until(lambda: other.call(op="generate", id="new", prompt="n=1")["ok"], "the disk")
        assert not any("journal" in one for one in box.client().call(op="status")["warnings"])


def test_two_daemons_do_not_share_a_journal(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    with running(tmp_path / "a", limits=LIMITS, journal="disk", state_dir=state):
        other = Daemon(tmp_path / "b", limits=LIMITS, journal="disk", state_dir=state).start()
        try:
            refused = other.client().call(op="generate", prompt="n=1")
            assert refused["error"]["code"] == "unavailable"
            assert "another daemon" in refused["error"]["message"]
        finally:
            other.close()


def test_the_journal_stays_small(tmp_path: Path) -> None:
    """Thousands of records later the file is begun afresh of what is alive."""
    with running(tmp_path / "box", limits={**LIMITS, "results_kept_bytes": 100_000}) as box:
        word = "w" * 2000
        asker = box.client()
        for number in range(12):
            asker.call(op="generate", id=f"r{number}", prompt=f"n=200 word={word}", max_tokens=200)
        assert asker.call(op="status")["journal"]["ram_bytes"] < 3 << 20
        assert sys.getsizeof(word) * 12 * 200 > 4 << 20
