"""A real worker process with a real model, spoken to as the daemon does. Every wait has a deadline."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from edged import link
from edged.messages import (
    Done,
    Down,
    Load,
    LoadFailed,
    Message,
    Prefilled,
    Quit,
    Ready,
    Refused,
    Sampled,
    Sampling,
    Shape,
    Slots,
    Start,
    Tokenize,
    Tokenized,
    TokenLogprob,
    Up,
    Warm,
    Warmed,
)
from edged.places import EMBEDDED_MODEL, models_dir

PATIENCE_S = float(os.environ.get("EDGED_TEST_PATIENCE_S", "60"))
GREEDY = Sampling(temperature=0)


def model_path() -> Path:
    return Path(os.environ.get("EDGED_TEST_MODEL") or models_dir() / EMBEDDED_MODEL)


class Worker:
    """The daemon's part: gives requests, collects what comes."""

    def __init__(self, path: Path | str, command: Sequence[str] = ("-m", "edged.worker"), **settings: object) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, *command, "--fd", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self.sock = ours
        self._reader = link.UpReader()
        self._unread: list[Up] = []
        self._last_rid = 0
        self.slots: list[Slots] = []
        self.hello: Ready | None = None
        load = {
            "model_path": str(path),
            "context": 2048,
            "sequences": 4,
            "threads": 0,
            "prefill_threads": 0,
            "reserve_cores": -1,
            "batch": 64,
            "prefill_chunk": 32,
            "kv_type": "f16",
            "log_level": "info",
        }
        self.load = load | settings
        self.send(Load(**self.load))

    def send(self, *messages: Down) -> None:
        self.sock.sendall(link.encode(*messages))

    def next(self) -> Up:
        """The next message. TimeoutError, or EOFError when the worker's end is gone."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._unread:
            if not select.select([self.sock], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the worker says nothing")
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError
            self._unread += self._reader.feed(data)
        message = self._unread.pop(0)
        if isinstance(message, Slots):
            self.slots.append(message)
        return message

    def until(self, *kinds: type, rid: int | None = None) -> Up:
        while True:
            message = self.next()
            if isinstance(message, kinds) and (rid is None or message.rid == rid):
                return message

    def until_slots(self, test) -> Slots:
        while True:
            slots = self.until(Slots)
            if test(slots):
                return slots

    def ready(self) -> Ready:
        message = self.until(Ready, LoadFailed)
        assert isinstance(message, Ready), message
        self.hello = message
        return message

    def rid(self) -> int:
        self._last_rid += 1
        return self._last_rid

    def start(
        self,
        content: str | list[Message] | None = None,
        *,
        prompt: str | None = None,
        max_tokens: int = 24,
        stop: list[str] | None = None,
        sampling: Sampling = GREEDY,
        shape: Shape = Shape(),  # noqa: B008 - frozen
        **more: object,
    ) -> int:
        """`more`: scope, session, head, turns."""
        rid = self.rid()
        messages = [Message("user", content)] if isinstance(content, str) else content
        self.send(Start(rid, prompt, messages, max_tokens, stop or [], sampling, shape, **more))
        return rid

    def finish(self, *rids: int) -> dict[int, Answer]:
        """Collects until all are done."""
        answers = {rid: Answer() for rid in rids}
        while not all(a.end for a in answers.values()):
            message = self.next()
            answer = answers.get(getattr(message, "rid", -1))
            if answer is not None:
                answer.add(message)
        return answers

    def warm(self, messages: list[Message], scope: str = "") -> Warmed:
        rid = self.rid()
        self.send(Warm(rid, messages, scope))
        return self.until(Warmed, rid=rid)

    def leave(self, within_s: float = 30.0) -> int:
        """As the daemon ends it, snapshots included."""
        self.send(Quit(within_s))
        return self.process.wait(PATIENCE_S)

    def ask(self, content: str | list[Message] | None = None, **more: object) -> Answer:
        rid = self.start(content, **more)
        return self.finish(rid)[rid]

    def tokens(self, text: str | None = None, messages: list[Message] | None = None) -> Tokenized:
        rid = self.rid()
        self.send(Tokenize(rid, text, messages))
        return self.until(Tokenized, Refused, rid=rid)

    def end(self) -> int:
        self.sock.close()
        return self.process.wait(PATIENCE_S)


class Answer:
    """What came of one request, in order."""

    def __init__(self) -> None:
        self.prefilled: list[Prefilled] = []
        self.pieces: list[str] = []
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.end: Done | Refused | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def cached(self) -> int:
        return self.prefilled[-1].cached

    @property
    def read(self) -> int:
        """Prompt tokens that were read."""
        return self.prefilled[-1].total - self.cached

    def add(self, message: Up) -> None:
        assert self.end is None, "nothing comes after the end"
        match message:
            case Prefilled():
                self.prefilled.append(message)
            case Sampled():
                self.pieces.append(message.text)
                self.ids += message.ids
                self.logprobs += message.logprobs
            case Done() | Refused():
                self.end = message
