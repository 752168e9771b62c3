"""Measure a run: choose the bounds, say why."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from calipers.measure.measurement import Claim as Claim
from calipers.measure.measurement import Gdp as Gdp
from calipers.measure.measurement import Measurement as Measurement
from calipers.measure.routes import measure as measure

if TYPE_CHECKING:
    from calipers.measure.correlated import CorrelatedNoise as CorrelatedNoise
    from calipers.measure.joint_release import JointRelease as JointRelease
    from calipers.measure.joint_release import count_noise as count_noise
    from calipers.measure.joint_release import joint_noise as joint_noise
    from calipers.measure.selection import Selection as Selection

_RARER = {
    "joint_release": "JointRelease count_noise joint_noise",
    "correlated": "CorrelatedNoise",
    "selection": "Selection",
}


def __getattr__(name: str) -> object:
    """What most runs do not need, imported when it is first asked for."""
    for module, names in _RARER.items():
        if name in names.split():
            return getattr(import_module(f"calipers.measure.{module}"), name)
    raise AttributeError(f"module 'calipers.measure' has no attribute {name!r}")
