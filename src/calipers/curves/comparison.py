"""The Blackwell order of two trade-off curves, decided exactly.

One curve lies below another everywhere iff it does at the other's breakpoints, since it is convex and the other is
linear in between. Floating point decides every breakpoint that is not within rounding of a tie; rational arithmetic on
the stored numbers decides the rest. No tolerance enters.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from calipers.curves.points import UNIT, Points, order_key, rise, settled
from calipers.numerics.types import FloatArray, IntArray

_DOUBT = 64.0 * UNIT


def locate(points: Points, x: FloatArray, x_c: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """(i, distance to alpha_i, distance to alpha_(i+1)) with alpha_i <= x; both distances relatively accurate.

    At or beyond the last breakpoint i is the last index and the second distance is 0.
    """
    keys = order_key(points.alpha, points.alpha_c)
    index = np.searchsorted(keys, order_key(x, x_c), side="right") - 1
    following = np.minimum(index + 1, keys.size - 1)
    inside = index < keys.size - 1
    past = rise(points.alpha[index], points.alpha_c[index], x, x_c)
    ahead = rise(x, x_c, points.alpha[following], points.alpha_c[following])
    return index, past, np.where(inside, ahead, 0.0)


def interpolate(points: Points, x: FloatArray, x_c: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(beta, 1 - beta, relative rounding) of the curve at x.

    Both come from weights that add positive numbers, so each is relatively accurate in its own tail.
    At breakpoints and beyond the last one the rounding is exactly 0.
    """
    index, past, ahead = locate(points, x, x_c)
    following = np.minimum(index + 1, points.alpha.size - 1)
    at_end = index == points.alpha.size - 1
    exact = (past == 0.0) | at_end
    total = np.where(exact, 1.0, past + ahead)
    left, right = np.where(exact, 1.0, ahead / total), np.where(exact, 0.0, past / total)
    beta = left * points.beta[index] + right * points.beta[following]
    beta_c = left * points.beta_c[index] + right * points.beta_c[following]
    return beta, beta_c, np.where(exact, 0.0, 16.0 * UNIT)


def _exact(x: float, x_c: float) -> Fraction:
    return Fraction(x) if x <= 0.5 else 1 - Fraction(x_c)


def _exact_value(points: Points, index: int, x: Fraction) -> Fraction:
    """The curve at x, in rational arithmetic, x between breakpoints index and index + 1."""
    here = _exact(points.beta[index], points.beta_c[index])
    if index == points.alpha.size - 1:
        return here
    there = _exact(points.beta[index + 1], points.beta_c[index + 1])
    start = _exact(points.alpha[index], points.alpha_c[index])
    stop = _exact(points.alpha[index + 1], points.alpha_c[index + 1])
    return here + (there - here) * (x - start) / (stop - start)


def lies_below(lower: Points, upper: Points) -> bool:
    """True iff the curve through `lower` is at or below the one through `upper` at every alpha. Exact."""
    beta, beta_c, rounding = interpolate(lower, upper.alpha, upper.alpha_c)
    beta, beta_c = settled(beta, beta_c)
    excess = np.where(beta <= 0.5, beta - upper.beta, upper.beta_c - beta_c)
    scale = np.maximum(np.minimum(beta, beta_c), np.minimum(upper.beta, upper.beta_c))
    margin = np.where(rounding == 0.0, 0.0, _DOUBT * scale)
    # Where both are stored numbers the integer keys settle the matter.
    stored = rounding == 0.0
    worse = order_key(beta, beta_c) > order_key(upper.beta, upper.beta_c)
    if bool(np.any(np.where(stored, worse, excess > margin))):
        return False
    doubtful = np.flatnonzero(~stored & (np.abs(excess) <= margin))
    indices, _, _ = locate(lower, upper.alpha[doubtful], upper.alpha_c[doubtful])
    for j, index in zip(doubtful, indices, strict=True):
        x = _exact(upper.alpha[j], upper.alpha_c[j])
        if _exact_value(lower, int(index), x) > _exact(upper.beta[j], upper.beta_c[j]):
            return False
    return True
