"""Fuzzes targets by name: `python -m tests.fuzz.run [TARGET…] [--seconds 600]`; all of them without a name.

With atheris where it is installed, else (or with `--plain`) by the loop in `campaign`. What fails is made small and
written to `cases/TARGET/`, where `make test` tries it again and again; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import live
from .campaign import HERE, Campaign
from .lines import reached
from .shrink import shrink
from .target import FailureError, Target, attempt
from .targets import BY_NAME

TOLD_S = 10.0
TRACED_S = 20.0
"""How long the lines that were reached are counted, at most: tracing is slow."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join((*BY_NAME, live.NAME))}")
    parser.add_argument("--seconds", type=int, default=600, help="for each target (default: 600)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the plain loop (default: the time)")
    parser.add_argument("--plain", action="store_true", help="without atheris, even where it is installed")
    parser.add_argument("--list", action="store_true", help="print the names and do nothing")
    chosen = parser.parse_args()
    names = chosen.targets or [*BY_NAME, live.NAME]
    unknown = [name for name in names if name not in (*BY_NAME, live.NAME)]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join((*BY_NAME, live.NAME))}")
    if chosen.list:
        say("\n".join(names))
        return 0
    guided = not chosen.plain and importlib.util.find_spec("atheris") is not None
    failed = [name for name in names if not run(name, chosen.seconds, chosen.seed, guided=guided)]
    if failed:
        say(f"failures in: {', '.join(failed)}")
    return 1 if failed else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(name: str, seconds: int, seed: int, *, guided: bool) -> bool:
    """True: nothing was found."""
    if name == live.NAME:
        with tempfile.TemporaryDirectory(prefix="edged-fuzz-") as directory:
            say(f"{name}: {live.run(Path(directory), seconds, seed)}")
        return True
    target, begun = BY_NAME[name], time.monotonic()
    pool: list[bytes] = []
    failures: dict[str, tuple[bytes, FailureError]] = {}
    with tempfile.TemporaryDirectory(prefix="edged-fuzz-") as directory:
        if guided:
            say(f"{name}: {_guided(target, seconds, Path(directory))}")
            pool = [path.read_bytes() for path in sorted((Path(directory) / "corpus").iterdir())]
            failures = _crashes(target, Path(directory))
    left = seconds - (time.monotonic() - begun)
    if not guided or (failures and left > 1):  # libFuzzer stops at the first failure; there may be more
        say(f"{name}: plain loop, seed {seed}, {left:.0f} s")
        campaign = Campaign(target, seed).run(left)
        say(f"{name}: {campaign.tried / left:.0f} inputs a second, {len(campaign.outcomes)} outcomes")
        pool += campaign.pool
        failures = campaign.failures | failures
    lines = reached(target, pool, TRACED_S)
    for module, (hit, every) in lines.items():
        missed = ", ".join(map(str, sorted(every - hit)[:20]))
        say(f"{name}: {module}: {len(hit)} of {len(every)} lines reached{f'; not {missed}' if missed else ''}")
    for kind, (data, failure) in failures.items():
        path = _keep(target, kind, data)
        say(f"{name}: FAILURE {kind}\n{failure.story}\n{name}: {path.relative_to(HERE.parents[1])} has the input")
    return not failures


def _guided(target: Target, seconds: int, directory: Path) -> str:
    """libFuzzer's last line."""
    command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(seconds), str(directory)]
    log = directory / "log"
    with log.open("wb") as out:
        fuzzer = subprocess.Popen(command, stdout=out, stderr=out, cwd=HERE.parents[1])
        while True:
            try:
                fuzzer.wait(TOLD_S)
                break
            except subprocess.TimeoutExpired:
                say(f"{target.name}: {_last(log)}")
            except BaseException:
                fuzzer.kill()
                raise
    if fuzzer.returncode and not list(directory.glob("*-*")):
        raise SystemExit(
            f"{target.name}: atheris ended with {fuzzer.returncode}:\n{log.read_text(errors='replace')[-3000:]}"
        )
    return _last(log)


def _last(log: Path) -> str:
    counts = [
        line for line in log.read_text(errors="replace").splitlines() if line.startswith("#") and "exec/s" in line
    ]
    return " ".join(counts[-1].split(" L: ")[0].split()) if counts else "begins"


def _crashes(target: Target, directory: Path) -> dict[str, tuple[bytes, FailureError]]:
    """`crash-…`, `timeout-…`, `oom-…`, tried again here for their story."""
    found: dict[str, tuple[bytes, FailureError]] = {}
    for path in [path for path in directory.glob("*-*") if path.is_file()]:
        data = path.read_bytes()
        try:
            attempt(target, data)
            told = directory / "kind"  # by `guided`
            story = told.read_text() if told.exists() else (directory / "log").read_text(errors="replace")[-3000:]
            failure = FailureError(f"{path.name.partition('-')[0]} under atheris only", story)
        except FailureError as again:
            failure = again
        found[failure.kind] = (data, failure)
    return found


def _keep(target: Target, kind: str, data: bytes) -> Path:
    small = shrink(target, data, kind)
    path = HERE / "cases" / target.name / hashlib.blake2b(small, digest_size=6).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(small)
    return path


if __name__ == "__main__":
    sys.exit(main())
