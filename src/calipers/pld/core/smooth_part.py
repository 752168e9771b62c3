"""The smooth part of a pair: densities of a scalar observation, and what must be known to cut them into cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calipers.numerics.types import FloatArray

Density = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class SmoothPart:
    """Densities of a scalar observation z on [low, high] with increasing log ratio.

    `log_above(z)` and `log_below(z)` are the logs of P's and of Q's mass beyond z (for infinite ends);
    `growth(low, high, reach)` bounds how much the log of either density, as an analytic function, can exceed its value
    on [low, high] at each distance `reach` from there in the complex plane; `scale` is the length on which the
    observation varies (1 for unit Gaussians).
    """

    log_p: Density
    log_q: Density
    log_ratio: Density
    range_for: Callable[[float], tuple[float, float]]
    log_above: Callable[[float], FloatArray]
    log_below: Callable[[float], FloatArray]
    growth: Callable[[float, float, FloatArray], FloatArray]
    slope: float
    """At least d log L / dz everywhere."""
    log_growth_above: Callable[[float, float], float]
    """(rate, z) -> log E_Q[e^(rate (Z - z)); Z > z]: with `slope`, what high moments of L may hide beyond z."""
    log_growth_below: Callable[[float, float], float]
    """(rate, z) -> log E_P[e^(rate (z - Z)); Z < z], for the reversed pair."""
    scale: float = 1.0
    ratio_error: Callable[[float, float], float] | None = None
    """(low, high) -> at least the absolute error of `log_ratio` there, where that is known to be small."""
