"""The Python of docs/clients.md, from top to bottom, against a daemon that answers as the protocol says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from unit.fake_daemon import RESULT, Daemon

PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
CALL = {"id": "c1", "type": "function", "function": {"name": "temperature", "arguments": '{"room": "kitchen"}'}}


def answer(request, number):
    match request:
        case {"op": "generate", "json_schema": schema}:
            assert schema["type"] == "object"
            return [{**RESULT, "text": '{"name": "Ada", "age": 36}'}]
        case {"op": "generate", "messages": [*_, {"role": "tool", "tool_call_id": "c1", "content": told}]}:
            return [{**RESULT, "text": told}]
        case {"op": "generate", "tools": [_]}:
            return [{**RESULT, "text": "", "tool_calls": [CALL]}]
        case {"op": "generate", "session": "kitchen"}:
            return [{**RESULT, "text": "Ada", "session": "kitchen", "dropped_turns": 1}]
        case {"op": "session", "action": "get"}:
            return [{"session": "kitchen", "turns": [{"id": "a", "messages": []}] * 2, "turns_total": 2}]
        case {"op": "session", "action": "delete"}:
            return [{"deleted": True}]
        case {"op": "embed", "input": texts}:
            return [{"embeddings": [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]][: len(texts)], "model": "m"}]
        case {"op": "warm"}:
            return [{"tokens": 12, "cached_tokens": 0}]
    raise AssertionError(request)


def test_the_page(tmp_path):
    endpoint = f"ipc://{tmp_path}/request.sock"
    daemon = Daemon(endpoint, answer)
    daemon.start()
    env = {**os.environ, "EDGED_ENDPOINT": endpoint}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env)
    daemon.stop()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["Ada 1", "2", "Ada", "0.8 0.0", "12"]
