"""Sums of many independent terms on a multi-resolution grid of lattices, in positive arithmetic only.

The distribution of X_1 + ... + X_M by repeated doubling needs a lattice fine enough for one term, a range wide enough
for a heavy tail, and relative accuracy far out. A Fourier transform has only absolute accuracy; here every number is a
sum of products of non-negative numbers, so each mass is accurate relative to itself, at any depth, with no tilting.

Ladder. Level e is a piece of a measure on the lattice h 2^e Z. Points near the center live on the lowest level; a point
at distance d from the center lives where the spacing is about `grain` times d. So a tail of any length costs a fixed
number of points an octave. Moving up a level is one operation: points at odd places go to both neighbors, half each.

That move is random rounding with mean zero, and it can be read in two ways:

- as a mean preserving spread: the sum on the multi-resolution grid is larger in convex order than the true sum;
- as part of a test: an observer who rounds the statistic with coins of their own.

Rows. Row 0 is the distribution of the sum when all terms follow the base PLD. Row i > 0 is its PLD when one
term, at a uniformly random place, follows the i-th marked PLD instead. A sum of m + n terms gets

    row_i = m/(m+n) a_i * b_0 + n/(m+n) a_0 * b_i .

Ends. Where only increasing payoffs of slope at most one are asked for, sums below the lower end may be raised to it,
and those above the upper end lowered, by an amount whose expectation is added as often as the sum occurs:

    payoff(P + R) <= payoff(min(P, end) + R) + (P - end)+ .

To a test the ends are a part of its statistic.

Cost. Every second doubling the lowest level moves up, as the deviation has doubled. A product convolves level e of one
multi-resolution grid with the rest of the other moved up to level e, so that the number of convolutions is linear in
the levels.

Rounding. Products of non-negative vectors by plain sums of n terms have relative error at
most (n + 2) u for every entry (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1,
whatever the order of summation). A multi-resolution grid carries two bounds that follow from it:

- `error`: every mass is within this share of the truth. Each doubling doubles the error of its inputs, so it grows like
  the number of terms; long sums run over short blocks.
- `drift`: the sum of the shares of one chain of doublings, which does not grow like that. It is all that counts for the
  *ratio* of two rows, or for the PLD after normalization; `calipers.pld.allocation.average` proves both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.errors import CertificationError
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.allocation.lattice_segment import (
    LatticeSegment,
    coarsened,
    convolved,
    folded,
    joined,
    places,
    shrunk,
    summed,
)

UNDERFLOW = 1e-280
"""More mass than all the underflows of a computation can lose together, and less than anyone asks about."""


@dataclass(frozen=True)
class ResolutionPlan:
    """How fine a sum of `terms` terms is kept: center, lowest level, points per octave, mass that may go."""

    step: float
    grain: float
    center: float
    lowest: int
    log_loss: float
    ends: tuple[float, float] = (-math.inf, math.inf)
    """Around 0: sums beyond are moved to them."""

    def radius(self, exponent: int) -> float:
        """Points nearer to the center than this may stay on the level."""
        try:
            return math.ldexp(2.0 * self.step / self.grain, exponent)
        except OverflowError:
            raise CertificationError(
                "Likelihood ratios lie too far apart for double precision, with so little noise at so small a "
                "probability; ask for a larger delta or false positive rate."
            ) from None


@dataclass(frozen=True)
class MultiResolutionSum:
    """The distribution of a sum of `terms` terms, level by level.

    `error` and `drift` bound rounding as the module says. The base masses that were left out at this
    size sum to `lost`, their products with the absolute mean of their terms to `lost_moment`; `above` of the mean was
    lost at the upper end.
    """

    levels: dict[int, LatticeSegment]
    step: float
    terms: int
    error: float
    drift: float
    lost: float = 0.0
    lost_moment: float = 0.0
    above: float = 0.0

    def flat(self) -> tuple[FloatArray, FloatArray]:
        """Values in increasing order, and the rows of their masses."""
        order, values, masses = _sorted(self.levels, self.step)
        order = order[masses[:, order].any(axis=0)]
        return values[order], masses[:, order]


def _cross(first: LatticeSegment, second: LatticeSegment, share: float) -> LatticeSegment:
    """All rows of a product of two segments; `share` of the terms belong to the first."""
    (low, rows), (other_low, other) = first, second
    out = convolved(rows, other[0])
    if len(rows) > 1:
        out[1:] *= share
        out[1:] += (1.0 - share) * convolved(other[1:], rows[0])
    return LatticeSegment(low + other_low, out)


def _square(level: LatticeSegment, finer: LatticeSegment | None, once: LatticeSegment) -> LatticeSegment:
    """Level times (level + twice all finer ones): what a squared multi-resolution grid has on this lattice; `once`:
    level + finer.
    """
    (low, rows), twice = level, once.rows[0]
    if finer is None:
        return LatticeSegment(low + once.low, convolved(rows, twice))
    start = finer.low - once.low
    twice = twice.copy()
    twice[start : start + finer.rows.shape[1]] += finer.rows[0]
    out = convolved(rows[:1], twice)
    if len(rows) > 1:
        marked, others = convolved(rows[1:], once.rows[0]), convolved(finer.rows[1:], rows[0])
        marked[:, start : start + others.shape[1]] += others
        out = np.concatenate((out, marked))
    return LatticeSegment(low + once.low, out)


def _products(first: MultiResolutionSum, second: MultiResolutionSum) -> dict[int, LatticeSegment]:
    """What the sum of both has on every lattice, before it is regrouped."""
    square = first is second
    share = first.terms / (first.terms + second.terms)
    lowest, highest = min(*first.levels, *second.levels), max(*first.levels, *second.levels)
    finer_first: LatticeSegment | None = None
    finer_second: LatticeSegment | None = None
    products: dict[int, LatticeSegment] = {}
    for e in range(lowest, highest + 1):
        level_first, level_second = first.levels.get(e), second.levels.get(e)
        all_first = joined(finer_first, level_first)
        found: LatticeSegment | None = None
        if square:
            if level_first is not None and all_first is not None:
                found = _square(level_first, finer_first, all_first)
        else:
            if level_second is not None and all_first is not None:
                found = _cross(all_first, level_second, share)
            if level_first is not None and finer_second is not None:
                found = joined(found, _cross(level_first, finer_second, share))
            all_second = joined(finer_second, level_second)
            finer_second = None if all_second is None else coarsened(all_second)
        finer_first = None if all_first is None else coarsened(all_first)
        if found is not None:
            products[e] = found
    return products


def added(
    first: MultiResolutionSum, second: MultiResolutionSum, plan: ResolutionPlan, blocks: float
) -> MultiResolutionSum:
    """The distribution of the sum of two independent sums, regrouped by `plan`.

    `blocks`: how often this sum occurs in the final one. Post-condition: `error`, `lost`, `lost_moment` and `above`
    account for everything the result lacks.
    """
    products = _products(first, second)
    longest = max((found.rows.shape[1] + 1) // 2 for found in products.values())
    height = max(*first.levels, *second.levels) - min(*first.levels, *second.levels)
    above, most = 0.0, 0
    if math.isfinite(plan.ends[1]):
        for e, segment in products.items():
            products[e], taken, places_moved = folded(segment, math.ldexp(plan.step, e), plan.ends)
            above, most = above + taken, max(most, places_moved)
    # Next to the sums: joining finer levels, moving up and cutting costs a few operations a level.
    share_lost = (summed(longest) + most + 8 * (height + 2) + 64) * UNIT_ROUNDOFF
    error, drift = first.error + second.error + share_lost, max(first.drift, second.drift) + share_lost
    terms = first.terms + second.terms
    levels, lost, lost_moment = regrouped(products, plan, terms, blocks)
    return MultiResolutionSum(levels, plan.step, terms, error, drift, lost, lost_moment, above)


def regrouped(
    products: dict[int, LatticeSegment], plan: ResolutionPlan, terms: int, blocks: float
) -> tuple[dict[int, LatticeSegment], float, float]:
    """Strips on any levels, each moved up until its spacing suits its distance from the center, and trimmed.

    Returns the levels and what trimming lost: mass, and mass times the absolute mean of its terms.
    """
    levels: dict[int, LatticeSegment] = {}
    above: LatticeSegment | None = None
    e = min(products)
    top = max(products)
    while e <= top or above is not None:
        current = joined(above, products.get(e))
        above = None
        if current is not None:
            above, kept = _parted(current, plan, e)
            if kept is not None:
                levels[e] = kept
            if above is not None:
                above = coarsened(above)
        e += 1
    # A doubling makes a tail one level longer at most, so the ends may wait for every other one.
    return _trimmed(levels, plan, terms, blocks) if terms.bit_length() % 2 else (levels, 0.0, 0.0)


def _parted(
    segment: LatticeSegment, plan: ResolutionPlan, exponent: int
) -> tuple[LatticeSegment | None, LatticeSegment | None]:
    """What has to move up from this level, and what may stay."""
    if exponent < plan.lowest:
        return segment, None
    unit = math.ldexp(plan.step, exponent)
    radius = plan.radius(exponent)
    size = segment.rows.shape[1]
    first = min(max(math.ceil((plan.center - radius) / unit) - segment.low, 0), size)
    last = min(max(math.floor((plan.center + radius) / unit) - segment.low + 1, first), size)
    if first == 0 and last == size:
        return None, segment
    kept = LatticeSegment(segment.low + first, segment.rows[:, first:last]) if last > first else None
    if first == 0:
        return LatticeSegment(segment.low + last, segment.rows[:, last:]), kept
    if last == size:
        return LatticeSegment(segment.low, segment.rows[:, :first]), kept
    outside = segment.rows.copy()
    outside[:, first:last] = 0.0
    return LatticeSegment(segment.low, outside), kept


def _trimmed(
    levels: dict[int, LatticeSegment], plan: ResolutionPlan, terms: int, blocks: float
) -> tuple[dict[int, LatticeSegment], float, float]:
    """Without the far ends, as long as they matter less than e^log_loss for the final sum.

    Leaving out a base mass q of one block leaves out at most blocks * q of the final base PLD; of
    a marked PLD it leaves out the block's marked mass if the mark is inside, and blocks * q else. Where there is no
    marked PLD the first moment stands for it.
    """
    order, values, masses = _sorted(levels, plan.step)
    base = masses[0]
    marked = masses[1:].sum(axis=0) if len(masses) > 1 else base * np.abs(values) / terms
    weight = (blocks + 1.0) * base + marked
    allowed = math.exp(plan.log_loss)
    left = int(np.searchsorted(np.cumsum(weight[order]), allowed))
    right = int(np.searchsorted(np.cumsum(weight[order][::-1]), allowed))
    dropped = np.concatenate((order[:left], order[len(order) - right :]))
    if len(dropped) == 0:
        return levels, 0.0, 0.0
    lost = float(base[dropped].sum())
    lost_moment = float(np.sum(base[dropped] * np.abs(values[dropped]))) / terms
    gone = np.zeros(len(values), dtype=bool)
    gone[dropped] = True
    kept: dict[int, LatticeSegment] = {}
    start = 0
    for e, segment in levels.items():
        size = segment.rows.shape[1]
        rows = np.where(gone[start : start + size], 0.0, segment.rows)
        start += size
        rest = shrunk(LatticeSegment(segment.low, rows))
        if rest is not None:
            kept[e] = rest
    slack = 1.0 + 1e-9
    return kept, slack * lost, slack * lost_moment


def _sorted(levels: dict[int, LatticeSegment], step: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Order by value, values and masses of all places, level after level."""
    values = np.concatenate([places(s) * math.ldexp(step, e) for e, s in levels.items()])
    masses = np.concatenate([segment.rows for segment in levels.values()], axis=1)
    return np.argsort(values, kind="stable"), values, masses


def placed(
    values: FloatArray, rows: FloatArray, plan: ResolutionPlan, error: float, blocks: float
) -> MultiResolutionSum:
    """One term with these atoms, each split onto the two places around it (mean preserved).

    The split is exact for a value within a relative 4 u of the given one. Rows may have values of their own, between
    the same two places.
    """
    values = np.atleast_2d(values)
    with np.errstate(divide="ignore"):
        up = np.ceil(np.log2(np.abs(values[0] - plan.center) / plan.radius(plan.lowest)))
    exponents = plan.lowest + np.maximum(up, 0.0).astype(np.intp)
    # The places of all levels one after the other, each level from the left of where it may be used.
    first, last = int(exponents.min()), int(exponents.max())
    lows = [math.floor((plan.center - plan.radius(e)) / math.ldexp(plan.step, e)) - 2 for e in range(first, last + 1)]
    size = math.ceil(4.0 / plan.grain) + 6
    scaled = values / np.ldexp(plan.step, exponents)
    below = np.floor(scaled[0])
    parts = np.clip(scaled - below, 0.0, 1.0)
    index = (exponents - first) * size + below.astype(np.intp) - np.array(lows)[exponents - first]
    out = np.empty((len(rows), (last + 1 - first) * size))
    for i, (row, part) in enumerate(zip(rows, np.broadcast_to(parts, rows.shape), strict=True)):
        out[i] = np.bincount(index, weights=row * (1.0 - part), minlength=out.shape[1])
        out[i, 1:] += np.bincount(index, weights=row * part, minlength=out.shape[1])[:-1]
    strips = (shrunk(LatticeSegment(low, out[:, i * size : (i + 1) * size])) for i, low in enumerate(lows))
    products = {first + i: segment for i, segment in enumerate(strips) if segment is not None}
    levels, lost, lost_moment = regrouped(products, plan, 1, blocks)
    return MultiResolutionSum(levels, plan.step, 1, error, error, lost, lost_moment)


def multiplied(one: MultiResolutionSum, count: int, plans: Sequence[ResolutionPlan]) -> MultiResolutionSum:
    """The distribution of the sum of `count` independent copies of `one`, by doubling.

    `plans[j]` serves sums of 2^j copies. Post-condition as for `added`, with `lost` the base mass,
    `lost_moment` the first moment (per term, of the final mean) and `above` what is missing from the final PLD.
    """
    power, total = one, None
    lost, lost_moment = count * one.lost, one.lost_moment + count * one.lost
    above = count * one.above
    j = 0
    while True:
        if count >> j & 1:
            if total is None:
                total = power
            else:
                plan = plan_between(plans, total.terms + power.terms)
                total = added(total, power, plan, count / (total.terms + power.terms))
                lost += total.lost
                lost_moment += total.lost_moment + total.lost
                above += total.above
        j += 1
        if count >> j == 0:
            break
        blocks = count / (2.0 * power.terms)
        power = added(power, power, plans[j], blocks)
        lost += blocks * power.lost
        lost_moment += power.lost_moment + blocks * power.lost
        above += (count >> j) * power.above
    assert total is not None
    # What parts lost is known as well as their masses are.
    slack = 1.0 + 1e-6 + 4.0 * total.error
    lost, lost_moment = slack * lost + UNDERFLOW, slack * lost_moment + UNDERFLOW
    return replace(total, lost=lost, lost_moment=lost_moment, above=slack * above)


def plan_between(plans: Sequence[ResolutionPlan], terms: int) -> ResolutionPlan:
    """The plan for a sum of any number of terms: that of the next smaller power of two, moved to its center."""
    plan = plans[terms.bit_length() - 1]
    center = plan.center * (terms / (1 << (terms.bit_length() - 1)))
    return replace(plan, center=center)
