"""For all floors: shared helpers lie beside this; hypothesis without time limits, which say more about the machine
than about the code; Ctrl-C works in what the tests start."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `make test &` in a script: children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("edged", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("edged")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `-n 3`: the engine floor computes on all cores, so one process runs it and the others the rest, by file; a
    pass of the fuzzer takes 10 s and goes where there is room."""
    for item in items:
        group = "engine" if item.path.parent.name == "engine" else item.path.stem
        group = item.name if item.path.stem == "test_passes" else group
        item.add_marker(pytest.mark.xdist_group(group))
