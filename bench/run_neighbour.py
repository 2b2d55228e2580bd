"""A busy neighbour on the same cores for 60 s: tokens per second beside it, and that nothing is reloaded for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from service import Service, models, say, service, spread, verdict

SECONDS = float(os.environ.get("EDGED_BENCH_NEIGHBOUR_S", "60"))
LEAST = 1 / 3
BUSY = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"


def speeds(running: Service, seconds: float) -> list[float]:
    """Tokens per second of one request after the other."""
    found: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        reply = running.generate([say("Tell me a long story about a river.")], max_tokens=64)
        found.append(reply["timing"]["tokens_per_second"])
    return found


def run(model: Path) -> None:
    with service(model) as running:
        before = running.ask(op="status")
        cores = sorted({core for thread in before["threads"] for core in thread["cores"]})
        alone = speeds(running, SECONDS / 4)
        for count in (1, len(cores)):
            busy = [subprocess.Popen([sys.executable, "-c", BUSY % core]) for core in cores[:count]]
            try:
                beside = speeds(running, SECONDS)
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
            ratio = [value / max(alone) for value in beside]
            print(f"     {count} of {len(cores)} cores busy: {spread(beside)} tokens/s, alone {spread(alone)}")
            after = running.ask(op="status")["watchdog"]
            verdict("missing from a third of alone", max(0.0, LEAST - sorted(ratio)[len(ratio) // 2]), 0)
            verdict("workers started beside the first", after["worker_starts"] - 1, 0)
            print(f"     level {after['level']}", flush=True)


def main() -> None:
    for model in models():
        print(f"-- {model.stem}", flush=True)
        run(model)


if __name__ == "__main__":
    sys.exit(main())
