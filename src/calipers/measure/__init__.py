"""Measure a run: choose the bounds, say why."""

from __future__ import annotations

from calipers.measure.beside import Beside as Beside
from calipers.measure.beside import count_noise as count_noise
from calipers.measure.beside import joint_noise as joint_noise
from calipers.measure.correlated import CorrelatedNoise as CorrelatedNoise
from calipers.measure.measurement import Claim as Claim
from calipers.measure.measurement import Gdp as Gdp
from calipers.measure.measurement import Measurement as Measurement
from calipers.measure.routes import WorstSize as WorstSize
from calipers.measure.routes import measure as measure
from calipers.measure.routes import worst_dataset_size as worst_dataset_size
from calipers.measure.selection import Selection as Selection
