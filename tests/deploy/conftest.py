"""A fleet of real systemd boxes over real SSH: skipped, with the reason, where it cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "system")]

from fleet import impossible  # noqa: E402 - found by the path above

WHY = impossible()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if WHY and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=WHY))
