"""Callers that stream, repeat, drop their connection and ask again, and write down all they see (`history`)."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from typing import Any, Self

from harness import Client, Daemon, Subscriber
from history import Story, refusal

MODES: tuple[Any, ...] = (False, "pub", "reply")
PATIENCE_S = 10.0
"""Without a word for this long a caller asks again with the same id (protocol 4, Silence)."""


class Callers:
    """`count` threads, each asking one request after the other until `stop`. Faults of theirs are counted.

    `poison`: the part of the requests that kill their worker; `rude`: the chance of each of a caller's own faults.
    """

    def __init__(self, box: Daemon, count: int, seed: int, *, poison: float = 0.0, rude: float = 0.15) -> None:
        self.box = box
        self.stories: list[Story] = []
        self.faults: Counter[str] = Counter()
        self.troubles: list[str] = []
        self.poison, self.rude = poison, rude
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(f"{seed}/{number}")))
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(180)
            assert not thread.is_alive(), "a caller still waits"

    def enough(self, faults: int) -> bool:
        """Whether so many faults were met; a caller in trouble ends the wait."""
        return bool(self.troubles) or sum(self.faults.values()) >= faults

    def _run(self, number: int, rng: random.Random) -> None:
        try:
            for count in itertools.count():
                if self._stop.is_set():
                    return
                self._one(f"c{number}-{count}", rng)
        except Exception as error:  # noqa: BLE001 - a thread's trouble must reach the test
            self.troubles.append(f"caller {number}: {type(error).__name__} {error}")

    def _one(self, name: str, rng: random.Random) -> None:
        tokens = rng.randrange(5, 60)
        reference = "".join(f"{name}.{n} " for n in range(tokens))
        script = f"n={tokens} delay={rng.choice([0.001, 0.004])} chunks={rng.randrange(1, 4)} tag={name}."
        errors: frozenset[str] = frozenset()
        if rng.random() < self.poison:
            self._count("poison")
            script += f" die={rng.choice(['SEGV', 'ABRT', 'BUS'])}@{rng.randrange(min(tokens, 20))}"
            errors = frozenset({"worker_lost"})
        mode = rng.choice(MODES)
        request = {"op": "generate", "id": name, "prompt": script, "stream": mode, "max_tokens": 4096}
        story = Story(name, reference, 120.0, time.monotonic(), errors)
        with self._lock:
            self.stories.append(story)
        caller = Caller(self.box, story, request, rng, self)
        try:
            {False: caller.plain, "pub": caller.pub, "reply": caller.reply}[mode]()
        finally:
            caller.close()

    def chance(self, rng: random.Random, what: str) -> bool:
        if rng.random() >= self.rude:
            return False
        self._count(what)
        return True

    def _count(self, what: str) -> None:
        with self._lock:
            self.faults[what] += 1


class Caller:
    """One request over whatever connections it takes."""

    def __init__(
        self, box: Daemon, story: Story, request: dict[str, Any], rng: random.Random, callers: Callers
    ) -> None:
        self.box, self.story, self.request, self.rng, self.callers = box, story, request, rng, callers
        self.client = Client(box.context, box.request_endpoint)
        self.sub: Subscriber | None = None

    def close(self) -> None:
        self.client.close()
        if self.sub is not None:
            self.sub.close()

    def _again(self) -> None:
        self.client.close()
        self.client = Client(self.box.context, self.box.request_endpoint)

    def _next(self) -> dict[str, Any] | None:
        """The next frame of the connection; None: silence. Duplicates come behind different tags."""
        if not self.client.socket.poll(PATIENCE_S * 1000):
            return None
        frame: dict[str, Any] = json.loads(self.client.socket.recv_multipart()[2])
        self.story.saw(time.monotonic(), frame)
        return frame

    def _accepted(self) -> dict[str, Any]:
        """Asks until it is not refused; the first answer, ticket or result."""
        while True:
            asked = 1
            self.client.ask(**self.request)
            if self.request["stream"] != "reply" and self.callers.chance(self.rng, "asked twice at once"):
                self.client.ask(**self.request)
                asked = 2
            frames = [self._next() for _ in range(asked)]
            told = [frame for frame in frames if frame is not None]
            good = [frame for frame in told if not refusal(frame)]
            if good:
                return good[0]
            self._again()
            if told:
                time.sleep(min(0.1, told[0]["error"].get("retry_after_ms", 100) / 1000))

    def plain(self) -> None:
        if self.callers.chance(self.rng, "left before the answer"):
            self.client.ask(**self.request)
            self.client.socket.poll(30)
            self._again()
        self._accepted()

    def pub(self) -> None:
        ticket = self._accepted()
        if "error" in ticket:
            return
        if self.callers.chance(self.rng, "came late"):
            time.sleep(self.rng.random() * 0.05)
        self.sub = Subscriber(self.box.context, self.box.stream_endpoint, ticket["topic"])
        leave = self.rng.randrange(1, 20) if self.callers.chance(self.rng, "subscribed anew") else 0
        for count in itertools.count(1):
            if not self.sub.socket.poll(PATIENCE_S * 1000):
                self.client.call(op="result", id=self.story.id)
                self._resubscribe(ticket)
                continue
            event = json.loads(self.sub.socket.recv_multipart()[1])
            self.story.saw(time.monotonic(), event)
            if event["type"] == "end":
                break
            if count == leave:
                self._resubscribe(ticket)
        self._kept()

    def _resubscribe(self, ticket: dict[str, Any]) -> None:
        assert self.sub is not None
        self.sub.close()
        self.sub = Subscriber(self.box.context, self.box.stream_endpoint, ticket["topic"])

    def reply(self) -> None:
        first = self._accepted()
        if "error" in first:
            return
        leave = self.rng.randrange(1, 20) if self.callers.chance(self.rng, "took its stream over") else 0
        if not leave and self.callers.chance(self.rng, "killed in mid-stream"):
            self._next()
            self.story.abandoned = True
            return
        for count in itertools.count(1):
            frame = self._next()
            if frame is not None and frame.get("type") == "end":
                break
            if frame is None or count == leave:
                self._again()
                self.client.ask(**self.request)
        self._kept()

    def _kept(self) -> None:
        """What ended is told the same again."""
        self._again()
        self.client.ask(op="result", id=self.story.id)
        self._next()


def at_rest(box: Daemon) -> dict[str, Any]:
    """Everything accepted has ended; orphans after their grace."""
    return box.wait_status(lambda s: s["ready"] and not s["queue"]["accepted"], "rest")
