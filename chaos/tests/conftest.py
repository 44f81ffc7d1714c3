"""For all tests of this tree."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes on a busy machine says nothing about what it is an example of.
settings.register_profile(
    "unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")
