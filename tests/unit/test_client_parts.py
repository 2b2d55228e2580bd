"""Errors, replies, bodies, endpoints: what the client library takes and gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edged import client
from edged.client import bodies, errors, where
from edged.client.replies import Progress, Result, Status, typed
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
    assert ours == {"edged.places"}
    assert "asyncio" not in loaded
    assert then == "True"
