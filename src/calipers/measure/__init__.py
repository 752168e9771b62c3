"""Measure a run: choose the jaws, say why."""

from __future__ import annotations

from calipers.measure.measurement import Claim, Gdp, Measurement
from calipers.measure.routes import measure, noise_range

__all__ = ["Claim", "Gdp", "Measurement", "measure", "noise_range"]
