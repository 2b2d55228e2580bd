"""One journal file, on a real file system; and the thread that syncs one."""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edged.journal.disk import Disk, Outcome
from edged.journal.file import ASIDE_BYTES, JournalFile


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "j").mkdir(mode=0o700)
    return tmp_path / "j"


def opened(directory: Path, *, synced: bool = False) -> JournalFile:
    file = JournalFile(str(directory), synced=synced)
    assert file.lock()
    return file


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """A limit on file sizes stands for a full file system: a write fails half way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_beginning_that_fails_leaves_nothing_and_the_old_one_goes_on(directory: Path):
    file = opened(directory)
    file.renew(b"old")
    with full_at(10), pytest.raises(OSError, match=r"."):
        file.renew(b"n" * 100)
    assert names(directory) == ["journal"]
    assert file.open
    file.write(b"more")
    assert (directory / "journal").read_bytes() == b"oldmore"


@pytest.mark.parametrize("how", ["unlinked", "replaced", "linked", "directory", "moved"])
def test_what_is_gone_is_noticed_and_made_again(directory: Path, how: str):
    file = opened(directory)
    file.renew(b"one")
    assert file.there()
    path = directory / "journal"
    match how:
        case "unlinked":
            path.unlink()
        case "replaced":
            path.unlink()
            path.write_bytes(b"other")
        case "linked":
            path.unlink()
            path.symlink_to("/etc/hostname")
        case "directory":
            shutil.rmtree(directory)
        case "moved":
            directory.rename(directory.with_name("away"))
            directory.mkdir(mode=0o700)
    assert not file.there()
    file.renew(b"two")
    assert file.there()
    assert not path.is_symlink()
    assert path.read_bytes() == b"two"
    assert not JournalFile(str(directory), synced=False).lock(), "it is locked again"


def test_a_directory_that_another_daemon_has_now(directory: Path):
    file = opened(directory)
    file.renew(b"one")
    shutil.rmtree(directory)
    directory.mkdir(mode=0o700)
    other = opened(directory)
    other.renew(b"theirs")
    with pytest.raises(OSError, match="another daemon"):
        file.renew(b"two")
    assert (directory / "journal").read_bytes() == b"theirs"


def test_odd_things_in_its_place(directory: Path):
    file, path = opened(directory), directory / "journal"
    assert file.reader() is None
    os.mkfifo(path)
    with pytest.raises(OSError, match="no plain file"):
        file.reader()
    assert not file.set_aside()
    path.symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="link"):
        file.reader()
    assert not file.set_aside()
    path.mkdir()
    with pytest.raises(OSError, match="no plain file"):
        file.reader()
    with pytest.raises(OSError, match=r"."):
        file.renew(b"x")
    path.rmdir()
    file.renew(b"x")
    assert names(directory) == ["journal"]


def test_one_is_kept_aside_and_no_large_one(directory: Path):
    file, path = opened(directory), directory / "journal"
    for text in (b"first", b"second"):
        path.write_bytes(text)
        assert file.set_aside()
    assert (directory / "journal.bad").read_bytes() == b"second"
    path.write_bytes(b"")
    os.truncate(path, ASIDE_BYTES + 1)
    assert not file.set_aside()
    assert names(directory) == ["journal.bad"]
    file.last(b"what is kept")
    assert names(directory) == ["journal"]
    (directory / "journal.new").write_bytes(b"text")
    file.last(b"")
    assert names(directory) == []


class Synced:
    def __init__(self, directory: Path) -> None:
        self.file = opened(directory, synced=True)
        self._woken = threading.Event()
        self.disk = Disk(self.file, self._woken.set)

    def outcome(self) -> Outcome:
        assert self._woken.wait(10)
        self._woken.clear()
        (one,) = self.disk.outcomes()
        return one


def test_a_full_disk_keeps_the_old_file_where_it_lacks_nothing(directory: Path):
    one = Synced(directory)
    one.disk.renew(0, b"head", gap=True)
    assert one.outcome() == Outcome(0, True)
    with full_at(50):
        one.disk.renew(1, b"n" * 100, gap=False)
        outcome = one.outcome()
        assert (outcome.why, outcome.anew) == ("", True)
        assert outcome.kept
        one.disk.append(2, b"more")
        assert one.outcome() == Outcome(2, False)
        one.disk.renew(3, b"n" * 100, gap=True)
        assert one.outcome().why
        one.disk.append(4, b"lost")
        assert one.outcome().why
    assert (directory / "journal").read_bytes() == b"headmore"
    assert names(directory) == ["journal"]
    one.disk.renew(5, b"anew", gap=True)
    assert one.outcome() == Outcome(5, True)
    assert one.disk.close(10, b"the last")
    assert (directory / "journal").read_bytes() == b"the last"


def test_a_disk_file_that_is_gone(directory: Path):
    one = Synced(directory)
    one.disk.renew(0, b"head", gap=True)
    one.outcome()
    shutil.rmtree(directory)
    one.disk.append(1, b"more")
    assert "removed" in one.outcome().why
    one.disk.renew(2, b"anew", gap=True)
    assert one.outcome() == Outcome(2, True)
    assert one.disk.close(10, b"")
    assert names(directory) == []


def test_a_disk_file_is_looked_for_while_nothing_is_written(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("edged.journal.disk.LOOK_S", 0.05)
    one = Synced(directory)
    one.disk.renew(0, b"head", gap=True)
    one.outcome()
    (directory / "journal").unlink()
    assert one.outcome() == Outcome(0, False, "it was removed")
    assert one.disk.close(10, None)
