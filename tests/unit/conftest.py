"""One hypothesis profile for the floor: a busy machine is no failure. Scripts that are packages can be imported."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

settings.register_profile("unit", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
