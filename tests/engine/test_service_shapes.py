"""Answers in a form through the whole service, on real weights."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from harness import Daemon
from real import needs_model, real

pytestmark = needs_model

SCHEMA = {
    "type": "object",
    "properties": {"sky": {"enum": ["clear", "rain"]}, "celsius": {"type": "integer", "minimum": -9, "maximum": 40}},
    "required": ["sky", "celsius"],
}
ASK = {"messages": [{"role": "user", "content": "How is the weather?"}], "max_tokens": 60}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with real(tmp_path_factory.mktemp("shapes"), log_level="debug") as daemon:
        yield daemon


def test_a_schema_holds_in_a_stream_and_its_result(box: Daemon) -> None:
    with box.client() as client:
        _ticket, *events, end = client.stream(json_schema=SCHEMA, logprobs=2, seed=5, **ASK)
        tokens = [event for event in events if event["type"] == "token"]
        assert "".join(event["text"] for event in tokens) == end["text"]
        assert end["finish_reason"] == "stop"
        value = json.loads(end["text"])
        assert set(value) == {"sky", "celsius"}
        told = [entry for event in tokens for entry in event["logprobs"]]
        assert told == end["logprobs"]
        assert len(told) == end["usage"]["completion_tokens"]
        assert all(len(entry["top"]) == 2 for entry in told)
        assert all(len(event["logprobs"]) == event["n"] for event in tokens)


def test_what_is_refused_harms_nobody_and_is_not_logged(box: Daemon) -> None:
    worker = box.worker_pid()
    with box.client() as client:
        for shape in (
            {"grammar": 'root ::= "xyzzy-secret" \\q'},
            {"grammar": "root ::= " + "(" * 30_000},
            {"json_schema": {"type": "object", "xyzzy-secret": 1}},
        ):
            reply = client.call(op="generate", **ASK, **shape)
            assert reply["error"]["code"] == "bad_request"
        reply = client.call(op="generate", json_schema=SCHEMA, **ASK)
        assert reply["finish_reason"] == "stop"
    assert box.worker_pid() == worker
    assert "xyzzy-secret" not in box.log.read_text()
