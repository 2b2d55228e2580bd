"""A good client's p99 beside bad peers, the daemon's CPU and memory: calm, attack, attack, calm, on ipc and tcp.

The scripted worker, so that what is measured is the daemon. `EDGED_BENCH_PEERS_S` seconds a turn (5); malformed frames
come for sixty times as long (ten minutes). `EDGED_BENCH_PEERS=all`: every kind of attack there is. As root, else the
attacker on ipc would be of the same user and get no share of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from service import verdict
from siege import ATTACKS, Seen, Siege, castle

SECONDS = float(os.environ.get("EDGED_BENCH_PEERS_S", "5"))
USUAL = ("malformed", "more", "subscriptions", "halfopen", "reconnect")
TIMES = 2.0
"""What a good client's p99 may grow to. A machine with two cores gives the attacker one of them: NOISE_MS is that."""
NOISE_MS = 5.0


def one(name: str, wall: str, longer: float) -> Seen:
    with tempfile.TemporaryDirectory(prefix="edged-peers-") as directory, castle(Path(directory) / "box", wall) as box:
        return Siege(box, name.partition(" ")[0], ATTACKS[name], SECONDS, longer).run()


def main() -> None:
    names = tuple(ATTACKS) if os.environ.get("EDGED_BENCH_PEERS") == "all" else USUAL
    for wall in ("ipc", "tcp"):
        for name in names:
            print(f"-- {wall} {name}", flush=True)
            seen = one(name, wall, 60 if name == "malformed" and wall == "ipc" else 1)
            print(f"     {seen}", flush=True)
            verdict("p99 beside it, ms", seen.besieged, TIMES * seen.calm + NOISE_MS)
            first = seen.turns[1]
            print(f"     in its first {SECONDS:g} s {first:.1f} ms, {first / seen.calm:.1f} times", flush=True)
            verdict("memory afterwards, times before", seen.memory_after / seen.memory_before, 1.1)
            verdict("broken promises to the good client", len(seen.faults), 0)
            if name == "malformed":
                verdict("CPU for it, percent of a core", seen.cpu[1] - seen.cpu[0], 20)


if __name__ == "__main__":
    main()
