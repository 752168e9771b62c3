"""Measure a run: choose the jaws, say why."""

from __future__ import annotations

from calipers.measure.measurement import Claim, Gdp, Measurement
from calipers.measure.routes import measure
from calipers.measure.worst_size import WorstSize, worst_dataset_size

__all__ = ["Claim", "Gdp", "Measurement", "WorstSize", "measure", "worst_dataset_size"]
