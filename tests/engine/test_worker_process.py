"""The worker as a process: how it loads, refuses, leaves and dies; and requests in a cache that is too small."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S
from tiny_models import VOCABULARY, tiny

from edged.messages import Done, LoadFailed, Prefilled, Quit, Sampled, Sampling, Slots

ENDLESS = Sampling(temperature=0, logit_bias=[(VOCABULARY - 3, -100.0), (VOCABULARY - 1, -100.0)])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """Where it does not matter what the model says: it loads in a moment."""
    return tiny("llama", tmp_path_factory.mktemp("models"))


def test_quit_leaves_with_0(spawn, small: Path) -> None:
    worker = spawn(small)
    worker.ready()
    worker.start("Tell me a story.", max_tokens=1000)
    worker.until(Sampled)
    worker.send(Quit())
    assert worker.process.wait(PATIENCE_S) == 0


def test_the_end_of_the_link_is_the_end(spawn, small: Path) -> None:
    worker = spawn(small)
    worker.ready()
    worker.start("Tell me a story.", max_tokens=1000)
    worker.until(Sampled)
    assert worker.end() == 0


def test_the_end_of_the_link_while_idle_or_loading(spawn, small: Path) -> None:
    idle = spawn(small)
    idle.ready()
    assert idle.end() == 0
    assert spawn(small).end() == 0


def test_signals_meant_for_the_daemon_are_not_the_workers(spawn, small: Path) -> None:
    worker = spawn(small)
    worker.ready()
    worker.process.send_signal(signal.SIGINT)
    worker.process.send_signal(signal.SIGTERM)
    assert len(worker.ask("Hi", max_tokens=3, sampling=ENDLESS).ids) == 3


def refused(worker) -> LoadFailed:
    failed = worker.until(LoadFailed)
    assert worker.process.wait(PATIENCE_S) == 1
    return failed


def test_a_truncated_model_is_refused_with_both_sizes(spawn, model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    size = model.stat().st_size - (1 << 20)
    with model.open("rb") as source:
        cut.write_bytes(source.read(size))
    failed = refused(spawn(cut))
    assert failed.kind == "truncated"
    assert f"expected {model.stat().st_size} bytes, found {size} bytes" in failed.message


def test_garbage_and_absence_are_refused(spawn, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.gguf"
    garbage.write_bytes(os.urandom(100_000))
    assert refused(spawn(garbage)).kind == "not_gguf"
    assert refused(spawn(tmp_path / "absent.gguf")).kind == "missing"


def test_a_header_that_llama_cpp_refuses_is_a_load_failure(spawn, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    data = model.read_bytes()
    other.write_bytes(data.replace(b"llama.embedding_length", b"llama.embedding_lengtX", 1))
    failed = refused(spawn(other))
    assert failed.kind == "engine"


def test_more_than_the_memory_is_refused_with_figures(spawn, model: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge.gguf"
    huge.write_bytes(model.read_bytes())
    os.truncate(huge, 1 << 42)  # sparse
    failed = refused(spawn(huge))
    assert failed.kind == "memory"
    assert "needs about 41" in failed.message
    assert "MB are available" in failed.message


def test_a_batch_larger_than_the_context_is_bounded(spawn) -> None:
    worker = spawn(context=256, sequences=64, batch=4096, prefill_chunk=2048)
    assert worker.ready().prefill_chunk == 192
    answer = worker.ask(prompt=" a" * 251, max_tokens=4096)
    assert answer.end == Done(1, "length", None), "max_tokens is clamped to what the context leaves"
    assert len(answer.ids) == 5


def test_it_dies_with_its_parent(model: Path) -> None:
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from worker_rig import Worker; w = Worker(sys.argv[1]); "
        "w.ready(); print(w.process.pid, flush=True); os.read(0, 1)"
    )
    command = [sys.executable, "-c", code, str(model), str(Path(__file__).parents[1])]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    pidfd = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    assert select.select([pidfd], [], [], PATIENCE_S)[0], "the worker outlived its parent"
    os.close(pidfd)
    parent.stdout.close()
    parent.stdin.close()


def test_the_kernel_would_take_it_first(spawn, small: Path) -> None:
    worker = spawn(small)
    worker.ready()
    pid = worker.process.pid
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert next(line.split()[4] for line in limits.splitlines() if line.startswith("Max core file size")) == "0"


def counting(first: int) -> str:
    """A prompt whose answer has no near ties: batches of other shapes round otherwise, which must not show here."""
    return ", ".join(str(n) for n in range(first, first + 6)) + ","


def test_set_aside_and_back_is_the_same_text(spawn) -> None:
    prompts = [counting(n) for n in (100, 300, 500)]
    roomy, tight = spawn(context=2048), spawn(context=480)
    texts = []
    for worker in (roomy, tight):
        worker.ready()
        rids = [worker.start(prompt=p, max_tokens=145) for p in prompts]
        answers = worker.finish(*rids)
        slots = worker.until_slots(lambda s: s.busy == 0)
        assert slots.cells_used == slots.set_aside == 0
        assert (slots.set_aside_total > 0) == (worker is tight)
        texts.append([answers[rid].text for rid in rids])
    assert texts[0] == texts[1]
    assert texts[0][0].startswith(" 106, 107, 108,")


def test_a_request_set_aside_goes_on_exactly_where_it_was(spawn) -> None:
    """The same batches but for the pause: in the second run the older request ends where the younger was set aside."""
    older, younger = " a" * 150, " rain and wind" * 33
    tight = spawn(context=512, sequences=2)
    tight.ready()
    a, b = tight.start(prompt=older, max_tokens=150), tight.start(prompt=younger, max_tokens=150)
    said = {a: 0, b: 0}
    ids: list[int] = []
    joint = None
    while not isinstance(message := tight.next(), Done) or message.rid != b:
        if isinstance(message, Sampled):
            said[message.rid] += len(message.ids)
            ids += message.ids if message.rid == b else []
        if isinstance(message, Slots) and message.set_aside and joint is None:
            joint = said[a] - 1
    assert joint is not None
    roomy = spawn(context=512, sequences=2)
    roomy.ready()
    first, second = roomy.start(prompt=older, max_tokens=joint), roomy.start(prompt=younger, max_tokens=150)
    assert roomy.finish(first, second)[second].ids == ids
    assert roomy.slots[-1].set_aside_total == 0


def test_two_thread_counts(spawn, small: Path) -> None:
    worker = spawn(small, threads=1, prefill_threads=2)
    ready = worker.ready()
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    assert sorted(p.role for p in ready.threads) == ["decode+prefill", "prefill"]
    assert all(p.cores == [p.core] for p in ready.threads)
    assert len(worker.ask("Hi", max_tokens=5, sampling=ENDLESS).ids) == 5


def test_too_many_threads_are_bounded_with_a_warning(spawn, small: Path) -> None:
    ready = spawn(small, threads=200).ready()
    assert any("200 asked for" in w for w in ready.warnings)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_quantized_kv(spawn, small: Path, kv_type: str) -> None:
    worker = spawn(small, kv_type=kv_type)
    worker.ready()
    assert len(worker.ask("Hi", max_tokens=5, sampling=ENDLESS).ids) == 5


def test_a_daemon_that_reads_late_gets_everything(spawn) -> None:
    worker = spawn()
    worker.ready()
    rids = [worker.start(f"Story {n}", max_tokens=64) for n in range(4)]
    worker.until(Prefilled, rid=rids[-1])
    assert [len(a.ids) for a in worker.finish(*rids).values()] == [64] * 4


def test_nonsense_on_the_link_is_the_end(spawn, small: Path) -> None:
    worker = spawn(small)
    worker.ready()
    worker.sock.sendall(b"\xff" * 32)
    assert worker.process.wait(PATIENCE_S) == 0
