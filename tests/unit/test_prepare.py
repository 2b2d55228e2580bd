"""The prepare thread skips what nobody waits for."""

from __future__ import annotations

import select
import threading

from harness import until

from edged.messages import Embed, Refused, Tokenize
from edged.worker.prepare import Dropped, Prepare, PromptMaker
from edged.worker.probing import Abilities


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


def test_a_dropped_job_comes_back_when_nothing_is_done_for_it() -> None:
    """The first is dropped while it is being done, the second before, the fourth when it is done."""
    maker = Maker()
    prepare = Prepare(maker, {0}, cells=512)
    prepare.start()
    for rid, text in enumerate(("first", "second", "third", "fourth")):
        prepare.put(Tokenize(rid, text, None))
    assert maker.begun.wait(30)
    assert prepare.drop(0)
    assert prepare.drop(1)
    assert not select.select([prepare.wake], [], [], 0.05)[0], "the thread is at the first"
    maker.go.set()
    until(lambda: maker.done == ["first", "third", "fourth"], "all but the second")
    assert prepare.drop(3), "nobody took it yet"
    ready = []
    while len(ready) < 4:
        assert select.select([prepare.wake], [], [], 30)[0]
        prepare.clear()
        ready += prepare.take()
    assert ready[:2] == [Dropped(0), Dropped(1)]
    assert ready[2].job.rid == 2
    assert ready[3] == Dropped(3)
    assert not any(prepare.drop(rid) for rid in range(5)), "none is here any more"


class Words:
    """Token n is the n-th letter; 0 begins a text, 99 ends a whole one."""

    bos, add_bos, end = 0, True, [99]

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        assert not special
        if text == "boom":
            raise RuntimeError("a secret of the text")
        return [ord(c) - 96 for c in text]


class Plain:
    abilities = Abilities()

    def plain(self, text: str) -> list[str]:
        return [text]


def prepared(*texts: str) -> object:
    prepare = Prepare(PromptMaker(Words(), Plain()), {0}, cells=512)
    prepare.start()
    prepare.put(Embed(7, list(texts)))
    assert select.select([prepare.wake], [], [], 30)[0]
    (done,) = prepare.take()
    assert done.job.rid == 7
    return done.result


def test_texts_to_embed_are_whole() -> None:
    assert [list(text) for text in prepared("abc", "b")] == [[0, 1, 2, 3, 99], [0, 2, 99]]


def test_trouble_with_one_text_is_its_requests_and_tells_no_text() -> None:
    refused = prepared("a", "boom")
    assert isinstance(refused, Refused)
    assert (refused.rid, refused.code) == (7, "internal")
    assert "secret" not in refused.message
