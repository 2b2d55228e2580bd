"""What checkpoints cost while a request runs, and what they save when its worker dies. The worker alone, no daemon.

Decode speed with and without them in A B B A pairs of one run, two workers, one of which sleeps. Then a request with a
prompt of some 900 tokens is killed late: how long from the new worker's start until its first new token, with its
checkpoint and without, and how many tokens were read and replayed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from service import models, spread, verdict

from edged import link
from edged.messages import (
    Beat,
    CacheSettings,
    Carried,
    CheckpointSettings,
    Done,
    Load,
    LoadFailed,
    Prefilled,
    Prompted,
    Ready,
    Sampled,
    Sampling,
    Start,
    Up,
)

PAIRS = int(os.environ.get("EDGED_BENCH_PAIRS", "8"))
TOKENS = 250
PROMPT = " ".join(f"Room {n} is {n + 15} degrees warm." for n in range(90))
NAME = "bench"
LEAST_RATIO = 0.99


class Worker:
    def __init__(self, model: Path, directory: str, *live: str) -> None:
        self._link, theirs = socket.socketpair()
        command = [sys.executable, "-m", "edged.worker", "--fd", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self._reader = link.UpReader()
        self._unread: list[Up] = []
        self._rids = 0
        settings = CheckpointSettings(directory, 1 << 30 if directory else 0, list(live))
        load = Load(str(model), 2048, 4, 0, 0, -1, 64, 32, "f16", "info", CacheSettings(reuse=False), settings)
        self._link.sendall(link.encode(load))
        while not isinstance(message := self.next(), Ready):
            if isinstance(message, LoadFailed):
                raise SystemExit(message.message)

    def next(self) -> Up:
        while not self._unread:
            data = self._link.recv(1 << 16)
            if not data:
                raise SystemExit("the worker is gone")
            self._unread += self._reader.feed(data)
        return self._unread.pop(0)

    def start(self, prompt: str, tokens: int, name: str = "", carried: Carried | None = None) -> None:
        self._rids += 1
        sampling = Sampling(temperature=0, logit_bias=[(0, -100.0), (2, -100.0)])
        start = Start(self._rids, prompt, None, tokens, [], sampling, name=name, carried=carried)
        self._link.sendall(link.encode(start))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._link.close()

    def speed(self, name: str) -> float:
        """Tokens a second while decoding."""
        self.start("Once upon a time", TOKENS, name)
        times = []
        while not isinstance(message := self.next(), Done):
            if isinstance(message, Sampled):
                times.append(time.perf_counter())
        return (len(times) - 1) / (times[-1] - times[0])


def packed(ids: list[int]) -> bytes:
    return np.array(ids, dtype="<u4").tobytes()


def cost(model: Path, directory: str) -> None:
    without, having = Worker(model, ""), Worker(model, directory)
    ratios = []
    for _ in range(PAIRS):
        a, b, c, d = without.speed(""), having.speed(NAME), having.speed(NAME), without.speed("")
        ratios.append((b + c) / (a + d))
    print(f"     decode speed with checkpoints / without: {spread(ratios)}", flush=True)
    verdict("without / with, median", 1 / sorted(ratios)[len(ratios) // 2], 1 / LEAST_RATIO)
    without.kill()
    having.kill()


def interrupted(model: Path, directory: str) -> Carried:
    worker = Worker(model, directory)
    worker.start(PROMPT, TOKENS, NAME)
    ids: list[int] = []
    told: Prompted | None = None
    while len(ids) < TOKENS - 50:
        message = worker.next()
        if isinstance(message, Prompted):
            told = message
        if isinstance(message, Sampled):
            ids += message.ids
    worker.kill()
    assert told is not None
    return Carried(told.prompt, told.public, told.cuts, packed(ids))


def resumed(model: Path, directory: str, carried: Carried) -> None:
    begun = time.perf_counter()
    worker = Worker(model, directory, NAME)
    ready = time.perf_counter()
    worker.start(PROMPT, TOKENS, NAME, carried)
    restored = new = beat = 0
    first = 0.0
    while not isinstance(message := worker.next(), Done):
        if isinstance(message, Prefilled):
            restored = restored or message.cached
        if isinstance(message, Sampled):
            first = first or time.perf_counter()
            new += len(message.ids)
    time.sleep(0.6)
    worker.start("x", 3)  # one more token is read: the next beat counts it and everything before
    while not isinstance(message := worker.next(), Done):
        if isinstance(message, Beat):
            beat = beat or message.tokens
    worker.kill()
    total, load, wait = len(carried.prompt) // 4, ready - begun, first - ready
    print(
        f"     {'with' if directory else 'without'} checkpoint: {restored} of {total} prompt tokens restored, "
        f"{beat - new - 1} read or replayed; load {load:.2f} s, then {wait:.3f} s to the first new token",
        flush=True,
    )
    if directory:
        verdict("tokens read or replayed", beat - new - 1, 64)


def main() -> None:
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    for model in models():
        print(f"-- {model.stem}", flush=True)
        with tempfile.TemporaryDirectory(dir=place) as directory:
            cost(model, directory)
            carried = interrupted(model, directory)
            resumed(model, directory, carried)
            resumed(model, "", carried)


if __name__ == "__main__":
    sys.exit(main())
