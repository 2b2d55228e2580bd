"""The daemon is killed, or the box loses its power, again and again under load; clients repeat by id."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, until
from real import MODEL, needs_model
from volatile_disk import VolatileDisk, usable

from edged import client
from edged.system.ramdir import ram_dir

LIMITS = {"drain_s": 0.2, "results_kept_bytes": 64 << 20, "queue": 128, "queue_per_identity": 128}
SEED = int(os.environ.get("EDGED_SEED", "5"))
CLIENTS = 6
MODES = (None, "reply", "pub")


def show(capsys: Any, text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n  {text}\n")


class Load:
    """Threads that ask with ids of their own, and remember what they were told. `faults` has every broken promise."""

    def __init__(self, box: Daemon, seed: int, tokens: int = 60) -> None:
        self.box = box
        self.faults: list[str] = []
        self.told: dict[str, client.Result] = {}
        self.runs: Counter[int] = Counter()
        self._tokens = tokens
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(seed * 100 + number)))
            for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int, rng: random.Random) -> None:
        with client.Client(self.box.request_endpoint) as edged:
            count = 0
            while not self._stop.is_set():
                count += 1
                try:
                    self._one(edged, f"c{number}-{count}", rng)
                except Exception as error:  # noqa: BLE001 - a thread's trouble must reach the test
                    self.faults.append(f"c{number}-{count}: {type(error).__name__} {error}")

    def _one(self, edged: client.Client, request_id: str, rng: random.Random) -> None:
        tokens, mode = rng.randint(1, self._tokens), rng.choice(MODES)
        prompt, whole = f"n={tokens} delay=0.01 tag={request_id}_", "".join(f"{request_id}_{n} " for n in range(tokens))
        if mode is None:
            result = edged.generate(prompt, id=request_id, deadline_s=60)
        else:
            with edged.stream(prompt, id=request_id, mode=mode, deadline_s=60) as stream:
                pieces = "".join(stream)
                result = stream.result
            self.runs[stream.run] += 1
            if stream.run == 1 and pieces != result.text:
                self.faults.append(f"{request_id}: pieces {pieces!r} are not {result.text!r}")
        if result.text != whole:
            self.faults.append(f"{request_id}: {result.finish_reason} {result.text!r}")
        self.told[request_id] = result


def recheck(box: Daemon, load: Load, ids: list[str]) -> None:
    """The same id again gets what was told, not another run of it."""
    with box.client() as asker:
        for request_id in ids:
            kept = asker.call(op="result", id=request_id)
            told = load.told[request_id]
            if kept.get("timing", {}).get("total_ms") != told.timing.total_ms or kept.get("text") != told.text:
                load.faults.append(f"{request_id}: was told as {told}, is now {kept}")


def kill(box: Daemon, sig: int = signal.SIGKILL) -> None:
    """The worker too: it would go by itself, a little later."""
    worker = box.worker_pid() if box.process.poll() is None else None
    box.stop(sig)
    until(lambda: worker is None or not Path(f"/proc/{worker}").exists(), "the worker's end")


def test_fifty_kills_of_the_daemon_under_load(tmp_path: Path, capsys: Any) -> None:
    box, rng, kills = Daemon(tmp_path / "box", limits=LIMITS), random.Random(SEED), 50
    try:
        load = Load(box.start(), SEED)
        for number in range(kills):
            box.wait_status(lambda s: s["slots"]["busy"] and s["ready"], "work")
            time.sleep(rng.random() * 0.4)  # the moment is what is random
            if number % 5 == 0:
                os.kill(box.pid, signal.SIGSTOP)
            kill(box)
            box.start(ready=False)
        load.stop()
        ids = sorted(load.told)
        recheck(box, load, ids)
        ends = [line.partition(" id=")[2].split()[0] for line in box.log.read_text().splitlines() if " id=" in line]
        twice = [request_id for request_id, count in Counter(ends).items() if count > 1]
        status = box.wait_status(lambda s: not s["queue"]["accepted"], "rest")
        show(capsys, f"seed {SEED}: {kills} kills, {len(ids)} requests whole, restarts " + restarts(load))
        assert status["warnings"] == []
    finally:
        box.close()
    assert load.faults == []
    assert twice == []
    assert set(load.runs) == {1}, "no stream began anew"


def restarts(load: Load) -> str:
    return str(dict(sorted(Counter(result.restarts for result in load.told.values()).items())))


@pytest.mark.skipif(not usable(), reason="needs root, loop devices, FUSE and ext4")
def test_twenty_power_cuts(tmp_path: Path, capsys: Any) -> None:
    """`state_dir` on a disk that loses what was not flushed; RAM files go at every cut."""
    disk, cuts, losses = VolatileDisk(tmp_path / "power", SEED), 20, []
    rng = random.Random(SEED)
    state = str(disk.mount / "state")
    box = Daemon(tmp_path / "box", limits=LIMITS, journal="disk", state_dir=state)
    try:
        disk.start()
        load = Load(box.start(), SEED, tokens=20)
        for _ in range(cuts):
            box.wait_status(lambda s: s["slots"]["busy"] and s["ready"], "work")
            time.sleep(rng.random() * 0.5)
            losses.append(disk.cut(box.process.kill))
            kill(box)
            disk.down()
            before = sorted(load.told)[-200:]
            shutil.rmtree(ram_dir(box.settings["runtime_dir"]), ignore_errors=True)
            disk.check()
            disk.start()
            box.start()
            recheck(box, load, before)
        load.stop()
        recheck(box, load, sorted(load.told))
        text = f"seed {SEED}: {cuts} power cuts, {len(load.told)} requests whole, lost: {', '.join(losses)}"
        show(capsys, f"{text}; runs of streams: {dict(load.runs)}, restarts {restarts(load)}")
        kill(box)
    finally:
        box.close()
        disk.down()
    assert load.faults == []


@needs_model
def test_the_real_model_says_the_same_over_kills_of_the_daemon(tmp_path: Path, capsys: Any) -> None:
    """Greedy and seeded, one stream at a time: the text of an undisturbed run."""
    box, rng = Daemon(tmp_path / "box", script=None, model=MODEL, limits=LIMITS), random.Random(SEED)
    asked = {"prompt": "The river flows past the old mill and", "max_tokens": 120, "seed": 7}
    try:
        box.start()
        edged, same = client.Client(box.request_endpoint), 0
        for temperature in (0.0, 0.9):
            plain = edged.generate(**asked, temperature=temperature, deadline_s=120).text
            for _ in range(3):
                with edged.stream(**asked, temperature=temperature, deadline_s=120) as stream:
                    pieces, at = "", rng.randint(5, 60)
                    for number, piece in enumerate(stream):
                        pieces += piece
                        if number == at:
                            kill(box)
                            box.start(ready=False)
                assert pieces == stream.result.text == plain
                assert stream.result.restarts == 1
                same += 1
        show(capsys, f"seed {SEED}: {same} of {same} texts of the real model as if nothing had been")
        edged.close()
    finally:
        box.close()


def test_it_shrinks_when_nothing_is_kept(tmp_path: Path, capsys: Any) -> None:
    """Dozens of long prompts, a kill, and rest: neither file nor memory keeps what is past for longer than a minute."""
    box = Daemon(tmp_path / "box", limits={**LIMITS, "result_ttl_s": 1}, health_interval_s=1)
    try:
        asker = box.start().client()
        for number in range(64):
            asker.ask(op="generate", id=f"q{number}", prompt=f"n=5 delay=0.05 x={'y' * 200_000}")
        box.wait_status(lambda s: s["queue"]["accepted"] > 40, "they are accepted")
        kill(box)
        box.start(ready=False)
        box.wait_status(lambda s: s["ready"] and not s["queue"]["accepted"] and not s["results"]["kept"], "rest")
        journal, began = Path(ram_dir(box.settings["runtime_dir"])) / "journal", time.monotonic()
        before = journal.stat().st_size
        until(lambda: journal.stat().st_size < 1000, "it begins afresh", 90)
        took = time.monotonic() - began
        time.sleep(8)  # some turns of health
        show(
            capsys,
            f"{before >> 10} KiB of what was past went {took:.0f} s after the last, VmRSS {box.rss_kb() >> 10} MiB",
        )
        assert box.rss_kb() < 40 << 10
    finally:
        box.close()
