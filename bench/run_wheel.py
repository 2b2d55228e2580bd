"""The wheelhouse's engine against the one that was compiled on this machine: prompt and answer, alone and beside a busy
neighbour on one core. Both daemons run, and are asked in turns (A B B A). Needs `make wheelhouse ARCH=$(uname -m)`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from service import Service, models, say, spread, verdict

from edged import __version__

ROUNDS = int(os.environ.get("EDGED_BENCH_ROUNDS", "10"))
LEAST = 0.9
HOUSE = Path(__file__).parents[1] / f"dist/edged-{__version__}-{os.uname().machine}/wheels"
LONG = "The river was high that year, and the old mill stood with its wheel in the water. " * 24
BUSY = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"


def main() -> None:
    wheels = list(HOUSE.glob("llama_cpp_python-*.whl"))
    if not wheels:
        print(f"     skipped: no wheelhouse in {HOUSE.parent} (make wheelhouse ARCH={os.uname().machine})")
        return
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(scratch)
        for model in models():
            print(f"-- {model.stem}", flush=True)
            run(model, scratch)


def run(model: Path, engine: str) -> None:
    paths = os.pathsep.join(filter(None, [engine, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as directory:
        local = Service(Path(directory) / "local", model)
        os.environ["PYTHONPATH"], before = paths, os.environ.get("PYTHONPATH", "")
        try:
            ready = Service(Path(directory) / "wheelhouse", model)
        finally:
            os.environ["PYTHONPATH"] = before
        try:
            for one in (local, ready):
                told = one.ask(op="status")["model"]
                print(f"     {one.directory.name}: {told['variant']}, {told['build']}")
            core = ready.ask(op="status")["threads"][-1]["cores"][0]
            compare("alone", local, ready)
            busy = subprocess.Popen([sys.executable, "-c", BUSY % core])
            try:
                compare("beside a busy process", local, ready)
            finally:
                busy.kill()
                busy.wait()
        finally:
            local.stop()
            ready.stop()


def compare(how: str, local: Service, ready: Service) -> None:
    """Ratios of the speeds, wheelhouse to local; the first round warms up."""
    ratios: dict[str, list[float]] = {"answer": [], "prompt": []}
    for turn in range(ROUNDS + 1):
        order = (local, ready, ready, local) if turn % 2 else (ready, local, local, ready)
        speeds: dict[str, dict[Service, float]] = {"answer": {}, "prompt": {}}
        for at, one in enumerate(order):
            reply = one.generate([say(f"{turn}.{at % 2}.{at // 2}: {LONG} What stood in the water?")], max_tokens=64)
            timing, usage = reply["timing"], reply["usage"]
            read = (usage["prompt_tokens"] - usage["cached_tokens"]) / timing["prefill_ms"] * 1000
            for name, speed in (("answer", timing["tokens_per_second"]), ("prompt", read)):
                speeds[name][one] = speeds[name].get(one, 0.0) + speed
        if turn:
            for name, found in speeds.items():
                ratios[name].append(found[ready] / found[local])
    for name, of in ratios.items():
        print(f"     {how}, {name}: wheelhouse to local {spread(of)}")
        verdict(f"{how}, {name}: missing from {LEAST}", max(0.0, LEAST - sorted(of)[len(of) // 2]), 0)


if __name__ == "__main__":
    main()
