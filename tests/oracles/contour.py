"""Privacy profiles of products of pairs, by contour integration through the saddle point.

With ``k = e^eps`` and ``Re z > 1``::

    integral e^(-z x) (e^x - k)+ dx  =  k^(1-z) / (z (z-1))

so, with ``K(z) = log E_Q[L^z]`` and T independent steps, Mellin inversion gives for every ``theta > 1``::

    D_k(P||Q) = E_Q[(L_1 ... L_T - k)+] = (1/2 pi i) int_{Re z = theta} exp(T K(z) - (z-1) eps) / (z (z-1)) dz

and ``D_k(Q||P)`` is the same integral with ``K(1 - z)`` in place of ``K(z)``. The line goes through the
saddle point on the real axis, where the modulus of the integrand is of the size of the answer: delta is found with
*relative* accuracy at 0.5 and at 1e-40 alike. Along the line, panels of Gauss-Legendre nodes are bisected
until halves agree. The moments of a law with a near-atom decay slowly along the line; there the integrand is
multiplied by a smooth cut-off ``w(y/Y)``, flat to 1e-17 at 0. That convolves the tilted profile with a kernel of
width 1/Y all of whose moments vanish, so the error falls faster than any power of Y wherever the profile is smooth;
Y is doubled until two answers agree. What does not settle raises.

This is an estimate of stated accuracy (1e-10 relative in delta), not a bound; it is the yardstick for bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log, pi, sqrt
from typing import Literal

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import erfc

from .pairs import Complexes, Floats, Pair

Direction = Literal["PQ", "QP", "max"]

_NODES, _WEIGHTS = leggauss(16)
_SETTLED = 3e-12
_CANCELLATION = 1e-4


class Cancellation(ArithmeticError):
    """The answer is so far below the integrand that doubles cannot hold 1e-10 of it: rare big jumps.

    ``log_delta`` is known to lie below ``bound``.
    """

    def __init__(self, bound: float) -> None:
        super().__init__(f"log delta < {bound}, lost to cancellation")
        self.bound = bound


@dataclass(frozen=True)
class _Exponent:
    """``phi(w) = T K(w or 1-w) - (w-1) eps - log(w (w-1))`` on ``Re w > 1``.

    ``gap`` (reverse direction only) is ``-T floor - eps``, the distance to the largest loss; when given, moments are
    taken from the floor, so that a gap far below the rounding of eps still has relative accuracy.
    """

    pair: Pair
    steps: int
    reverse: bool
    eps: float
    gap: float | None = None

    def __call__(self, theta: float, y: Floats) -> Complexes:
        w = theta + 1j * y
        if self.gap is not None:
            moment = self.pair.log_moment(1.0 - theta, -y, True)
            return self.steps * moment + (w - 1.0) * self.gap - np.log(w) - np.log(w - 1.0)
        at, along = (1.0 - theta, -y) if self.reverse else (theta, y)
        moment = self.pair.log_moment(at, along, False)
        return self.steps * moment - (w - 1.0) * self.eps - np.log(w) - np.log(w - 1.0)

    def real(self, theta: float) -> float:
        return float(self(theta, np.zeros(1))[0].real)


def _saddle(phi: _Exponent) -> float:
    """A point of (1, inf) where the convex function phi is near its minimum.

    The search walks out from a small theta with a factor that never jumps far past the minimum, so moments of
    hopeless size are not asked for.
    """
    t, step = log(1e-3), 1.0
    value = phi.real(1 + exp(t))
    if phi.real(1 + exp(t + 0.01)) > value:
        step = -1.0
    while True:
        ahead = phi.real(1 + exp(t + step))
        if ahead >= value or abs(t) > 60:
            break
        t, value = t + step, ahead
    low, high = t - 1.0, t + 1.0
    ratio = (sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = phi.real(1 + exp(a)), phi.real(1 + exp(b))
    while high - low > 1e-3:
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = phi.real(1 + exp(a))
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = phi.real(1 + exp(b))
    # A tenth short of the minimum: beyond a wall of phi the tilted law splits in two and the integrand oscillates
    # fast; short of it phi is flat. The modulus grows by a factor e at most, which costs half a digit.
    return 1 + 0.9 * exp(0.5 * (low + high))


def _width(phi: _Exponent, theta: float) -> float:
    """``1/sqrt(phi''(theta))``: how far up the line the integrand is large."""
    h = 0.05 * (theta - 1)
    second = (phi.real(theta + h) - 2 * phi.real(theta) + phi.real(theta - h)) / h**2
    return 1 / sqrt(second)


def _panels(
    phi: _Exponent, theta: float, peak: float, low: float, high: float, tolerance: float
) -> tuple[Floats, Floats, Complexes]:
    """Nodes, weights and integrand values on [low, high], refined until halves of each panel agree."""
    edges = np.linspace(low, high, 9)
    left, right = edges[:-1], edges[1:]

    def values(a: Floats, b: Floats) -> tuple[Floats, Floats, Complexes]:
        nodes = 0.5 * (b - a)[:, None] * _NODES + 0.5 * (a + b)[:, None]
        weights = 0.5 * (b - a)[:, None] * _WEIGHTS
        return nodes, weights, np.exp(phi(theta, nodes.ravel()) - peak).reshape(nodes.shape)

    kept: list[tuple[Floats, Floats, Complexes]] = []
    _, weights, f = values(left, right)
    for _ in range(14):
        middle = 0.5 * (left + right)
        a = np.stack([left, middle], axis=1).ravel()
        b = np.stack([middle, right], axis=1).ravel()
        finer_nodes, finer_weights, finer = values(a, b)
        coarse_sum = (weights * f).sum(axis=1)
        fine_sum = (finer_weights * finer).sum(axis=1).reshape(-1, 2).sum(axis=1)
        done = np.abs(coarse_sum - fine_sum) <= tolerance
        both = np.repeat(done, 2)
        kept.append((finer_nodes[both].ravel(), finer_weights[both].ravel(), finer[both].ravel()))
        if done.all():
            return tuple(np.concatenate(part) for part in zip(*kept, strict=True))  # type: ignore[return-value]
        left, right = a[~both], b[~both]
        weights, f = finer_weights[~both], finer[~both]
    raise ArithmeticError(f"the contour integral did not settle on [{low}, {high}] for {phi}")


def _integrate(phi: _Exponent) -> tuple[float, float]:
    """``log delta`` and ``d log delta / d eps``."""
    theta = _saddle(phi)
    peak = phi.real(theta)
    width = _width(phi, theta)
    tolerance = 1e-13 * width
    y, weight, f = _panels(phi, theta, peak, 0.0, 4 * width, tolerance)
    top, previous = 4 * width, None
    for _ in range(22):
        more = _panels(phi, theta, peak, top, 2 * top, tolerance)
        y, weight, f = (np.concatenate(pair) for pair in zip((y, weight, f), more, strict=True))
        top *= 2
        negligible = np.abs(more[2]).max() * top < 1e-15 * width
        cut = 1.0 if negligible else 0.5 * erfc(6.0 * (2.0 * y / top - 1.0))
        total = (weight * f.real * cut).sum() / pi
        slope = -(weight * ((theta - 1 + 1j * y) * f).real * cut).sum() / pi
        if negligible or (previous is not None and abs(total - previous) <= _SETTLED * abs(total)):
            if total < _CANCELLATION * width:
                raise Cancellation(peak + log(_CANCELLATION * width))
            return peak + log(total), slope / total
        previous = total
    raise ArithmeticError(f"no decay along the contour for {phi}")


def _largest_loss(pair: Pair, steps: int, reverse: bool) -> float:
    return -steps * pair.floor if reverse else inf


def log_delta(pair: Pair, steps: int, eps: float, direction: Direction = "PQ") -> float:
    """``log D_{e^eps}`` of the T-fold product; ``-inf`` at or beyond the largest loss. Relative accuracy 1e-10."""
    if direction == "max":
        return max(log_delta(pair, steps, eps, "PQ"), log_delta(pair, steps, eps, "QP"))
    reverse = direction == "QP"
    gap = _largest_loss(pair, steps, reverse) - eps
    if gap <= 0:
        return -inf
    near = gap < 0.1 * abs(eps)
    return _integrate(_Exponent(pair, steps, reverse, eps, gap if near else None))[0]


def delta(pair: Pair, steps: int, eps: float, direction: Direction = "PQ") -> float:
    """``D_{e^eps}`` of the T-fold product."""
    return exp(log_delta(pair, steps, eps, direction))


def epsilon(pair: Pair, steps: int, delta: float, direction: Direction = "max", largest: float = 700.0) -> float:
    """The smallest eps >= 0 with ``D_{e^eps} <= delta``; ``inf`` where it exceeds ``largest``."""
    if direction == "max":
        return max(epsilon(pair, steps, delta, "PQ", largest), epsilon(pair, steps, delta, "QP", largest))
    reverse = direction == "QP"
    target, top = log(delta), _largest_loss(pair, steps, reverse)
    start = _above(pair, steps, reverse, target)
    if start <= 0:
        return 0.0
    if start > largest and largest < top and log_delta(pair, steps, largest, direction) > target:
        return inf
    if start >= 0.9 * top and log_delta(pair, steps, 0.9 * top, direction) > target:
        return top - _root_in_gap(pair, steps, target, 0.1 * top)
    return _root(pair, steps, reverse, target, min(start, largest, 0.9 * top))


def _above(pair: Pair, steps: int, reverse: bool, target: float) -> float:
    """An eps whose delta is at most ``exp(target)``, from ``delta <= E[L^theta] e^(-(theta-1) eps)`` for theta > 1."""
    at_zero = _Exponent(pair, steps, reverse, 0.0)

    def bound(t: float) -> float:
        theta = 1 + exp(t)
        return (at_zero.real(theta) + log(theta) + t - target) / (theta - 1)

    t, value = log(1e-3), bound(log(1e-3))
    while (ahead := bound(t + 0.1)) < value:
        t, value = t + 0.1, ahead
    return value


def log_delta_at_zero(pair: Pair, steps: int, reverse: bool) -> float:
    """``log`` of the total variation distance."""
    return _integrate(_Exponent(pair, steps, reverse, 0.0))[0]


def _root(pair: Pair, steps: int, reverse: bool, target: float, start: float) -> float:
    """Newton's method in ``log delta``, from above, kept inside its bracket."""
    low, high, eps = 0.0, start, start
    for _ in range(100):
        try:
            value, slope = _integrate(_Exponent(pair, steps, reverse, eps))
        except Cancellation as lost:
            if lost.bound > target:
                raise
            high, eps = eps, 0.5 * (low + eps)
            continue
        low, high = (eps, high) if value > target else (low, eps)
        following = eps - (value - target) / slope
        if abs(following - eps) <= 1e-12 * eps:
            return float(following)
        if following <= low == 0.0 and high < 0.1 * start and log_delta_at_zero(pair, steps, reverse) <= target:
            return 0.0
        eps = following if low <= following <= high else 0.5 * (low + high)
    raise ArithmeticError("no root")


def _root_in_gap(pair: Pair, steps: int, target: float, widest: float) -> float:
    """The distance to the largest loss at which delta is ``exp(target)``: Newton in log(gap)."""
    top = -steps * pair.floor
    low, high, t = -300.0, log(widest), log(widest)
    for _ in range(200):
        gap = exp(t)
        value, slope = _integrate(_Exponent(pair, steps, True, top - gap, gap))
        low, high = (low, t) if value > target else (t, high)
        following = t + (value - target) / (slope * gap)
        if not low <= following <= high:
            following = 0.5 * (low + high)
        if abs(following - t) <= 1e-12:
            return exp(following)
        t = following
    raise ArithmeticError("no root")
