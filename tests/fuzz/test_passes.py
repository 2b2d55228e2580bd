"""A pass of each target by the plain loop: EDGED_FUZZ_S seconds (10), the same inputs each time as far as they get.

What strangers and power cuts reach gets all of it, what only this box writes for itself or few ever send a third: all
passes together are a minute of `make test`.
"""

from __future__ import annotations

import os

import pytest

from .campaign import Campaign
from .target import Target
from .targets import ALL

SECONDS = float(os.environ.get("EDGED_FUZZ_S", "10"))
FIRST = {"request", "subscription", "config", "keys", "gguf", "journal", "snapshot", "checkpoint"}
SEED = int(os.environ.get("EDGED_FUZZ_SEED", "1"))


@pytest.mark.parametrize("target", ALL, ids=[target.name for target in ALL])
def test_nothing_is_found(target: Target) -> None:
    assert {target.name for target in ALL} > FIRST
    campaign = Campaign(target, SEED).run(SECONDS if target.name in FIRST else SECONDS / 3, failures=1)
    for kind, (data, failure) in campaign.failures.items():
        pytest.fail(f"{kind}\n{failure.story}\ninput: {data[:2000]!r}")
    assert campaign.tried > 50
    assert len(campaign.outcomes) > 3, campaign.outcomes
