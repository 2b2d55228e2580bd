"""What was read once is not read again, and the text is the same: real weights, and every kind of memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Answer, Worker
from tiny_models import ATTENTION, KINDS, tiny

from edged.messages import CacheFacts, CacheSettings, Forget, Message, Sampling, Save, Saved
from edged.worker.prefix import ALIGN
from edged.worker.residency import WORTH

Spawn = Callable[..., Worker]
SYSTEM = Message("system", "You answer briefly. " + " ".join(f"Room {n} is {n + 15} degrees warm." for n in range(20)))
HEAD = 24
"""Tokens of `<|im_start|>assistant` in a vocabulary of bytes."""
QUESTIONS = ("Which room is the warmest?", "你好,请用中文回答。", "Write a loop in C.", "🐢🐇?", "And room 3?")


def settings(directory: Path, **more: object) -> CacheSettings:
    return CacheSettings(
        **{
            "ram_dir": str(directory / "ram"),
            "ram_bytes": 64 << 20,
            "disk_dir": str(directory / "kv"),
            "disk_bytes": 64 << 20,
            **more,
        }
    )


@pytest.fixture
def remembers(spawn: Spawn, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """A worker that is ready, with snapshots in `tmp_path`."""

    def make(*path: Path, **keys: object) -> Worker:
        cache = {k: keys.pop(k) for k in ("reuse", "sharing", "disk", "ram_bytes", "disk_bytes") if k in keys}
        worker = spawn(*path, cache=settings(tmp_path, **cache), **keys)
        worker.ready()
        return worker

    return make


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """Where files and callers matter, and not what the model says."""
    return tiny("llama", tmp_path_factory.mktemp("models"))


def said(answer: Answer) -> Message:
    return Message("assistant", answer.text)


def converse(worker: Worker, *, turns: int = 3, **more: object) -> list[Answer]:
    messages, answers = [SYSTEM], []
    for question in QUESTIONS[:turns]:
        messages.append(Message("user", question))
        answers.append(worker.ask(list(messages), max_tokens=12, **more))
        messages.append(said(answers[-1]))
    return answers


def facts(worker: Worker) -> CacheFacts:
    return worker.until(CacheFacts)


# ---- the text


def test_a_conversation_reads_only_the_new_turn(remembers) -> None:
    """Its texts may differ from those of a cold reading: an answer was decoded token by token, not read in pieces."""
    cold, warm = converse(remembers(reuse=False)), converse(remembers(), turns=4)
    assert cold[0].text == warm[0].text
    assert [a.cached for a in cold] == [0] * 3
    for before, after in itertools.pairwise(warm):
        whole = before.prefilled[-1].total + len(before.ids)
        assert after.cached >= whole - 2 * ALIGN


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), Sampling(temperature=1.0, seed=7)])
def test_a_text_is_the_same_read_cached_alternating_and_restored(remembers, sampling: Sampling) -> None:
    prompts = [[SYSTEM, Message("user", question)] for question in QUESTIONS[1:3]]
    cold = remembers(reuse=False)
    expected = [cold.ask(p, max_tokens=24, sampling=sampling).text for p in prompts]
    worker = remembers(disk="all")
    for _ in range(2):  # each of them moves the one before out and comes back
        assert [worker.ask(p, max_tokens=24, sampling=sampling).text for p in prompts] == expected
    assert worker.leave() == 0
    restored = remembers(disk="all")
    answers = [restored.ask(p, max_tokens=24, sampling=sampling) for p in prompts]
    assert [a.text for a in answers] == expected
    assert max(a.read for a in answers) <= WORTH + ALIGN, [a.cached for a in answers]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_memory(remembers, tmp_path: Path, kind: str) -> None:
    path = tiny(kind, tmp_path)
    cold, warm = converse(remembers(path, reuse=False)), converse(remembers(path))
    assert [a.ids for a in cold] == [a.ids for a in warm]
    for before, after in itertools.pairwise(warm):
        new = after.prefilled[-1].total - before.prefilled[-1].total  # what they write is often no text that comes back
        assert after.read <= new + HEAD < after.prefilled[-1].total / 2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ATTENTION])
def test_what_cannot_be_trimmed_goes_on_at_the_end_of_a_turn(remembers, tmp_path: Path, kind: str) -> None:
    """The answer is sent back changed, so its cells are of no use: the checkpoint before it is."""
    path = tiny(kind, tmp_path)
    asked = [SYSTEM, Message("user", "One?")]
    again = [*asked, Message("assistant", "something else"), Message("user", "Two?")]
    cold = remembers(path, reuse=False)
    expected = [cold.ask(m, max_tokens=12).ids for m in (asked, again)]
    worker = remembers(path)
    first, second = worker.ask(asked, max_tokens=12), worker.ask(again, max_tokens=12)
    assert [first.ids, second.ids] == expected
    assert second.cached > first.prefilled[-1].total - 24


def test_a_window_that_was_copied_in_is_not_trimmed(remembers, tmp_path: Path) -> None:
    path = tiny("gemma3", tmp_path)
    one, other = ([SYSTEM, Message("user", text)] for text in ("One?", "Quite another?"))
    changed = [*one[:1], Message("user", "One")]
    cold = remembers(path, reuse=False)
    expected = [cold.ask(m, max_tokens=12).ids for m in (one, other, one, changed)]
    small = remembers(path, context=640, sequences=1)  # the second makes the first leave
    assert [small.ask(m, max_tokens=12).ids for m in (one, other, one, changed)] == expected


# ---- snapshots


def test_a_session_is_found_after_a_restart(remembers, tmp_path: Path) -> None:
    worker = remembers()
    first = converse(worker, turns=2, session=True, scope="me")
    assert worker.leave() == 0
    assert list((tmp_path / "kv").glob("*.kv"))
    assert not (tmp_path / "ram").exists()
    messages = [SYSTEM, Message("user", QUESTIONS[0]), said(first[0]), Message("user", QUESTIONS[1]), said(first[1])]
    messages.append(Message("user", QUESTIONS[2]))
    again = remembers().ask(messages, max_tokens=12, session=True, scope="me")
    assert again.cached >= first[1].prefilled[-1].total + len(first[1].ids) - 2 * ALIGN
    assert remembers().ask(messages, max_tokens=12, scope="you").cached <= 220, "no more than the system message"


def test_what_is_no_session_stays_off_the_disk(remembers, small: Path, tmp_path: Path) -> None:
    worker = remembers(small)
    converse(worker, turns=2)
    assert worker.leave() == 0
    assert not list((tmp_path / "kv").glob("*.kv"))


def test_what_was_warmed_is_kept(remembers, small: Path) -> None:
    worker = remembers(small)
    warmed = worker.warm([SYSTEM], "me")
    assert warmed.cached == 0
    answer = worker.ask([SYSTEM, Message("user", "Hm?")], scope="me")
    assert answer.cached >= warmed.tokens - ALIGN
    assert worker.leave() == 0
    again = remembers(small)
    assert again.warm([SYSTEM], "me").cached >= warmed.tokens - ALIGN


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "tokens"])
def test_a_bad_file_is_moved_aside_and_the_answer_is_right(remembers, small: Path, tmp_path: Path, damage: str) -> None:
    worker = remembers(small)
    (first,) = converse(worker, turns=1, session=True)
    worker.leave()
    (path,) = (tmp_path / "kv").glob("*.kv")
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        del data[-1000:]
    elif damage == "empty":
        data.clear()
    else:
        data[200 if damage == "tokens" else len(data) // 2] ^= 1
    path.write_bytes(data)
    worker = remembers(small)
    (again,) = converse(worker, turns=1, session=True)
    assert (again.text, again.cached) == (first.text, 0)
    assert list((tmp_path / "kv" / "bad").iterdir())
    while facts(worker).set_aside_files != 1:
        pass


def test_a_snapshot_of_another_model_is_not_used(remembers, tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    worker = remembers(tiny("llama", one))
    converse(worker, turns=1, session=True)
    worker.leave()
    other = one / "other.gguf"
    data = bytearray(tiny("llama", one).read_bytes())
    data[-100] ^= 1
    other.write_bytes(data)
    (answer,) = converse(remembers(other), turns=1, session=True)
    assert answer.cached == 0


def test_the_budgets_hold(remembers, tmp_path: Path) -> None:
    budget = 8 << 20
    worker = remembers(ram_bytes=budget, disk_bytes=budget, disk="all", context=1024)
    for n in range(8):
        worker.ask([SYSTEM, Message("user", f"{n}. What of it?")], max_tokens=4, scope=str(n), session=True)
    assert worker.leave() == 0
    sizes = [path.stat().st_size for path in (tmp_path / "kv").rglob("*") if path.is_file()]
    assert 0 < sum(sizes) <= budget


def test_a_drain_saves_and_goes_on(remembers, small: Path, tmp_path: Path) -> None:
    worker = remembers(small)
    converse(worker, turns=1, session=True)
    worker.send(Save(30.0))
    saved = worker.until(Saved)
    assert saved.files == 1
    assert saved.left == 0
    assert sum(p.stat().st_size for p in (tmp_path / "kv").glob("*.kv")) == saved.bytes
    (again,) = converse(worker, turns=1, session=True)
    assert again.cached > 0


def test_what_is_forgotten_is_gone_from_the_disk_and_others_stay(remembers, small: Path, tmp_path: Path) -> None:
    worker = remembers(small)
    for scope in ("me", "you"):
        converse(worker, turns=1, session=True, scope=scope)
        worker.send(Save(30.0))
        worker.until(Saved)
    files = set((tmp_path / "kv").glob("*.kv"))
    assert len(files) == 2
    worker.send(Forget("me"))
    worker.send(Save(30.0))
    worker.until(Saved)
    assert worker.leave() == 0
    (left,) = (tmp_path / "kv").glob("*.kv")
    assert left in files
    assert b"you" in left.read_bytes()[:400]


# ---- between callers


@pytest.mark.parametrize("sharing", ["identity", "system", "all"])
def test_what_another_wrote_is_not_told(remembers, small: Path, sharing: str) -> None:
    worker = remembers(small, sharing=sharing)
    secret = [SYSTEM, Message("user", "My card is 1234 5678 and the code is 99, please keep it to yourself.")]
    first = worker.ask(secret, scope="a", max_tokens=4)
    guess = worker.ask(secret, scope="b", max_tokens=4)
    other = [SYSTEM, Message("user", "Something else of about the same length, which nobody has written so far.")]
    stranger = worker.ask(other, scope="c", max_tokens=4)
    if sharing == "all":
        assert guess.read <= 2 * ALIGN
        return
    assert guess.cached == stranger.cached, "a right guess looks like a wrong one"
    assert (guess.cached > 0) == (sharing == "system")
    assert guess.text == first.text


def test_what_one_warmed_serves_all_whose_system_message_it_is(remembers, small: Path) -> None:
    worker = remembers(small)
    warmed = worker.warm([SYSTEM], "a")
    assert worker.ask([SYSTEM, Message("user", "Hm?")], scope="b", max_tokens=4).cached >= warmed.tokens - ALIGN
    other = Message("system", SYSTEM.content + " And no more.")
    assert worker.ask([other, Message("user", "Hm?")], scope="d", max_tokens=4).cached < ALIGN
    assert worker.warm([SYSTEM], "c").cached >= warmed.tokens - 2 * ALIGN


def test_four_at_once_read_a_common_system_message_once(remembers) -> None:
    worker = remembers(context=4096)
    rids = [worker.start([SYSTEM, Message("user", f"{n}?")], max_tokens=8, scope=str(n)) for n in range(8)]
    answers = worker.finish(*rids).values()
    assert sum(a.cached == 0 for a in answers) == 1
    assert all(a.read < 40 for a in answers if a.cached)


# ---- histories that are too long


def test_whole_turns_are_left_out_and_stay_out(remembers) -> None:
    worker = remembers(context=1024)
    history = [m for n in range(12) for m in (Message("user", f"Say {n}. " * 24), Message("assistant", f"{n} it is."))]
    messages = [Message("system", "Be brief."), *history, Message("user", "And now?")]
    answer = worker.ask(messages, head=1, turns=[2] * 12, max_tokens=16, session=True)
    dropped = answer.prefilled[0].dropped
    assert 0 < dropped < 12
    assert answer.prefilled[-1].total <= 0.8 * 1024
    left = [messages[0], *history[2 * dropped :], Message("user", "And now?"), said(answer), Message("user", "Then?")]
    again = worker.ask(left, head=1, turns=[2] * (13 - dropped), max_tokens=16, session=True)
    assert again.prefilled[0].dropped == 0
    assert again.cached >= answer.prefilled[-1].total - ALIGN
