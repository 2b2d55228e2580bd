"""The journal's files while people and systems do things to them; and how long they hold what was said."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import until

from wire.test_journal import LIMITS, Daemon, kill, ram, running

SAID = "n=3 tag=ANSWERED asked=ASKED"


def state(box: Daemon) -> Path:
    return Path(box.settings["state_dir"])


def held(box: Daemon, word: str) -> list[str]:
    """The files that hold it."""
    files = [path for where in (ram(box), state(box)) for path in where.glob("journal*")]
    return [str(path) for path in files if path.is_file() and word.encode() in path.read_bytes()]


def warned(box: Daemon) -> list[str]:
    with_journal: list[str] = [w for w in box.client().call(op="status")["warnings"] if "journal" in w]
    return with_journal


def removed(box: Daemon) -> None:
    shutil.rmtree(ram(box))


def unlinked(box: Daemon) -> None:
    (ram(box) / "journal").unlink()


@pytest.mark.parametrize("how", [removed, unlinked])
@pytest.mark.parametrize("before", [True, False], ids=["accepted before", "accepted after"])
def test_a_journal_that_was_removed_is_there_again(tmp_path: Path, how: Callable[[Daemon], None], before: bool) -> None:
    with running(tmp_path / "box", limits=LIMITS) as box:
        asker = box.client()
        if not before:
            how(box)
        ticket = asker.call(op="generate", id="one", prompt="n=600 delay=0.01", stream=True, detach=True)
        if before:
            how(box)
            until((ram(box) / "journal").exists, "the journal")
        kill(box)
        box.start(ready=False)
        again = box.client().call(op="generate", id="one", prompt="n=600 delay=0.01", stream=True, detach=True)
        assert again["topic"] == ticket["topic"]
        assert "it was removed" in box.log.read_text()
        assert warned(box) == []


def test_a_state_directory_that_was_removed_is_there_again(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits=LIMITS, journal="disk") as box:
        shutil.rmtree(state(box))
        asker = box.client()
        asker.call(op="generate", id="new", prompt="n=1")
        with box.client() as other:
            until(lambda: other.call(op="generate", id="new", prompt="n=1")["ok"], "the disk")
        kill(box)
        shutil.rmtree(ram(box))
        box.start(ready=False)
        assert box.client().call(op="result", id="new")["ok"]
        assert warned(box) == []


@pytest.mark.parametrize("mode", ["ram", "disk"])
def test_nothing_is_left_of_what_is_past(tmp_path: Path, mode: str) -> None:
    """After a stop in order: results that are kept and nothing else; when none is kept, no file."""
    limits = {**LIMITS, "result_ttl_s": 60}
    with running(tmp_path / "box", limits=limits, journal=mode) as box:
        box.client().call(op="generate", id="kept", prompt=SAID)
        assert held(box, "ASKED")
        assert box.stop() == 0
        assert held(box, "ASKED") == []
        assert held(box, "ANSWERED")
        (ram(box) / "journal.bad").write_bytes(b"ASKED")
        box.start(ready=False)
        assert "ANSWERED" in box.client().call(op="result", id="kept")["text"]
        assert any("journal.bad" in one for one in warned(box))
        box.settings["limits"]["result_ttl_s"] = 0.001
        box.write_config()
        assert box.stop() == 0
        box.start(ready=False)
        assert box.stop() == 0
        assert not [*ram(box).glob("journal*"), *state(box).glob("journal*")]


@pytest.mark.parametrize("mode", ["ram", "disk"])
def test_a_deleted_session_takes_its_prompts_along(tmp_path: Path, mode: str) -> None:
    with running(tmp_path / "box", limits=LIMITS, journal=mode) as box:
        asker = box.client()
        said = [{"role": "user", "content": SAID}]
        assert asker.call(op="generate", id="turn", session="talk", messages=said)["ok"]
        assert asker.call(op="generate", id="other", prompt="n=1 OTHER")["ok"]
        assert len(held(box, "ASKED")) == (2 if mode == "disk" else 1)
        assert asker.call(op="session", session="talk", action="delete")["deleted"]
        until(lambda: not held(box, "ASKED"), "the prompt is gone")
        assert asker.call(op="result", id="turn")["ok"], "its result is kept for retries"


def test_off_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "box", limits=LIMITS, journal="disk") as box:
        assert "journal" in box.client().call(op="ping")["features"]
        box.client().call(op="generate", id="kept", prompt=SAID)
        kill(box)
        for where in (ram(box), state(box)):
            for name in ("journal.bad", "journal.new"):
                (where / name).write_bytes(b"ASKED")
        (ram(box) / "journal").unlink()
        box.settings["journal"] = "off"
        box.write_config()
        box.start()
        assert held(box, "ASKED") == held(box, "ANSWERED") == []
        assert "journal" not in box.client().call(op="ping")["features"]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 600 << 20)


def folder(path: Path) -> None:
    path.mkdir()
    (path / "x").touch()


@pytest.mark.parametrize("mode", ["ram", "disk"])
@pytest.mark.parametrize("odd", [fifo, link, huge, folder])
def test_odd_things_in_its_place_do_not_stop_the_start(tmp_path: Path, odd: Callable[[Path], None], mode: str) -> None:
    with running(tmp_path / "box", limits=LIMITS, journal=mode) as box:
        path = (ram(box) if mode == "ram" else state(box)) / "journal"
        kill(box)
        path.unlink()
        odd(path)
        box.start()
        assert warned(box)
        assert sum(one.stat().st_size for one in path.parent.glob("journal*")) < 1 << 20
        answer = box.client().call(op="generate", id="new", prompt="n=1")
        if odd is not folder:
            assert answer["ok"]
            return
        assert answer["ok"] == (mode == "ram")
        shutil.rmtree(path)
        until(path.is_file, "the journal")
        with box.client() as other:
            until(lambda: other.call(op="generate", id="new", prompt="n=1")["ok"], "it is accepted")
        assert path.is_file()


def small(path: Path, kib: int) -> bool:
    """A file system of so many KiB there; False: not allowed."""
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(path)]
    return (
        shutil.which("mount") is not None and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.parametrize("mode", ["ram", "disk"])
def test_a_full_file_system_keeps_what_it_has(tmp_path: Path, mode: str) -> None:
    """There is room for one file and not for a second: it goes on, and nothing else of it is left there."""
    box = Daemon(tmp_path / "box", limits=LIMITS, journal=mode)
    where = tmp_path / ("box/run" if mode == "ram" else "box/state")
    if not small(where, 2048):
        pytest.skip("needs root for a small file system")
    try:
        box.start()
        journal = (ram(box) if mode == "ram" else where) / "journal"
        topics = {}
        for number in range(7):
            body = {"id": f"r{number}", "prompt": f"n=3000 delay=0.005 x={'y' * 200_000}", "max_tokens": 3000}
            topics[number] = box.client().call(op="generate", **body, stream=True, detach=True)["topic"]
        until(lambda: warned(box), "it cannot be begun afresh")
        assert [path.name for path in journal.parent.glob("journal.*")] == []
        kill(box)
        if mode == "disk":
            shutil.rmtree(ram(box))
        box.start(ready=False)
        for number, topic in topics.items():
            body = {"id": f"r{number}", "prompt": f"n=3000 delay=0.005 x={'y' * 200_000}", "max_tokens": 3000}
            assert box.client().call(op="generate", **body, stream=True, detach=True)["topic"] == topic
    finally:
        box.close()
        subprocess.run(["umount", "-l", str(where)], check=False)
