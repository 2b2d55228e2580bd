"""A directory of this process for the files that targets read, in RAM where there is some."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def scratch() -> Path:
    ram = "/dev/shm"
    path = tempfile.mkdtemp(prefix="edged-fuzz-", dir=ram if os.access(ram, os.W_OK) else None)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def empty(name: str) -> Path:
    """A directory with nothing in it."""
    path = scratch() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    return path
