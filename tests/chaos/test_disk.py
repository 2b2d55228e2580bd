"""Fault 10: a disk that is full, read-only or broken, and a RAM file system without room. Generation needs none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, running
from real import MODEL, needs_model

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")

TEXT = "".join(f"x{n} " for n in range(20))
ASK = {"op": "generate", "prompt": "n=20 tag=x", "max_tokens": 50}


class Disk:
    """A file system of 8 MB that can be spoilt."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.image, self.path = directory / "image", directory / "disk"
        self.path.mkdir()
        if kind == "tmpfs":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", self.path], check=True)
            return
        self.image.write_bytes(bytes(8 << 20))
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.path], check=True)

    def fill(self) -> None:
        with (self.path / "ballast").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass

    def read_only(self) -> None:
        """At once, whatever is open for writing: as ext4 does by itself after an error."""
        subprocess.run(["mount", "-o", "remount,abort", self.path], check=False)
        with pytest.raises(OSError, match=r"Read-only|Input/output"):
            (self.path / "new").write_bytes(b"x" * 4096)

    def broken(self) -> None:
        """Everything that is not cached gives EIO."""
        os.truncate(self.image, 4096)

    def gone(self) -> None:
        subprocess.run(["umount", "--lazy", self.path], check=False)


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, tmp_path: Path) -> Iterator[Disk]:
    try:
        disk = Disk(tmp_path, request.param)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("no such file system can be mounted here")
    yield disk
    disk.gone()


def served(box: Daemon, number: int) -> dict[str, Any]:
    with box.client() as client:
        reply = client.call(**ASK, id=f"a{number}")
        assert reply["ok"], reply
        assert reply["text"] == TEXT
        again = client.call(**ASK, id=f"a{number}")
        assert again["text"] == TEXT
        return client.call(op="status")


@pytest.mark.parametrize(
    ("disk", "fault"),
    [("tmpfs", "full"), ("ext4", "full"), ("ext4", "read-only"), ("ext4", "broken")],
    indirect=["disk"],
)
def test_a_state_dir_that_takes_nothing(tmp_path: Path, disk: Disk, fault: str) -> None:
    keys = {"state_dir": str(disk.path / "state"), "limits": {"drain_s": 0.2}}
    with running(tmp_path / "box", **keys) as box:
        pid = box.pid
        served(box, 0)
        {"full": disk.fill, "read-only": disk.read_only, "broken": disk.broken}[fault]()
        for number in range(1, 30):
            served(box, number)
        status = served(box, 30)
        assert status["state"] == "ready"
        assert status["watchdog"]["worker_deaths"] == 0
        assert box.pid == pid


def test_disk_mode_refuses_what_it_cannot_promise_and_goes_on_when_it_can(tmp_path: Path, disk: Disk) -> None:
    keys = {"state_dir": str(disk.path / "state"), "journal": "disk", "limits": {"drain_s": 0.2}}
    with running(tmp_path / "box", **keys) as box, box.client() as client:
        served(box, 0)
        disk.fill()
        refused = None
        for number in range(1, 200):
            reply = client.call(**ASK, id=f"d{number}")
            if not reply["ok"]:
                refused = reply["error"]
                break
            assert reply["text"] == TEXT
        assert refused is not None, "the file had room for all of them"
        assert refused["code"] == "unavailable"
        assert refused["retryable"]
        (disk.path / "ballast").unlink()
        box.wait_status(lambda _: client.call(**ASK, id="later").get("text") == TEXT, "the disk to be tried again")


@pytest.mark.parametrize("disk", ["tmpfs"], indirect=True)
def test_a_ram_file_system_without_room(disk: Disk) -> None:
    """The journal and checkpoints have no place: requests go on, and over a worker's death they do, too."""
    with running(disk.path / "box", limits={"drain_s": 0.2}) as box:  # its log lies there too
        disk.fill()
        for number in range(20):
            served(box, number)
        with box.client() as client:
            *_, end = client.stream(prompt="n=20 tag=x delay=0.01 die=KILL@9 once=1", id="k", max_tokens=50)
            assert end["text"] == TEXT
            assert end["restarts"] == 1


@needs_model
def test_the_real_model_needs_no_disk(tmp_path: Path, disk: Disk) -> None:
    disk.fill()
    ask = {"op": "generate", "prompt": "Once upon a time", "max_tokens": 60, "temperature": 0}
    keys = {"state_dir": str(disk.path / "state"), "limits": {"drain_s": 5}}
    with running(tmp_path / "box", script=None, model=MODEL, **keys) as box, box.client() as client:
        first = client.call(**ASK | ask, id="r1")
        assert first["ok"], first
        assert client.call(**ASK | ask, id="r2")["text"] == first["text"]
