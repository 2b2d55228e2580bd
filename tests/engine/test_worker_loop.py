"""The loop with an engine that finds no slot: what llama.cpp hardly ever does, and what must then not be lost."""

import os
import socket
import threading

import pytest

pytest.importorskip("llama_cpp")

from edged import link
from edged.messages import CacheSettings, Done, Quit, Ready, Refused, Sampled, Sampling, Start
from edged.worker.channel import Channel
from edged.worker.form import Form
from edged.worker.llama import NoSlotError
from edged.worker.loading import Loaded
from edged.worker.loop import Loop
from edged.worker.prefix import Rules
from edged.worker.prepare import Prepare


class Words:
    """Token n is the text "n "; a prompt "5" is five tokens."""

    size = 1000

    def is_end(self, token: int) -> bool:
        return False

    def piece(self, token: int) -> bytes:
        return f"{token} ".encode()

    count = len

    def form(self, start: Start) -> Form:
        return Form()

    def tokens(self, text: str | None, messages: object, *_: object) -> list[int]:
        if text == "boom":
            raise RuntimeError("a secret of the prompt")
        return list(range(int(text or 0)))


class Engine:
    """The next token is the position; refuses the steps whose numbers are in `full`."""

    cells, sequences, batch, chunk, residents = 512, 2, 36, 32, 4
    exact, window = False, 0

    def __init__(self, full: set[int]) -> None:
        self.full, self.steps = full, 0
        self.vocabulary = Words()
        self.held: dict[int, int] = dict.fromkeys(range(4), 0)
        self.next: dict[int, int] = {}
        self.aside = 0

    def step(self, spans, *, prefill: bool) -> list[int]:
        self.steps += 1
        if self.steps in self.full:
            raise NoSlotError
        self.next, rows, at = {}, [], 0
        for span in spans:
            assert span.position == self.held[span.seq]
            self.held[span.seq] += len(span.tokens)
            at += len(span.tokens)
            if span.output:
                rows.append(at - 1)
                self.next[at - 1] = self.held[span.seq]
        return rows

    def sample(self, sampler: object, row: int, position: int, *_: object) -> int:
        return self.next[row]

    def remove(self, seq: int) -> None:
        self.held[seq] = 0

    def copy_out(self, seq: int) -> int:
        self.aside += 1
        return self.held[seq]

    def copy_in(self, seq: int, state: int) -> None:
        self.held[seq] = state

    def trim(self, seq: int, length: int) -> None:
        self.held[seq] = length

    def share(self, source: int, seq: int, length: int) -> None:
        self.held[seq] = length

    def rules(self, sharing: str) -> Rules:
        return Rules(sharing)

    def check(self, lengths: dict[int, int]) -> None:
        assert {seq: held for seq, held in self.held.items() if held} == lengths


class AtOnce(Prepare):
    """Without the thread: all requests of one frame are there before the first step."""

    def put(self, job) -> None:
        self._done.append(self._work(job))


READY = Ready("m", "a", "d", 1, 1, 512, 512, 2, 32, 1000, "model", [], 1.0, 1, "b", [])


def serve(engine: Engine, starts: list[Start]) -> list:
    """Everything the worker says until all have ended."""
    ours, theirs = socket.socketpair()
    prepare = AtOnce(engine.vocabulary, (), cells=512)
    channel = Channel(theirs)
    loop = Loop(channel, Loaded(engine, prepare, None, None, READY), CacheSettings())

    def run() -> None:
        try:
            loop.run()
        finally:
            channel.close()

    thread = threading.Thread(target=run)
    thread.start()
    ours.sendall(link.encode(*starts))
    ours.settimeout(10)
    reader, said = link.UpReader(), []
    while sum(isinstance(m, Done | Refused) for m in said) < len(starts):
        data = ours.recv(65536)
        assert data, "the loop broke"
        said += reader.feed(data)
    ours.sendall(link.encode(Quit()))
    thread.join(30)
    channel.close()
    ours.close()
    os.close(prepare.wake)
    assert not thread.is_alive()
    return said


@pytest.mark.parametrize("full", [set(), {1}, {2, 3}, {1, 2, 3, 4}, {4}, {5}, {20}])
def test_no_slot_loses_no_request_and_changes_no_text(full: set[int]) -> None:
    engine = Engine(full)
    said = serve(engine, [Start(rid, str(40 + rid), None, 20, [], Sampling(0)) for rid in range(3)])
    for rid in range(3):
        text = "".join(m.text for m in said if isinstance(m, Sampled) and m.rid == rid)
        assert text == "".join(f"{n} " for n in range(40 + rid, 60 + rid))
    assert [m.reason for m in said if isinstance(m, Done)] == ["length"] * 3


def test_trouble_with_one_prompt_is_its_own_and_tells_no_text() -> None:
    starts = [Start(1, "boom", None, 5, [], Sampling(0)), Start(2, "3", None, 5, [], Sampling(0))]
    said = serve(Engine(set()), starts)
    (refused,) = (m for m in said if isinstance(m, Refused))
    assert (refused.rid, refused.code) == (1, "internal")
    assert "secret" not in refused.message
    assert [m.rid for m in said if isinstance(m, Done)] == [2]


def test_a_prompt_without_tokens_is_refused() -> None:
    said = serve(Engine(set()), [Start(1, "0", None, 5, [], Sampling(0))])
    assert [m.code for m in said if isinstance(m, Refused)] == ["bad_request"]
