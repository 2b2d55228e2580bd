"""An issue's absolute figures on the real model; each prints what it saw. Run with `make chaos`."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from crowd import Crowd, balance
from harness import until
from real import cpu_seconds, needs_model, real

pytestmark = needs_model

QUICK = {"restart": {"max": 1000, "backoff_s": 0.01, "backoff_max_s": 0.02}}
LONG = "The river flows past the old mill and the children wave. " * 90


def show(capsys, text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n  {text}\n")


def test_fifty_clients_for_a_minute(tmp_path: Path, capsys) -> None:
    with real(tmp_path, limits={"drain_s": 5, "results_kept_bytes": 16 << 20}) as box:
        crowd = Crowd(box, clients=50, seconds=60).run()
        status = box.wait_status(lambda s: not s["queue"]["accepted"], "rest")
        show(capsys, f"50 clients, 60 s: {dict(crowd.outcomes)}, faults {crowd.faults}, VmRSS {box.rss_kb()} kB")
    assert crowd.faults == []
    assert set(crowd.outcomes) <= {"stop", "length", "busy"}
    assert balance(status) == 0


def test_fifty_kills_of_the_real_worker_under_load(tmp_path: Path, capsys) -> None:
    with real(tmp_path, watchdog=QUICK) as box:
        pid, deaths, noticed = box.pid, 50, []
        load = Crowd(box, clients=6, seconds=10_000)
        runner = threading.Thread(target=load.run)
        runner.start()
        rng = random.Random(3)
        for _ in range(deaths):
            box.wait_status(lambda s: s["ready"] and s["slots"]["busy"], "work")
            time.sleep(rng.random() * 0.3)  # the moment is what is random
            victim = until(box.worker_pid, "a worker")
            os.kill(victim, signal.SIGKILL)
            begun = time.monotonic()
            until(lambda victim=victim: box.worker_pid() not in (None, victim), "another worker")
            noticed.append(time.monotonic() - begun)
        load.stop()
        runner.join()
        status = box.wait_status(lambda s: s["ready"] and not s["queue"]["accepted"], "rest")
        show(capsys, f"{deaths} kills: {dict(load.outcomes)}, next worker started after {max(noticed):.2f} s at most")
        assert box.pid == pid
    assert load.faults == []
    assert set(load.outcomes) <= {"stop", "length"}
    assert status["watchdog"]["worker_deaths"] == deaths
    assert balance(status) == 0
    assert max(noticed) < 0.5 + 0.1


def test_200_starts_and_cancels_on_the_real_model(tmp_path: Path, capsys) -> None:
    rng = random.Random(9)
    outcomes = []
    with real(tmp_path) as box, box.client() as client:
        for number in range(200):
            prompt = LONG if number % 10 == 0 else "Tell me about rivers."
            events = client.stream(prompt=prompt, id=f"c{number}", max_tokens=400)
            next(events)
            end = time.monotonic() + rng.random() * 0.2
            while time.monotonic() < end:
                event = next(events)
                if event.get("type") == "end":
                    break
            client.ask(op="cancel", id=f"c{number}")
            rest = list(events)
            outcomes.append((rest[-1] if rest else event)["finish_reason"])
        box.wait_status(lambda s: s["slots"]["busy"] == 0 and s["slots"]["cells_used"] == 0, "the slots")
    show(capsys, f"200 cancels: {outcomes.count('cancelled')} cancelled, the others had ended")
    assert set(outcomes) <= {"cancelled", "stop", "length"}


def test_clients_that_ask_for_2000_and_use_50_keep_the_slots_busy(tmp_path: Path, capsys) -> None:
    """They cancel after 50 tokens. Sequences busy on average, from the worker's own sum over time."""
    stop = time.monotonic() + 30
    with real(tmp_path) as box:

        def ask(number: int) -> None:
            with box.client() as client:
                count = 0
                while time.monotonic() < stop:
                    count += 1
                    seen = 0
                    body = {"prompt": "Once upon a time there was", "id": f"b{number}-{count}", "temperature": 1.0}
                    for event in client.stream(**body, max_tokens=2000):
                        seen += event.get("n", 0)
                        if seen >= 50:
                            client.call(op="cancel", id=body["id"])
                            break

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with box.client() as client:
            slots = client.call(op="status")["slots"]
    busy = slots["busy_seconds"] / slots["active_seconds"]
    show(capsys, f"ask 2000, use 50: {busy:.2f} of 4 sequences busy on average, set aside {slots['set_aside_total']}")
    assert busy >= 3


def test_status_answers_while_a_thousand_tokens_are_read(tmp_path: Path, capsys) -> None:
    times = []
    with real(tmp_path) as box, box.client() as client, box.client() as other:
        events = client.stream(prompt=LONG, max_tokens=1)
        next(events)
        next(events)
        while other.call(op="status")["slots"]["busy"]:
            begun = time.monotonic()
            other.call(op="status")
            times.append(time.monotonic() - begun)
        list(events)
    show(capsys, f"status while reading: {len(times)} answers, slowest {max(times) * 1000:.1f} ms")
    assert len(times) > 10
    assert max(times) < 0.2


def test_idle_with_a_model_loaded(tmp_path: Path, capsys) -> None:
    with real(tmp_path) as box, box.client() as client:
        client.call(op="generate", prompt="Hello", max_tokens=8)
        rss = box.rss_kb()
        pids = (box.pid, box.worker_pid())
        before = sum(map(cpu_seconds, pids))
        time.sleep(60)  # the figure is over a minute of doing nothing
        used = (sum(map(cpu_seconds, pids)) - before) / 60
    show(capsys, f"idle: {used:.3%} of a core over 60 s, daemon VmRSS {rss} kB")
    assert used < 0.01
    assert rss <= 40_960
