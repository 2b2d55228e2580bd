"""Every seed and every input that once failed is tried, with each allocation counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import target as rules
from .campaign import HERE, inputs
from .shrink import shrink
from .target import PEAK, FailureError, Target, measured
from .targets import ALL, BY_NAME

PAIRS = [
    pytest.param(target, path, id=f"{target.name}-{path.parent.parent.name}-{path.name}")
    for target in ALL
    for path in (*inputs("corpus", target.seeds), *inputs("cases", target.name))
]
MOST_BYTES = 500_000
"""Of all seeds together."""


@pytest.mark.parametrize(("target", "path"), PAIRS)
def test_it_is_taken_or_refused_in_order(target: Target, path: Path) -> None:
    outcome = measured(target, path.read_bytes())
    if path.name.startswith("ok-") and not target.corpus:
        assert outcome.startswith("ok"), outcome


def test_every_target_has_seeds_that_its_parser_takes() -> None:
    for target in ALL:
        assert any(path.name.startswith("ok-") for path in inputs("corpus", target.seeds)), target.name


def test_every_directory_is_a_target_s() -> None:
    for kind in ("corpus", "cases"):
        assert {path.name for path in (HERE / kind).iterdir()} <= set(BY_NAME)


def test_the_seeds_are_small() -> None:
    assert sum(path.stat().st_size for path in (HERE / "corpus").rglob("*") if path.is_file()) < MOST_BYTES


def test_a_failure_is_seen_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: what is not allowed, not printable, too slow or too large is a failure, and is shrunk."""

    monkeypatch.setattr(rules, "LOOPS", 5)

    def run(data: bytes) -> str:
        if b"!" in data:
            raise KeyError(data)
        if b"@" in data:
            raise ValueError("a\x9bb")
        if b"#" in data:
            raise ValueError("x" * 10_000)
        while b"~" in data:
            pass
        return str(len(bytearray(PEAK + 1))) if b"^" in data else ""

    target = Target(name="none", run=run, allowed=(ValueError,), modules=())
    assert measured(target, b"quiet") == "ok "
    for sign, kind in ((b"!", "KeyError"), (b"@", "printable"), (b"#", "long error"), (b"^", "memory"), (b"~", "slow")):
        with pytest.raises(FailureError, match=kind) as caught:
            measured(target, b"much " + sign + b" around it")
        if sign != b"~":
            assert len(shrink(target, b"much " + sign + b" around it", caught.value.kind, seconds=2)) <= 2
