"""The steps of the proof of Theorem 4.1 (van Dijk and Ertan 2026, Appendix D), each as the bound it is.

The pair of one epoch: M rounds of N(0, 1), one of them shifted by 1/sigma in the alternative. The best test rejects
where the mean of M likelihood ratios exceeds a threshold h. With w = e^(1/sigma^2) - 1, e the Berry-Esseen distance of
Equation (19) at n = M - 1, and z the noise of the shifted round,

    m(z) = (e^(z/sigma + 1/(2 sigma^2)) - 1) / sqrt((M - 1) w)

is how far that round moves the standardized mean of the others. The steps:

- D.2: a false positive rate within d of 1/2 has its threshold in 1 -+ kappa sqrt(w/M), Phi(-kappa) <= 1/2 - e - d;
- D.3 writes the false negative rate as an integral over M variables, D.4 replaces M - 1 of them by a normal PLD:
  beta(h) = int Phi(gamma(h, z)) phi(z) dz up to e, over z < sigma ln(M h) - 1/(2 sigma);
- D.5 puts the threshold of D.2 into it, D.6 lets the integral run over the whole line for the price theta, and D.7
  expands it around Phi(x) = 1 - a.

kappa is free in the paper; here it is the smallest allowed, Phi^-1(1/2 + e + d), which makes every step sharpest. The
integrals are enclosed, not estimated: their integrand falls with z, so its values at the two ends of a cell bound the
cell's share, and the normal mass of the largest cell bounds the width of the result.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from calipers.numerics.types import FloatArray
from calipers.theorems.lognormal_ratio import berry_esseen_distance, ratio_variance
from calipers.theorems.registry import theorem, unmet

_CELLS = 60_000
_REACH = 9.0
_ROUNDED = 1e-12
_SUMMED = 2e-11
_ROOT_2PI = math.sqrt(2.0 * math.pi)
_ROOT_8EPI = math.sqrt(8.0 * math.e * math.pi)


class Enclosure(NamedTuple):
    """lower <= the quantity <= upper."""

    lower: float
    upper: float


class _Step(NamedTuple):
    """What every step starts from: sigma, M, w, the Berry-Esseen distance and kappa."""

    sigma: float
    rounds: int
    w: float
    distance: float
    kappa: float

    @property
    def reach(self) -> float:
        """kappa sqrt(w/M), the half width of D.2."""
        return self.kappa * math.sqrt(self.w / self.rounds)

    def last_noise(self, threshold: float) -> float:
        """sigma ln(M h) - 1/(2 sigma): beyond it the shifted round alone exceeds the threshold."""
        return self.sigma * math.log(self.rounds * threshold) - 0.5 / self.sigma

    def pull(self, z: FloatArray) -> FloatArray:
        """m(z) of the module docstring."""
        exponent = np.minimum(z / self.sigma + 0.5 / self.sigma**2, 700.0)
        return np.asarray(np.expm1(exponent) / math.sqrt((self.rounds - 1) * self.w), dtype=np.float64)


def _step(noise_multiplier: float, rounds: int, around: float | None = None) -> _Step:
    """The step for false positive rates within `around` of 1/2, or (None) for what does not ask for kappa.

    `ConditionError` where no kappa satisfies D.2.
    """
    w = ratio_variance(noise_multiplier, power=3)
    distance = berry_esseen_distance(noise_multiplier, rounds - 1) * (1.0 + _ROUNDED)
    if around is None:
        return _Step(noise_multiplier, rounds, w, distance, 0.0)
    if distance + around >= 0.5:
        raise unmet("near-half", distance=distance, around=around)
    return _Step(noise_multiplier, rounds, w, distance, float(ndtri(0.5 + distance + around)) * (1.0 + _ROUNDED))


def _enclosed(step: _Step, level: float, last: float) -> Enclosure:
    """int Phi(level - m(z)) phi(z) dz over z < last, from both sides."""
    ends = np.linspace(-_REACH, min(max(last, -_REACH), _REACH), _CELLS + 1)
    values, mass = ndtr(level - step.pull(ends)), np.diff(ndtr(ends))
    # Left of the grid the integrand is at most 1, right of it it is at most its last value.
    left = float(ndtr(-_REACH))
    right = float(ndtr(-_REACH)) if last > _REACH else 0.0
    # A cell's mass is a difference of numbers near 1, so sixty thousand of them carry an absolute error of 1e-11.
    lower, upper = float(values[1:] @ mass) - _SUMMED, float(values[:-1] @ mass) + _SUMMED
    return Enclosure(lower, upper + left + right)


@theorem("vandijk-prop-d.2")
def threshold_interval(noise_multiplier: float, rounds: int, delta: float) -> Enclosure:
    """1 -+ kappa sqrt(w/M) with the smallest kappa allowed."""
    step = _step(noise_multiplier, rounds, delta)
    return Enclosure((1.0 - step.reach) - _ROUNDED, (1.0 + step.reach) * (1.0 + _ROUNDED))


@theorem("vandijk-prop-d.4")
def threshold_fnr(noise_multiplier: float, rounds: int, threshold: float) -> Enclosure:
    """int Phi(gamma(h, z)) phi(z) dz -+ e, within [0, 1] as a rate is."""
    step = _step(noise_multiplier, rounds)
    # gamma(h, z) = (h - 1) M / sqrt((M - 1) w) - m(z): the rest of h M/(M-1) - e^(...)/(M-1) - 1.
    level = (threshold - 1.0) * rounds / math.sqrt((rounds - 1) * step.w)
    found = _enclosed(step, level, step.last_noise(threshold))
    return Enclosure(max(found.lower - step.distance, 0.0), min(found.upper + step.distance, 1.0))


@theorem("vandijk-prop-d.5")
def tradeoff_near_half(noise_multiplier: float, rounds: int, fpr: float) -> Enclosure:
    """The integral of D.5 at the worst x, mu(z) and limit that D.2 leaves open, less e; at the best, plus e."""
    step = _step(noise_multiplier, rounds, abs(fpr - 0.5))
    shift = 0.5 * step.kappa / (step.rounds - 1)
    if step.reach >= 1.0:
        raise unmet("positive-interval", step=step)
    low_level = float(ndtri(1.0 - fpr - step.distance)) - shift
    high_level = float(ndtri(1.0 - fpr + step.distance)) + shift
    below = _enclosed(step, low_level, step.last_noise(1.0 - step.reach))
    above = _enclosed(step, high_level, step.last_noise(1.0 + step.reach))
    return Enclosure(max(below.lower - step.distance, 0.0), min(above.upper + step.distance, 1.0))


@theorem("vandijk-prop-d.6")
def whole_line_cost(noise_multiplier: float, rounds: int, delta: float) -> float:
    """theta of Equation (35): e^(-t^2/2)/(t sqrt(2 pi)) at t = sigma ln(M - kappa sqrt(w M)) - 1/(2 sigma)."""
    step = _step(noise_multiplier, rounds, delta)
    t = step.last_noise(1.0 - step.reach) * (1.0 - _ROUNDED) if step.reach < 1.0 else -math.inf
    if t <= 0.0:
        raise unmet("positive-t", t=t, noise=noise_multiplier, rounds=rounds)
    return math.exp(-0.5 * t * t) / (t * _ROOT_2PI) * (1.0 + 1e-10)


@theorem("vandijk-prop-d.7")
def expanded_integral(noise_multiplier: float, rounds: int, fpr: float) -> float:
    """1 - a - e - {mu/sqrt(2 pi) + kappa/(sqrt(8 pi)(M-1))} - {...}/sqrt(8 e pi), kappa not yet replaced by (36)."""
    step = _step(noise_multiplier, rounds, abs(fpr - 0.5))
    others, x = step.rounds - 1, 1.0 + step.w
    mu = math.sqrt(step.w / others)
    first = mu / _ROOT_2PI + step.kappa / (2.0 * _ROOT_2PI * others)
    second = (x * x + x - 1.0) / others + step.kappa * mu / others + step.kappa**2 / (4.0 * others**2)
    return 1.0 - fpr - (step.distance + first + second / _ROOT_8EPI) * (1.0 + _ROUNDED)
