"""For all floors: shared helpers lie beside this; hypothesis without time limits, which say more about the machine
than about the code."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("edged", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("edged")
