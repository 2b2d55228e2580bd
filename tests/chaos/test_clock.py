"""Fault 13: the wall clock jumps while requests run. libfaketime moves it; the monotonic clock goes on."""

from __future__ import annotations

import glob
import time
from pathlib import Path

import pytest
from harness import Daemon

LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not here")

JUMPS = ["+1d", "-1d", "+3650d", "+0"]


def test_the_wall_clock_jumps(tmp_path: Path) -> None:
    jump = tmp_path / "jump"
    jump.write_text("+0")
    environment = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_TIMESTAMP_FILE": str(jump),
        "FAKETIME_NO_CACHE": "1",
    }
    before = ("env", *(f"{key}={value}" for key, value in environment.items()))
    box = Daemon(tmp_path / "box", limits={"drain_s": 0.2})
    try:
        box.start(before=before)
        with box.client() as client:
            for place, by in enumerate(JUMPS):
                told = client.call(op="ping")["time"]
                events = client.stream(
                    prompt="n=40 delay=0.01 tag=x", id=f"c{place}", max_tokens=100, deadline_ms=60_000
                )
                next(events)
                jump.write_text(by)
                *_, end = events
                assert end["finish_reason"] == "stop"
                assert end["text"] == "".join(f"x{n} " for n in range(40))
                if by != "+0":
                    assert abs(client.call(op="ping")["time"] - told) > 80_000, "the clock did not jump"
            status = client.call(op="status")
            begun = time.monotonic()
            assert status["watchdog"]["worker_deaths"] == 0
            assert status["uptime_s"] < 600
            result = client.call(op="result", id="c0")
            assert result["ok"], "a kept result outlives the jump"
            assert time.monotonic() - begun < 10
        assert box.stop() == 0
    finally:
        box.close()
