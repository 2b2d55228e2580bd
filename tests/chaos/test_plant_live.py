"""An hour on a modelled board in a minute, with the real daemon: sensors through the fake root, pacing over the link
and through the clock's limit, one stream after the other."""

from __future__ import annotations

import pytest
from plant.closed import HOUR_S, watched
from plant.live import Plant, PlantDaemon

from edged.config_watchdog import Watchdog

SCALE = 60.0
TOO_LATE_C = 1.0
"""A second of the board is a 60th of ours: a busy machine is late by several."""


@pytest.mark.parametrize(("group", "number", "least"), [("mild", 1, 0.7), ("hard", 0, 0.7)])
def test_an_hour_at_full_load(tmp_path, group, number, least):
    """Never (but for being late) above 80 °C, at most one reload, text without a hole, and most of the tokens that the
    rules alone write on the same board: a token takes some 3 ms here, and a tenth goes into waking up and between two
    requests."""
    plant = Plant(tmp_path / "root", group, number, 11, scale=SCALE)
    profiles = [{"name": "best"}, {"name": "small", "context": 2048}]
    box = PlantDaemon(tmp_path / "box", plant, profiles=profiles)
    try:
        box.start()
        tokens = requests = 0
        levels = set()
        began = plant.seconds
        with box.client() as client, box.client() as asker:
            while plant.seconds - began < HOUR_S:
                requests += 1
                text = ""
                ask = {"prompt": "delay=1 n=300", "max_tokens": 600, "deadline_ms": 300_000, "id": f"r{requests}"}
                for event in client.stream(priority="high", **ask):  # served at hot too: heat is what is looked at
                    text += event.get("text", "") if event.get("type") == "token" else ""
                    assert event.get("ok", True), event
                assert text == "".join(f"t{n} " for n in range(300))
                tokens += 300
                levels.add(asker.call(op="status")["watchdog"]["level"])
        passed = plant.seconds - began
        with box.client() as client:
            status = client.call(op="status")
        alone = watched(plant.board, Watchdog(), seconds=int(passed))
        share = tokens / alone.tokens
        facts = (
            f"{plant.board.name}: peak {plant.peak_c:.1f} °C, {tokens} tokens, {share:.2f} of the rules alone, {levels}"
        )
        assert plant.peak_c <= 80 + TOO_LATE_C, facts
        assert share >= least, facts
        assert status["watchdog"]["worker_starts"] <= 2, facts
        assert "warm" in levels, facts
        assert box.stop() == 0
        assert int((plant.root.policy / "scaling_max_freq").read_text()) == plant.board.clocks[-1] * 1000
    finally:
        plant.stop()
        box.close()
