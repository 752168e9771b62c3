"""Both tails of the gamma distribution, in logarithms, from a = 1/2 to a = 1e15.

P(a, x) = gamma(a, x)/Gamma(a) and Q = 1 - P are the two tails of a gamma variable of shape a. At a = 1e8 a
standard deviation is 1e-4 of the mean; series and continued fractions then need thousands of terms near the mean,
and library routines that stop early lose every digit a few standard deviations out. One substitution avoids that at
every shape. With y = log(x/a) and t = x e^u in the integral of t^(a-1) e^(-t),

    Q(a, x) = D J,     J = integral over u > 0 of exp(-(x - a) u - x psi(u)),         D = x^a e^(-x) / Gamma(a),
    P(a, x) = D I,     I = integral over v > 0 of exp(-(a - x) v - x psi(-v)),        psi(u) = e^u - 1 - u >= 0.

**Prefactor.** By Stirling, D = sqrt(a/(2 pi)) exp(-a psi(y) - s(a)): the dangerous exponent is one product of
positive numbers, as accurate as y itself. This is why y, not x, is the natural argument: scaling x by a factor moves
y by its logarithm. An x given as a double stands for y up to 1e-16, which is 1e-16 sqrt(a) standard deviations
(1e-10 of one at a = 1e12); the functions ending in `_at` take y and lose nothing.

**Integral.** Take the tail on its own side of the mean: Q for x > a, P for x <= a; the other one is 1 minus it and at
least 0.3. The exponent -g of the integrand is then concave, g(0) = 0, g increasing. Cut it at L with g(L) >= G = 40.
By convexity g(v) <= v g'(L) before L and g(v) >= g(L) + (v - L) g'(L) behind it, so what is cut off is at most
e^-G / (1 - e^-G) < 1e-17 of the integral. L is explicit because psi(u) >= u^2/2, psi(u) >= e^u/2 for u >= 2, and
psi(-v) >= v^2/(2 + v) (multiply out: the difference vanishes at 0 and has derivative 1 - (1 + v) e^-v >= 0).
On [0, L] the integrand falls from 1 to e^-40 in one smooth sweep, whatever a and x are, and extends to the whole
complex plane; 36 Gauss-Legendre nodes leave less than 1e-15 of it (the error bound on a Bernstein ellipse is
evaluated over the whole domain in the tests). For a < 20 the lower integral has two scales, 1/a and 1, and the
series of positive terms I = (1/a) sum of x^k / ((a+1)...(a+k)) replaces it: 80 terms leave less than 1e-20.

**Inverse.** d log P / dy = 1/I falls and d log Q / dy = -1/J falls as y grows, so both logarithms are concave in y and
Newton's iteration, once on the far side of the root, approaches it monotonically.

Accuracy is stated by one constant, `GAMMA_LOG_ERROR`, checked against mpmath in the tests.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from calipers.domains import NON_NEGATIVE, Domain
from calipers.errors import CertificationError, InputError
from calipers.numerics.elementary import STIRLING, checked, log_complement
from calipers.numerics.normal import log_normal_tail_quantile
from calipers.numerics.types import FloatArray

GAMMA_LOG_ERROR = 2e-14
"""|returned - true| <= GAMMA_LOG_ERROR * max(1, |true|) for every logarithm of this module (checked; often 2e-15)."""

LARGEST_SHAPE = 1e15
_SHAPE = Domain(0.5, LARGEST_SHAPE)
_LOG = Domain(-math.inf, 0.0, high_open=True)

_DEPTH = 40.0
_SERIES_BELOW = 20.0
_SERIES_TERMS = 80
_ROWS = 4096
_NODES, _WEIGHTS = (part * 0.5 for part in np.polynomial.legendre.leggauss(36))
_NODES = _NODES + 0.5
_PSI = np.array([1.0 / math.factorial(k) for k in range(2, 20)])
# With k + 1 coefficients the series is exact to 1e-17 as long as |u| <= _REACH[k].
_REACH = np.array([(0.5e-17 * math.factorial(k + 3)) ** (1.0 / (k + 1)) for k in range(_PSI.size - 1)])
# s(a) = 1/(12 a) - 1/(360 a^3) + ...; at a = 10 the first term left out is below 1e-16.
_STIRLING_FROM = 10.0
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_HALF = -math.log(2.0)


def exponential_excess(u: ArrayLike) -> FloatArray:
    """psi(u) = e^u - 1 - u >= 0 with relative accuracy: its power series on [-1, 1], the formula elsewhere."""
    argument = np.asarray(u, dtype=np.float64)
    near = np.clip(argument, -1.0, 1.0)
    last = int(np.searchsorted(_REACH, np.abs(near).max(initial=0.0)))
    total = np.full_like(near, _PSI[last])
    for coefficient in _PSI[:last][::-1]:
        total *= near
        total += coefficient
    total *= np.square(near)
    far = np.abs(argument) > 1.0
    if far.any():
        total[far] = np.expm1(argument[far]) - argument[far]
    return total


def stirling_correction(a: ArrayLike) -> FloatArray:
    """s(a) with log Gamma(a) = (a - 1/2) log a - a + log(2 pi)/2 + s(a); absolute error below 1e-14."""
    shape = np.asarray(a, dtype=np.float64)
    inverse_square = 1.0 / np.square(np.maximum(shape, _STIRLING_FROM))
    total = np.polyval(STIRLING[::-1], inverse_square)
    small = np.minimum(shape, _STIRLING_FROM)
    direct = special.gammaln(small) - ((small - 0.5) * np.log(small) - small + _HALF_LOG_TWO_PI)
    return np.where(shape < _STIRLING_FROM, direct, total / shape)


def log_poisson_weight(a: ArrayLike, log_ratio: ArrayLike) -> FloatArray:
    """log(x^a e^-x / Gamma(a + 1)) at x = a e^log_ratio: the Poisson weight of a at mean x, for real a > 0.

    Post-condition: |returned - true| <= GAMMA_LOG_ERROR * max(1, |true|).
    """
    shape = np.asarray(a, dtype=np.float64)
    return -shape * exponential_excess(log_ratio) - 0.5 * np.log(shape) - _HALF_LOG_TWO_PI - stirling_correction(shape)


def _lower_cut(a: FloatArray, slope: FloatArray) -> FloatArray:
    """L with slope L + x psi(-L) >= G, from psi(-v) >= v^2/(2 + v): the positive root of (a/2) L^2 + linear L = G."""
    linear = slope - 0.5 * _DEPTH
    root = np.sqrt(np.square(linear) + 2.0 * a * _DEPTH)
    # Whichever form has no cancellation.
    return np.where(linear > 0.0, 2.0 * _DEPTH / (np.abs(linear) + root), (root - linear) / a)


def _upper_cut(x: FloatArray, slope: FloatArray) -> FloatArray:
    """L with slope L + x psi(L) >= G, from psi(u) >= u^2/2, and from psi(u) >= e^u/2 beyond 2 if that is shorter."""
    quadratic = 2.0 * _DEPTH / (slope + np.sqrt(np.square(slope) + 2.0 * x * _DEPTH))
    return np.minimum(quadratic, np.maximum(2.0, np.log(2.0 * _DEPTH / x)))


def _integral(slope: FloatArray, x: FloatArray, length: FloatArray, side: float) -> FloatArray:
    """Integral over [0, length] of exp(-slope u - x psi(side u)), positive terms only."""
    result = np.empty_like(x)
    for start in range(0, x.size, _ROWS):
        rows = slice(start, start + _ROWS)
        u = length[rows, None] * _NODES
        exponent = slope[rows, None] * u + x[rows, None] * exponential_excess(side * u)
        result[rows] = length[rows] * (np.exp(-exponent) @ _WEIGHTS)
    return result


def _lower_integral(a: FloatArray, y: FloatArray) -> FloatArray:
    """I of the module docstring, for y <= 0."""
    x = a * np.exp(y)
    result = np.empty_like(a)
    few = a < _SERIES_BELOW
    total, term = np.ones(int(few.sum())), np.ones(int(few.sum()))
    for k in range(1, _SERIES_TERMS + 1):
        term = term * (x[few] / (a[few] + k))
        total += term
    result[few] = total / a[few]
    shape, slope = a[~few], -a[~few] * np.expm1(y[~few])
    result[~few] = _integral(slope, x[~few], _lower_cut(shape, slope), -1.0)
    return result


def _upper_integral(a: FloatArray, y: FloatArray) -> FloatArray:
    """J of the module docstring, for y > 0."""
    x, slope = a * np.exp(y), a * np.expm1(y)
    return _integral(slope, x, _upper_cut(x, slope), 1.0)


def _log_density_and_tail(a: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log D, and the log of the tail on its own side: P where y <= 0, Q where y > 0."""
    lower = y <= 0.0
    integral = np.empty_like(a)
    integral[lower] = _lower_integral(a[lower], y[lower])
    integral[~lower] = _upper_integral(a[~lower], y[~lower])
    exponent = -a * exponential_excess(y) - stirling_correction(a)
    scale = np.sqrt(a / (2.0 * math.pi))
    return exponent + np.log(scale), exponent + np.log(scale * integral)


def log_ratio_of(a: ArrayLike, x: ArrayLike) -> FloatArray:
    """log(x/a), relative accuracy near x = a too (x - a is exact there); -inf at x = 0."""
    shape, point = np.asarray(a, dtype=np.float64), checked(NON_NEGATIVE, "x", x)
    with np.errstate(divide="ignore", over="ignore"):
        near = np.abs(point - shape) <= 0.5 * shape
        return np.where(near, np.log1p(np.where(near, point - shape, 0.0) / shape), np.log(point) - np.log(shape))


def log_gamma_tail(a: ArrayLike, log_ratio: ArrayLike, lower: bool) -> FloatArray:
    """log P(a, a e^log_ratio), that a gamma variable of shape a lies below that; log Q = log(1 - P) if not `lower`.

    Post-condition: |returned - true| <= GAMMA_LOG_ERROR * max(1, |true|), for a in [0.5, 1e15]; a and log_ratio
    broadcast. Where P is near 1, log P = -Q to first order and has the relative accuracy of Q. For x = a (1 + mu)
    pass log1p(mu), for any other x what `log_ratio_of` says.
    """
    ratios = np.asarray(log_ratio, dtype=np.float64)
    if np.any(np.isnan(ratios) | (ratios > 600.0)):
        raise InputError(f"Expected log(x/a) in [-inf, 600], got {log_ratio!r}.")
    shape, y = np.broadcast_arrays(checked(_SHAPE, "a", a), ratios)
    result = np.full(shape.shape, -math.inf if lower else 0.0)
    live = np.isfinite(y)
    _, own = _log_density_and_tail(shape[live], y[live])
    direct = (y[live] <= 0.0) == lower
    result[live] = np.where(direct, own, log_complement(own))
    return result


def _start(a: FloatArray, log_tail: FloatArray, sign: float) -> FloatArray:
    """A first y for the tail on side `sign` (-1 lower, +1 upper): Wilson and Hilferty's cube of a normal variable.

    In the lower tail P(a, x) <= x^a / Gamma(a + 1) gives a y below the root, used wherever it is the larger.
    """
    root = 1.0 - 1.0 / (9.0 * a) + sign * log_normal_tail_quantile(log_tail) / (3.0 * np.sqrt(a))
    # log1p keeps the digits of y = 3 log(root) at large shapes.
    cube = 3.0 * np.log1p(np.maximum(root - 1.0, -0.999))
    if sign > 0.0:
        return np.asarray(cube, dtype=np.float64)
    bound = (log_tail + special.gammaln(np.minimum(a, 1e6) + 1.0)) / a - np.log(a)
    return np.where((root < 0.5) & (a < 1e6), np.maximum(bound, np.where(root > 0.001, cube, bound)), cube)


def _solve(a: FloatArray, log_tail: FloatArray, lower: bool) -> FloatArray:
    """The y whose lower (upper) tail has logarithm log_tail <= log(1/2), by Newton's iteration on the log."""
    sign = -1.0 if lower else 1.0
    y = _start(a, log_tail, sign)
    best, smallest = y.copy(), np.full(y.shape, math.inf)
    tolerance = np.maximum(1.0, np.abs(log_tail))
    active = np.ones(y.shape, dtype=bool)
    for _ in range(100):
        shape, point = a[active], y[active]
        log_density, own = _log_density_and_tail(shape, point)
        value = np.where((point <= 0.0) == lower, own, log_complement(own))
        residual = value - log_tail[active]
        better = np.abs(residual) < smallest[active]
        index = np.flatnonzero(active)
        best[index[better]] = point[better]
        smallest[index[better]] = np.abs(residual[better])
        y[active] = point + np.clip(sign * residual * np.exp(value - log_density), -2.0, 2.0)
        # Rounding holds the residual up at a few units; once it stops falling the root is found.
        active[index[(np.abs(residual) <= 1e-15 * tolerance[active]) | (~better & (smallest[active] < 1e-13))]] = False
        if not active.any():
            break
    if np.any(smallest > GAMMA_LOG_ERROR * tolerance):
        raise CertificationError(f"No convergence of the gamma quantile at a={a!r}, log tail={log_tail!r}.")
    return best


def gamma_quantile(a: ArrayLike, log_probability: ArrayLike, lower: bool) -> FloatArray:
    """The y = log(x/a) with log P(a, a e^y) = log_probability < 0, or log Q(a, a e^y) if not `lower`.

    Post-condition: the smaller of the two tails at the returned y has a logarithm within
    GAMMA_LOG_ERROR * max(1, |logarithm|) of the one asked for.
    """
    logs = checked(_LOG, "log_probability", log_probability)
    shape, target = np.broadcast_arrays(checked(_SHAPE, "a", a), logs)
    same = target <= _LOG_HALF
    result = np.empty(shape.shape)
    result[same] = _solve(shape[same], target[same], lower)
    result[~same] = _solve(shape[~same], log_complement(target[~same]), not lower)
    return result
