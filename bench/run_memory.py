"""300 mixed requests, then idle: what the worker keeps, what lies on the disk, and how much was written to it.

A third each: turns of 8 sessions, prompts of their own, answers with a schema; up to 4 at a time. The level after a
warm-up (two prompts that fill the cache, 60 requests) is compared with the level after the 300.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

from service import Service, memory_kb, models, say, service, verdict

WARM_UP = 60
REQUESTS = 300
SETTLE_S = 10.0
BUDGET = 64 << 20
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}}, "required": ["name"]}

WORDS = ("pump", "valve", "lamp", "gate", "room", "点", "🐢")


def body(n: int, draw: random.Random) -> dict[str, Any]:
    words = " ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 40)))
    common = {"op": "generate", "max_tokens": draw.randint(1, 40), "deadline_ms": 600_000, "seed": n}
    match n % 3:
        case 0:
            return common | {"session": f"s{n // 3 % 8}", "messages": [say(words)]}
        case 1:
            return common | {"prompt": words}
        case _:
            return common | {"json_schema": SCHEMA, "messages": [say(words)]}


def load(box: Service, first: int, count: int, draw: random.Random) -> None:
    waiting = []
    for n in range(first, first + count):
        waiting.append(box.send(body(n, draw)))
        if len(waiting) == 4:
            box.receive(waiting.pop(0))
    for sock in waiting:
        box.receive(sock)
    time.sleep(SETTLE_S)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def run(model: Path) -> None:
    draw = random.Random(7)
    with service(model, cache={"ram_bytes": BUDGET, "disk_bytes": BUDGET}) as box:
        for _ in range(2):  # every page of the KV cache is touched once
            box.generate([say(" ".join(draw.choice(WORDS[:5]) for _ in range(3000)))], max_tokens=4)
        load(box, 0, WARM_UP, draw)
        before, facts = memory_kb(box.worker), box.ask(op="status")["cache"]
        load(box, WARM_UP, REQUESTS, draw)
        after, later = memory_kb(box.worker), box.ask(op="status")["cache"]
        print(f"     RssAnon + VmSwap: {before} kB after {WARM_UP}, {after} kB after {REQUESTS} more; cache: {later}")
        verdict("memory, after / before, away from 1", abs(after / before - 1), 0.03)
        written = later["written_bytes"] - facts["written_bytes"]
        per_thousand = written / (REQUESTS / 3) * 1000 / 1e6
        print(f"     snapshots written to the disk per 1,000 turns of sessions: {per_thousand:.0f} MB")
        sessions = size(box.directory / "state") - later["disk_bytes"]
        print(f"     transcripts and the rest of the state directory: {sessions / 1e3:.0f} kB")
        verdict("RAM tier, part of its budget", later["ram_bytes"] / BUDGET, 1)
        verdict("disk tier, part of its budget", size(box.directory / "state" / "kv") / BUDGET, 1)


def main() -> None:
    for model in models():
        print(f"-- {model.stem}", flush=True)
        run(model)


if __name__ == "__main__":
    sys.exit(main())
