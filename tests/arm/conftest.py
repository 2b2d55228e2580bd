"""Emulated boards: skipped, with the reason, where there can be none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arm64 import impossible

WHY = impossible()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if WHY and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=WHY))
