"""For every floor: hypothesis without time limits, which say more about the machine than about the code."""

from hypothesis import HealthCheck, settings

settings.register_profile("edged", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("edged")
