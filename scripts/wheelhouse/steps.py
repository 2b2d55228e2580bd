"""What a wheelhouse's steps share: places, and commands that run with a line every ten seconds."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parents[1]
ARCHES: Final = ("aarch64", "x86_64")
PYTHONS: Final = ("3.11", "3.13")
"""Of Debian 12 and 13."""

TOLD_S: Final = 10.0
TAIL: Final = 30
"""Lines of the log that a failure shows."""


class StepError(Exception):
    """A step failed; the message says what to do."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "edged/wheelhouse"


def say(text: str) -> None:
    print(f"wheelhouse: {text}", flush=True)  # noqa: T201 - a command line prints


def key(*parts: bytes | str) -> str:
    """Of everything that a product is made from."""
    made = hashlib.sha256()
    for part in parts:
        whole = part.encode() if isinstance(part, str) else part
        made.update(len(whole).to_bytes(8, "big") + whole)
    return made.hexdigest()[:16]


def run(title: str, command: Sequence[object], *, env: dict[str, str] | None = None) -> None:
    """Raises StepError with the log's end. Says how far ninja is, where its [n/m] is in the log."""
    say(title)
    begun = told = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            [str(one) for one in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # so that compilers end with what started them
        )
        try:
            while process.poll() is None:
                time.sleep(0.1)
                if time.monotonic() - told >= TOLD_S:
                    told = time.monotonic()
                    say(f"  {clock(told - begun)} {_step(log.fileno()) or 'working'}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            log.seek(0)
            end = "".join(log.readlines()[-TAIL:])
            raise StepError(f"{title}: failed\n{end}\n({shlex.join(map(str, command))})")


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _step(log: int) -> str | None:
    size = os.fstat(log).st_size
    at = max(0, size - 65536)
    found = re.findall(rb"^ *(\[\d+/\d+\])", os.pread(log, size - at, at), re.MULTILINE)
    return found[-1].decode() if found else None


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Made beside `target` and renamed into place last; what was there goes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        half.chmod(0o755)
        yield half
        if target.exists():
            shutil.rmtree(target)
        half.rename(target)
    finally:
        shutil.rmtree(half, ignore_errors=True)
