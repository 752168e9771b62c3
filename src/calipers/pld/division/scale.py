"""Isotropic Gaussians of different variance: what a divisor that moves with the data shows in every direction.

Dividing a noisy sum by K or by K + 1, according to the dataset, scales the noise of every coordinate. In d
coordinates without signal the pair is P = N(0, s^2 I) against Q = N(0, I), s = K/(K + 1). Only the squared norm
matters: half of it is a gamma variable of shape a = d/2, under P times s^2. In the variable w = log(|x|^2 / d) the
two PLDs are one PLD and its translate by l = -2 log s,

    q(w) = g(w),     p(w) = g(w + l),     log g(w) = -a psi(w) + log(a / 2 pi)/2 - s(a),      psi(w) = e^w - 1 - w,

and the log likelihood ratio is log L = -a psi(l) - a (e^l - 1) (e^w - 1), decreasing in w. (With psi instead of
differences of logarithms nothing cancels, also for 1e12 coordinates, where a deviation of w is 1e-6.) We use z =
-sqrt(a) w, whose deviation is near 1.

T rounds of d coordinates are one round of T d coordinates: the dimension never enters a convolution.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.citations import implements
from calipers.domains import Domain
from calipers.errors import CertificationError
from calipers.numerics.gamma import exponential_excess, gamma_quantile, log_gamma_tail, stirling_correction
from calipers.numerics.types import FloatArray
from calipers.pld.core.pair import Pair
from calipers.pld.core.smooth_part import SmoothPart

DEGREES = Domain(1, 10**15, integer=True)
"""Dimensions of a model."""
DIVISOR = Domain(1, 2**53, integer=True)
"""Divisors: whole numbers that a double counts exactly."""
_WIDEST_RANGE = 10_000.0
"""Beyond so many deviations between the two PLDs there is no privacy left to measure."""
_SLACK = 1e-11
"""Covers the rounding of a moment."""


@implements("calipers:scale-law")
def scale_pair(degrees: int, divisor: int) -> Pair:
    """The change of noise scale in coordinates without signal.

    Args:
        degrees: How many coordinates, over all steps.
        divisor: K: the noise is divided by K on one dataset, by K + 1 on the other.

    Returns:
        N(0, s^2 I) against N(0, I), s = K/(K + 1): exact on both sides.

    Raises:
        CertificationError: The lengths are so far apart that there is nothing left to measure.
    """
    degrees = DEGREES.check_int("degrees", degrees)
    divisor = DIVISOR.check_int("divisor", divisor)
    shape = 0.5 * degrees
    root = math.sqrt(shape)
    offset = 2.0 * math.log1p(1.0 / divisor)
    if root * offset > _WIDEST_RANGE:
        raise CertificationError(
            f"Dividing by {divisor} or {divisor + 1} moves the noise of {degrees} coordinates by {root * offset:.3g} "
            "deviations: the two datasets are distinguished with certainty, and there is nothing left to measure."
        )
    part = _part(shape, root, offset)
    return Pair(f"scale({degrees} coordinates, {divisor} to {divisor + 1})", smooth=(part,))


def log_moment(order: float, degrees: int, divisor: float, mean: float = 0.0) -> float:
    """Of N(m, s^2 I) against N(0, I), s = K/(K + 1), in closed form (Gaussian integrals; m along one coordinate).

    Args:
        order: t > 1 or t < 0.
        degrees: How many coordinates.
        divisor: K.
        mean: m.

    Returns:
        At least log E_Q[L^t]; infinite where it does not exist, t <= -1/e with e = 1/s^2 - 1.
    """
    excess = (2.0 * divisor + 1.0) / divisor**2
    if 1.0 + order * excess <= 0.0:
        return math.inf
    value = 0.5 * degrees * (order * math.log1p(excess) - math.log1p(order * excess))
    value += order * (order - 1.0) * mean**2 * (1.0 + excess) / (2.0 * (1.0 + order * excess))
    return value + _SLACK * (degrees * abs(order) * excess + abs(value))


def _part(shape: float, root: float, offset: float) -> SmoothPart:
    constant = 0.5 * math.log(1.0 / (2.0 * math.pi)) - float(stirling_correction(shape))
    gain = shape * math.expm1(offset)
    start = -shape * float(exponential_excess(offset))

    def log_density(w: FloatArray) -> FloatArray:
        return constant - shape * exponential_excess(w)

    def range_for(log_tail: float) -> tuple[float, float]:
        # w lies between the quantiles under Q, and between them less `offset` under P.
        largest = float(gamma_quantile(shape, log_tail, lower=False))
        smallest = float(gamma_quantile(shape, log_tail, lower=True)) - offset
        return -root * largest, -root * smallest

    def growth(low: float, high: float, reach: FloatArray) -> FloatArray:
        # psi(w + d) - psi(w) = psi'(w) d + e^w (e^d - 1 - d), and |e^d - 1 - d| <= |d|^2 e^|d| / 2.
        most, least = -low / root + offset, -high / root
        slope = root * max(abs(math.expm1(most)), abs(math.expm1(least)))
        with np.errstate(over="ignore"):
            return slope * reach + 0.5 * math.exp(most) * reach * reach * np.exp(reach / root)

    return SmoothPart(
        log_p=lambda z: log_density(offset - z / root),
        log_q=lambda z: log_density(-z / root),
        log_ratio=lambda z: start - gain * np.expm1(-z / root),
        range_for=range_for,
        log_above=lambda z: np.array([log_gamma_tail(shape, w - z / root, lower=True) for w in (offset, 0.0)]),
        log_below=lambda z: np.array([log_gamma_tail(shape, w - z / root, lower=False) for w in (offset, 0.0)]),
        growth=growth,
        # log L is bounded above but not below: no slope holds everywhere, and Renyi divergences are not read off this
        # part.
        slope=math.inf,
        log_growth_above=lambda _rate, _z: math.inf,
        log_growth_below=lambda _rate, _z: math.inf,
    )
