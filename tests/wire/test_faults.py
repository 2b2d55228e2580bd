"""Two hundred faults in one go, mixed: workers killed and prompts that kill them, callers that die, repeat, come late
and take their streams over, a flood. One judge over what the callers saw (`history`). The long run is in tests/chaos.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from pathlib import Path

from callers import Callers, at_rest
from crowd import balance
from harness import Daemon, running, until
from history import judge_all, outcomes

RULES = {"restart": {"max": 100_000, "backoff_s": 0.01, "backoff_max_s": 0.02}}
LIMITS = {"orphan_grace_ms": 300, "results_kept_bytes": 32 << 20, "drain_s": 0.5}
SEED = os.environ.get("EDGED_SEED") or secrets.token_hex(4)


def kill(box: Daemon, rng: random.Random) -> None:
    """At a random moment of its life, loading included."""
    victim = until(box.worker_pid, "a worker")
    time.sleep(rng.random() * 0.25)  # the moment is what is random
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return
    until(lambda: box.worker_pid() not in (None, victim), "another worker")


def flood(box: Daemon, count: int) -> None:
    """Fault 21: far more at once than the queue takes; each is answered, the rest is `busy`."""
    with box.client() as client:
        tags = {client.ask(op="generate", prompt="n=1", id=f"flood{n}") for n in range(count)}
        replies = dict(client.receive() for _ in tags)
    assert set(replies) == tags
    codes = {r["error"]["code"] for r in replies.values() if not r["ok"]}
    assert codes <= {"busy"}
    assert all(r["error"]["retry_after_ms"] >= 100 for r in replies.values() if not r["ok"])


def test_two_hundred_faults_lose_and_change_nothing(tmp_path: Path) -> None:
    rng = random.Random(f"{SEED}/nemesis")
    print(f"seed {SEED}: EDGED_SEED={SEED} repeats the choices")  # noqa: T201 - shown when it fails
    with running(tmp_path, script="sequences=4", watchdog=RULES, limits=LIMITS) as box:
        pid, kills = box.pid, 0
        with Callers(box, 8, SEED, poison=0.02, rude=0.3) as callers:
            while kills < 40 or not callers.enough(160):
                kill(box, rng)
                kills += 1
                if kills == 20:
                    flood(box, 300)
        status = at_rest(box)
        assert box.pid == pid
    assert callers.troubles == []
    assert judge_all(callers.stories) == []
    assert balance(status) == 0
    for story in callers.stories:
        assert (story.outcome == "worker_lost") == (bool(story.errors) and not story.abandoned), story
    assert outcomes(callers.stories)["stop"] > 50
