"""Noncentral chi-square tails between certified bounds, by two routes that share no formula.

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

**Mixture.** The law is the mixture over j ~ Poisson(L/2) of central laws with d + 2j degrees. Write w_j for the
weights and G_j for either tail at shape d/2 + j. Every term is positive, and w_j G_j is log-concave in j: for w_j
that is plain, and with the integrals I, J of `numerics.gamma`

    Q(a+1)/Q(a) = 1 + 1/(a J(a)),  J rises with a;       P(a+1)/P(a) = 1 - 1/(a I(a)),  a I(a) falls as a rises

(substitute v = s/a: a I(a) is the integral of e^-s exp(x (1 - e^(-s/a)))), so both quotients fall. Sum a window
around the largest term; beyond its ends the terms fall at least as fast as a geometric series with the quotient seen
there. That gives a remainder, and with it an interval that holds the truth.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from calipers.errors import CertificationError, InputError
from calipers.numerics.chi_square import LARGEST_DEGREES
from calipers.numerics.gamma import (
    GAMMA_LOG_ERROR,
    log_gamma_lower,
    log_gamma_upper,
    log_poisson_weight,
    log_ratio_of,
)
from calipers.numerics.types import FloatArray

LARGEST_NONCENTRALITY = 1e24

_DEPTH = 42.0
_FAR_DEPTH = 42.0
_NEAR_SPREADS = 14.0
_MOST_NODES = 512
_ROWS = 256
_ACCEPTED = 1e-11
_ROUNDING = 2e-14
_DROP = 44.0
_MIXTURE_UP_TO = 1e9
_FROM_ZERO = 1000.0
_GRID = 32
_ARCTAN = np.array([(-1.0) ** k / (2 * k + 3) for k in range(16)])


def _log1p_excess(a: FloatArray) -> FloatArray:
    """a - log(1 + a) >= 0 with relative accuracy, from log(1 + a) = 2 artanh(r), r = a/(2 + a)."""
    r = a / (2.0 + a)
    square = np.square(np.clip(r, -1.0 / 3.0, 1.0 / 3.0))
    total = np.full_like(square, 1.0 / 37.0)
    for k in range(35, 1, -2):
        total = total * square + 1.0 / k
    return np.where(np.abs(r) < 1.0 / 3.0, r * a - 2.0 * r * square * total, a - np.log1p(a))


def _arctan_excess(v: FloatArray) -> FloatArray:
    """v - arctan(v) for v >= 0 with relative accuracy: its power series below 1/4."""
    square = np.square(np.minimum(v, 0.25))
    total = np.full_like(square, _ARCTAN[-1])
    for coefficient in _ARCTAN[-2::-1]:
        total = total * square + coefficient
    return np.where(v < 0.25, v * square * total, v - np.arctan(v))


def _saddle(excess: FloatArray, degrees: FloatArray, shift: FloatArray) -> FloatArray:
    """a = w - 1 > -1 with d w + L w^2 = d + L + excess, without cancellation; NaN where there is none."""
    half = 0.5 * degrees + shift
    return np.asarray(excess / (half + np.sqrt(np.square(half) + shift * excess)), dtype=np.float64)


def _log_chernoff(a: FloatArray, b: FloatArray, degrees: FloatArray, shift: FloatArray) -> FloatArray:
    """K(c) - ct where c belongs to w = 1 + a and the saddle of t to w - b."""
    w = 1.0 + a
    first = -0.5 * degrees * (_log1p_excess(a) - a * b / w)
    return np.asarray(first + 0.5 * shift * a * (2.0 * b - a - b * b / w), dtype=np.float64)


def _reach(degrees: FloatArray, weight: FloatArray) -> FloatArray:
    """V with (d/4) log(1 + V^2) + weight V^2/(1 + V^2) >= depth, by bisection in log V from a V that is too large."""
    high = 0.5 * np.log(np.expm1(np.minimum(4.0 * _DEPTH / degrees, 60.0)))
    low = np.full_like(high, -40.0)
    for _ in range(30):
        middle = 0.5 * (low + high)
        square = np.exp(2.0 * middle)
        deep = 0.25 * degrees * np.log1p(square) + weight * square / (1.0 + square) >= _DEPTH
        low, high = np.where(deep, low, middle), np.where(deep, middle, high)
    return np.exp(high)


# Where the contour breaks down its error is not finite, and the mixture takes over.
@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _contour(excess: FloatArray, degrees: FloatArray, shift: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(side, log of the tail on that side, certified relative error); the error is inf where the route gives up.

    side = +1: P(X > t); side = -1: P(X <= t).
    """
    saddle = _saddle(excess, degrees, shift)
    spread = np.sqrt(2.0 * degrees + 4.0 * shift)
    side = np.where(excess >= 0.0, 1.0, -1.0)
    # Off the pole by about one over the standard deviation of X (in c; twice that in a near w = 1).
    off = 2.0 / spread
    a = 0.5 * (saddle + side * np.sqrt(np.square(saddle) + 4.0 * np.square(off)))
    a = np.where(a > -0.9, a, saddle)
    b, w = a - saddle, 1.0 + a
    log_front = _log_chernoff(a, b, degrees, shift)
    c = np.abs(a) / (2.0 * w)
    # A step this small makes the aliases on the far side, at most e^(-cT) / tail, negligible; the near side needs
    # some standard deviations of the law tilted to t.
    tilted = w * np.sqrt(2.0 * degrees + 4.0 * shift * w)
    period = np.maximum(_NEAR_SPREADS * tilted, (_FAR_DEPTH - log_front + np.log1p(c * tilted)) / c)
    step = 4.0 * math.pi * w / period
    weight = 0.5 * shift * w
    reach = _reach(degrees, weight)
    count = np.ceil(reach / step)
    possible = np.isfinite(count) & (count <= _MOST_NODES) & (degrees > 4.0) & np.isfinite(a)
    total, size = np.full_like(a, math.nan), np.full_like(a, math.nan)
    order = np.flatnonzero(possible)
    for start in range(0, order.size, _ROWS):
        rows = order[start : start + _ROWS]
        total[rows], size[rows] = _trapezoid(
            a[rows], b[rows], degrees[rows], shift[rows], step[rows], int(count[rows].max())
        )
    total = side * total
    log_tail = log_front + np.log(total)
    end = np.maximum(np.ceil(reach / step), 1.0) * step
    square = np.square(end)
    power, part = 0.25 * degrees - 1.0, square / (1.0 + square)
    cut = np.exp(-power * np.log1p(square) - weight * part) / (2.0 * math.pi * part * (power + weight))
    far = np.exp(-c * period - log_tail) / -np.expm1(-c * period)
    other = _saddle(excess + side * period, degrees, shift)
    away = (other - a) * side / (2.0 * w * (1.0 + other)) * period
    near = np.exp(_log_chernoff(other, other - saddle, degrees, shift) - away - log_tail) / -np.expm1(-away)
    # X is not negative: a period longer than t has no alias on the near side of P(X <= t).
    near = np.where((side < 0.0) & (period >= degrees + shift + excess), 0.0, np.where(away > 0.0, near, math.inf))
    error = cut / total + far + near + _ROUNDING * (1.0 + size / total) + 4e-15 * np.abs(log_front)
    error = np.where(possible & (total > 0.0) & np.isfinite(error), error, math.inf)
    return side, log_tail, error


def _trapezoid(
    a: FloatArray, b: FloatArray, degrees: FloatArray, shift: FloatArray, step: FloatArray, count: int
) -> tuple[FloatArray, FloatArray]:
    """(1/pi) times the trapezoidal sum of Re[exp(...)/(a + iv)] over v = 0, h, 2h, ..., and the sum of moduli."""
    w = 1.0 + a
    v = step[:, None] * np.arange(count + 1.0)
    square = np.square(v)
    bend = (0.5 * shift * w)[:, None] * square / (1.0 + square)
    real = -0.25 * degrees[:, None] * np.log1p(square) - bend
    linear = b * (degrees + shift * (2.0 * w - b)) / (2.0 * w)
    phase = -0.5 * degrees[:, None] * _arctan_excess(v) - bend * v + linear[:, None] * v
    modulus = np.exp(real)
    base = np.square(a)[:, None] + square
    terms = modulus * (a[:, None] * np.cos(phase) + v * np.sin(phase)) / base
    sizes = modulus / np.sqrt(base)
    terms[:, 0] *= 0.5
    return step * terms.sum(axis=1) / math.pi, step * sizes.sum(axis=1) / math.pi


class _Mixture:
    """The terms log(w_j G_j) of one noncentral tail, for whole j >= 0."""

    def __init__(self, t: float, degrees: float, noncentrality: float, lower: bool) -> None:
        self.half, self.point, self.mean, self.lower = 0.5 * degrees, 0.5 * t, 0.5 * noncentrality, lower

    def log_terms(self, j: FloatArray) -> FloatArray:
        """log(w_j G_j)."""
        weight = np.full(j.shape, -self.mean)
        drawn = j > 0.0
        weight[drawn] = log_poisson_weight(j[drawn], log_ratio_of(j[drawn], self.mean))
        tail = log_gamma_lower if self.lower else log_gamma_upper
        return weight + tail(self.half + j, self.point)

    def peak(self) -> tuple[float, float]:
        """A j near the largest term, and that term.

        P falls in j, so its largest term lies at most at the mean of w; for the upper tail Q >= 1/4 once the shape
        exceeds x, so beyond max(4 mean, x) the quotient of neighbors is below 1.
        """
        low, high = 0.0, math.ceil(self.mean if self.lower else max(4.0 * self.mean, self.point)) + 1.0
        while True:
            grid = np.unique(np.round(np.linspace(low, high, _GRID)))
            values = self.log_terms(grid)
            best = int(values.argmax())
            if high - low < _GRID - 1.0:
                return float(grid[best]), float(values[best])
            low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, grid.size - 1)])

    def end(self, peak: float, floor: float, direction: int) -> float:
        """A j on the given side of the peak whose term is below `floor`, near the first such; 0 if there is none."""
        inside, step = peak, 1.0
        while True:
            j = max(peak + direction * step, 0.0)
            if float(self.log_terms(np.array([j]))[0]) < floor:
                break
            if j == 0.0:
                return 0.0
            inside, step = j, 2.0 * step
        grid = np.unique(np.round(np.linspace(inside, j, _GRID)))
        below = grid[self.log_terms(grid) < floor]
        return float(below.min() if direction > 0 else below.max())

    def window(self) -> tuple[float, FloatArray]:
        """The first j and the terms from there on, until they are e^-44 of the largest on both sides (or j = 0)."""
        if self.mean <= _FROM_ZERO:
            last = math.ceil(self.mean + 12.0 * math.sqrt(self.mean)) + 64.0
            while True:
                terms = self.log_terms(np.arange(last + 1.0))
                if terms[-1] < terms.max() - _DROP:
                    return 0.0, terms
                last *= 2.0
        at, largest = self.peak()
        first = self.end(at, largest - _DROP, -1)
        return first, self.log_terms(np.arange(first, self.end(at, largest - _DROP, 1) + 1.0))


def _remainder(inner: float, outer: float, error: float) -> float:
    """log of the geometric series that starts behind the term exp(outer), whose neighbor inside is exp(inner)."""
    quotient = outer - inner + 2.0 * error
    if quotient >= 0.0:
        raise CertificationError("The terms of the noncentral chi-square mixture do not fall at the end of the window.")
    return outer + quotient - math.log(-math.expm1(quotient))


def _mixture(t: float, degrees: float, noncentrality: float, lower: bool) -> tuple[float, float]:
    """log bounds of one tail at one point."""
    if t == 0.0:
        return (-math.inf, -math.inf) if lower else (0.0, 0.0)
    if noncentrality == 0.0:
        value = float((log_gamma_lower if lower else log_gamma_upper)(0.5 * degrees, 0.5 * t))
        slack = GAMMA_LOG_ERROR * max(1.0, abs(value))
        return value - slack, min(value + slack, 0.0)
    if noncentrality > _MIXTURE_UP_TO:
        raise CertificationError(
            f"No route certifies {degrees:g} degrees with noncentrality {noncentrality:g}: the contour's integrand "
            f"falls too slowly, and the mixture has too many terms. Use a noncentrality up to {_MIXTURE_UP_TO:g}."
        )
    mixture = _Mixture(t, degrees, noncentrality, lower)
    first, terms = mixture.window()
    # Both logarithms of a term are negative, so the absolute errors of the two add up to at most this.
    errors = GAMMA_LOG_ERROR * (2.0 + np.abs(terms))
    top = float(terms.max())
    shares = np.exp(terms - top)
    total = top + math.log(math.fsum(shares))
    error = 1.1 * float(shares @ errors) / float(shares.sum())
    missing = math.exp(_remainder(float(terms[-2]), float(terms[-1]), float(errors[-1])) - total)
    if first > 0.0:
        missing += math.exp(_remainder(float(terms[1]), float(terms[0]), float(errors[0])) - total)
    return total - error, min(total + math.log1p(missing) + error, 0.0)


def _log_bounds(
    excess: FloatArray, degrees: FloatArray, shift: FloatArray, lower: bool
) -> tuple[FloatArray, FloatArray]:
    """Bounds of the logarithm of one tail: by the contour where its certified error is small, else by the mixture."""
    side, own, error = _contour(excess, degrees, shift)
    low, high = np.empty_like(own), np.empty_like(own)
    good = error <= _ACCEPTED
    same = good & ((side < 0.0) == lower)
    low[same], high[same] = own[same] - 2.0 * error[same], np.minimum(own[same] + 2.0 * error[same], 0.0)
    opposite = good & ~same
    # The other tail is 1 minus this one; the factors cover the rounding of log1p.
    most = np.minimum(own[opposite] + 2.0 * error[opposite], -1e-300)
    low[opposite] = (1.0 + 1e-15) * np.log1p(-np.exp(most))
    high[opposite] = (1.0 - 1e-15) * np.log1p(-np.exp(own[opposite] - 2.0 * error[opposite]))
    for row in np.flatnonzero(~good):
        # X is not negative: every threshold below 0 is as good as 0.
        t = max(float(degrees[row] + shift[row] + excess[row]), 0.0)
        low[row], high[row] = _mixture(t, float(degrees[row]), float(shift[row]), lower)
    return low, high


def log_noncentral_bounds_at(
    excess: ArrayLike, degrees: ArrayLike, noncentrality: ArrayLike, lower: bool
) -> tuple[FloatArray, FloatArray]:
    """(low, high) with low <= log P(X <= degrees + noncentrality + excess) <= high, or of P(X > ...) if not `lower`.

    Arguments broadcast. By its excess over the mean a threshold loses no digits at many degrees, which are whole. The
    interval is about 1e-12 max(1, |log|/100) wide. A point costs 10 to 100 microseconds by the contour; by the mixture
    (few degrees) about 14 sqrt(noncentrality) gamma tails and 20 milliseconds.
    """
    shift, count = np.asarray(noncentrality, dtype=np.float64), np.asarray(degrees, dtype=np.float64)
    if not np.all((shift >= 0.0) & (shift <= LARGEST_NONCENTRALITY)):
        raise InputError(f"Expected noncentrality in [0, {LARGEST_NONCENTRALITY:g}], got {noncentrality!r}.")
    if not np.all((count >= 1.0) & (count <= LARGEST_DEGREES) & (count % 1.0 == 0.0)):
        # d/2 + j must be exact: at 1e12 degrees one rounding of it moves the law by 1e-10 standard deviations.
        raise InputError(
            f"Expected degrees in the whole numbers from 1 to {LARGEST_DEGREES:g}, got degrees={degrees!r}."
        )
    above = np.asarray(excess, dtype=np.float64)
    if not np.all(np.isfinite(above)):
        raise InputError(f"Expected a finite threshold, got an excess of {excess!r} over the mean.")
    parts = np.broadcast_arrays(above, count, shift)
    thresholds, counts, shifts = (np.ascontiguousarray(part).ravel() for part in parts)
    low, high = _log_bounds(thresholds, counts, shifts, lower)
    return low.reshape(parts[0].shape), high.reshape(parts[0].shape)
