"""One request over several real workers, each killed when a test says; carried on as the daemon does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from worker_rig import Worker

from edged.messages import (
    Beat,
    Carried,
    CheckpointSettings,
    Done,
    Prefilled,
    Prompted,
    Refused,
    Sampled,
    Start,
    TokenLogprob,
)

NAME = "request.1"
BUDGET = 256 << 20


def settings(directory: Path, *live: str, size: int = BUDGET) -> CheckpointSettings:
    return CheckpointSettings(str(directory / "ck"), size, list(live))


def packed(tokens: list[int]) -> bytes:
    return np.array(tokens, dtype="<u4").tobytes()


class Life:
    """What the daemon would know of the request. `start`: without what is carried. `restored`: by the last worker."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.prompted: Prompted | None = None
        self.ids: list[int] = []
        self.text = ""
        self.logprobs: list[TokenLogprob] = []
        self.end: Done | Refused | None = None
        self.prefilled: list[Prefilled] = []
        self.beat = 0

    @property
    def restored(self) -> int:
        return self.prefilled[0].cached

    def message(self) -> Start:
        if self.prompted is None:
            return self.start
        told = self.prompted
        fields = {name: getattr(self.start, name) for name in self.start.__struct_fields__}
        return Start(**fields | {"carried": Carried(told.prompt, told.public, told.cuts, packed(self.ids))})

    def live(self, worker: Worker, until: Callable[[Life], bool] = lambda _: False) -> None:
        """Runs on this worker until it ends; or the worker dies by SIGKILL and what it said is read to the end."""
        self.prefilled = []
        self.beat = 0
        if worker.hello is None:
            worker.ready()
        worker.send(self.message())
        dead = False
        while self.end is None:
            try:
                self.hear(worker.next())
            except EOFError:
                assert dead, "it died by itself"
                return
            if not dead and until(self):
                worker.process.kill()
                dead = True

    def hear(self, message: object) -> None:
        """What the worker says of it."""
        match message:
            case Prompted():
                assert self.prompted is None, "once"
                assert not self.prefilled
                self.prompted = message
            case Prefilled():
                self.prefilled.append(message)
            case Sampled():
                assert not self.ids or self.prompted is not None
                self.ids += message.ids
                self.text += message.text
                self.logprobs += message.logprobs
            case Beat():
                assert message.tokens > self.beat
                self.beat = message.tokens
            case Done() | Refused():
                self.end = message
