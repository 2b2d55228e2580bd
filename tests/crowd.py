"""Many clients at once, each checking what it is told. For the engine floor and for chaos."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from harness import Client, Daemon, Subscriber

PROMPTS = [
    "Write one sentence about the sea.",
    "用一句话介绍北京。",
    "只用表情和汉字回答:你今天好吗?",
    "Reply with emojis only: 🎉🎂🍰",
    "日本語で短く自己紹介してください。",
    "def fibonacci(n):",
    "Count from one to ten.",
    "Erzähle einen Witz über Füße, Straßen und Äpfel.",
]


class Crowd:
    """`clients` threads that ask until the time is over. `faults` holds every broken promise, in words."""

    def __init__(self, box: Daemon, clients: int, seconds: float, seed: int = 1, max_tokens: int = 48) -> None:
        self.box = box
        self.faults: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.max_tokens = max_tokens
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._client, args=(number, random.Random(seed * 1000 + number)))
            for number in range(clients)
        ]

    def run(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        return self

    def stop(self) -> None:
        self._end = 0.0

    def _client(self, number: int, rng: random.Random) -> None:
        try:
            with self.box.client() as client:
                count = 0
                while time.monotonic() < self._end:
                    count += 1
                    self._one(client, f"client{number}-{count}", rng)
        except Exception as error:  # noqa: BLE001 - a thread's trouble must reach the test
            self._fault(f"client {number}: {type(error).__name__} {error}")

    def _one(self, client: Client, request_id: str, rng: random.Random) -> None:
        body = {
            "messages": [{"role": "user", "content": rng.choice(PROMPTS)}],
            "max_tokens": rng.randrange(1, self.max_tokens),
            "temperature": rng.choice([0.0, 0.7, 1.5]),
            "id": request_id,
        }
        if rng.random() < 0.5:
            first, *events = list(client.stream(**body))
            if not first.get("ok"):
                self._outcome(first["error"]["code"])
                return
            self._check_stream(request_id, events)
            end = events[-1]
        else:
            ticket = client.call(op="generate", stream=True, **body)
            if not ticket["ok"]:
                self._outcome(ticket["error"]["code"])
                return
            with Subscriber(self.box.context, self.box.stream_endpoint, ticket["topic"]) as sub:
                text, end, gaps = sub.whole(120)
                if not sub.silent(0.001):
                    self._fault(f"{request_id}: something came after the end: {sub.receive()}")
            if gaps or text != end.get("text", text):
                self._fault(f"{request_id}: {gaps} gaps, stream {text!r}, result {end.get('text')!r}")
        self._outcome(end.get("finish_reason") or end["error"]["code"])
        kept = client.call(op="result", id=request_id)
        if "text" in end and kept.get("text") != end["text"]:
            self._fault(f"{request_id}: stream ended with {end['text']!r}, result is {kept}")
        if "�" in end.get("text", ""):
            self._fault(f"{request_id}: U+FFFD")

    def _check_stream(self, request_id: str, events: list[dict[str, Any]]) -> None:
        ends = [event for event in events if event["type"] == "end"]
        if [event["seq"] for event in events] != list(range(len(events))) or len(ends) != 1:
            self._fault(f"{request_id}: seq {[event['seq'] for event in events]}, {len(ends)} ends")
        text = "".join(event["text"] for event in events if event["type"] == "token")
        if "text" in ends[0] and ends[0]["text"] != text:
            self._fault(f"{request_id}: stream {text!r}, result {ends[0]['text']!r}")

    def _outcome(self, what: str) -> None:
        with self._lock:
            self.outcomes[what] += 1

    def _fault(self, what: str) -> None:
        with self._lock:
            self.faults.append(what)


def balance(status: dict[str, Any]) -> int:
    """Accepted less ended: 0 when every accepted request ended exactly once."""
    counters = status["counters"]
    ended = sum(count for key, count in counters.items() if key.startswith(("finished_", "failed_")))
    return int(counters["accepted"] - ended)
