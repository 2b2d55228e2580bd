"""A pass of each target by the plain loop: EDGED_FUZZ_S seconds (10), the same inputs each time as far as they get."""

from __future__ import annotations

import os

import pytest

from .campaign import Campaign
from .target import Target
from .targets import ALL

SECONDS = float(os.environ.get("EDGED_FUZZ_S", "10"))
SEED = int(os.environ.get("EDGED_FUZZ_SEED", "1"))


@pytest.mark.parametrize("target", ALL, ids=[target.name for target in ALL])
def test_nothing_is_found(target: Target) -> None:
    campaign = Campaign(target, SEED).run(SECONDS, failures=1)
    for kind, (data, failure) in campaign.failures.items():
        pytest.fail(f"{kind}\n{failure.story}\ninput: {data[:2000]!r}")
    assert campaign.tried > 50
    assert len(campaign.outcomes) > 3, campaign.outcomes
