"""The supervisor where the kernel says no, and where the configuration changes under it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from harness import tiny_gguf

from edged.config import Config, parse
from edged.watchdog import supervisor as module
from edged.watchdog.supervisor import GaveUp, Lost, Step, Supervisor


class Process:
    """Records what it was started with."""

    started: list[str]

    def __init__(self, name: str, generation: int) -> None:
        self.name, self.generation = name, generation

    def send(self, *messages) -> None:
        Process.started.append(messages[0].model_path)


def config(tmp_path: Path, name: str = "a.gguf", **restart: object) -> Config:
    path = tiny_gguf(tmp_path / name)
    data = {"state_dir": str(tmp_path), "model": {"path": str(path)}, "watchdog": {"restart": restart}}
    return parse(data, "test")


def findings(one: Supervisor, woken: threading.Event) -> list[object]:
    assert woken.wait(30)
    woken.clear()
    return list(one.findings(0.0))


def test_a_process_that_cannot_be_made_is_a_death_and_is_tried_again(tmp_path: Path, monkeypatch) -> None:
    def no_memory(name: str, generation: int) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(module, "WorkerProcess", no_memory)
    woken = threading.Event()
    one = Supervisor(config(tmp_path, max=1), "none", woken.set)
    one.begin()
    (lost,) = findings(one, woken)
    assert lost == Lost("no process: Cannot allocate memory", up=False)
    assert one.step is Step.WAITING
    one.tick(1.0)
    seen: list[object] = []
    while not any(isinstance(one_, GaveUp) for one_ in seen):
        seen += findings(one, woken)
    assert "no worker could be started" in seen[-1].why


def test_a_change_of_model_while_the_old_one_is_checked_starts_the_new_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "WorkerProcess", Process)
    Process.started = []
    woken = threading.Event()
    old, new = config(tmp_path, "old.gguf"), config(tmp_path, "new.gguf")
    one = Supervisor(old, "none", woken.set)
    one.begin()
    one.reconfigure(new)
    while not Process.started:
        findings(one, woken)
    assert Process.started == [new.model_path]


@pytest.mark.parametrize("name", ["old.gguf"])
def test_a_hash_of_an_earlier_question_is_not_taken_for_this_one(tmp_path: Path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(module, "WorkerProcess", Process)
    Process.started = []
    woken = threading.Event()
    one = Supervisor(config(tmp_path, name), "none", woken.set)
    one.begin()
    one.begin()
    while one.sha256 is None:
        findings(one, woken)
    assert Process.started == [one.config.model_path]
