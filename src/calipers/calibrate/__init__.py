"""Find nearly the smallest noise whose upper bound meets a target."""

from __future__ import annotations

from calipers.calibrate.out_of_reach import refuse_one_sided
from calipers.calibrate.solve import Calibration, calibrate, one_target, solve

__all__ = ["Calibration", "calibrate", "one_target", "refuse_one_sided", "solve"]
