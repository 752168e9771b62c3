"""What dividing a noisy sum shows once the batch is known: two Gaussians of different mean and scale.

DP-SGD that divides its noisy sum by a number that depends on the dataset (N q, its floor, or the size of the batch)
scales the noise along with the sum. Given the batch, and whether the new record is in it, the two outputs become, after
a translation, a rotation and a scaling (Wang et al. 2026, Equations 5, 6 and 10),

    P = N(0, I_n)     against     Q = N(m e, s^2 I_n),      s = K/(K + 1),

with one direction e that carries signal and n - 1 that only change scale. With z = m/(1 - s^2),

    log dQ/dP (x) = n log(1/s) + m^2/(2(1 - s^2)) - (1 - s^2)/(2 s^2) |x - z e|^2,

so the likelihood ratio test rejects inside a ball around z e. |x - z e|^2 is noncentral chi-square with n degrees
under both PLDs (under Q after division by s^2), noncentrality z^2 under P and s^2 z^2 under Q. Write
1 + r = 1/s^2, y = log(1 + r), psi(u) = e^u - 1 - u. Rejecting where log dQ/dP > tau puts the two thresholds at

    mean under P - (n psi(y) + 2 tau)/r - m z          and          mean under Q + (1 + r)(n psi(-y) - 2 tau)/r + m z:

the mean is exact, and only the distance to it is computed.

**One-sided bounds.** The test at tau minimizes beta + e^tau alpha over all tests. Hence for every tau and every x

    T(P, Q)(x) >= beta_tau + e^tau (alpha_tau - x),

with equality where alpha_tau = x. A line with lower bounds for both errors is a lower bound of the curve, whatever
tau is, so nothing has to be solved exactly. The same tau serves every component of a mixture whose index is revealed
(Lemma 2.10): sum the components' beta + e^tau alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from calipers.errors import CertificationError
from calipers.numerics.elementary import bisect
from calipers.numerics.gamma import exponential_excess
from calipers.numerics.noncentral import log_noncentral_bounds_at
from calipers.numerics.types import FloatArray
from calipers.theorems.registry import theorem

ROUNDED: Final = 1e-11
"""Values that claim a side are moved to it by this relative amount, which covers every rounding behind them."""
_MOST_SEARCHED: Final = 4000
"""A threshold is looked for on no more components than this; every threshold is valid for all of them."""


class Balls(NamedTuple):
    """Components N(0, I_n) against N(m e, s^2 I_n), s = K/(K+1), with their weights; m and K broadcast."""

    weights: FloatArray
    dimension: int
    divisor: FloatArray
    shift: FloatArray

    def log_errors(self, tau: float) -> tuple[FloatArray, FloatArray]:
        """Lower bounds of log alpha and log beta of each component's test at log-threshold tau."""
        k, m, n = self.divisor, self.shift, float(self.dimension)
        r, y = (2.0 * k + 1.0) / np.square(k), 2.0 * np.log1p(1.0 / k)
        z = m * np.square(k + 1.0) / (2.0 * k + 1.0)
        below = -(n * exponential_excess(y) + 2.0 * tau) / r - m * z
        above = (1.0 + r) * (n * exponential_excess(-y) - 2.0 * tau) / r + m * z
        noncentrality = np.square(z)
        return (
            log_noncentral_bounds_at(below, n, noncentrality, True)[0],
            log_noncentral_bounds_at(above, n, noncentrality / (1.0 + r), False)[0],
        )


class Revealed(NamedTuple):
    """A mixture whose index is revealed: balls, a plain Gaussian G_mu, and a part that reveals nothing."""

    balls: Balls
    gaussian_weight: float
    gaussian_mu: float
    idle_weight: float

    def thinned(self) -> Revealed:
        """About the same mixture, of at most `_MOST_SEARCHED` of its balls: for choices, as it bounds nothing."""
        every = -(-self.balls.weights.size // _MOST_SEARCHED)
        if every <= 1:
            return self
        weights, k, m = (values[::every] for values in (self.balls.weights, self.balls.divisor, self.balls.shift))
        share = float(self.balls.weights.sum()) / float(weights.sum())
        return self._replace(balls=Balls(weights * share, self.balls.dimension, k, m))

    def line(self, tau: float) -> tuple[float, float]:
        """(alpha, beta + e^tau alpha) of the test at tau, both from below; the idle part never rejects at tau >= 0."""
        log_alpha, log_beta = self.balls.log_errors(tau)
        alpha = float(self.balls.weights @ np.exp(log_alpha))
        total = float(self.balls.weights @ np.exp(log_beta)) + float(self.balls.weights @ np.exp(log_alpha + tau))
        if self.gaussian_weight > 0.0:
            middle = tau / self.gaussian_mu
            hit = float(log_ndtr(-middle - 0.5 * self.gaussian_mu))
            alpha += self.gaussian_weight * math.exp(hit)
            total += self.gaussian_weight * (math.exp(hit + tau) + float(ndtr(middle - 0.5 * self.gaussian_mu)))
        alpha += self.idle_weight if tau < 0.0 else 0.0
        total += self.idle_weight * math.exp(min(tau, 0.0))
        return alpha, total * (1.0 - ROUNDED)


def curve_from_below(mixture: Revealed, fpr: float) -> float:
    """max(0, beta_tau + e^tau (alpha_tau - fpr)) at a tau with alpha_tau near fpr: at most the curve at fpr.

    The value is stationary in tau at the best one, so an error of 1e-6 in tau costs about 1e-12.
    """
    if fpr == 0.0 or fpr == 1.0:
        return (1.0 - ROUNDED) * (1.0 - fpr)
    target, searched = float(ndtri(fpr)), mixture.thinned()
    values: dict[float, float] = {}

    def value(total: float, tau: float) -> float:
        return total - math.exp(tau) * fpr * (1.0 + ROUNDED)

    def miss(tau: float) -> float:
        alpha, total = searched.line(tau)
        values[tau] = value(total, tau)
        return float(ndtri(min(max(alpha, 1e-300), 1.0 - 1e-16))) - target

    low, high = (0.0, 1.0) if miss(0.0) > 0.0 else (-1.0, 0.0)
    # The idle part makes alpha jump at tau = 0; where fpr lies inside the jump the bracket closes on 0, the best tau.
    _close_in(miss, low, high)
    best = max(values, key=values.__getitem__)
    return max(values[best] if searched is mixture else value(mixture.line(best)[1], best), 0.0)


def _close_in(miss: Callable[[float], float], low: float, high: float) -> None:
    """Evaluate `miss` (decreasing) at points that close in on its zero: doubling, then regula falsi with bisection."""
    at_low, at_high = miss(low), miss(high)
    while at_low < 0.0 or at_high > 0.0:
        if high - low > 600.0:
            return
        if at_low < 0.0:
            low, high, at_high = low - 2.0 * (high - low), low, at_low
            at_low = miss(low)
        else:
            low, high, at_low = high, high + 2.0 * (high - low), at_high
            at_high = miss(high)
    for step in range(60):
        if high - low <= 1e-9 or min(abs(at_low), abs(at_high)) < 1e-7:
            return
        share = at_low / (at_low - at_high) if step % 3 < 2 and at_low > at_high else 0.5
        middle = low + (high - low) * min(max(share, 0.01), 0.99)
        at_middle = miss(middle)
        if at_middle > 0.0:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle


def delta_from_above(mixture: Revealed, epsilon: float) -> float:
    """An upper bound of delta(epsilon) of the mixture, in both orders of the pair.

    delta(eps) = 1 - min over tests of beta + e^eps alpha; in the other order alpha and beta change places, and
    the minimum of alpha + e^eps beta is e^eps times the one at tau = -eps.
    """
    forward = 1.0 - mixture.line(epsilon)[1]
    backward = 1.0 - math.exp(epsilon) * mixture.line(-epsilon)[1]
    return min(max(forward, backward, 0.0) + ROUNDED, 1.0)


@theorem("wang-thm-3.4")
def shifted_scale_fnr(fpr: float, shift: float, scale: float) -> float:
    """The trade-off curve of N(0, 1) against N(shift, scale^2), a lower bound for every smaller shift.

    Post-condition: value <= the curve at every mean between 0 and shift, and within about 1e-10 of the one at `shift`
    while fpr is between 1e-6 and 1 - 1e-6.

    Reject between z - h and z + h, z = m/(1 - s^2). Written in u = z - h, alpha = Phi(-u) - Phi(u - 2z) and
    beta = Phi((u - m)/s) + Phi(-(z - u)/s - s z): nothing large is subtracted.
    """
    if fpr in (0.0, 1.0):
        return max(1.0 - fpr - ROUNDED, 0.0)
    z = shift / (1.0 - scale * scale)

    def hit(u: float) -> float:
        return float(ndtr(-u) - ndtr(u - 2.0 * z))

    high = min(float(-ndtri(fpr)), z)  # alpha(u) <= Phi(-u): the root lies below
    low = high - 1.0
    while hit(low) < fpr:
        low = high - 2.0 * (high - low)
        if high - low > 1e3:
            raise CertificationError(f"No interval has probability {fpr:g} under the first distribution.")
    low, _ = bisect(low, high, lambda u: hit(u) >= fpr, 60)
    missed = ndtr((low - shift) / scale) + ndtr(-(z - low) / scale - scale * z)
    return max(float(missed) - ROUNDED, 0.0)


@theorem("wang-thm-3.5")
def scale_fnr(fpr: float, scale: float) -> float:
    """2 Phi(-t/s) with 2 Phi(t) - 1 = fpr, a lower bound for every scale between s and 1."""
    if fpr == 1.0:
        return 0.0
    return max(2.0 * float(ndtr(float(ndtri(0.5 - 0.5 * fpr)) / scale)) - ROUNDED, 0.0)
