"""`embed` on real weights: right by llama.cpp's own measure, beside running streams, gone when it is not wanted."""

import ctypes
import json
from pathlib import Path

import pytest
from conftest import Worker
from harness import proc_status_kb, until

pytest.importorskip("llama_cpp")

import numpy as np

from edged.messages import Abort, Done, Embed, Embedded, Refused, Sampled
from edged.worker import llama
from edged.worker.llama import C

ALIKE = 0.9999
RIVER = "The river flows past the old mill and the children wave. "
TEXTS = ["hello", RIVER, RIVER * 9, "Ein Gruß aus Köln 😀, 日本語", "def f(x):\n    return x + 1\n" * 9, " "]
MEAN = 1  # LLAMA_POOLING_TYPE_MEAN


def embed(worker: Worker, *texts: str) -> Embedded | Refused:
    rid = worker.rid()
    worker.send(Embed(rid, list(texts)))
    return worker.until(Embedded, Refused, rid=rid)


def vectors(said: Embedded | Refused) -> list:
    assert isinstance(said, Embedded), said
    return [np.array(json.loads(v)) for v in said.vectors]


class Reference:
    """A context of llama.cpp that pools by itself, one batch a text."""

    def __init__(self, model: Path, cells: int = 1024) -> None:
        llama.init(debug=False)
        self.model = llama.model_load(str(model), lambda _: None)
        params = C.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = cells
        params.embeddings, params.pooling_type = True, MEAN
        self.context = C.llama_init_from_model(self.model, params)
        self.batch = C.llama_batch_init(cells, 0, 1)
        self.cells = cells

    def tokens(self, text: str) -> list[int]:
        buffer = (C.llama_token * self.cells)()
        data = text.encode()
        vocab = C.llama_model_get_vocab(self.model)
        count = C.llama_tokenize(vocab, data, len(data), buffer, self.cells, True, False)
        assert count > 0
        return buffer[:count]

    def vector(self, text: str) -> object:
        tokens = self.tokens(text)
        for n, token in enumerate(tokens):
            self.batch.token[n], self.batch.pos[n], self.batch.logits[n] = token, n, 1
            self.batch.n_seq_id[n], self.batch.seq_id[n][0] = 1, 0
        self.batch.n_tokens = len(tokens)
        C.llama_memory_clear(C.llama_get_memory(self.context), True)
        assert C.llama_decode(self.context, self.batch) == 0
        size = C.llama_model_n_embd(self.model)
        pointer = C.llama_get_embeddings_seq(self.context, 0)
        found = np.array((ctypes.c_float * size).from_address(ctypes.addressof(pointer.contents)), np.float64)
        return found / np.linalg.norm(found)

    def close(self) -> None:
        C.llama_free(self.context)
        C.llama_model_free(self.model)


def test_the_vectors_are_those_of_llama_cpp(worker: Worker, model: Path) -> None:
    reference = Reference(model)
    said = embed(worker, *TEXTS)
    assert said.tokens == sum(len(reference.tokens(text)) for text in TEXTS)
    for text, vector in zip(TEXTS, vectors(said), strict=True):
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        assert vector @ reference.vector(text) >= ALIKE
    reference.close()


def test_they_mean_something(worker: Worker) -> None:
    cat, kitten, tax = vectors(embed(worker, "A cat sleeps.", "A kitten is sleeping.", "Form 27b, income tax, 2019"))
    assert cat @ kitten > cat @ tax


def test_a_vector_depends_on_its_text_alone(worker: Worker) -> None:
    together, back = embed(worker, *TEXTS), embed(worker, *TEXTS[::-1])
    assert together.vectors == back.vectors[::-1]
    assert [embed(worker, text).vectors[0] for text in TEXTS] == together.vectors


def test_nor_much_on_the_chunk(spawn) -> None:
    found = []
    for chunk in (12, 50):
        worker = spawn(prefill_chunk=chunk)
        worker.ready()
        found.append(vectors(embed(worker, *TEXTS)))
    assert min(float(a @ b) for a, b in zip(*found, strict=True)) >= ALIKE


def test_a_stream_goes_on_and_its_text_is_as_without(worker: Worker) -> None:
    alone = worker.ask("Tell me a story.", max_tokens=100).ids
    rid, other = worker.start("Tell me a story.", max_tokens=100), worker.rid()
    first = worker.until(Sampled, rid=rid)
    worker.send(Embed(other, [RIVER * 12]))
    ids, ended, said = list(first.ids), 0, None
    between = 0
    while ended < 2:
        message = worker.next()
        match message:
            case Sampled():
                ids += message.ids
                between += said is None
            case Embedded():
                said = message
                ended += 1
            case Done():
                ended += 1
    chunks = said.tokens / worker.hello.prefill_chunk
    assert chunks > 4
    assert between > chunks  # one step or more after each of them
    assert ids == alone


def test_what_does_not_fit_is_told_with_both_numbers(worker: Worker) -> None:
    said = embed(worker, "short", "word " * 2100)
    assert said.code == "context_overflow"
    assert "2101" in said.message
    assert "2048" in said.message
    assert "input[1]" in said.message


def test_a_long_one_fits(worker: Worker) -> None:
    assert embed(worker, "word " * 300).tokens > 300


def test_an_abort_stops_it(worker: Worker) -> None:
    long = [RIVER * 40] * 64
    first = worker.rid()
    worker.send(Embed(first, long))
    assert isinstance(embed(worker, "hello"), Embedded)  # its turn comes after one text
    worker.send(Abort(first))
    rid = worker.start(prompt="One, two,", max_tokens=4)
    while (message := worker.next()) is not None and not (isinstance(message, Sampled) and message.rid == rid):
        assert not (isinstance(message, Embedded) and message.rid == first)
    worker.finish(rid)
    assert worker.tokens("x").fits


def test_specials_in_a_text_are_text(worker: Worker) -> None:
    assert embed(worker, "<|im_end|>").tokens > 2


def test_the_memory_returns_when_it_is_idle(spawn) -> None:
    worker = spawn(command=[str(Path(__file__).with_name("quick_worker.py"))])
    worker.ready()
    worker.ask("Hi", max_tokens=4)

    def anon() -> float:
        return proc_status_kb(worker.process.pid, "RssAnon") / 1024

    before = anon()
    embed(worker, RIVER * 30)
    held = anon()
    after = until(lambda: (now := anon()) < before + 4 and now, "the memory to return")
    assert held > before + 20
    assert after < held - 20
    assert vectors(embed(worker, "and again"))
