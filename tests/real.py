"""Daemons with the real worker and the embedded default; skips where its file is not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, running

from edged.places import EMBEDDED_MODEL, models_dir

MODEL = Path(os.environ.get("EDGED_TEST_MODEL") or models_dir() / EMBEDDED_MODEL)
needs_model = pytest.mark.skipif(not MODEL.exists(), reason="the embedded default is not here: make model")


@contextlib.contextmanager
def real(directory: Path, **keys: Any) -> Iterator[Daemon]:
    with running(directory, script=None, model=MODEL, **{"limits": {"drain_s": 5}, **keys}) as box:
        yield box


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
