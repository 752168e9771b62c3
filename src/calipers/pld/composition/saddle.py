"""Where to tilt: saddle points of composed PLDs.

With K(t) = sum of count * log E_Q[L^t] over the factors, the PLD tilted by theta has mean K'(theta)
and variance K''(theta), and the profile at eps = K'(theta) is, to leading order,

    log delta = K(theta) - (theta - 1) K'(theta) - log(theta (theta - 1) sqrt(2 pi K''(theta))).

These are estimates. They decide only how a bound is computed, never what it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from calipers.numerics.elementary import bisect_ratio
from calipers.pld.core.pmf import PrivacyLossPmf

_LOWEST, _HIGHEST = 1e-7, 1e9
"""Tilts between which a saddle point is looked for, minus 1."""
_HEAVY_TAIL_STEPS, _NEARER = 0.4, 0.35
"""The deviation of a tilted total, as a share of epsilon, beyond which rare steps decide; how much nearer 0 to look."""


@dataclass(frozen=True)
class Saddle:
    """A tilt, the mean and variance of the tilted total log ratio, and the estimated log delta at the mean."""

    tilt: float
    mean: float
    variance: float
    log_delta: float

    @property
    def deviation(self) -> float:
        """Standard deviation of the tilted total."""
        return math.sqrt(self.variance)


def saddle_at(factors: Sequence[tuple[PrivacyLossPmf, int]], tilt: float) -> Saddle:
    """The saddle quantities of the product of `factors` at one tilt >= 1."""
    value = mean = variance = 0.0
    for pmf, count in factors:
        k0, k1, k2 = pmf.cumulants(tilt)
        value, mean, variance = value + count * k0, mean + count * k1, variance + count * k2
    variance = max(variance, 1e-300)
    prefactor = tilt * (tilt - 1.0) * math.sqrt(2.0 * math.pi * variance)
    return Saddle(tilt, mean, variance, value - (tilt - 1.0) * mean - math.log(max(prefactor, 1.0)))


def saddle_for_delta(factors: Sequence[tuple[PrivacyLossPmf, int]], log_delta: float) -> Saddle:
    """The saddle whose estimated log delta is `log_delta` (tilt 1 if even that is smaller)."""
    return _bisect(factors, lambda s: s.log_delta > log_delta)


def saddle_for_epsilon(factors: Sequence[tuple[PrivacyLossPmf, int]], epsilon: float) -> Saddle:
    """The saddle whose mean is `epsilon` (tilt 1 if already that mean is larger)."""
    return _bisect(factors, lambda s: s.mean < epsilon)


def saddle_scan(
    factors: Sequence[tuple[PrivacyLossPmf, int]], first: Saddle, spacing: float, log_deepest: float, most: int
) -> list[Saddle]:
    """Centers `spacing` deviations apart, until the estimated delta is below e^log_deepest or the PLD is at its end."""
    found = [first]
    while found[-1].log_delta > log_deepest and len(found) < most:
        last = found[-1]
        following = saddle_for_epsilon(factors, last.mean + spacing * last.deviation)
        if following.mean <= last.mean + 0.1 * last.deviation:
            break
        found.append(following)
    return found


def lighter(factors: Sequence[tuple[PrivacyLossPmf, int]], saddle: Saddle) -> Saddle:
    """A slightly smaller tilt, where that makes the far right tail, and so the lattice, much lighter."""
    found = saddle_at(factors, 1.0 + 0.85 * (saddle.tilt - 1.0))
    near = abs(found.mean - saddle.mean) < 1.5 * found.deviation
    return found if near and found.deviation < 0.85 * saddle.deviation else saddle


def with_less_tilt(factors: Sequence[tuple[PrivacyLossPmf, int]], saddle: Saddle, epsilon: float) -> Iterator[Saddle]:
    """Saddles for epsilons nearer and nearer to 0, as long as rare large steps decide how far the total spreads.

    Where one step may show much, if very rarely, the tilt that moves the mean to epsilon does so by making that step
    probable, and the lattice is too coarse for what usually happens. Less of a tilt costs digits only.
    """
    while saddle.deviation > _HEAVY_TAIL_STEPS * epsilon > 0.0:
        epsilon *= _NEARER
        saddle = saddle_for_epsilon(factors, epsilon)
        yield saddle


def _bisect(factors: Sequence[tuple[PrivacyLossPmf, int]], too_small: Callable[[Saddle], bool]) -> Saddle:
    """The largest tilt, on a logarithmic scale of tilt - 1, at which `too_small` still holds."""
    if not too_small(saddle_at(factors, 1.0 + _LOWEST)):
        return saddle_at(factors, 1.0)
    low, high = _LOWEST, 1.0
    while high < _HIGHEST and too_small(saddle_at(factors, 1.0 + high)):
        low, high = high, 8.0 * high
    low, _ = bisect_ratio(low, high, lambda tilt: too_small(saddle_at(factors, 1.0 + tilt)), 60, 1.02)
    return saddle_at(factors, 1.0 + low)
