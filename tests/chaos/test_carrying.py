"""A hundred deaths of the real worker: single stream, the whole text equal to the undisturbed run. No daemon here."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
from carry_rig import NAME, Life, settings
from real import MODEL, needs_model
from worker_rig import Worker

from edged.messages import CacheSettings, Message, Sampling, Shape, Start

pytestmark = needs_model

DEATHS = int(os.environ.get("EDGED_DEATHS", "100"))
PARTS = 5  # a test each
SEED = 20261130
SCHEMA = (
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "tags": {"type": "array", '
    '"items": {"type": "string", "maxLength": 20}, "minItems": 4, "maxItems": 8}}, "required": ["name", "tags"]}'
)
LONG = " ".join(f"Room {n} is {n + 15} degrees warm." for n in range(70))
PROMPTS = ("Tell me of the sea.", "请用中文介绍北京。", f"{LONG} Which room is the warmest?", "Write a loop in C. 🐢")


def drawn(draw: random.Random) -> Start:
    sampling = draw.choice(
        [
            Sampling(temperature=0),
            Sampling(temperature=1.0, seed=draw.getrandbits(32)),
            Sampling(temperature=0.8, seed=draw.getrandbits(32), repeat_penalty=1.2, presence_penalty=0.4),
        ]
    )
    return Start(
        1,
        None,
        [Message("user", draw.choice(PROMPTS))],
        draw.randint(20, 160),
        draw.choice([[], ["\n\n\n", "zzzz"]]),
        sampling,
        draw.choice([Shape(), Shape(), Shape(json_schema=SCHEMA), Shape(logprobs=2)]),
        name=NAME,
    )


def alone(model: Path, start: Start) -> Life:
    life = Life(start)
    worker = Worker(model, cache=CacheSettings(reuse=False))
    try:
        life.live(worker)
    finally:
        leave(worker)
    return life


def leave(worker: Worker) -> None:
    worker.process.kill()
    worker.process.wait()
    worker.sock.close()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_hundred_deaths_change_no_text(tmp_path: Path, capsys, *, checkpoints: bool, part: int) -> None:
    seed = SEED + part
    draw = random.Random(seed)
    deaths = equal = requests = restored = 0
    most = DEATHS // PARTS if checkpoints else max(1, DEATHS // PARTS // 4)
    while deaths < most:
        start = drawn(draw)
        expected = alone(MODEL, start)
        life = Life(start)
        while life.end is None:
            keys = {"checkpoints": settings(tmp_path, NAME)} if checkpoints else {}
            worker = Worker(MODEL, **keys)
            if draw.random() < 0.3 and not life.ids:
                after = draw.random()
                life.live(worker, lambda life, at=after: bool(life.prefilled) and done(life) >= at)
            else:
                at = len(life.ids) + draw.randint(1, 80)
                life.live(worker, lambda life, at=at: len(life.ids) >= at)
            restored += bool(life.prefilled) and life.restored > 0
            deaths += life.end is None
            leave(worker)
        requests += 1
        told = (life.ids, life.text, life.end, life.logprobs)
        equal += told == (expected.ids, expected.text, expected.end, expected.logprobs)
    with capsys.disabled():
        what = "with" if checkpoints else "without"
        sys.stdout.write(
            f"\n  seed {seed}, {what} checkpoints: {deaths} deaths in {requests} requests, "
            f"{restored} restored from a checkpoint; {equal} of {requests} texts equal\n"
        )
    assert equal == requests


def done(life: Life) -> float:
    return life.prefilled[-1].done / life.prefilled[-1].total
