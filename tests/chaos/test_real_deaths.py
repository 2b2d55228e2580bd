"""Deaths of the worker with real weights: the text goes on as if nothing had been. Seeds are printed."""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Client, Daemon
from real import needs_model, real

pytestmark = needs_model

QUICK = {"restart": {"max": 1000, "window_s": 5, "backoff_s": 0.01, "backoff_max_s": 0.02}}
SEED = int(os.environ.get("EDGED_SEED", "5"))
PROMPTS = [
    "Tell me about rivers and where they come from.",
    "Write a short story about a lighthouse keeper and her dog.",
    "The river flows past the old mill and the children wave. " * 40 + "What happens next?",
    "List the planets of the solar system with one fact each.",
    "Explain to a child why the sky is blue, then why it is red in the evening.",
]
TOKENS = 80
LOADED_S = 0.7
"""Python and the library are started before the model is loaded: not in `load_ms`, and part of a worker's start."""


def show(capsys, text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n  {text}\n")


def body(number: int) -> dict[str, Any]:
    sampling = {"temperature": 0} if number % 2 else {"temperature": 0.9, "seed": 1000 + number}
    return {"messages": [{"role": "user", "content": PROMPTS[number % len(PROMPTS)]}], "max_tokens": TOKENS, **sampling}


class Seen:
    """What one client saw of a stream: it checks that nothing is lost, repeated or out of order."""

    def __init__(self, events: Iterator[dict[str, Any]]) -> None:
        self.text = ""
        self.tokens = self.restarts = 0
        self.times: list[tuple[str, float]] = []
        self._events = events
        self._seq = -1
        self.end: dict[str, Any] = {}
        ticket = next(events)
        assert ticket["ok"], ticket

    def until(self, stop: Any) -> None:
        """Reads up to the first event for which `stop` is true, or the end."""
        for event in self._events:
            self.times.append((event["type"], time.monotonic()))
            assert event["seq"] == self._seq + 1, event
            self._seq += 1
            self.text += event["text"] if event["type"] == "token" else ""
            self.tokens += event.get("n", 0)
            self.restarts += event["type"] == "restart"
            if event["type"] == "end":
                self.end = event
                assert event["text"] == self.text
                return
            if stop(event):
                return


def kill(box: Daemon) -> float:
    os.kill(box.worker_pid(), signal.SIGKILL)
    return time.monotonic()


def reference(client: Client) -> dict[int, tuple[str, int]]:
    """Text and number of tokens of each body, undisturbed."""
    out = {}
    for number in range(2 * len(PROMPTS)):
        reply = client.call(op="generate", id=f"ref{number}", **body(number))
        assert reply["ok"], reply
        out[number] = (reply["text"], reply["usage"]["completion_tokens"])
    return out


def test_100_deaths_of_a_single_stream(tmp_path: Path, capsys) -> None:
    rng = random.Random(SEED)
    noticed, resumed, same = [], [], 0
    with real(tmp_path, watchdog=QUICK) as box, box.client() as client:
        texts = reference(client)
        status = client.call(op="status")
        load_s, step_s = status["model"]["load_ms"] / 1000, 1 / status["speed"]["tokens_per_second"]
        pid = box.pid
        for death in range(100):
            number = death % len(texts)
            text, tokens = texts[number]
            at = rng.randrange(max(1, tokens - 4))
            seen = Seen(client.stream(id=f"d{death}", **body(number)))
            seen.until(lambda event, at=at, seen=seen: event["type"] == "token" and seen.tokens > at)
            assert not seen.end, seen.end
            killed = kill(box)
            seen.until(lambda event: event["type"] == "restart")
            noticed.append(seen.times[-1][1] - killed)
            seen.until(lambda event: event["type"] == "token")
            resumed.append(seen.times[-1][1] - killed)
            seen.until(lambda _: False)
            assert seen.restarts == seen.end["restarts"] == 1
            same += seen.text == text
        assert box.pid == pid
        show(
            capsys,
            f"seed {SEED}: {len(noticed)} deaths, {same} of 100 texts as undisturbed; noticed after "
            f"{statistics.median(noticed):.3f} s (at most {max(noticed):.3f}), next token after "
            f"{statistics.median(resumed):.2f} s (at most {max(resumed):.2f}); load {load_s:.2f} s, "
            f"step {step_s * 1000:.1f} ms",
        )
    assert same == 100
    assert max(noticed) <= 0.5
    assert max(resumed) <= load_s + 32 * step_s + 0.5 + LOADED_S


def test_deaths_at_90_percent_of_a_long_prefill(tmp_path: Path, capsys) -> None:
    prompt = "The river flows past the old mill and the children wave. " * 240
    ask = {"prompt": prompt, "max_tokens": 30, "temperature": 0, "deadline_ms": 600_000}
    took = []
    with real(tmp_path, watchdog=QUICK, cache={"reuse": False}) as box, box.client() as client:
        begun = time.monotonic()
        undisturbed = client.call(op="generate", id="ref", **ask)
        whole = time.monotonic() - begun
        load_s = client.call(op="status")["model"]["load_ms"] / 1000
        for number in range(5):
            seen = Seen(client.stream(id=f"p{number}", **ask))
            seen.until(lambda e: e["type"] == "prefill" and e["done"] >= 0.9 * e["total"])
            killed = kill(box)
            seen.until(lambda e: e["type"] == "token")
            took.append(time.monotonic() - killed)
            seen.until(lambda _: False)
            assert seen.text == undisturbed["text"]
        status = client.call(op="status")
        step_s = 1 / status["speed"]["tokens_per_second"]
        prompt_tokens = undisturbed["usage"]["prompt_tokens"]
        show(
            capsys,
            f"prompt of {prompt_tokens} tokens, whole answer {whole:.1f} s; killed at 90 %: first token after "
            f"{statistics.median(took):.2f} s (at most {max(took):.2f}); load {load_s:.2f} s, the rest of the prompt "
            f"{whole * 0.1:.1f} s",
        )
    assert max(took) <= load_s + 32 * step_s + 0.5 + LOADED_S + whole * 0.1


def test_four_streams_keep_what_was_sent(tmp_path: Path, capsys) -> None:
    rng = random.Random(SEED + 1)
    faults: list[str] = []
    counts = {"ended": 0, "restarts": 0, "same": 0}
    lock = threading.Lock()
    stop = threading.Event()
    with real(tmp_path, watchdog=QUICK) as box:
        with box.client() as client:
            texts = reference(client)

        def ask(worker: int) -> None:
            with box.client() as client:
                round_ = 0
                while not stop.is_set():
                    round_ += 1
                    number = (worker + round_) % len(texts)
                    try:
                        seen = Seen(client.stream(id=f"w{worker}-{round_}", **body(number)))
                        seen.until(lambda _: False)
                        assert seen.restarts <= seen.end["restarts"], seen.end  # the rest while it waited for its turn
                    except AssertionError as error:
                        faults.append(str(error)[:300])
                        return
                    with lock:
                        counts["ended"] += 1
                        counts["restarts"] += seen.restarts
                        counts["same"] += seen.text == texts[number][0]

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            box.wait_status(lambda s: s["ready"] and s["slots"]["busy"], "work")
            time.sleep(rng.random() * 0.8)  # the moment is what is random
            kill(box)
        stop.set()
        for thread in threads:
            thread.join()
        show(
            capsys,
            f"seed {SEED + 1}: 40 deaths under four streams: {counts}, faults {faults} "
            "(`same`: equal to a run alone; with neighbours it need not be)",
        )
    assert faults == []
