"""Shared test settings: Hypothesis runs the same examples everywhere, without deadlines on slow machines."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "calipers", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("calipers")
