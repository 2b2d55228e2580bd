"""Files that hang cost a thread and nothing else. A FIFO that nobody writes hangs like a broken driver's file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from harness import until

from edged.system import smallfile
from edged.system.aside import WAITING, Aside, once


def test_answers_come_in_order_and_errors_are_none() -> None:
    aside = Aside("test")
    seen: list[int] = []
    aside.do(lambda: seen.append(1))
    assert aside.ask(lambda: len(seen), 30, -1) == 1
    aside.do(lambda: 1 // 0)
    assert aside.ask(lambda: 1 // 0, 30, -1) == -1
    assert aside.ask(lambda: 7, 30, -1) == 7
    aside.close()


def test_one_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    aside = Aside("test")
    assert aside.ask(lambda: smallfile.read(str(fifo)), 0.01, "unknown") == "unknown"
    assert aside.ask(lambda: "known", 1e6, "unknown") == "unknown"  # nobody waits so long
    runs: list[int] = []
    for _ in range(10 * WAITING):
        aside.do(lambda: runs.append(1))
    fifo.write_text("at last")
    until(lambda: aside.ask(lambda: "known", 30, "unknown") == "known", "it answers again")
    assert 0 < len(runs) <= WAITING
    aside.close()


def test_a_thread_for_one_question_ends(tmp_path: Path) -> None:
    before = threading.active_count()
    assert once(lambda: 5, 30, 0) == 5
    until(lambda: threading.active_count() == before, "its end")
