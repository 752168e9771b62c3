"""Noncentral chi-square tails between certified bounds, by two routes that share one elementary function (psi).

X has d degrees and noncentrality L: the squared norm of a standard Gaussian vector shifted by sqrt(L).

**Contour.** The cumulant function K(theta) = -(d/2) log(1 - 2 theta) + L theta/(1 - 2 theta) is elementary; for c > 0

    P(X > t) = (1/pi) integral over u > 0 of Re[ exp(K(c + iu) - (c + iu) t) / (c + iu) ] du

(c < 0 gives -P(X <= t)). Put the line near the saddle point, where K'(c) = t, a little off the pole at 0. In
w = 1/(1 - 2c) = 1 + a and v = 2uw every large quantity cancels by algebra, not by subtraction: with w - b the
saddle of t and theta = c + iu = (a + iv)/(2w),

    K(c) - ct = -(d/2) (a - log(1 + a) - ab/w) + (L a/2) (2b - a - b^2/w),
    K(theta) - K(c) - iut = -(d/4) log(1 + v^2) - (Lw/2) v^2/(1 + v^2)
                            - i [(d/2)(v - arctan v) + (Lw/2) v^3/(1 + v^2) - v b (d + L(2w - b))/(2w)].

*Discretization.* By Poisson summation the trapezoidal sum with step h, period T = 4 pi w/h, is exactly the sum over
all integers j of e^(c j T) P(X > t + jT). The terms j != 0 are positive; for j < 0 they are at most e^(-c|j|T), for
j > 0 Chernoff's bound at a c' > c gives e^(K(c') - c't - (c' - c) jT). *Truncation.* The modulus of the integrand falls
in v, so beyond V the sum is at most the integral. With x = v^2/(1 + v^2), dv/v = dx/(2x(1 - x)) and the modulus becomes
(1 - x)^p e^(-Wx), p = d/4 - 1, W = Lw/2, whose logarithm falls at a rate of at least p + W: what is left out is at most
(1/(2 pi X)) (1 - X)^p e^(-WX) / (p + W). Both are computed and added to the interval, together with the rounding of the
sum. With few degrees the integrand falls too slowly; then:

**Mixture.** The distribution is the mixture over j ~ Poisson(L/2) of central distributions with d + 2j degrees. Write
w_j for the weights and G_j for either tail at shape d/2 + j. Every term is positive, and w_j G_j is log-concave in j:
for w_j that is plain, and with the integrals I, J of `numerics.gamma`

    Q(a+1)/Q(a) = 1 + 1/(a J(a)),  J rises with a;       P(a+1)/P(a) = 1 - 1/(a I(a)),  a I(a) falls as a rises

(substitute v = s/a: a I(a) is the integral of e^-s exp(x (1 - e^(-s/a)))), so both quotients fall. Sum a window
around the largest term; beyond its ends the terms fall at least as fast as a geometric series with the quotient seen
there. That gives a remainder, and with it an interval that holds the truth.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from calipers.domains import REAL, Domain
from calipers.errors import CertificationError
from calipers.numerics.chi_square import LARGEST_DEGREES
from calipers.numerics.elementary import checked, log_complement
from calipers.numerics.gamma import (
    GAMMA_LOG_ERROR,
    exponential_excess,
    log_gamma_tail,
    log_poisson_weight,
    log_ratio_of,
)
from calipers.numerics.types import FloatArray

# d/2 + j must be exact: at 1e12 degrees one rounding of it moves the distribution by 1e-10 standard deviations.
_DEGREES = Domain(1, LARGEST_DEGREES, integer=True)
_NONCENTRALITY = Domain(0.0, 1e24)
_DEPTH = 42.0
_FAR_DEPTH = 42.0
_NEAR_SPREADS = 14.0
_MOST_NODES = 512
_ROWS = 256
_ACCEPTED = 1e-11
_ROUNDING = 2e-14
_DROP = 44.0
_INDEX_SPREADS = 10.0
_MIXTURE_UP_TO = 1e9
_MOST_TERMS = 1e6
_MOST_TERMS_TOGETHER = 1e7
_ARCTAN = np.array([(-1.0) ** k / (2 * k + 3) for k in range(16)])


def _arctan_excess(v: FloatArray) -> FloatArray:
    """v - arctan(v) for v >= 0 with relative accuracy: its power series below 1/4."""
    square = np.square(np.minimum(v, 0.25))
    return np.where(v < 0.25, v * square * np.polyval(_ARCTAN[::-1], square), v - np.arctan(v))


def _saddle(excess: FloatArray, degrees: FloatArray, shift: FloatArray) -> FloatArray:
    """a = w - 1 > -1 with d w + L w^2 = d + L + excess, without cancellation; NaN where there is none."""
    half = 0.5 * degrees + shift
    return np.asarray(excess / (half + np.sqrt(np.square(half) + shift * excess)), dtype=np.float64)


def _log_chernoff(a: FloatArray, b: FloatArray, degrees: FloatArray, shift: FloatArray) -> FloatArray:
    """K(c) - ct where c belongs to w = 1 + a and the saddle of t to w - b; a - log(1 + a) is psi(log(1 + a))."""
    w = 1.0 + a
    first = -0.5 * degrees * (exponential_excess(np.log1p(a)) - a * b / w)
    return np.asarray(first + 0.5 * shift * a * (2.0 * b - a - b * b / w), dtype=np.float64)


# Where the contour breaks down its error is not finite, and the mixture takes over.
@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _contour(excess: FloatArray, degrees: FloatArray, shift: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(side, log of the tail on that side, certified relative error); the error is inf where the route gives up.

    side = +1: P(X > t); side = -1: P(X <= t).
    """
    saddle = _saddle(excess, degrees, shift)
    side = np.where(excess >= 0.0, 1.0, -1.0)
    # Off the pole by about one over the standard deviation of X (in c; twice that in a near w = 1).
    off = 2.0 / np.sqrt(2.0 * degrees + 4.0 * shift)
    a = 0.5 * (saddle + side * np.sqrt(np.square(saddle) + 4.0 * np.square(off)))
    a = np.where(a > -0.9, a, saddle)
    b, w = a - saddle, 1.0 + a
    log_front, c, weight = _log_chernoff(a, b, degrees, shift), np.abs(a) / (2.0 * w), 0.5 * shift * w
    # A step this small makes the aliases on the far side, at most e^(-cT) / tail, negligible; the near side needs
    # some standard deviations of the distribution tilted to t.
    tilted = w * np.sqrt(2.0 * degrees + 4.0 * shift * w)
    period = np.maximum(_NEAR_SPREADS * tilted, (_FAR_DEPTH - log_front + np.log1p(c * tilted)) / c)
    step = 4.0 * math.pi * w / period
    # The modulus is e^-g at v^2 = e^x - 1, g = (d/4) x + weight (1 - e^-x). g is concave, so chords from 0 come down
    # from an x that is too large to the one with g = depth.
    reach = np.minimum(4.0 * _DEPTH / degrees, 60.0)
    for _ in range(40):
        reach *= _DEPTH / (0.25 * degrees * reach - weight * np.expm1(-reach))
    count = np.maximum(np.ceil(np.sqrt(np.expm1(reach)) / step), 1.0)
    possible = (count <= _MOST_NODES) & (degrees > 4.0) & np.isfinite(a)
    # (1/pi) times the trapezoidal sum of Re[exp(...)/(a + iv)] over v = 0, h, 2h, ..., and the sum of moduli.
    v = step[:, None] * np.arange(count.max(where=possible, initial=1.0) + 1.0)
    square = np.square(v)
    bend = weight[:, None] * square / (1.0 + square)
    linear = b * (degrees + shift * (2.0 * w - b)) / (2.0 * w)
    phase = (linear[:, None] - bend) * v - 0.5 * degrees[:, None] * _arctan_excess(v)
    modulus = np.exp(-0.25 * degrees[:, None] * np.log1p(square) - bend)
    modulus[:, 0] = 0.5
    square += np.square(a)[:, None]
    total = side * step / math.pi * np.sum(modulus * (a[:, None] * np.cos(phase) + v * np.sin(phase)) / square, axis=1)
    size = step / math.pi * np.sum(modulus / np.sqrt(square), axis=1)
    log_tail = log_front + np.log(total)
    power, end = 0.25 * degrees - 1.0, np.square(count * step)
    part = end / (1.0 + end)
    cut = np.exp(-power * np.log1p(end) - weight * part) / (2.0 * math.pi * part * (power + weight))
    far = np.exp(-c * period - log_tail) / -np.expm1(-c * period)
    other = _saddle(excess + side * period, degrees, shift)
    away = (other - a) * side / (2.0 * w * (1.0 + other)) * period
    near = np.exp(_log_chernoff(other, other - saddle, degrees, shift) - away - log_tail) / -np.expm1(-away)
    # X is not negative: a period longer than t has no alias on the near side of P(X <= t).
    near = np.where((side < 0.0) & (period >= degrees + shift + excess), 0.0, np.where(away > 0.0, near, math.inf))
    error = cut / total + far + near + _ROUNDING * (1.0 + size / total) + 4e-15 * np.abs(log_front)
    # The saddle is rounded; far below the mean, where w is small, K(c) - ct moves by many times that.
    error += 5e-16 * np.abs(a * saddle) * (degrees / w + 2.0 * shift * (1.0 + np.abs(b) / w))
    return side, log_tail, np.where(possible & (total > 0.0) & np.isfinite(error), error, math.inf)


def _mixture(t: float, degrees: float, noncentrality: float, lower: bool, rest: float = 0.0) -> tuple[float, float]:
    """log bounds of one tail at one point, t + rest, of which `rest` is what the rounding of t took from it."""
    if t == 0.0:
        return (-math.inf, -math.inf) if lower else (0.0, 0.0)
    if noncentrality > _MIXTURE_UP_TO:
        raise CertificationError(
            f"No route certifies {degrees:g} degrees with noncentrality {noncentrality:g}: the contour's integrand "
            f"falls too slowly, and the mixture has too many terms. Use a noncentrality up to {_MIXTURE_UP_TO:g}."
        )
    half, mean = 0.5 * degrees, 0.5 * noncentrality
    # Tilted to t the index is Poisson with mean w L/2, w at the saddle of t: there a small tail has its largest terms.
    a = float(_saddle(*np.array([t - degrees - noncentrality, degrees, noncentrality])))
    middle = mean * (1.0 + (min(a, 0.0) if lower else max(a, 0.0)))
    reach = _INDEX_SPREADS * math.sqrt(middle) + 40.0 if mean > 0.0 else 0.0
    while True:
        j = np.arange(max(math.floor(middle - reach), 0), math.ceil(middle + reach) + 1.0)
        drawn = np.maximum(j, 1.0)
        weights = np.where(j > 0.0, log_poisson_weight(drawn, log_ratio_of(drawn, mean)), -mean)
        terms = weights + log_gamma_tail(half + j, log_ratio_of(half + j, 0.5 * t), lower)
        # Both logarithms of a term are negative, so the absolute errors of the two add up to at most this.
        errors = GAMMA_LOG_ERROR * (2.0 + np.abs(terms))
        top, end = float(terms.max()), np.array([k for k in (0, -1) if j[k] > 0.0], dtype=np.intp)
        quotients = terms[end] - terms[np.where(end < 0, -2, 1)] + 2.0 * errors[end]
        if np.all((terms[end] < top - _DROP) & (quotients < 0.0)):
            break
        reach *= 2.0
        if reach > _MOST_TERMS:
            raise CertificationError(
                f"No route certifies a tail at {t:g} of {degrees:g} degrees with noncentrality {noncentrality:g}: its "
                "mixture has too many terms. Use less extreme parameters."
            )
    shares = np.exp(terms - top)
    total = top + math.log(math.fsum(shares))
    error = 1.1 * float(shares @ errors) / float(shares.sum())
    missing = float(np.sum(np.exp(terms[end] + quotients - total) / -np.expm1(quotients)))
    # The rest moves the tail by its density, f(t) = sum of w_j D_j / t. A hundredth of that covers what the density
    # changes on the way, a share of 1e-16 (d + t + sqrt(L t)); where that is more, `error` is many times the move.
    density = log_poisson_weight(half + j, log_ratio_of(half + j, 0.5 * t)) + weights - total
    moved = (rest if lower else -rest) * float(np.exp(density) @ (half + j)) / t
    total, error = total + moved, error + 0.01 * abs(moved)
    return total - error, min(total + math.log1p(missing) + error, 0.0)


@np.errstate(divide="ignore", invalid="ignore")
def _log_bounds(columns: FloatArray, lower: bool) -> FloatArray:
    """Bounds of the logarithm of one tail: by the contour where its certified error is small, else by the mixture."""
    excess, degrees, shift = columns
    side, own, error = _contour(excess, degrees, shift)
    least, most = own - 2.0 * error, own + 2.0 * error
    # The other tail is 1 minus this one; the factors cover the rounding of the complement.
    others = (1.0 + 4e-15) * log_complement(most), (1.0 - 4e-15) * log_complement(least)
    bounds = np.where((side < 0.0) == lower, (least, most), others)
    mixed = np.flatnonzero(error > _ACCEPTED)
    possible = shift[mixed][shift[mixed] <= _MIXTURE_UP_TO]
    if 2.0 * _INDEX_SPREADS * float(np.sum(np.sqrt(0.5 * possible))) > _MOST_TERMS_TOGETHER:
        raise CertificationError(
            f"{len(possible)} tails with noncentralities up to {possible.max():g} have no quicker route than mixtures, "
            "which have too many terms together. Use less extreme parameters, such as more noise."
        )
    for row in mixed:
        # X is not negative: every threshold below 0 is as good as 0.
        parts = tuple(map(float, columns[:, row]))
        t = max(math.fsum(parts), 0.0)
        bounds[:, row] = _mixture(t, parts[1], parts[2], lower, math.fsum((*parts, -t)))
    return bounds


def log_noncentral_bounds_at(excess: ArrayLike, degrees: ArrayLike, shift: ArrayLike, lower: bool) -> FloatArray:
    """(low, high) with low <= log P(X <= degrees + shift + excess) <= high, or of P(X > ...) if not `lower`.

    `shift` is the noncentrality; arguments broadcast. By its excess over the mean a threshold loses no digits at many
    degrees, which are whole. The interval is about 1e-12 max(1, |log|/100) wide. A point costs 10 to 100 microseconds
    by the contour; by the mixture (few degrees) about 14 sqrt(shift) gamma tails and 2 milliseconds.
    """
    count, shifts = checked(_DEGREES, "degrees", degrees), checked(_NONCENTRALITY, "noncentrality", shift)
    parts = np.stack(np.broadcast_arrays(checked(REAL, "excess", excess), count, shifts))
    columns = parts.reshape(3, -1)
    starts = range(0, max(columns.shape[1], 1), _ROWS)
    blocks = [_log_bounds(columns[:, start : start + _ROWS], lower) for start in starts]
    return np.concatenate(blocks, axis=1).reshape(2, *parts.shape[1:])
