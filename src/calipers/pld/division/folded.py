"""N(m, s^2) against N(0, 1) with s < 1: the test, its two ends, and the probability between them.

The log likelihood ratio is a concave parabola with its top at z = m/(1 - s^2), so the most powerful test accepts "m"
on an interval [z - w, z + w]. Written by its left end l = z - w,

    alpha(l) = Phi(2z - l) - Phi(l),      1 - alpha(l) = Phi(l) + Phi(l - 2z).

`half_widths` solves alpha = Phi(-x) for given x: all tests of one size. If z is so large that the right end carries
no mass, simply l = x; otherwise Newton's iteration runs in w on log(1 - alpha) where alpha > 1/2 and on log alpha
where it is not. Both are concave (the normal PLD is log-concave), so Newton approaches the root from one side. Near
the top w keeps its relative accuracy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from calipers.errors import CertificationError
from calipers.numerics.types import FloatArray

_RULES = [
    (largest, np.polynomial.legendre.leggauss(count)) for largest, count in ((0.65, 6), (1.7, 8), (5.0, 12), (9.0, 16))
]
"""The largest |c| r for which a rule has a relative error below 2e-14, and the rule."""
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
"""Of the normal density."""
RAREST = -680.0
"""Log of the least mass of a cell that sums of `interval_mass` may be read from: what that leaves out is far rarer."""
WIDEST = 0.3
"""The widest interval that is integrated in one piece."""


def log_interval_mass(low: FloatArray, width: FloatArray) -> FloatArray:
    """log of Phi(low + width) - Phi(low) for 0 <= width <= WIDEST by quadrature: positive terms, nothing cancels.

    Relative to the middle c of an interval of half width r the density is e^(-c t - t^2/2), and with a = |c| r
    Gauss's rule of n nodes has the relative error (n!)^4 2^(2n+1) a^(2n) / ((2n+1) (2n)!^3), up to the slowly varying
    second factor. `_RULES` keeps that below 2e-14. In logarithms: far out a PLD has cells that no float can hold, and
    another PLD may have its mass there.
    """
    half = 0.5 * width
    middle = low + half
    steepest = float(np.max(np.abs(middle) * half, initial=0.0))
    rule = next((rule for largest, rule in _RULES if steepest <= largest), None)
    if rule is None:
        raise CertificationError(
            f"Cells are too wide for their place in the tail: slope times half width {steepest:.3g}."
        )
    total = np.zeros(np.broadcast(low, width).shape)
    for node, weight in zip(*rule, strict=True):
        offset = half * node
        total += weight * np.exp(-(middle + 0.5 * offset) * offset)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(total * (half / _ROOT_TWO_PI)) - 0.5 * middle * middle)


def log_wide_interval_mass(low: FloatArray, width: FloatArray) -> FloatArray:
    """log of Phi(low + width) - Phi(low) for any width: by quadrature, or where the two tails differ much, by them.

    Relative accuracy 1e-12: tails a distance of 0.25 apart, or 5 in the exponent, differ by more than a fifth.
    """
    high = low + width
    middle = 0.5 * (low + high)
    narrow = (width <= 0.25) & (np.abs(middle) * 0.5 * width <= 5.0)
    by_rule = log_interval_mass(np.where(narrow, low, 0.0), np.where(narrow, width, 0.1))
    # The tail on the interval's own side of 0; across 0, one minus both tails.
    near, far = np.where(middle > 0.0, low, -high), np.where(middle > 0.0, high, -low)
    outer, inner = special.log_ndtr(-far), special.log_ndtr(-near)
    with np.errstate(divide="ignore"):
        by_tails = inner + np.log(-np.expm1(np.minimum(outer - inner, 0.0)))
    return np.asarray(np.where(narrow, by_rule, by_tails))


def interval_mass(low: FloatArray, width: FloatArray) -> FloatArray:
    """Phi(low + width) - Phi(low), see `log_interval_mass`; 0 beyond 38 deviations, where no float holds it."""
    far = np.abs(low + 0.5 * width) > 38.0
    return np.where(far, 0.0, np.exp(log_interval_mass(np.where(far, 0.0, low), width)))


def cell_width(resolution: float, farthest: float) -> float:
    """The width of cells of a standard normal variable up to `farthest` deviations out that can be integrated."""
    return min(resolution, 0.9 * WIDEST, 9.0 / farthest)


def is_one_sided(center: FloatArray, largest: float) -> NDArray[np.bool_]:
    """Whether the right end 2z - l carries less than e^-40 of the test's size for every l <= largest."""
    right = 2.0 * center - largest
    return np.asarray((right > largest) & (right * right - largest * largest > 90.0))


def log_size(center: FloatArray, log_half: FloatArray) -> FloatArray:
    """log of P(|X - center| <= half) for X standard normal, relative accuracy however narrow the interval."""
    half = np.exp(log_half)
    point = half * (1.0 + center) < 1e-7  # the density is constant to 1e-14 there
    wide = half > np.minimum(0.4 * WIDEST, 4.0 / (1.0 + np.abs(center)))
    between = np.where(point | wide, 1e-3, half)
    narrow = log_interval_mass(center - between, 2.0 * between)
    # For an interval right of 0 both cdfs are near 1: use the reflected ones.
    far = np.abs(center)
    inner, outer = special.log_ndtr(half - far), special.log_ndtr(-half - far)
    with np.errstate(divide="ignore"):
        broad = inner + np.log(-np.expm1(np.minimum(outer - inner, 0.0)))
    at_center = log_half + math.log(2.0 / _ROOT_TWO_PI) - 0.5 * center * center
    return np.asarray(np.where(point, at_center, np.where(wide, broad, narrow)))


def half_widths(center: FloatArray, x: FloatArray) -> FloatArray:
    """w with P(|X - center| <= w) = Phi(-x), for centers >= 0; relative accuracy 1e-13 in w.

    `center` and `x` broadcast against each other.
    """
    center, x = (np.array(part) for part in np.broadcast_arrays(np.asarray(center, float), np.asarray(x, float)))
    result = np.empty_like(x)
    small = x >= 0.0
    result[small] = _narrow(center[small], x[small])
    result[~small] = _broad(center[~small], x[~small])
    return result


def _narrow(center: FloatArray, x: FloatArray) -> FloatArray:
    """Sizes up to 1/2: Newton in w on log alpha, concave and increasing: from below it climbs to the root."""
    target = special.log_ndtr(-x)
    # Starts below the root. Either w > 1/center, or alpha <= 2 w phi(center - w) <= 2 w e phi(center); and since alpha
    # is at
    # most Phi(w - center), w >= center - x.
    at_center = target + math.log(0.5 * _ROOT_TWO_PI) - 1.0 + 0.5 * center * center
    log_w = np.minimum(at_center, -np.log(np.maximum(center, 1e-9)))
    log_w = np.maximum(log_w, target + math.log(0.5 * _ROOT_TWO_PI))
    log_w = np.where(center > x, np.maximum(log_w, np.log(np.maximum(center - x, 1e-300))), log_w)
    still = np.arange(len(log_w))  # most roots are found in a few steps, a few take many
    for _ in range(100):
        here, at, goal = log_w[still], center[still], target[still]
        value = log_size(at, here)
        w = np.exp(here)
        log_density = np.logaddexp(-0.5 * (at - w) ** 2, -0.5 * (at + w) ** 2)
        log_slope = here + log_density - math.log(_ROOT_TWO_PI) - value
        step = (goal - value) * np.exp(-log_slope)
        log_w[still] = here + np.log1p(np.maximum(step, -0.5))  # a relative step of w
        # The size has to be right up to the rounding of its logarithm, or w up to its own.
        settled = (np.abs(goal - value) < 5e-14 + 2e-15 * np.abs(goal)) | (np.abs(step) < 1e-15)
        still = still[~settled]
        if len(still) == 0:
            return np.exp(log_w)
    raise CertificationError("The half width of a test could not be found to working precision.")


def _broad(center: FloatArray, x: FloatArray) -> FloatArray:
    """Sizes above 1/2: Newton in w on log(1 - alpha), which is decreasing and concave."""
    target = special.log_ndtr(x)
    # 1 - alpha >= Phi(center - w), so w >= center - x ... and from there Newton on a concave function overshoots once
    # at most.
    w = np.maximum(center - x, 1e-3)
    still = np.arange(len(w))
    for _ in range(80):
        here, at = w[still], center[still]
        value = np.logaddexp(special.log_ndtr(at - here), special.log_ndtr(-at - here))
        density = np.exp(-0.5 * (at - here) ** 2 - value) + np.exp(-0.5 * (at + here) ** 2 - value)
        step = (value - target[still]) / (density / _ROOT_TWO_PI)
        w[still] = np.maximum(here + step, 0.5 * here)
        still = still[np.abs(step) > 1e-14 * (1.0 + w[still])]
        if len(still) == 0:
            return w
    raise CertificationError("The half width of a test could not be found to working precision.")
