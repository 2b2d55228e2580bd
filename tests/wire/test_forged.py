"""Peers that claim to be somebody else in their READY: libzmq takes such properties as metadata (protocol 9)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attacker import frame, message
from harness import TESTS, Daemon, running, until
from keys import Keys

ASK = {"op": "generate", "id": "forged", "prompt": "n=4000 delay=0.01", "max_tokens": 4000}


@contextmanager
def forger(endpoint: str, kind: str, send: bytes, **claims: str) -> Iterator[int]:
    """A process with these claims that sends `send`; its pid."""
    words = [f"{name}={value}" for name, value in claims.items()]
    command = [sys.executable, str(TESTS / "attacker.py"), "forge", endpoint, f"kind={kind}", f"send={send.hex()}"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline().removeprefix("ready "))["pid"]
        finally:
            process.kill()


def banned(box: Daemon) -> str:
    log = until(lambda: "peer_banned" in (text := box.log.read_text()) and text, "the ban")
    return next(line for line in log.splitlines() if "peer_banned" in line).replace('"', "")


def test_a_foreign_frame_with_anothers_key_bans_its_sender(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    ada = keys.admit("ada", name="ada")
    with running(tmp_path / "box", **keys.settings(tmp_path / "box/run")) as box:
        claims = {"key": ada.public, "identity": "name:ada"}
        with forger(box.stream_endpoint, "XSUB", frame(b"\2foreign"), **claims) as pid:
            line = banned(box)
            assert f":{pid} " in line, "its sender's address"
            assert "identity=uid:" in line
        with keys.client(box, ada) as client:
            assert client.call(op="ping")["ok"], "whose key it was is let in"


def test_a_request_belongs_to_whom_the_kernel_names(tmp_path: Path) -> None:
    with running(tmp_path / "box") as box, box.operator() as operator:
        asked = message(b"", json.dumps(ASK).encode())
        with forger(box.request_endpoint, "DEALER", asked, identity="uid:4242", key="x" * 40):
            (row,) = until(lambda: operator.call(op="requests")["requests"], "the request")
            assert row["identity"].startswith("uid:")
            assert row["identity"] != "uid:4242"


@pytest.mark.parametrize("kind", ["XSUB", "SUB"])
def test_without_keys_an_address_is_the_networks_word(tmp_path: Path, kind: str) -> None:
    keys = Keys(tmp_path / "keys")
    settings: dict[str, Any] = keys.settings(tmp_path / "box/run")
    settings["security"] = {"allow_insecure_tcp": True}
    with running(tmp_path / "box", **settings) as box, forger(keys.stream, kind, frame(b"\2foreign"), key="x" * 40):
        line = banned(box)
        assert "peer=127.0.0.1" in line
        assert "identity=ip:127.0.0.1" in line
        with box.client() as local:
            assert local.call(op="ping")["ok"]
