"""Find the smallest noise whose upper jaw meets a target."""

from __future__ import annotations

from calipers.calibrate.solve import Calibration, calibrate, solve

__all__ = ["Calibration", "calibrate", "solve"]
