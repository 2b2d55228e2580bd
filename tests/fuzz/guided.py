"""One target under atheris (libFuzzer): it sees which lines of edged an input reaches, and goes on from new ones.

    python -m tests.fuzz.guided TARGET SECONDS DIRECTORY

A process of its own, since libFuzzer ends the process. `DIRECTORY/corpus` has what reached something new,
`DIRECTORY/crash-…` the input that failed, if one did. Needs the extra `fuzz` (wheels for x86-64; elsewhere it is built
with clang, or left out).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["edged"], enable_loader_override=False):
    from .targets import BY_NAME

from .campaign import inputs
from .mutate import mutate
from .target import SLACK, FailureError, Target, attempt


def _mutator(target: Target, seeds: list[bytes]) -> object:
    def bend(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.3:
            return bytes(atheris.Mutate(bytes(data), most))
        if target.mutators and rng.random() < 0.6:
            return bytes(rng.choice(target.mutators)(rng, bytes(data))[:most])
        return mutate(rng, bytes(data), target.words, rng.choice(seeds), most)

    return bend


def main() -> None:
    name, seconds, directory = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    target = BY_NAME[name]
    corpus = directory / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [path.read_bytes() for path in (*inputs("corpus", target.seeds), *inputs("cases", name))]
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)

    def one(data: bytes) -> None:
        try:
            attempt(target, data, SLACK)
        except FailureError as failure:
            (directory / "kind").write_text(str(failure))
            raise

    arguments = [sys.argv[0], str(corpus), f"-max_total_time={seconds}", f"-max_len={target.most}", "-timeout=60"]
    arguments += [f"-artifact_prefix={directory}/", "-rss_limit_mb=1024", "-print_final_stats=1", "-verbosity=1"]
    atheris.Setup(arguments, one, custom_mutator=_mutator(target, seeds))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
