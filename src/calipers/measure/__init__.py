"""Measure a run: choose the jaws, say why."""

from __future__ import annotations

from calipers.measure.beside import Beside, count_noise, joint_noise
from calipers.measure.correlated import CorrelatedNoise
from calipers.measure.measurement import Claim, Gdp, Measurement
from calipers.measure.routes import WorstSize, measure, worst_dataset_size
from calipers.measure.selection import Selection

__all__ = [
    "Beside",
    "Claim",
    "CorrelatedNoise",
    "Gdp",
    "Measurement",
    "Selection",
    "WorstSize",
    "count_noise",
    "joint_noise",
    "measure",
    "worst_dataset_size",
]
