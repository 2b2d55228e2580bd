"""Errors, replies, bodies, endpoints: what the client library takes and gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edged import client
from edged.client import bodies, errors, where
from edged.client.replies import Progress, Result, Status, Transcript, typed
from edged.errors import RETRYABLE, Code

RESULT = {"ok": True, "id": "a", "text": "x", "finish_reason": "stop"}


def test_every_wire_code_has_its_class():
    assert set(errors.BY_CODE) == set(Code)
    assert all(getattr(client, kind.__name__) is kind for kind in errors.BY_CODE.values())


@pytest.mark.parametrize("code", sorted(Code))
def test_errors_carry_what_the_daemon_said(code):
    reply = {"ok": False, "error": {"code": code, "message": "m", "retryable": code in RETRYABLE}}
    error = errors.error_of(reply)
    assert type(error).code == error.code == code
    assert (error.message, error.retryable, error.retry_after) == ("m", code in RETRYABLE, None)
    assert error.raw == reply


def test_the_rest_of_an_error():
    error = errors.error_of({"error": {"code": "busy", "message": "m", "retryable": True, "retry_after_ms": 1200}})
    assert isinstance(error, client.Busy)
    assert error.retry_after == 1.2
    unknown = errors.error_of({"error": {"code": "of-version-2", "message": "m", "retryable": True}})
    assert (type(unknown), unknown.code, unknown.retryable) == (client.ReplyError, "of-version-2", True)


@pytest.mark.parametrize("error", [None, "x", {}, {"code": 3, "retry_after_ms": "x"}, {"retryable": "yes"}])
def test_malformed_errors_are_errors_all_the_same(error):
    found = errors.error_of({"ok": False, "error": error})
    assert isinstance(found, client.ReplyError)
    assert (found.retryable, found.retry_after) == (False, None)


def test_replies_ignore_what_they_do_not_know_and_keep_it():
    reply = {**RESULT, "usage": {"prompt_tokens": 3, "new": 1}, "session": "s"}
    result = typed(reply, Result)
    assert (result.text, result.usage.prompt_tokens, result.usage.completion_tokens) == ("x", 3, 0)
    assert result.raw == reply
    assert typed({"state": "running", "seq": 4}, Progress).seq == 4
    assert typed({"state": "ready", "warnings": ["w"]}, Status).warnings == ("w",)
    with pytest.raises(AttributeError):
        result.text = "y"


def test_a_reply_of_another_shape_is_the_daemons_mistake():
    with pytest.raises(client.Internal):
        typed({**RESULT, "usage": 3}, Result)


def test_bodies():
    fields = bodies.generate_fields("hi", None, {"max_tokens": 3, "extra": {"new": 1}})
    assert len(fields.pop("id")) == 32
    assert fields == {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "new": 1}
    assert bodies.generate_fields(None, "i", {"prompt": "p"}) == {"id": "i", "prompt": "p"}
    assert bodies.tokenize_fields("t", None) == {"text": "t"}
    assert bodies.tokenize_fields(None, "t") == {"messages": [{"role": "user", "content": "t"}]}
    for messages, options in ((None, {}), ("x", {"prompt": "y"})):
        with pytest.raises(ValueError, match="exactly one"):
            bodies.generate_fields(messages, None, options)
    with pytest.raises(ValueError, match="exactly one"):
        bodies.tokenize_fields(None, None)


@pytest.mark.parametrize(
    ("request_endpoint", "stream_endpoint"),
    [
        ("ipc:///run/edged/request.sock", "ipc:///run/edged/stream.sock"),
        ("tcp://10.0.0.1:5555", "tcp://10.0.0.1:5556"),
        ("tcp://[::1]:5555", "tcp://[::1]:5556"),
    ],
)
def test_the_stream_endpoint_is_derived(request_endpoint, stream_endpoint):
    assert where.derived(request_endpoint) == stream_endpoint
    assert where.stream_of({request_endpoint: "ipc:///x"})(request_endpoint) == "ipc:///x"


@pytest.mark.parametrize("endpoint", ["ipc:///tmp/a.sock", "tcp://host", "tcp://host:x", "inproc://x"])
def test_or_has_to_be_given(endpoint):
    with pytest.raises(client.BadEndpoint, match="streams"):
        where.derived(endpoint)


def test_endpoints(monkeypatch, tmp_path):
    assert where.listed(["ipc:///a", "ipc:///b", "ipc:///a"]) == ["ipc:///a", "ipc:///b"]
    for wrong in ([], "nonsense://x", "/run/edged/request.sock"):
        with pytest.raises(client.BadEndpoint):
            where.listed(wrong)
    monkeypatch.setenv("EDGED_ENDPOINT", "tcp://box:5555")
    assert where.listed(None) == ["tcp://box:5555"]
    monkeypatch.delenv("EDGED_ENDPOINT")
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(where, "SYSTEM_DIR", str(tmp_path / "system"))
    assert where.listed(None) == [f"ipc://{tmp_path}/edged/request.sock"]
    (tmp_path / "system").mkdir()
    (tmp_path / "system/request.sock").touch()
    assert where.listed(None) == [f"ipc://{tmp_path}/system/request.sock"]


def test_a_client_machine_needs_zmq_and_msgspec_only():
    """Nothing of the daemon and nothing that has to be compiled; asyncio only when it is asked for."""
    code = (
        "import sys; import edged.client as c; print(*sys.modules); c.AsyncClient; print('zmq.asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    modules, then = done.stdout.splitlines()
    loaded = set(modules.split())
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    of_zmq = {"cython_runtime", "typing_extensions"}  # the second only where it happens to be installed
    assert {name for name in foreign if not name.startswith("_")} - of_zmq == {"zmq", "msgspec", "edged"}
    ours = {name for name in loaded if name.startswith("edged.") and not name.startswith("edged.client")}
    assert ours == {"edged.places", "edged.keyfile", "edged.keypair"}
    assert "asyncio" not in loaded
    assert then == "True"


OLD = "edged 0.1.0 has not got it (see `features` in `ping`)"


@pytest.mark.parametrize(
    ("code", "message", "feature"),
    [
        ("bad_request", f"field `session`: {OLD}", "session"),
        ("bad_request", f"field `tool_choice`: {OLD}", "tools"),
        ("bad_request", "field `messages[2].tool_calls`: edged 0.1.0 has not got it", "tools"),
        ("bad_request", "unknown field `thinking`", "thinking"),
        ("bad_request", "unknown field `messages[0].tool_call_id`", "tools"),
        ("unknown_op", 'op "embed": no such verb', "embed"),
        ("unknown_op", 'op "warm": edged 0.1.0 has not got it yet', "warm"),
        ("bad_request", "unknown field `temper`", None),
        ("bad_request", "field `session`: expected str, got int", None),
        ("unknown_op", 'op "telepathy": no such verb', None),
        ("not_found", "unknown field `session`", None),
        ("bad_request", "", None),
    ],
)
def test_an_older_daemon_lacks_a_feature_by_name(code, message, feature):
    error = errors.error_of({"ok": False, "error": {"code": code, "message": message}})
    assert error.code == code
    assert isinstance(error, client.MissingFeature) is (feature is not None)
    if feature is not None:
        assert error.feature == feature
        assert f"`{feature}`" in str(error)
        assert not error.retryable
        assert isinstance(error, client.BadRequest)


def test_new_fields_of_a_request():
    tool = {"type": "function", "function": {"name": "f"}}
    given = {"session": "s", "reset": True, "logit_bias": {5: -1.5}, "logprobs": 2, "json_schema": {"type": "object"}}
    given |= {"tools": [tool], "tool_choice": "auto", "thinking": False}
    fields = bodies.generate_fields("hi", "i", given)
    assert fields.pop("messages")
    assert fields.pop("logit_bias") == [(5, -1.5)]
    assert fields.pop("id") == "i"
    assert fields == {name: value for name, value in given.items() if name != "logit_bias"}
    assert bodies.generate_fields("hi", "i", {"logit_bias": [(1, 2.0)], "grammar": "g"})["logit_bias"] == [(1, 2.0)]
    assert bodies.embed_fields(("a", "b")) == {"input": ["a", "b"]}
    with pytest.raises(TypeError):
        bodies.embed_fields("one text")


def test_new_fields_of_a_result():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    top = [{"id": 1, "token": "a", "logprob": -0.1}, {"id": 2, "token": "b", "logprob": -2}]
    reply = {**RESULT, "session": "s", "dropped_turns": 3, "tool_calls": [call], "reasoning": "why", "stored": False}
    result = typed({**reply, "logprobs": [{**top[0], "top": top}]}, Result)
    assert (result.session, result.dropped_turns, result.reasoning, result.stored) == ("s", 3, "why", False)
    assert result.tool_calls[0].function.name == "f"
    assert result.logprobs[0].top[1].logprob == -2
    assert result.message == {"role": "assistant", "content": "x", "tool_calls": [call]}
    plain = typed(RESULT, Result)
    assert plain.message == {"role": "assistant", "content": "x"}
    assert (plain.session, plain.dropped_turns, plain.tool_calls, plain.reasoning, plain.logprobs, plain.stored) == (
        *(None, 0, (), None, (), True),
    )


def test_a_transcript():
    turn = {"id": "a", "messages": [{"role": "user", "content": "x"}], "finish_reason": "stop", "usage": {}}
    reply = {"ok": True, "session": "s", "turns": [turn], "turns_total": 4, "omitted": 3, "bytes": 9, "updated": 1.5}
    found = typed(reply, Transcript)
    assert (found.turns[0].messages[0]["content"], found.omitted, found.dropped_turns) == ("x", 3, 0)
    assert found.raw == reply


def test_a_session_sticks_to_its_box():
    endpoints = [f"ipc:///{n}/request.sock" for n in "abcdef"]
    edged = client.Client(endpoints)

    def first(affinity, **options):
        settings = {"id": None, "deadline_s": None, "answer_s": None, "affinity": affinity, "retry": True}
        return edged._exchange(None, "x", options, **settings).endpoint

    assert first(None, session="kitchen") == first("kitchen")
    assert first("hall", session="kitchen") == first("hall")
    assert edged._session("kitchen", "get", None)._choice.order[0] == first("kitchen")
