"""Points of trade-off curves that keep their digits in every corner of the unit square.

A point (alpha, beta) near (0, 1) carries its information in alpha and in 1 - beta, one near (1, 0) in 1 - alpha and
in beta. So each coordinate is held twice, as itself and as its complement, and **the smaller of the two is the
exact value**; the other is derived from it. With that convention

- order is exact: the bits of a positive float are ordered like the float, which gives one integer key for both halves;
- differences of two coordinates have relative error of two units of roundoff, whatever corner they lie in
  (`rise`), so slopes and likelihood ratios survive at alpha = 1e-300;
- rounding outward is a relative move of the small one (`moved`).

Which way is outward: a curve of Side.UPPER must stay at or below the truth. Moving vertices down and to the left keeps
it there: a point of a moved segment lies below and left of a point of the old one, and the true curve does not
increase. A curve of Side.LOWER must stay at or above: moved up and right, points stay in the epigraph, which is convex.

The lower convex hull respects both sides for the same reasons, except for the roundoff of its own test: a vertex
that only rounding puts above a chord must be kept for UPPER, and may be dropped for LOWER.

**Order.** The Blackwell order of two trade-off curves is decided exactly. One curve lies below another everywhere iff
it does at the other's breakpoints, since it is convex and the other is linear in between. Floating point decides
every breakpoint that is not within rounding of a tie; rational arithmetic on the stored numbers decides the rest. No
tolerance enters.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from calipers.bracket import Side
from calipers.numerics.types import FloatArray, IntArray

UNIT = 2.0**-53
"""Unit roundoff of double precision."""

TINY = float(np.finfo(np.float64).tiny)
SLOPE_ROUNDING = 16.0 * UNIT
_FEW = 64
"""Where fewer vertices go in a round, the next rounds look next to them alone."""
_HALF_BITS = int(np.float64(0.5).view(np.int64))


class Points(NamedTuple):
    """Vertices (alpha, beta) with complements; the smaller of each pair is exact."""

    alpha: FloatArray
    beta: FloatArray
    alpha_c: FloatArray
    beta_c: FloatArray

    @classmethod
    def joined(cls, *parts: Points) -> Points:
        """All vertices of `parts`, one after the other."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def take(self, index: IntArray) -> Points:
        """The vertices at `index`."""
        return Points(self.alpha[index], self.beta[index], self.alpha_c[index], self.beta_c[index])

    def swapped(self) -> Points:
        """The vertices mirrored at the diagonal, in order of increasing alpha again."""
        return Points(self.beta[::-1], self.alpha[::-1], self.beta_c[::-1], self.alpha_c[::-1])

    def settled(self) -> Points:
        """`settled` for both coordinates."""
        (alpha, alpha_c), (beta, beta_c) = settled(self.alpha, self.alpha_c), settled(self.beta, self.beta_c)
        return Points(alpha, beta, alpha_c, beta_c)

    def outward(self, relative: float, side: Side) -> Points:
        """All vertices moved to the side's safe direction: down-left for UPPER, up-right for LOWER."""
        up = side is Side.LOWER
        alpha, alpha_c = moved(self.alpha, self.alpha_c, relative, up)
        beta, beta_c = moved(self.beta, self.beta_c, relative, up)
        return Points(alpha, beta, alpha_c, beta_c)

    def steepness(self, i: IntArray, j: IntArray) -> FloatArray:
        """(beta_i - beta_j)/(alpha_j - alpha_i), relative error at most 5 UNIT."""
        run = rise(self.alpha[i], self.alpha_c[i], self.alpha[j], self.alpha_c[j])
        fall = rise(self.beta[j], self.beta_c[j], self.beta[i], self.beta_c[i])
        with np.errstate(over="ignore"):
            return np.asarray(fall / run, dtype=np.float64)

    def hull(self, side: Side) -> Points:
        """Vertices of the lower convex hull with the up-right quadrants added, in order of alpha.

        Post-condition: the piecewise linear curve through the result lies at or below the points, and for Side.LOWER no
        lower than their hull. alpha and 1 - beta strictly increase.
        """
        alpha_key = order_key(self.alpha, self.alpha_c)
        beta_key = order_key(self.beta, self.beta_c)
        order = np.lexsort((beta_key, alpha_key))
        sorted_beta = beta_key[order]
        before = np.concatenate(([np.iinfo(np.int64).max], np.minimum.accumulate(sorted_beta)[:-1]))
        chain = self.take(order[sorted_beta < before])
        kept = convex_chain(chain.alpha.size, chain.steepness, drop_in_doubt=side is Side.LOWER)
        return chain.take(kept)

    def locate(self, x: FloatArray, x_c: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """(i, distance to alpha_i, distance to alpha_(i+1)) with alpha_i <= x; both distances relatively accurate.

        At or beyond the last breakpoint i is the last index and the second distance is 0.
        """
        keys = order_key(self.alpha, self.alpha_c)
        index = np.searchsorted(keys, order_key(x, x_c), side="right") - 1
        following = np.minimum(index + 1, keys.size - 1)
        inside = index < keys.size - 1
        past = rise(self.alpha[index], self.alpha_c[index], x, x_c)
        ahead = rise(x, x_c, self.alpha[following], self.alpha_c[following])
        return index, past, np.where(inside, ahead, 0.0)

    def at(self, x: FloatArray, x_c: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(beta, 1 - beta, relative rounding) of the curve at x.

        Both come from weights that add positive numbers, so each is relatively accurate in its own tail.
        At breakpoints and beyond the last one the rounding is exactly 0.
        """
        index, past, ahead = self.locate(x, x_c)
        following = np.minimum(index + 1, self.alpha.size - 1)
        at_end = index == self.alpha.size - 1
        exact = (past == 0.0) | at_end
        total = np.where(exact, 1.0, past + ahead)
        left, right = np.where(exact, 1.0, ahead / total), np.where(exact, 0.0, past / total)
        beta = left * self.beta[index] + right * self.beta[following]
        beta_c = left * self.beta_c[index] + right * self.beta_c[following]
        return beta, beta_c, np.where(exact, 0.0, 16.0 * UNIT)


def settled(x: FloatArray, x_c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The pair (x, 1 - x) with the larger entry recomputed from the smaller one."""
    small = x <= 0.5
    return np.where(small, x, 1.0 - x_c), np.where(small, 1.0 - x, x_c)


def order_key(x: FloatArray, x_c: FloatArray) -> IntArray:
    """Integers ordered exactly like x, from whichever of x and 1 - x is the small one."""
    small_bits = np.ascontiguousarray(np.where(x <= 0.5, x, x_c)).view(np.int64)
    return np.where(x <= 0.5, small_bits, 2 * _HALF_BITS - small_bits)


def rise(low: FloatArray, low_c: FloatArray, high: FloatArray, high_c: FloatArray) -> FloatArray:
    """high - low for settled pairs with low <= high, relative error at most 2 UNIT."""
    across = (0.5 - low) + (0.5 - high_c)
    return np.where(high <= 0.5, high - low, np.where(low > 0.5, low_c - high_c, across))


def moved(x: FloatArray, x_c: FloatArray, relative: float, up: bool) -> tuple[FloatArray, FloatArray]:
    """x moved up or down by `relative` times min(x, 1 - x); exact zeros stay, underflow goes the safe way."""
    small = x <= 0.5
    exact = np.where(small, x, x_c)
    grows = small == up
    larger = np.where(exact == 0.0, 0.0, np.maximum(exact * (1.0 + relative), TINY))
    smaller = exact * (1.0 - relative)
    smaller = np.where(smaller < TINY, 0.0, smaller)
    changed = np.minimum(np.where(grows, larger, smaller), 1.0)
    return np.where(small, changed, 1.0 - changed), np.where(small, 1.0 - changed, changed)


def convex_chain(count: int, steepness: Callable[[IntArray, IntArray], FloatArray], drop_in_doubt: bool) -> IntArray:
    """Indices of a chain whose steepness (minus the slope, >= 0) decreases from segment to segment.

    A vertex whose left segment is less steep than its right one lies above a chord of two others, so it is on no
    lower hull and all such vertices go at once. `drop_in_doubt` decides the cases within roundoff.
    """
    keep = np.arange(count)
    factor = 1.0 - SLOPE_ROUNDING if drop_in_doubt else 1.0 + SLOPE_ROUNDING
    slopes = steepness(keep[:-1], keep[1:])
    while keep.size > 2:
        above = slopes[:-1] * factor < slopes[1:]
        if not above.any():
            break
        stays = np.concatenate(([True], ~above, [True]))
        # Only segments that have lost their right end are new.
        renewed = np.flatnonzero(~stays[1:][stays[:-1]])
        keep, slopes = keep[stays], slopes[stays[:-1]]
        slopes[renewed] = steepness(keep[renewed], keep[renewed + 1])
        if renewed.size < _FEW:
            return _rounds_next_to(keep, renewed, slopes, steepness, factor)
    return keep


def _rounds_next_to(
    keep: IntArray,
    renewed: IntArray,
    slopes: FloatArray,
    steepness: Callable[[IntArray, IntArray], FloatArray],
    factor: float,
) -> IntArray:
    """The rounds of `convex_chain` that are left: only vertices next to new segments are looked at, as no others go."""
    last = len(slopes)
    before, after, there = list(range(-1, last)), list(range(1, last + 2)), np.ones(last + 1, dtype=np.bool_)
    starts = renewed.tolist()
    while starts:
        next_to = sorted({place for start in starts for place in (start, after[start]) if 0 < place < last})
        steeper = slopes[[before[place] for place in next_to]] * factor < slopes[next_to]
        gone = [place for place, above in zip(next_to, steeper.tolist(), strict=True) if above]
        for place in gone:  # from left to right, so that what is before each of them stays
            after[before[place]], before[after[place]] = after[place], before[place]
        there[gone] = False
        starts = sorted({before[place] for place in gone})
        if starts:
            slopes[starts] = steepness(keep[starts], keep[[after[start] for start in starts]])
    return keep[there]


def running_sum(values: FloatArray) -> tuple[FloatArray, float]:
    """Cumulative sums of non-negative numbers, with a bound of their relative error.

    Sums run inside blocks of about sqrt(n) and then over the blocks, so an entry has passed through at most 2 sqrt(n)
    additions instead of n.
    """
    count = values.size
    block = max(int(np.sqrt(count)), 1)
    blocks = -(-count // block)
    padded = np.zeros(blocks * block)
    padded[:count] = values
    inner = np.cumsum(padded.reshape(blocks, block), axis=1)
    offsets = np.concatenate(([0.0], np.cumsum(inner[:-1, -1])))
    return (inner + offsets[:, None]).ravel()[:count], (block + blocks + 1) * UNIT


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
    beta, beta_c, rounding = lower.at(upper.alpha, upper.alpha_c)
    beta, beta_c = settled(beta, beta_c)
    excess = np.where(beta <= 0.5, beta - upper.beta, upper.beta_c - beta_c)
    scale = np.maximum(np.minimum(beta, beta_c), np.minimum(upper.beta, upper.beta_c))
    margin = 64.0 * UNIT * scale
    # Where both are stored numbers the integer keys settle the matter.
    stored = rounding == 0.0
    worse = order_key(beta, beta_c) > order_key(upper.beta, upper.beta_c)
    if bool(np.any(np.where(stored, worse, excess > margin))):
        return False
    doubtful = np.flatnonzero(~stored & (np.abs(excess) <= margin))
    indices, _, _ = lower.locate(upper.alpha[doubtful], upper.alpha_c[doubtful])
    for j, index in zip(doubtful, indices, strict=True):
        x = _exact(upper.alpha[j], upper.alpha_c[j])
        if _exact_value(lower, int(index), x) > _exact(upper.beta[j], upper.beta_c[j]):
            return False
    return True
