"""The plain loop: seeds, mutations of them, and of those that had a new outcome. The same seed number, the same inputs.

Nothing is needed for it that the tests do not have. It does not see which lines are run (`guided` does, with atheris),
but parsers that say precisely what is wrong tell nearly as much.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from .mutate import mutate
from .target import FailureError, Target, attempt

HERE = Path(__file__).parent
POOL = 2000
"""Inputs with new outcomes that are kept; beyond it a random one goes."""


@dataclass
class Campaign:
    """`pool`: seeds first. `failures`: by their kind, with the first input of each."""

    target: Target
    seed: int
    pool: list[bytes] = field(default_factory=list)
    outcomes: set[str] = field(default_factory=set)
    failures: dict[str, tuple[bytes, FailureError]] = field(default_factory=dict)
    tried: int = 0

    def __post_init__(self) -> None:
        self._rng = Random(f"{self.target.name} {self.seed}")
        self._seeds = [
            path.read_bytes() for path in (*inputs("corpus", self.target.seeds), *inputs("cases", self.target.name))
        ]

    def run(self, seconds: float, failures: int = 20) -> Campaign:
        """Ends early after so many kinds of failures."""
        end = time.monotonic() + seconds
        for data in self._seeds:
            self.one(data, keep=True)
        while time.monotonic() < end and len(self.failures) < failures:
            self.one(self._next())
        return self

    def _next(self) -> bytes:
        rng, target = self._rng, self.target
        data = rng.choice(self.pool)
        if target.mutators and rng.random() < 0.6:
            made = rng.choice(target.mutators)(rng, data)
            if rng.random() < 0.9:
                return made[: target.most]
            data = made
        return mutate(rng, data, target.words, rng.choice(self.pool), target.most)

    def one(self, data: bytes, *, keep: bool = False) -> None:
        self.tried += 1
        try:
            outcome = attempt(self.target, data)
        except FailureError as failure:
            self.failures.setdefault(failure.kind, (data, failure))
            if keep:
                self.pool.append(data)
            return
        if keep or outcome not in self.outcomes:
            self.outcomes.add(outcome)
            if len(self.pool) >= POOL:
                self.pool[self._rng.randrange(len(self._seeds), POOL)] = data
            else:
                self.pool.append(data)


def inputs(kind: str, name: str) -> list[Path]:
    """`corpus` or `cases`."""
    return sorted(path for path in (HERE / kind / name).glob("*") if path.is_file())
