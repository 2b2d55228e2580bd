"""The prepare thread skips what nobody waits for."""

from __future__ import annotations

import select
import threading

from edged.messages import Tokenize
from edged.worker.prepare import Prepare


class Maker:
    """Waits in the first job until it is let go; counts."""

    def __init__(self) -> None:
        self.go, self.begun, self.done = threading.Event(), threading.Event(), []

    count = len

    def tokens(self, text, messages, *_, **__):
        self.begun.set()
        assert self.go.wait(30)
        self.done.append(text)
        return [1]


def test_a_dropped_job_is_not_done() -> None:
    maker = Maker()
    prepare = Prepare(maker, {0}, cells=512)
    prepare.start()
    for rid, text in enumerate(("first", "second", "third")):
        prepare.put(Tokenize(rid, text, None))
    assert maker.begun.wait(30)
    prepare.drop(1)
    maker.go.set()
    ready = []
    while len(ready) < 2:
        assert select.select([prepare.wake], [], [], 30)[0]
        prepare.clear()
        ready += prepare.take()
    assert maker.done == ["first", "third"]
    assert [done.job.rid for done in ready] == [0, 2]
