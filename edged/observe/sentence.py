"""`status` in one line of words, for `systemctl status` (STATUS= of sd_notify(3)). Pure. Never ids or text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edged.observe import unapplied


def sentence(status: Mapping[str, Any]) -> str:
    """`ready, level normal, qwen2.5-0.5b-instruct (profile default), 2 running, 1 waiting, 61.5 °C`."""
    state, why = str(status["state"]), ""
    if state == "unavailable":
        why = next((one for one in status["warnings"] if one.startswith("unavailable: ")), "")
    loaded = status["model"].get("loaded")
    head = why or (f"loading {loaded:.0%}" if state == "loading" and loaded is not None else state)
    watchdog = status["watchdog"]
    said = [head, f"level {watchdog['level']}", f"{status['model']['name']} (profile {status['profile']})"]
    waiting = status["queue"]["length"]
    said += [f"{status['queue']['accepted'] - waiting} running, {waiting} waiting"]
    celsius = watchdog.get("readings", {}).get("temperature_c")
    refused = unapplied.short(status["warnings"])
    said += [refused] if refused else []
    return ", ".join(said + ([f"{celsius:.1f} °C"] if celsius is not None else []))
