"""Conversations over real sockets: what survives which death, who sees what, what a bad disk costs."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Client, Daemon, open_to_others, running, until

from wire.conftest import Stranger

OTHER_UID = 54321
root = pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
ME = f"uid:{os.getuid()}"


def body(text: str, session: str = "s", **fields: Any) -> dict[str, Any]:
    return {"op": "generate", "session": session, "messages": [{"role": "user", "content": text}], **fields}


def say(client: Client, text: str, session: str = "s", **fields: Any) -> dict[str, Any]:
    reply = client.call(**body(text, session, **fields))
    assert reply["ok"], reply
    return reply


def ids(client: Client, session: str = "s") -> list[str]:
    reply = client.call(op="session", session=session, action="get")
    return [turn["id"] for turn in reply["turns"]] if reply["ok"] else [reply["error"]["code"]]


def killed_and_back(box: Daemon) -> None:
    assert box.stop(signal.SIGKILL) == -signal.SIGKILL
    box.control_path.unlink()
    box.start()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Daemon]:
    """Without a journal: what is known after a restart is known from the transcripts alone."""
    with running(tmp_path / "box", limits={"drain_s": 0.2}, journal="off") as daemon:
        yield daemon


def test_a_conversation(box: Daemon) -> None:
    with box.client() as client:
        first = client.call(
            op="generate",
            session="s",
            id="a",
            messages=[{"role": "system", "content": "be kind"}, {"role": "user", "content": "show=1 one"}],
        )
        assert first["session"] == "s"
        assert "dropped_turns" not in first
        assert first["text"].startswith("head=1 turns= messages=2 session=True last=kind,one")
        second = say(client, "n=1 word=yes two", id="b")
        third = say(client, "show=1 three", id="c")
        assert third["text"].startswith("head=1 turns=2,2 messages=6 session=True last=kind,one,")
        assert third["text"].endswith(",two,yes,three")
        fourth = say(client, "show=1 drop=2 four", id="d")
        assert fourth["dropped_turns"] == 2
        fifth = say(client, "show=1 five", id="e")
        assert fifth["text"].startswith("head=1 turns=2,2 messages=6 ")
        assert fifth["dropped_turns"] == 2
        shown = client.call(op="session", session="s", action="get")
        assert [turn["id"] for turn in shown["turns"]] == list("abcde")
        assert shown["turns"][1]["messages"][-1] == {"role": "assistant", "content": second["text"]}
        assert (shown["system"], shown["turns_total"]) == ([{"role": "system", "content": "be kind"}], 5)
        assert shown["dropped_turns"] == 2
        other = client.call(op="generate", session="s", messages=[{"role": "system", "content": "be rude"}])
        assert (other["error"]["code"], "reset" in other["error"]["message"]) == ("bad_request", True)
        fresh = say(client, "show=1 six", id="f", reset=True)
        assert fresh["text"].startswith("head=0 turns= messages=1 ")
        assert ids(client) == ["f"]


def test_what_is_cut_off_leaves_no_turn(box: Daemon) -> None:
    with box.client() as client:
        say(client, "n=1", id="a")
        tag = client.ask(**body("n=1000 delay=0.01", id="b", max_tokens=1000))
        box.wait_status(lambda s: s["slots"]["busy"] == 1, "it runs")
        assert client.call(op="session", session="s", action="delete")["error"]["code"] == "busy"
        assert client.call(op="cancel", id="b")["state"] == "cancelled" or tag
        until(lambda: client.call(op="result", id="b").get("finish_reason") == "cancelled", "the end")
        late = client.call(**body("n=1000 delay=0.01", id="c", max_tokens=1000, deadline_ms=100))
        assert late["finish_reason"] == "deadline"
        assert ids(client) == ["a"]
        assert client.call(op="session", session="s", action="delete")["deleted"] is True
        assert ids(client) == ["not_found"]


def test_the_next_turn_waits_and_blocks_nobody(box: Daemon) -> None:
    with box.client() as client, box.client() as other:
        long = client.ask(**body("n=1000 delay=0.01 one", id="a", max_tokens=1000))
        box.wait_status(lambda s: s["slots"]["busy"] == 1, "it runs")
        next_one = client.ask(**body("show=1 two", id="b"))
        last = client.ask(**body("show=1 three", id="c"))
        box.wait_status(lambda s: s["queue"]["accepted"] == 3, "all accepted")
        assert say(other, "show=1", session="t")["text"].startswith("head=0 turns= ")
        assert other.call(op="generate", prompt="n=1")["text"] == "t0 "
        assert other.call(op="result", id="b")["state"] == "queued"
        assert other.call(op="cancel", id="a")["state"] == "cancelled"
        replies = dict(client.receive() for _ in range(3))
        assert replies[long]["finish_reason"] == "cancelled"
        assert replies[next_one]["text"].startswith("head=0 turns= messages=1 ")
        assert replies[last]["text"].startswith("head=0 turns=2 messages=3 ")
        assert ids(client) == ["b", "c"]


def test_superseded_turns_do_not_enter(box: Daemon) -> None:
    with box.client() as client:
        old = client.ask(**body("n=1000 delay=0.01", id="a", max_tokens=1000))
        box.wait_status(lambda s: s["slots"]["busy"] == 1, "it runs")
        new = client.ask(**body("show=1", id="b", supersedes="a"))
        replies = dict(client.receive() for _ in range(2))
        assert replies[old]["finish_reason"] == "cancelled"
        assert replies[new]["text"].startswith("head=0 turns= messages=1 ")
        assert ids(client) == ["b"]


def test_the_daemon_is_killed_between_turns_and_right_after_a_reply(box: Daemon) -> None:
    with box.client() as client:
        first = say(client, "n=2 one", id="a")
        killed_and_back(box)
        second = say(client, "show=1 two", id="b")
        assert second["text"].startswith("head=0 turns=2 messages=3 ")
        killed_and_back(box)
        assert ids(client) == ["a", "b"]
        again = say(client, "n=2 one", id="a")
        assert again["instance"] != first["instance"]
        assert {**again, "instance": 0} == {**first, "instance": 0}
        assert client.call(**body("n=2 other", id="b"))["error"]["code"] == "id_conflict"
        assert client.call(op="result", id="b")["error"]["code"] == "not_found", "a refusal leaves no trace"
        assert {**say(client, "show=1 two", id="b"), "instance": 0} == {**second, "instance": 0}
        assert ids(client) == ["a", "b"]


def test_a_stored_reply_as_a_stream(box: Daemon) -> None:
    message = {"session": "s", "messages": [{"role": "user", "content": "n=3"}]}
    with box.client() as client:
        *_, first = client.stream(id="a", **message)
        killed_and_back(box)
        ticket, *rest = client.stream(id="a", **message)
        assert ticket["topic"].startswith("tok/")
        tokens = [event for event in rest if event["type"] == "token"]
        assert [(e["text"], e["n"]) for e in tokens] == [("t0 t1 t2 ", 3)]
        assert [event["seq"] for event in rest] == list(range(len(rest)))
        end = rest[-1]
        assert (end["text"], end["usage"], end["timing"]) == (first["text"], first["usage"], first["timing"])
        conflict = {**message, "messages": [{"role": "user", "content": "n=4"}]}
        killed_and_back(box)
        ticket = client.call(op="generate", id="a", stream=True, **conflict)
        with box.subscriber(ticket["topic"]) as late:
            _, end, _ = late.whole()
            assert end["error"]["code"] == "id_conflict"


def test_a_turn_goes_on_with_the_next_worker(tmp_path: Path) -> None:
    with running(tmp_path, watchdog={"restart": {"max": 100, "backoff_s": 0.01}}) as box, box.client() as client:
        say(client, "n=1", id="a")
        victim = client.ask(**body("n=50 once=1 die=SEGV@3", id="b"))
        after = client.ask(**body("show=1", id="c"))
        replies = dict(client.receive() for _ in range(2))
        assert replies[victim]["text"] == "".join(f"t{n} " for n in range(50))
        assert (replies[victim]["restarts"], replies[victim]["session"]) == (1, "s")
        assert replies[after]["text"].startswith("head=0 turns=2,2 messages=5 ")
        assert ids(client) == ["a", "b", "c"]


@root
def test_another_user_has_sessions_of_its_own(tmp_path: Path) -> None:
    with running(open_to_others(tmp_path) / "box", limits={"drain_s": 0.2}) as box, box.client() as client:
        say(client, "n=1 word=mine", id="a")
        b = Stranger(box, uid=OTHER_UID)
        try:
            for action in ("get", "delete"):
                found = b.do(call={"op": "session", "session": "s", "action": action})
                assert found["error"]["code"] == "not_found"
            assert b.do(call={"op": "sessions"})["error"]["code"] == "forbidden"
            own = b.do(call=body("show=1", id="a"))
            assert own["text"].startswith("head=0 turns= messages=1 ")
            assert "mine" not in str(b.do(call={"op": "session", "session": "s", "action": "get"}))
            assert b.do(call={"op": "session", "session": "s", "action": "delete"})["deleted"]
        finally:
            b.close()
        assert ids(client) == ["a"]


def test_operators(box: Daemon) -> None:
    with box.client() as client, box.operator() as operator:
        say(client, "n=1 secret", id="a")
        (row,) = operator.call(op="sessions")["sessions"]
        assert (row["identity"], row["session"], row["turns"]) == (ME, "s", 1)
        assert "secret" not in str(row)
        assert operator.call(op="sessions", identity="uid:0xbad")["sessions"] == []
        about = {"op": "sessions", "identity": ME, "session": "s"}
        assert operator.call(action="get", **about)["turns"][0]["id"] == "a"
        assert operator.call(action="delete", **about)["deleted"] is True
        assert operator.call(action="delete", **about)["error"]["code"] == "not_found"
        assert operator.call(op="sessions", session="s", action="get")["error"]["code"] == "bad_request"
        status = client.call(op="status")["sessions"]
        assert (status["count"], status["bytes"]) == (0, 0)


def test_limits(tmp_path: Path) -> None:
    limits = {"sessions_per_identity": 3, "session_bytes": 1500, "drain_s": 0.2}
    with running(tmp_path, limits=limits) as box, box.client() as client:
        for name in "abc":
            say(client, "n=1", session=name)
        refused = client.call(**body("n=1", session="d", id="x"))
        assert refused["error"]["code"] == "too_large"
        assert "limits.sessions_per_identity is 3" in refused["error"]["message"]
        assert refused["error"]["retryable"] is False
        killed_and_back(box)
        assert client.call(**body("n=1", session="d", id="x"))["error"]["code"] == "too_large"
        client.call(op="session", session="b", action="delete")
        say(client, "n=1", session="d", id="x")
        for n in range(20):
            say(client, "n=1 " + "x" * 100, session="a", id=f"t{n}")
        shown = client.call(op="session", session="a", action="get")
        assert shown["bytes"] <= 1500
        assert shown["turns_total"] < 20
        assert shown["turns"][-1]["id"] == "t19"


def test_the_file_is_private_and_nothing_of_it_is_logged(box: Daemon) -> None:
    with box.client() as client:
        say(client, "n=1 word=answer-word prompt-word")
    for file in (box.directory / "state").glob("sessions.db*"):
        assert file.stat().st_mode & 0o077 == 0
    log = box.log.read_text()
    assert "prompt-word" not in log
    assert "answer-word" not in log


def test_a_damaged_database_costs_the_transcripts_only(box: Daemon) -> None:
    with box.client() as client:
        say(client, "n=1", id="a")
        box.stop()
        (box.directory / "state/sessions.db").write_bytes(b"garbage" * 1000)
        box.start()
        assert say(client, "show=1", id="b")["text"].startswith("head=0 turns= ")
        assert ids(client) == ["b"]
        status = client.call(op="status")
        assert status["sessions"]["set_aside"] == 1
        assert any("bad-N" in warning for warning in status["warnings"])
    assert (box.directory / "state/sessions.db.bad-1").exists()


def test_a_newer_database_is_left_alone(box: Daemon) -> None:
    with box.client() as client:
        say(client, "n=1", id="a")
        box.stop()
        with sqlite3.connect(box.directory / "state/sessions.db") as other:
            other.execute("PRAGMA user_version=99")
        other.close()
        box.start()
        refused = client.call(**body("n=1", id="b"))["error"]
        assert (refused["code"], "newer" in refused["message"]) == ("unavailable", True)
        assert client.call(op="session", session="s", action="get")["error"]["code"] == "unavailable"
        assert client.call(op="generate", prompt="n=1")["ok"]


def test_a_full_disk_costs_the_turn_and_not_the_answer(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writes fail in the same place."""
    box = Daemon(tmp_path / "box", limits={"drain_s": 0.2}, journal="off")
    try:
        box.start(before=("bash", "-c", 'ulimit -f 100; exec "$@"', "-"))
        with box.client() as client:
            say(client, "n=1", id="a")
            big = say(client, "n=1 " + "x" * 120_000, id="b")
            assert (big["text"], big["stored"]) == ("t0 ", False)
            status = client.call(op="status")
            assert status["counters"]["turns_not_stored"] == status["sessions"]["failures"] == 1
            assert any(warning.startswith("sessions: ") for warning in status["warnings"])
            small = say(client, "show=1", id="c")
            assert small["text"].startswith("head=0 turns=2 messages=3 ")
            assert client.call(op="status")["warnings"] == [], "it has room again"
            assert "b" not in ids(client)
        assert box.stop() == 0
    finally:
        box.close()


def test_no_file_can_be_made(tmp_path: Path) -> None:
    """A state directory that takes no file (as root a read-only mode would not hold): a directory in its place."""
    box = Daemon(tmp_path / "box", limits={"drain_s": 0.2})
    try:
        (box.directory / "state/sessions.db").mkdir(parents=True)
        box.start()
        with box.client() as client:
            assert client.call(**body("n=1"))["error"]["code"] == "unavailable"
            assert client.call(op="generate", prompt="n=1")["ok"]
            assert any("sessions.db cannot be opened" in w for w in client.call(op="status")["warnings"])
        assert box.stop() == 0
    finally:
        box.close()


def test_many_quick_turns_keep_the_daemon_small(box: Daemon) -> None:
    with box.client() as client:
        for n in range(200):
            say(client, f"n=2 {'x' * 400}", session=f"s{n % 8}", id=f"t{n}")
        assert len(ids(client, "s0")) == 25
        big = "n=1 " + "x" * 200_000
        for n in range(8):
            say(client, big, session="big", id=f"b{n}")
        assert client.call(op="status")["sessions"]["bytes"] < 3 << 20
    assert box.rss_kb() < 40_000


def test_a_stop_in_the_middle_of_things_stores_what_was_done(box: Daemon) -> None:
    with box.client() as client:
        for n in range(30):
            client.ask(**body("n=1", id=f"t{n}"))
        done = [client.receive()[1]["id"] for _ in range(10)]
        box.stop()
        box.start()
        kept = ids(client)
        assert kept[:10] == done == [f"t{n}" for n in range(10)]
        assert kept == [f"t{n}" for n in range(len(kept))]


def edgectl(box: Daemon, *words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "edged.cli.main", "--endpoint", box.request_endpoint, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_edgectl_session(box: Daemon) -> None:
    assert edgectl(box, "session", "list") == (0, "no sessions\n", "")
    with box.client() as client:
        say(client, "n=1 word=yes hello", id="a")
    title, row = edgectl(box, "session", "list")[1].splitlines()
    assert title.split() == ["SESSION", "IDENTITY", "TURNS", "BYTES", "USED"]
    assert row.split()[:3] == ["s", ME, "1"]
    assert edgectl(box, "session", "show", "s") == (0, "user: n=1 word=yes hello\nassistant: yes\n", "")
    shown = json.loads(edgectl(box, "session", "show", "s", "--identity", ME, "--json")[1])
    assert shown["turns_total"] == 1
    code, _, why = edgectl(box, "session", "show", "nope")
    assert (code, why.startswith("edgectl: not_found: ")) == (1, True)
    assert edgectl(box, "session", "delete", "s") == (0, "deleted\n", "")
    assert edgectl(box, "session", "delete", "s", "--identity", ME)[0] == 1
    assert edgectl(box, "session", "delete")[0] == 2


def test_killed_in_the_middle_of_things(box: Daemon) -> None:
    """Whoever has an answer finds it in the transcript; what is there is whole and in order."""
    with box.client() as client:
        for n in range(40):
            client.ask(**body("n=1", id=f"t{n}"))
        replies = [client.receive()[1] for _ in range(15)]
        done = [reply["id"] for reply in replies if reply.get("stored", True)]  # a disk may take more than its second
        killed_and_back(box)
    with box.client() as client:
        kept = ids(client) if done else []
        assert kept == [f"t{n}" for n in range(len(kept))]
        assert kept[: len(done)] == done
        again = say(client, "n=1", id="t39")
        assert again["text"] == "t0 "
        assert ids(client)[-1] == "t39"


def test_a_disk_that_hangs_costs_a_second_and_holds_up_nobody(box: Daemon) -> None:
    """Another process with the lock of the database stands for the disk."""
    with box.client() as client, box.client() as other:
        say(client, "n=1", id="a")
        lock = sqlite3.connect(box.directory / "state/sessions.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        tag = client.ask(**body("n=1 word=late", id="b", stream=False))
        for _ in range(20):
            assert other.call(op="generate", prompt="n=1")["ok"]
        got, reply = client.receive()
        assert (got, reply["text"], reply["stored"]) == (tag, "late", False)
        lock.execute("ROLLBACK")
        lock.close()
        assert "stored" not in say(client, "n=1", id="c")
        assert ids(client)[-1] == "c"
