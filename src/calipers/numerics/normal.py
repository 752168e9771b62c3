"""Gaussian tails, and the profile of Gaussian differential privacy, with relative accuracy.

The profile of mu-GDP (Dong et al., Corollary 2.13) is a difference of two tails,

    delta(epsilon) = Phi(-a) - e^epsilon Phi(-b),      a = epsilon/mu - mu/2,   b = epsilon/mu + mu/2,

and as written it loses every digit: in the far tail both terms agree to leading order, and for small mu they
agree everywhere. Because (b^2 - a^2)/2 = epsilon, both terms share one density. With Mills' ratio
M(x) = Phi(-x)/phi(x) (a scaled `erfcx`),

    delta(epsilon) = phi(a) (M(a) - M(b)) = phi(a) * integral over [a, b] of N,     N(x) = -M'(x) = 1 - x M(x) > 0.

M decreases, so the first form is safe as soon as M(b) <= M(a)/2; otherwise the interval is short on the scale
on which N varies and ten Gauss-Legendre nodes integrate the positive function N without any cancellation
(on [a, 2a], the worst case, the error shrinks like 5.8^-20). N itself is 1 - x M(x) up to x = 12 and its
asymptotic series beyond. The exponent -a^2/2 reaches -690 at delta = 1e-300, where one rounding of a would
already cost 1e-13; it is carried in two floats.

For epsilon < 0 the identity delta(epsilon) = (1 - e^epsilon) + e^epsilon delta(-epsilon) is a sum of positive terms.

Accuracy is stated by one constant, `GAUSSIAN_RELATIVE_ERROR`, checked against mpmath in the tests. Callers that
need a bound multiply by (1 + GAUSSIAN_RELATIVE_ERROR) or divide by it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from calipers.citations import implements
from calipers.domains import NON_NEGATIVE, OPEN_UNIT, PROBABILITY, REAL, Domain
from calipers.errors import CertificationError
from calipers.numerics.elementary import checked
from calipers.numerics.types import FloatArray

GAUSSIAN_RELATIVE_ERROR = 1e-12
"""Relative error of every function of this module wherever its value exceeds 1e-300 (checked; typically 1e-15)."""

_SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SERIES_FROM = 12.0
# N(x) = sum over n of (-1)^n (2n+1)!! / x^(2n+2); at x = 12 the 16th term is below 1e-15 of the first.
_SERIES = np.array([(-1.0) ** n * float(math.prod(range(1, 2 * n + 2, 2))) for n in range(17)])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_MU = Domain(0.0, 1e6)
_LARGEST_TAIL_ARGUMENT = 1e100
_NO_DOUBLE = -800.0
"""No double is as small as e^-800."""


def mills_ratio(x: ArrayLike) -> FloatArray:
    """M(x) = Phi(-x)/phi(x), for x >= -37 (beyond that it overflows)."""
    return np.asarray(_SQRT_HALF_PI * special.erfcx(np.asarray(x, dtype=np.float64) * _SQRT_HALF), dtype=np.float64)


def normal_tail(x: ArrayLike) -> FloatArray:
    """Phi(-x), relative accuracy in the upper tail."""
    return np.asarray(special.ndtr(-np.asarray(x, dtype=np.float64)), dtype=np.float64)


def normal_tail_quantile(probability: ArrayLike) -> FloatArray:
    """The x with Phi(-x) = probability: Phi^-1(1 - probability) without forming 1 - probability.

    A probability near 1 should be passed as its complement c, with the sign turned: x = -normal_tail_quantile(c).
    """
    return np.asarray(-special.ndtri(np.asarray(probability, dtype=np.float64)), dtype=np.float64)


def log_normal_tail_quantile(log_probability: ArrayLike) -> FloatArray:
    """The x with log Phi(-x) = log_probability; works far below the smallest float probability."""
    return np.asarray(-special.ndtri_exp(np.asarray(log_probability, dtype=np.float64)), dtype=np.float64)


def _mills_slope(x: FloatArray) -> FloatArray:
    """N(x) = 1 - x M(x) = -M'(x). Below 12 the subtraction costs a factor x^2 <= 144 of the unit roundoff."""
    result = np.empty_like(x)
    far = x >= _SERIES_FROM
    near = x[~far]
    result[~far] = 1.0 - near * mills_ratio(near)
    if far.any():
        inverse_square = 1.0 / np.square(x[far])
        result[far] = np.polyval(_SERIES[::-1], inverse_square) * inverse_square
    return result


def _two_product(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """x*y as an unevaluated sum high + low (Dekker); exact while nothing over- or underflows."""

    def halves(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        scaled = 134217729.0 * z
        top = scaled - (scaled - z)
        return top, z - top

    high = x * y
    x_top, x_rest = halves(x)
    y_top, y_rest = halves(y)
    low = ((x_top * y_top - high) + x_top * y_rest + x_rest * y_top) + x_rest * y_rest
    return high, low


def _log_parts(mu: FloatArray, epsilon: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(high, low, factor) with delta_mu(epsilon) = exp(high + low) * factor, for mu > 0 and epsilon >= 0."""
    with np.errstate(over="ignore"):
        quotient = np.minimum(epsilon / mu, _LARGEST_TAIL_ARGUMENT)
    product, product_low = _two_product(quotient, mu)
    within = quotient < _LARGEST_TAIL_ARGUMENT
    remainder = np.where(within, (np.where(within, epsilon, product) - product) - product_low, 0.0) / mu
    half = 0.5 * mu
    a = quotient - half
    # Knuth's two-sum recovers what the subtraction rounds away.
    back = a - quotient
    a_low = (quotient - (a - back)) + (-half - back) + remainder
    square, square_low = _two_product(a, a)
    high = -0.5 * square
    low = -0.5 * square_low - a * a_low
    b = a + mu
    at_b = mills_ratio(b)
    first = special.ndtr(-a)
    density = np.exp(high + low) / _SQRT_TWO_PI
    left = a < 0.0
    left_direct = left & (density * at_b <= 0.5 * first)
    at_a = mills_ratio(np.maximum(a, -1.0))
    right_direct = ~left & (at_b <= 0.5 * at_a)
    factor = (at_a - at_b) / _SQRT_TWO_PI
    near = ~(left_direct | right_direct)
    if near.any():
        start, width = a[near], mu[near]
        nodes = start[:, None] + (0.5 * width)[:, None] * (1.0 + _NODES)
        factor[near] = (0.5 * width) * (_mills_slope(nodes) @ _WEIGHTS) / _SQRT_TWO_PI
    factor[left_direct] = (first - density * at_b)[left_direct]
    high = np.where(left_direct, 0.0, high)
    low = np.where(left_direct | ~within | (high < _NO_DOUBLE), 0.0, low)  # what high rounds away may be large there
    return high, low, factor


@implements("dong2022:cor2.13")
def gaussian_delta(mu: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """delta_mu(epsilon), the profile of mu-GDP, at any real epsilon; mu and epsilon broadcast.

    Post-condition: |returned/true - 1| <= GAUSSIAN_RELATIVE_ERROR wherever the true value exceeds 1e-300.
    """
    mus, epsilons = np.broadcast_arrays(checked(_MU, "mu", mu), checked(REAL, "epsilon", epsilon))
    result = np.zeros(mus.shape)
    live = mus > 0.0
    high, low, factor = _log_parts(mus[live], np.abs(epsilons[live]))
    result[live] = np.exp(high) * (1.0 + np.expm1(low)) * factor
    negative = epsilons < 0.0
    eps_negative = epsilons[negative]
    result[negative] = -np.expm1(eps_negative) + np.exp(eps_negative) * result[negative]
    return result


def gaussian_kept(mu: float, epsilon: ArrayLike) -> FloatArray:
    """1 - delta_mu(epsilon) for 0 <= epsilon <= mu^2/2, where delta has run out of digits.

    It is phi(x) (M(x) + M(y)) with x = mu/2 - epsilon/mu and y = mu/2 + epsilon/mu.
    Post-condition: as `gaussian_delta`.
    """
    ratio = np.asarray(epsilon, dtype=np.float64) / mu
    x, y = np.maximum(0.5 * mu - ratio, 0.0), 0.5 * mu + ratio
    density = np.exp(-0.5 * np.square(x)) / _SQRT_TWO_PI
    return np.asarray(density * (mills_ratio(x) + mills_ratio(y)), dtype=np.float64)


def _log_excess(mu: float, epsilon: float, log_delta: float) -> tuple[float, float, float]:
    """log(delta_mu(epsilon)) - log_delta, with its derivatives in epsilon and in log mu."""
    high, low, factor = (float(part[0]) for part in _log_parts(np.array([mu]), np.array([epsilon])))
    excess = (high - log_delta) + (low + math.log(factor))
    a = epsilon / mu - 0.5 * mu
    # d delta/d epsilon = -phi(a) M(b) and d delta/d mu = phi(a); divide both by delta = exp(high + low) factor.
    log_density_over_delta = -0.5 * a * a - _LOG_SQRT_TWO_PI - (high + low) - math.log(factor)
    ratio = math.exp(min(log_density_over_delta, 600.0))
    return excess, -ratio * float(mills_ratio(a + mu)), ratio * mu


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 with delta_mu(epsilon) <= delta; 0 where delta_mu(0) <= delta already.

    Post-condition: delta_mu at the returned eps equals delta up to GAUSSIAN_RELATIVE_ERROR. Away from eps = 0 (where
    any change of delta moves epsilon by an unbounded factor) this is the same relative accuracy of epsilon.
    """
    mu = _MU.check("mu", mu)
    delta = OPEN_UNIT.check("delta", delta)
    if mu == 0.0 or float(gaussian_delta(mu, 0.0)) <= delta:
        return 0.0
    log_delta = math.log(delta)
    # Phi(-a) alone exceeds delta_mu, so the epsilon at which Phi(-a) = delta is too large.
    high = max(mu * (float(normal_tail_quantile(delta)) + 0.5 * mu), 0.0)
    low, epsilon = 0.0, high
    best = (math.inf, epsilon)
    for _ in range(200):
        excess, slope, _ = _log_excess(mu, epsilon, log_delta)
        best = min(best, (abs(excess), epsilon))
        if excess > 0.0:
            low = epsilon
        else:
            high = epsilon
        step = epsilon - excess / slope if slope != 0.0 else math.nan
        following = step if low < step < high else 0.5 * (low + high)
        if abs(following - epsilon) <= 2.0**-52 * epsilon or high <= low:
            return following
        epsilon = following
    # Near eps = 0 rounding moves the root by a large share of it, so steps never settle; the profile still agrees.
    if best[0] <= 0.5 * GAUSSIAN_RELATIVE_ERROR:
        return best[1]
    raise CertificationError(f"No convergence for gaussian_epsilon(mu={mu}, delta={delta}).")


def gaussian_epsilon_bounds(mu: float, delta: float, mu_error: float = 0.0) -> tuple[float, float]:
    """(lower, upper) of epsilon at delta for mu-GDP, mu known up to the relative error `mu_error`.

    Rounding is added to delta, not to epsilon: where delta_mu(0) hardly exceeds delta, a change of delta by one unit
    of rounding moves epsilon by a large share of it.
    Post-condition: the smallest eps >= 0 with delta_mu(eps) <= delta lies between the two, for every mu in question.
    """
    slack = 2.0 * GAUSSIAN_RELATIVE_ERROR
    above, below = min(delta * (1.0 + slack), 1.0 - 2.0**-53), delta * (1.0 - slack)
    return gaussian_epsilon(mu * (1.0 - mu_error), above), gaussian_epsilon(mu * (1.0 + mu_error), below)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu with delta_mu(epsilon) = delta: the largest mu whose GDP guarantee implies (epsilon, delta)-DP.

    Post-condition: |returned/true - 1| <= GAUSSIAN_RELATIVE_ERROR.
    """
    epsilon = NON_NEGATIVE.check("epsilon", epsilon)
    delta = OPEN_UNIT.check("delta", delta)
    # delta_mu(0) = 2 Phi(mu/2) - 1 = erf(mu / (2 sqrt 2)), and delta_mu falls with epsilon: mu is no smaller than this.
    least = 2.0 * math.sqrt(2.0) * float(special.erfinv(delta))
    if epsilon == 0.0:
        return least
    log_delta = math.log(delta)
    a = float(normal_tail_quantile(delta))
    # Phi(-a) = delta exceeds delta_mu at this mu, so the root is larger.
    root = math.hypot(a, math.sqrt(2.0 * epsilon))
    low = math.log(max(2.0 * epsilon / (a + root) if a > 0.0 else root - a, least))
    high, point = math.inf, low
    for _ in range(200):
        excess, _, slope = _log_excess(math.exp(point), epsilon, log_delta)
        if excess < 0.0:
            low = point
        else:
            high = point
        step = point - excess / slope if slope != 0.0 else math.nan
        if not low < step < high:
            step = 0.5 * (low + high) if math.isfinite(high) else low + 0.5
        step = min(step, point + 1.0)
        if abs(step - point) <= 2.0**-52 or high <= low:
            return math.exp(step)
        point = step
    raise CertificationError(f"No convergence for gaussian_mu(epsilon={epsilon}, delta={delta}).")


def _tail_argument(alpha: ArrayLike, alpha_c: ArrayLike | None) -> FloatArray:
    alphas = checked(PROBABILITY, "alpha", alpha)
    complements = 1.0 - alphas if alpha_c is None else checked(PROBABILITY, "alpha_c", alpha_c)
    small = alphas <= 0.5
    argument = normal_tail_quantile(np.where(small, alphas, complements))
    return np.where(small, argument, -argument)


def gaussian_tradeoff(mu: float, alpha: ArrayLike, alpha_c: ArrayLike | None = None) -> FloatArray:
    """G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu), the smallest false negative rate at false positive rate alpha.

    `alpha_c` = 1 - alpha may be given where alpha is so near 1 that the difference matters.
    Post-condition: |returned/true - 1| <= GAUSSIAN_RELATIVE_ERROR wherever both alpha and the value exceed 1e-300.
    """
    return np.asarray(special.ndtr(_tail_argument(alpha, alpha_c) - NON_NEGATIVE.check("mu", mu)), dtype=np.float64)


def gaussian_power(mu: float, alpha: ArrayLike) -> FloatArray:
    """1 - G_mu(alpha), the largest true positive rate, with relative accuracy for tiny alpha."""
    return np.asarray(special.ndtr(NON_NEGATIVE.check("mu", mu) - _tail_argument(alpha, None)), dtype=np.float64)
