"""edgectl chat against a daemon that answers as the protocol says: what it sends, keeps and says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from terminal import CTRL_C, CTRL_D, ENTER, UP, Terminal

from unit.fake_daemon import Daemon, events, ticket

CHAT = [sys.executable, "-m", "edged.cli.main", "--endpoint"]
FITS = 3
"""Messages that the small context of these tests holds."""


def echo(request, number):
    """Says how many messages there were; more than FITS are too many."""
    if request["op"] == "cancel":
        return [{"state": "cancelled"}]
    said = request["messages"][-1]["content"]
    if said == "hang":
        return [ticket(), *list(events("begun"))[:3]]
    if said == "busy" and number == 1:
        return [refused("busy", retryable=True, retry_after_ms=50)]
    if said == "long":
        return [ticket(), {"type": "end", "seq": 0, "ok": False, **refused("context_overflow")}]
    if len(request["messages"]) > FITS:
        return [ticket(), {"type": "end", "seq": 0, **refused("context_overflow")}]
    return [ticket(), *events(f"{len(request['messages'])}: ", said)]


def refused(code, **more):
    return {"ok": False, "error": {"code": code, "message": "9 tokens\x1b[2J, 8 fit", "retryable": False, **more}}


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon(f"ipc://{tmp_path}/request.sock", echo)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def chat(daemon, tmp_path):
    return [*CHAT, f"ipc://{tmp_path}/request.sock", "chat"]


def piped(chat, text, *words):
    return subprocess.run([*chat, *words], check=False, capture_output=True, text=True, input=text, timeout=60)


def contents(request):
    return [message["content"] for message in request["messages"]]


# ---- in a pipe -------------------------------------------------------------------------------------------------


def test_every_turn_is_sent_with_those_before(chat, daemon):
    done = piped(chat, "one\n\n two\n/reset\nthree\n/quit\nnever\n", "--temperature", "0", "--stop", "a", "--stop", "b")
    assert (done.returncode, done.stdout) == (0, "1: one\n3: two\n1: three\n")
    assert done.stderr == "(forgotten)\n"
    assert [contents(request) for request in daemon.seen] == [["one"], ["one", "1: one", "two"], ["three"]]
    assert [message["role"] for message in daemon.seen[1]["messages"]] == ["user", "assistant", "user"]
    assert {request["temperature"] for request in daemon.seen} == {0}
    assert daemon.seen[0]["stop"] == ["a", "b"]
    assert len({request["id"] for request in daemon.seen}) == 3


def test_the_system_message_stays(chat, daemon):
    piped(chat, "one\n/reset\ntwo\n", "--system", "Be brief.")
    assert [contents(request) for request in daemon.seen] == [["Be brief.", "one"], ["Be brief.", "two"]]


def test_the_oldest_turns_are_forgotten_when_it_no_longer_fits(chat, daemon):
    done = piped(chat, "one\ntwo\nthree\n")
    assert (done.returncode, done.stdout) == (0, "1: one\n3: two\n3: three\n")
    assert done.stderr == (
        "(the conversation no longer fits: 9 tokens[2J, 8 fit)\n(the oldest turn is forgotten, 1 left)\n"
    )
    assert contents(daemon.seen[-1]) == ["two", "3: two", "three"]


def test_a_line_that_does_not_fit_by_itself_ends_a_pipe(chat):
    done = piped(chat, "one\nlong\nnever\n")
    assert (done.returncode, done.stdout) == (1, "1: one\n")
    assert done.stderr.endswith("edgectl: context_overflow: 9 tokens[2J, 8 fit\n")


def test_a_session_is_sent_new_turns_only(chat, daemon):
    done = piped(chat, "one\ntwo\n/reset\nthree\nfour\n", "--session", "kitchen", "--system", "Be brief.")
    assert (done.returncode, done.stdout) == (0, "2: one\n2: two\n2: three\n2: four\n")
    sent = [(contents(r), r["session"], r.get("reset", False)) for r in daemon.seen]
    assert [contents for contents, *_ in sent] == [["Be brief.", word] for word in ("one", "two", "three", "four")]
    assert [rest for _, *rest in sent] == [["kitchen", reset] for reset in (False, False, True, False)]


def test_what_a_session_leaves_out_is_told_once(tmp_path):
    left_out = iter([0, 2, 2, 3])

    def answer(request, number):
        return [ticket(), *events("x", dropped_turns=next(left_out), stored=number != 4)]

    daemon = Daemon(f"ipc://{tmp_path}/request.sock", answer)
    daemon.start()
    done = piped([*CHAT, f"ipc://{tmp_path}/request.sock", "chat"], "a\nb\nc\nd\n", "--session", "s")
    daemon.stop()
    assert done.stderr.splitlines() == [
        "(turns that no longer fit and were left out: 2)",
        "(turns that no longer fit and were left out: 3)",
        "(this turn could not be stored: the session goes on without it)",
    ]


def test_an_overflow_in_a_session_is_an_error(chat, daemon):
    done = piped(chat, "one\nlong\n", "--session", "s")
    assert (done.returncode, done.stdout) == (1, "1: one\n")


def test_busy_is_said_and_tried_again_with_the_same_id(chat, daemon):
    done = piped(chat, "busy\n")
    assert (done.returncode, done.stdout) == (0, "1: busy\n")
    assert done.stderr == "(busy: 9 tokens[2J, 8 fit; again in 0.05 s)\n"
    assert daemon.seen[0]["id"] == daemon.seen[1]["id"]


def test_json_is_one_object_an_answer(chat):
    done = piped(chat, "one\ntwo\n", "--json")
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["1: one", "3: two"]


def test_a_blank_in_front_sends_what_looks_like_a_command(chat):
    assert piped(chat, " /quit\n").stdout == "1: /quit\n"
    done = piped(chat, "/what now\n/help\n")
    assert "/what: no such command" in done.stderr
    assert "/save FILE" in done.stderr


def test_save(chat, tmp_path):
    text, messages = tmp_path / "talk", tmp_path / "talk.json"
    done = piped(chat, f"one\n/save {text}\n/save {messages}\n/save {text}\n/save\n/save /nowhere/x\n")
    assert text.read_text() == "user:\none\n\nassistant:\n1: one\n\n"
    assert [m["role"] for m in json.loads(messages.read_text())] == ["user", "assistant"]
    assert {os.stat(path).st_mode & 0o777 for path in (text, messages)} == {0o600}
    assert done.stderr.splitlines()[2:] == [
        f"({text} is there already: choose another name)",
        "(/save FILE: which file?)",
        "(/nowhere/x: No such file or directory)",
    ]


def test_not_utf8_is_told(chat):
    done = subprocess.run([*chat], check=False, capture_output=True, input=b"\xff\n", timeout=60)
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr


# ---- at a terminal ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def at_the_prompt(chat, **env):
    """Left by Ctrl-D, with status 0 and no traceback."""
    with Terminal(chat, **env) as terminal:
        terminal.expect("> ")
        yield terminal
        terminal.send(CTRL_D)
        assert terminal.end() == 0
        assert "Traceback" not in terminal.seen


def say(terminal, line, *answers):
    """Up to the next prompt."""
    terminal.send(line + ENTER)
    for answer in (*answers, "> "):
        terminal.expect(answer)


def test_ctrl_c_cancels_the_answer_and_not_the_program(chat, daemon):
    with at_the_prompt(chat) as terminal:
        terminal.send("hang" + ENTER)
        terminal.expect("begun")
        terminal.send(CTRL_C)
        terminal.expect("(cancelled, and not remembered)")
        terminal.expect("> ")
        daemon.wait_for("cancel")
        terminal.send("half a li")
        terminal.expect("half a li")
        terminal.press(CTRL_C, "> ")
        say(terminal, "whole", "1: whole\n")
    assert daemon.seen[1] == {"op": "cancel", "id": daemon.seen[0]["id"]}
    assert contents(daemon.seen[2]) == ["whole"]


def test_ctrl_c_in_a_pipe_ends_all_of_it(chat, daemon):
    with subprocess.Popen(chat, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"hang\nnever\n")
        process.stdin.flush()
        assert os.read(process.stdout.fileno(), 100) == b"begun"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"edgectl: cancelled\n"
    assert process.returncode == 130
    daemon.wait_for("cancel")


def test_an_error_is_told_and_the_chat_goes_on(chat):
    with at_the_prompt(chat) as terminal:
        say(terminal, "long", "edgectl: context_overflow: 9 tokens[2J, 8 fit\n")
        say(terminal, "one", "1: one\n")
        say(terminal, "/nonsense", "no such command")


def test_it_asks_before_it_forgets(chat, daemon):
    with at_the_prompt(chat) as terminal:
        say(terminal, "one", "1: one\n")
        say(terminal, "two", "3: two\n")
        terminal.send("three" + ENTER)
        terminal.expect("[Y/n] ")
        say(terminal, "n", "nothing was forgotten")
        terminal.send(UP + UP + ENTER)  # "n" is no line of the chat: "two" again
        terminal.expect("[Y/n] ")
        say(terminal, "", "1 left)\n", "3: two\n")
    assert contents(daemon.seen[-1]) == ["two", "3: two", "two"]


def test_the_history_is_in_memory_only(chat, tmp_path):
    home = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "home/state")}
    with at_the_prompt(chat, **home) as terminal:
        say(terminal, "one", "1: one\n")
        say(terminal, UP, "3: one\n")
    assert [path.name for path in tmp_path.iterdir()] == ["request.sock"]


def test_a_history_file_is_for_its_owner_alone(chat, tmp_path):
    file = tmp_path / "lines"
    file.touch(mode=0o644)
    with at_the_prompt([*chat, "--history", str(file)]) as terminal:
        say(terminal, "secret", "1: secret\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("secret\n", 0o600)
    with at_the_prompt([*chat, "--history", str(file)]) as terminal:
        say(terminal, UP, "1: secret\n")
    done = piped(chat, "", "--history", str(tmp_path / "no" / "such"))
    assert (done.returncode, "No such file or directory" in done.stderr) == (2, True)


def test_a_daemon_that_is_gone_is_told_and_the_chat_goes_on(chat, tmp_path):
    with at_the_prompt([*chat[:-1], "--timeout", "0.2", "chat"]) as terminal:
        os.unlink(tmp_path / "request.sock")
        say(terminal, "one", "edgectl: nothing answers at ")
