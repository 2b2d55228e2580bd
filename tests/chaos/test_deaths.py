"""A thousand deaths of the worker at random moments under callers of every kind: nothing lost, changed or repeated."""

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
import time
from pathlib import Path

from callers import Callers, at_rest
from crowd import balance
from harness import running, until
from history import judge_all, outcomes

RULES = {"restart": {"max": 1_000_000, "backoff_s": 0.001, "backoff_max_s": 0.001}}
LIMITS = {"orphan_grace_ms": 300, "results_kept_bytes": 64 << 20, "drain_s": 0.5}
DEATHS = 1000
NOTICED_S = 0.5
SEED = os.environ.get("EDGED_SEED") or secrets.token_hex(4)


def test_a_thousand_deaths(tmp_path: Path, capsys) -> None:
    rng = random.Random(f"{SEED}/nemesis")
    noticed: list[float] = []
    with running(tmp_path, script="sequences=4", watchdog=RULES, limits=LIMITS) as box:
        pid = box.pid
        with Callers(box, 8, SEED, rude=0.15) as callers:
            for _ in range(DEATHS):
                victim = until(box.worker_pid, "a worker")
                time.sleep(rng.random() * 0.3)  # the moment is what is random
                os.kill(victim, signal.SIGKILL)
                begun = time.monotonic()
                until(lambda victim=victim: box.worker_pid() not in (None, victim), "another worker")
                noticed.append(time.monotonic() - begun)
                assert not callers.troubles
        status = at_rest(box)
        assert box.pid == pid
    broken = judge_all(callers.stories)
    carried = status["counters"].get("carried", 0)
    with capsys.disabled():
        sys.stdout.write(
            f"\n  seed {SEED}: {DEATHS} deaths, {len(callers.stories)} requests {dict(outcomes(callers.stories))}, "
            f"carried on {carried} times, callers' faults {dict(callers.faults)}, "
            f"next worker after {max(noticed):.2f} s at most; broken promises: {len(broken)}\n"
        )
    assert broken == []
    assert callers.troubles == []
    assert balance(status) == 0
    assert set(outcomes(callers.stories)) <= {"stop", "abandoned", "cancelled"}
    assert carried > DEATHS
    assert max(noticed) < NOTICED_S + 0.1
