"""A pass of the live target, as long as those of the others."""

from __future__ import annotations

from pathlib import Path

from . import live
from .test_passes import SECONDS, SEED


def test_a_daemon_bears_it(tmp_path: Path) -> None:
    live.run(tmp_path, SECONDS, SEED)
