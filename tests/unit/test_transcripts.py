"""Transcripts on the disk: what is kept, how it is trimmed, what happens to a bad file or a bad disk."""

from __future__ import annotations

import itertools
import os
import queue
import sqlite3
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.broker.transcript import (
    Answer,
    Append,
    Delete,
    Deleted,
    Enumerate,
    Enumerated,
    Failed,
    Fetch,
    Fetched,
    Get,
    Got,
    Look,
    Looked,
    Opened,
    Stored,
    Turn,
)
from edged.messages import Message
from edged.transcripts import schema
from edged.transcripts.keeper import Keeper
from edged.transcripts.store import KEPT, Store
from unit.rig import A, B

MOST = 1 << 20


def user(text: str) -> Message:
    return Message("user", text)


def turn(name: str, text: str = "hi", window: int = 0, head: list[Message] | None = None) -> Turn:
    messages = [user(text), Message("assistant", f"re {text}")]
    reply = {"finish_reason": "stop", "usage": {"completion_tokens": 2}, "session": "s"}
    encode = msgspec.json.encode
    return Turn(name, name.encode(), encode(head) if head else b"", encode(messages), encode(reply), window)


class Rig:
    """A store, and numbers for its questions."""

    def __init__(self, path: Path) -> None:
        self.store = Store(schema.open_at(str(path)))
        self.numbers = itertools.count(1)

    def ask(self, kind: type, *words: Any) -> Any:
        return self.store.answer(kind(next(self.numbers), *words))

    def append(self, one: Turn, who: str = A, session: str = "s", *, reset: bool = False, limit: int = MOST) -> None:
        assert isinstance(self.ask(Append, who, session, one, reset, limit), Stored)

    def fetch(self, who: str = A, session: str = "s", most: int = MOST) -> Fetched:
        return self.ask(Fetch, who, session, most)

    def ids(self, who: str = A, session: str = "s") -> list[str]:
        found = self.ask(Get, who, session, MOST).fields
        return [one["id"] for one in found["turns"]] if found else []


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "sessions.db")


def test_turns_come_back_in_order_with_the_head(rig: Rig) -> None:
    head = [Message("system", "be kind")]
    rig.append(turn("a", "1", head=head))
    rig.append(turn("b", "2"))
    found = rig.fetch()
    assert (found.head, found.first, found.next) == (head, 0, 2)
    assert [[m.content for m in one] for one in found.turns] == [["1", "re 1"], ["2", "re 2"]]
    shown = rig.ask(Get, A, "s", MOST).fields
    assert shown["system"] == [{"role": "system", "content": "be kind"}]
    assert (shown["turns_total"], [one["id"] for one in shown["turns"]]) == (2, ["a", "b"])
    assert "dropped_turns" not in shown


def test_the_window_moves_and_stays(rig: Rig) -> None:
    for n, name in enumerate("abcd"):
        rig.append(turn(name, window=2 if n == 2 else 0))
    found = rig.fetch()
    assert (found.first, len(found.turns), found.next) == (2, 2, 4)
    assert rig.ids() == ["a", "b", "c", "d"], "left out of prompts, not of the transcript"
    assert rig.ask(Get, A, "s", MOST).fields["dropped_turns"] == 2


def test_a_prompt_gets_whole_turns_of_so_many_bytes(rig: Rig) -> None:
    for n in range(5):
        rig.append(turn(f"t{n}", "x" * 1000))
    size = len(turn("t", "x" * 1000).messages)
    assert rig.fetch(most=2 * size).first == 3
    assert (rig.fetch(most=2 * size - 1).first, rig.fetch(most=1).first) == (4, 5)


def test_reset_replaces(rig: Rig) -> None:
    rig.append(turn("a", head=[Message("system", "old")]))
    rig.append(turn("b"), reset=True)
    found = rig.fetch()
    assert (found.head, found.next, rig.ids()) == ([], 1, ["b"])
    assert rig.ask(Look, A, "s", "a").digest is None


def test_a_stored_reply_is_found_by_its_owner_only(rig: Rig) -> None:
    rig.append(turn("a", "1"))
    found = rig.ask(Look, A, "s", "a")
    assert found.digest == b"a"
    assert (found.reply["text"], found.reply["finish_reason"]) == ("re 1", "stop")
    for words in ((B, "s", "a"), (A, "t", "a"), (A, "s", "b")):
        assert rig.ask(Look, *words) == Looked(next(rig.numbers) - 1)
    assert rig.ask(Get, B, "s", MOST).fields is None
    assert rig.ask(Delete, B, "s").found is False
    assert rig.ids() == ["a"]


def test_the_oldest_turns_go_beyond_the_limit(rig: Rig) -> None:
    head = [Message("system", "be kind")]
    for n in range(6):
        rig.append(turn(f"t{n}", "x" * 500, head=head if n == 0 else None), limit=3 * turn("t", "x" * 500).size)
    found = rig.fetch()
    assert (found.head, found.next) == (head, 6)
    assert rig.ids() == ["t4", "t5"]
    assert (found.first, len(found.turns)) == (4, 2)
    rig.append(turn("big", "x" * 5000), limit=1024)
    assert rig.ids() == ["big"]
    assert rig.store.totals() == (1, len(msgspec.json.encode(head)) + turn("big", "x" * 5000).size)


def test_long_transcripts_are_shown_in_part(rig: Rig) -> None:
    for n in range(20):
        rig.append(turn(f"t{n}", "x" * 500))
    shown = rig.ask(Get, A, "s", 4000).fields
    assert 0 < len(shown["turns"]) < 20
    assert shown["omitted"] + len(shown["turns"]) == shown["turns_total"] == 20
    assert shown["turns"][-1]["id"] == "t19"


def test_sessions_are_listed(rig: Rig) -> None:
    for who, name in ((A, "s"), (B, "s"), (B, "t")):
        rig.append(turn("a"), who, name)
    found = rig.ask(Enumerate, None, 2)
    assert ([(r["identity"], r["session"]) for r in found.rows], found.omitted) == ([(B, "t"), (B, "s")], 1)
    assert [r["session"] for r in rig.ask(Enumerate, A, 9).rows] == ["s"]
    assert set(rig.store.names()) == {(A, "s"), (B, "s"), (B, "t")}


def test_deleted_text_is_gone_from_the_disk(rig: Rig, tmp_path: Path) -> None:
    rig.append(turn("a", "a-secret-word"))
    assert rig.ask(Delete, A, "s").found
    rig.store.close()
    for file in tmp_path.iterdir():
        assert b"a-secret-word" not in file.read_bytes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B]),
            st.sampled_from("st"),
            st.integers(1, 400),
            st.integers(0, 4),
            st.sampled_from(["append", "append", "append", "reset", "delete"]),
        ),
        max_size=30,
    )
)
def test_any_history(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int, str]]) -> None:
    """Against lists: turns in order, numbered, trimmed from the front, the window never goes back."""
    limit = 1500
    rig = Rig(tmp_path_factory.mktemp("db") / "sessions.db")
    model: dict[tuple[str, str], tuple[list[tuple[int, str, int]], int, int]] = {}
    for n, (who, name, length, window, what) in enumerate(steps):
        if what == "delete":
            assert rig.ask(Delete, who, name).found == ((who, name) in model)
            model.pop((who, name), None)
            continue
        one = turn(f"t{n}", "x" * length, window)
        rig.append(one, who, name, reset=what == "reset", limit=limit)
        turns, start, number = model.get((who, name), ([], 0, 0)) if what != "reset" else ([], 0, 0)
        turns = [*turns, (number, one.id, one.size)]
        start = max(start, min(window, number))
        most = limit if sum(size for *_, size in turns) <= limit else KEPT * limit
        while len(turns) > 1 and sum(size for *_, size in turns) > most:
            turns = turns[1:]
        model[who, name] = turns, max(start, turns[0][0]), number + 1
    for (who, name), (turns, start, number) in model.items():
        assert rig.ids(who, name) == [one for _, one, _ in turns]
        found = rig.fetch(who, name)
        assert (found.first, found.next, len(found.turns)) == (start, number, number - start)
    assert rig.store.totals() == (len(model), sum(s for t, *_ in model.values() for *_, s in t))
    rig.store.close()


# ---- the file --------------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_and_of_our_schema(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.touch(0o644)
    path.unlink()
    connection = schema.open_at(str(path))
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (1,)


def test_an_older_schema_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "sessions.db")
    rig = Rig(tmp_path / "sessions.db")
    rig.append(turn("a"))
    rig.store.close()
    more = "ALTER TABLE session ADD COLUMN more INTEGER NOT NULL DEFAULT 7;"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, more))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    connection = schema.open_at(path)
    assert connection.execute("SELECT name, more FROM session").fetchall() == [("s", 7)]
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)


def test_a_bounded_number_of_bad_files_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    for n in range(6):
        path.write_text(f"bad {n}")
        os.utime(path, (n, n))
        schema.set_aside(str(path))
    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert set(kept) == {f"sessions.db.bad-{n}" for n in (1, 2, 3)}
    assert set(kept.values()) == {"bad 3", "bad 4", "bad 5"}


# ---- the thread ------------------------------------------------------------------------------------------------


class Thread:
    """A keeper whose answers can be waited for."""

    def __init__(self, directory: Path) -> None:
        self.woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.heard: list[Answer] = []
        self.keeper = Keeper(str(directory), lambda: self.woken.put(None))
        self.numbers = itertools.count(1)
        self.opened = self.wait(Opened)

    def wait(self, kind: type, number: int | None = None) -> Any:
        while True:
            for answer in self.heard:
                if isinstance(answer, kind) and (number is None or getattr(answer, "number", None) == number):
                    self.heard.remove(answer)
                    return answer
            self.woken.get(timeout=30)
            self.heard += self.keeper.answers()

    def ask(self, kind: type, *words: Any) -> Any:
        number = next(self.numbers)
        self.keeper.ask(kind(number, *words))
        return self.wait(object, number)

    def append(self, name: str, session: str = "s") -> Any:
        return self.ask(Append, A, session, turn(name), False, MOST)

    def close(self) -> None:
        self.keeper.close(30)


def test_the_thread_answers_in_order_and_remembers(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    assert one.opened == Opened([])
    assert isinstance(one.append("a"), Stored)
    assert one.keeper.facts.count == 1
    one.keeper.ask(Append(90, A, "s", turn("b"), False, MOST))
    one.close()
    two = Thread(tmp_path)
    assert two.opened == Opened([(A, "s")])
    assert [t["id"] for t in two.ask(Get, A, "s", MOST).fields["turns"]] == ["a", "b"]
    assert isinstance(two.ask(Delete, A, "s"), Deleted)
    assert (two.keeper.facts.count, two.keeper.facts.bytes) == (0, 0)
    two.close()


def damage(path: Path, how: str) -> None:
    match how:
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(os.urandom(20_000))
        case "text":
            path.write_text("hello\n")
        case "truncated":
            path.write_bytes(path.read_bytes()[:5000])
        case "middle":
            data = bytearray(path.read_bytes())
            data[4096:] = os.urandom(len(data) - 4096)
            path.write_bytes(bytes(data))
        case "foreign":
            path.unlink()
            with sqlite3.connect(path) as other:
                other.execute("CREATE TABLE bookmarks (url TEXT)")
            other.close()


@pytest.mark.parametrize("how", ["empty", "garbage", "text", "truncated", "middle", "foreign"])
def test_a_damaged_file_is_moved_aside(tmp_path: Path, how: str) -> None:
    one = Thread(tmp_path)
    for n in range(30):
        one.append(f"t{n}", f"s{n}")
    one.close()
    damage(tmp_path / "sessions.db", how)
    two = Thread(tmp_path)
    assert isinstance(two.append("a", "new"), Stored)
    assert isinstance(two.ask(Get, A, "s3", MOST), Got)
    assert two.keeper.facts.set_aside == 1
    assert two.keeper.facts.count == 1
    assert (tmp_path / "sessions.db.bad-1").exists()
    two.close()


def test_damage_while_running(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    for n in range(200):
        one.append(f"t{n}", f"s{n % 7}")
    one.close()
    one = Thread(tmp_path)
    data = (tmp_path / "sessions.db").read_bytes()
    (tmp_path / "sessions.db").write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    found = [one.ask(Fetch, A, f"s{n}", MOST) for n in range(7)]
    assert all(isinstance(answer, Fetched | Failed) for answer in found)
    assert isinstance(one.append("a"), Stored)
    assert one.keeper.facts.set_aside == 1
    one.close()


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    one.append("a")
    one.close()
    with sqlite3.connect(tmp_path / "sessions.db") as other:
        other.execute("PRAGMA user_version=99")
    other.close()
    two = Thread(tmp_path)
    assert "newer edged" in two.opened.why
    assert isinstance(two.append("b"), Failed)
    assert isinstance(two.ask(Look, A, "s", "a"), Failed)
    assert "newer" in two.keeper.facts.trouble
    two.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["sessions.db"]


def test_no_directory_means_no_history_and_nothing_stored(tmp_path: Path) -> None:
    one = Thread(tmp_path / "missing")
    assert one.opened == Opened([])
    assert one.ask(Fetch, A, "s", MOST) == Fetched(1, [], [], 0, 0)
    assert one.ask(Look, A, "s", "a").digest is None
    assert one.ask(Get, A, "s", MOST).fields is None
    assert one.ask(Delete, A, "s").found is False
    assert one.ask(Enumerate, None, 9) == Enumerated(5, [], 0)
    assert isinstance(one.append("a"), Failed)
    assert "cannot be opened" in one.keeper.facts.trouble
    one.close()


def test_something_else_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "sessions.db").mkdir()
    one = Thread(tmp_path)
    assert isinstance(one.ask(Fetch, A, "s", MOST), Failed)
    assert isinstance(one.append("a"), Failed)
    one.close()


def test_a_disk_that_takes_no_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Thread(tmp_path)
    one.append("a")
    one.close()

    def refuse(path: str) -> sqlite3.Connection:
        raise OSError(30, "Read-only file system", path)

    working = schema.open_at
    monkeypatch.setattr(schema, "open_at", refuse)
    two = Thread(tmp_path)
    assert two.opened == Opened([(A, "s")])
    assert len(two.ask(Fetch, A, "s", MOST).turns) == 1
    assert isinstance(two.append("b"), Failed)
    assert two.keeper.facts.trouble
    monkeypatch.setattr(schema, "open_at", working)
    two.keeper._retry_at = 0.0
    assert isinstance(two.append("c"), Stored)
    assert two.keeper.facts.trouble == ""
    two.close()


def test_a_full_disk_and_then_room(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    one.append("a")
    one.keeper._store._db.execute("PRAGMA max_page_count=1")  # SQLITE_FULL as soon as it has to grow
    big = msgspec.structs.replace(turn("b"), messages=msgspec.json.encode([user("x" * 100_000)]))
    assert isinstance(one.ask(Append, A, "s", big, False, MOST), Failed)
    assert "full" in one.keeper.facts.trouble
    one.keeper._store._db.execute("PRAGMA max_page_count=100000")
    assert isinstance(one.ask(Append, A, "s", big, False, MOST), Stored)
    assert (one.keeper.facts.trouble, one.keeper.facts.failures) == ("", 1)
    one.close()


def test_the_wal_stays_small(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    big = msgspec.structs.replace(turn("b"), messages=msgspec.json.encode([user("x" * 100_000)]))
    for _ in range(60):
        one.ask(Append, A, "s", big, False, MOST)
    assert (tmp_path / "sessions.db-wal").stat().st_size < 3 << 20
    assert (tmp_path / "sessions.db").stat().st_size < 4 << 20
    one.close()
