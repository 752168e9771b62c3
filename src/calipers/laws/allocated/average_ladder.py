"""Sums of many independent terms on a ladder of lattices, in positive arithmetic only.

The law of X_1 + ... + X_M by repeated doubling needs a lattice fine enough for one term, a range wide enough for a
heavy tail, and relative accuracy far out. A Fourier transform has only absolute accuracy; here every number is a sum
of products of non-negative numbers, so each mass is accurate relative to itself, at any depth, with no tilting.

Ladder. Rung e is a piece of a measure on the lattice h 2^e Z. Points near the center live on the lowest rung; a point
at distance d from the center lives where the spacing is about `grain` times d. So a tail of any length costs a fixed
number of points an octave. Moving up a rung is one operation: points at odd places go to both neighbors, half each.

That move is random rounding with mean zero, and it can be read in two ways:

- as a mean preserving spread: the sum on the ladder is larger in convex order than the true sum;
- as part of a test: an observer who rounds the statistic with coins of their own.

Rows. Row 0 is the law of the sum when all terms follow the base law. Row i > 0 is its law when one
term, at a uniformly random place, follows the i-th marked law instead. A sum of m + n terms gets

    row_i = m/(m+n) a_i * b_0 + n/(m+n) a_0 * b_i .

Sums of equally many terms may share a ladder: its first `laws` rows are base laws, row i is about that of i mod `laws`.

Ends. Where only increasing payoffs of slope at most one are asked for, sums below the lower end may be raised to it,
and those above the upper end lowered, by an amount whose expectation is charged as often as the sum occurs:

    payoff(P + R) <= payoff(min(P, end) + R) + (P - end)+ .

To a test the ends are a part of its statistic.

Cost. Every second doubling the lowest rung moves up, as the deviation has doubled. A product convolves rung e of one
ladder with the rest of the other moved up to rung e, so that the number of convolutions is linear in the rungs.

Rounding. Products of non-negative vectors by plain sums of n terms have relative error at
most (n + 2) u for every entry (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1,
whatever the order of summation). A ladder carries two bounds that follow from it:

- `error`: every mass is within this share of the truth. Each doubling doubles the error of its inputs, so it grows like
  the number of terms; long sums run over short blocks.
- `drift`: the sum of the shares of one chain of doublings, which does not grow like that. It is all that counts for the
  *ratio* of two rows, or for the law after normalization; `calipers.laws.allocated.average` proves both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from calipers.errors import CertificationError
from calipers.laws.allocated.strips import Strip, coarsened, convolved, folded, joined, places, shrunk, summed
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray, IntArray

UNDERFLOW = 1e-280
"""More mass than all the underflows of a computation can lose together, and less than anyone asks about."""


@dataclass(frozen=True)
class LadderPlan:
    """How fine a sum of `terms` terms is kept: center, lowest rung, points per octave, mass that may go."""

    step: float
    grain: float
    center: float
    lowest: int
    log_loss: float
    ends: tuple[float, float] = (-math.inf, math.inf)
    """Around 0: sums beyond are moved to them."""

    def radius(self, exponent: int) -> float:
        """Points nearer to the center than this may stay on the rung."""
        try:
            return math.ldexp(2.0 * self.step / self.grain, exponent)
        except OverflowError:
            raise CertificationError(
                "Likelihood ratios lie too far apart for double precision, with so little noise at so small a "
                "probability; ask for a larger delta or false positive rate."
            ) from None


@dataclass(frozen=True)
class Ladder:
    """The law of a sum of `terms` terms, rung by rung.

    `error` and `drift` bound rounding as the module says. The base masses that were left out at this
    size sum to `lost`, their products with the absolute mean of their terms to `lost_moment`, for any of the `laws`;
    each of these lost `above` of its mean at the upper end.
    """

    rungs: dict[int, Strip]
    step: float
    terms: int
    error: float
    drift: float
    lost: float = 0.0
    lost_moment: float = 0.0
    laws: int = 1
    above: FloatArray = field(default_factory=lambda: np.zeros(1))

    def flat(self) -> tuple[FloatArray, FloatArray]:
        """Values in increasing order, and the rows of their masses."""
        order, values, masses = _sorted(self.rungs, self.step)
        order = order[masses[:, order].any(axis=0)]
        return values[order], masses[:, order]


def _cross(first: Strip, second: Strip, share: float, laws: int) -> Strip:
    """All rows of a product of two strips; `share` of the terms belong to the first."""
    (low, rows), (other_low, other) = first, second
    out = convolved(rows, other[:laws])
    if len(rows) > laws:
        out[laws:] *= share
        out[laws:] += (1.0 - share) * convolved(other[laws:], rows[:laws])
    return Strip(low + other_low, out)


def _square(rung: Strip, finer: Strip | None, once: Strip, laws: int) -> Strip:
    """Rung times (rung + twice all finer ones): what a squared ladder has on this lattice; `once`: rung + finer."""
    (low, rows), twice = rung, once.rows[:laws]
    if finer is None:
        return Strip(low + once.low, convolved(rows, twice))
    start = finer.low - once.low
    twice = twice.copy()
    twice[:, start : start + finer.rows.shape[1]] += finer.rows[:laws]
    out = convolved(rows[:laws], twice)
    if len(rows) > laws:
        marked, others = convolved(rows[laws:], once.rows[:laws]), convolved(finer.rows[laws:], rows[:laws])
        marked[:, start : start + others.shape[1]] += others
        out = np.concatenate((out, marked))
    return Strip(low + once.low, out)


def _products(first: Ladder, second: Ladder) -> dict[int, Strip]:
    """What the sum of both has on every lattice, before it is regrouped."""
    square = first is second
    share = first.terms / (first.terms + second.terms)
    lowest, highest = min(*first.rungs, *second.rungs), max(*first.rungs, *second.rungs)
    finer_first: Strip | None = None
    finer_second: Strip | None = None
    products: dict[int, Strip] = {}
    for e in range(lowest, highest + 1):
        rung_first, rung_second = first.rungs.get(e), second.rungs.get(e)
        all_first = joined(finer_first, rung_first)
        found: Strip | None = None
        if square:
            if rung_first is not None and all_first is not None:
                found = _square(rung_first, finer_first, all_first, first.laws)
        else:
            if rung_second is not None and all_first is not None:
                found = _cross(all_first, rung_second, share, first.laws)
            if rung_first is not None and finer_second is not None:
                found = joined(found, _cross(rung_first, finer_second, share, first.laws))
            all_second = joined(finer_second, rung_second)
            finer_second = None if all_second is None else coarsened(all_second)
        finer_first = None if all_first is None else coarsened(all_first)
        if found is not None:
            products[e] = found
    return products


def added(first: Ladder, second: Ladder, plan: LadderPlan, blocks: float) -> Ladder:
    """The law of the sum of two independent sums, regrouped by `plan`.

    `blocks`: how often this sum occurs in the final one. Post-condition: `error`, `lost`, `lost_moment` and `above`
    account for everything the result lacks.
    """
    products = _products(first, second)
    longest = max((found.rows.shape[1] + 1) // 2 for found in products.values())
    height = max(*first.rungs, *second.rungs) - min(*first.rungs, *second.rungs)
    above, most = np.zeros(first.laws), 0
    if math.isfinite(plan.ends[1]):
        for e, strip in products.items():
            products[e], taken, places_moved = folded(strip, math.ldexp(plan.step, e), plan.ends, first.laws)
            above, most = above + taken, max(most, places_moved)
    # Beside the sums: joining finer rungs, moving up and cutting costs a few operations a rung.
    share_lost = (summed(longest) + most + 8 * (height + 2) + 64) * UNIT_ROUNDOFF
    error, drift = first.error + second.error + share_lost, max(first.drift, second.drift) + share_lost
    rungs, lost, lost_moment = regrouped(products, plan, first.terms + second.terms, blocks, first.laws)
    return Ladder(rungs, plan.step, first.terms + second.terms, error, drift, lost, lost_moment, first.laws, above)


def regrouped(
    products: dict[int, Strip], plan: LadderPlan, terms: int, blocks: float, laws: int = 1
) -> tuple[dict[int, Strip], float, float]:
    """Strips on any rungs, each moved up until its spacing suits its distance from the center, and trimmed.

    Returns the rungs and what trimming lost: mass, and mass times the absolute mean of its terms.
    """
    rungs: dict[int, Strip] = {}
    above: Strip | None = None
    e = min(products)
    top = max(products)
    while e <= top or above is not None:
        current = joined(above, products.get(e))
        above = None
        if current is not None:
            above, kept = _parted(current, plan, e)
            if kept is not None:
                rungs[e] = kept
            if above is not None:
                above = coarsened(above)
        e += 1
    # A doubling makes a tail one rung longer at most, so the ends may wait for every other one.
    return _trimmed(rungs, plan, terms, blocks, laws) if terms.bit_length() % 2 else (rungs, 0.0, 0.0)


def _parted(strip: Strip, plan: LadderPlan, exponent: int) -> tuple[Strip | None, Strip | None]:
    """What has to move up from this rung, and what may stay."""
    if exponent < plan.lowest:
        return strip, None
    unit = math.ldexp(plan.step, exponent)
    radius = plan.radius(exponent)
    size = strip.rows.shape[1]
    first = min(max(math.ceil((plan.center - radius) / unit) - strip.low, 0), size)
    last = min(max(math.floor((plan.center + radius) / unit) - strip.low + 1, first), size)
    if first == 0 and last == size:
        return None, strip
    kept = Strip(strip.low + first, strip.rows[:, first:last]) if last > first else None
    if first == 0:
        return Strip(strip.low + last, strip.rows[:, last:]), kept
    if last == size:
        return Strip(strip.low, strip.rows[:, :first]), kept
    outside = strip.rows.copy()
    outside[:, first:last] = 0.0
    return Strip(strip.low, outside), kept


def _trimmed(
    rungs: dict[int, Strip], plan: LadderPlan, terms: int, blocks: float, laws: int
) -> tuple[dict[int, Strip], float, float]:
    """Without the far ends, as long as they matter less than e^log_loss for the final sum.

    Leaving out a base mass q of one block leaves out at most blocks * q of the final base law; of
    a marked law it leaves out the block's marked mass if the mark is inside, and blocks * q else. Where there is no
    marked law the first moment stands for it.
    """
    order, values, masses = _sorted(rungs, plan.step)
    base = masses[:laws].sum(axis=0)
    marked = masses[laws:].sum(axis=0) if len(masses) > laws else base * np.abs(values) / terms
    weight = (blocks + 1.0) * base + marked
    allowed = math.exp(plan.log_loss)
    left = int(np.searchsorted(np.cumsum(weight[order]), allowed))
    right = int(np.searchsorted(np.cumsum(weight[order][::-1]), allowed))
    dropped = np.concatenate((order[:left], order[len(order) - right :]))
    if len(dropped) == 0:
        return rungs, 0.0, 0.0
    lost = float(base[dropped].sum())
    lost_moment = float(np.sum(base[dropped] * np.abs(values[dropped]))) / terms
    gone = np.zeros(len(values), dtype=bool)
    gone[dropped] = True
    kept: dict[int, Strip] = {}
    start = 0
    for e, strip in rungs.items():
        size = strip.rows.shape[1]
        rows = np.where(gone[start : start + size], 0.0, strip.rows)
        start += size
        rest = shrunk(Strip(strip.low, rows))
        if rest is not None:
            kept[e] = rest
    slack = 1.0 + 1e-9
    return kept, slack * lost, slack * lost_moment


def _sorted(rungs: dict[int, Strip], step: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Order by value, values and masses of all places, rung after rung."""
    values = np.concatenate([places(s) * math.ldexp(step, e) for e, s in rungs.items()])
    masses = np.concatenate([strip.rows for strip in rungs.values()], axis=1)
    return np.argsort(values, kind="stable"), values, masses


def placed(values: FloatArray, rows: FloatArray, plan: LadderPlan, error: float, blocks: float) -> Ladder:
    """One term with these atoms, each split onto the two places around it (mean preserved).

    The split is exact for a value within a relative 4 u of the given one. Rows may have values of their own, between
    the same two places.
    """
    values = np.atleast_2d(values)
    with np.errstate(divide="ignore"):
        up = np.ceil(np.log2(np.abs(values[0] - plan.center) / plan.radius(plan.lowest)))
    exponents = plan.lowest + np.maximum(up, 0.0).astype(np.intp)
    # The places of all rungs one after the other, each rung from the left of where it may be used.
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
    strips = (shrunk(Strip(low, out[:, i * size : (i + 1) * size])) for i, low in enumerate(lows))
    products = {first + i: strip for i, strip in enumerate(strips) if strip is not None}
    rungs, lost, lost_moment = regrouped(products, plan, 1, blocks)
    return Ladder(rungs, plan.step, 1, error, error, lost, lost_moment)


def multiplied(one: Ladder, count: int, plans: Sequence[LadderPlan]) -> Ladder:
    """The law of the sum of `count` independent copies of `one`, by doubling.

    `plans[j]` serves sums of 2^j copies. Post-condition as for `added`, with `lost` the base mass,
    `lost_moment` the first moment (per term, of the final mean) and `above` what is missing from the final law.
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
                above = above + total.above
        j += 1
        if count >> j == 0:
            break
        blocks = count / (2.0 * power.terms)
        power = added(power, power, plans[j], blocks)
        lost += blocks * power.lost
        lost_moment += power.lost_moment + blocks * power.lost
        above = above + (count >> j) * power.above
    assert total is not None
    return _charged(total, lost, lost_moment, above)


def one_more(total: Ladder, one: Ladder, plans: Sequence[LadderPlan]) -> Ladder:
    """The sum of one term more than `total`, which is that of `multiplied`; post-condition as there."""
    found = added(total, one, plan_between(plans, total.terms + 1), 1.0)
    lost = total.lost + one.lost + found.lost
    lost_moment = total.lost_moment + one.lost_moment + found.lost_moment + lost
    return _charged(found, lost, lost_moment, total.above + one.above + found.above)


def _charged(total: Ladder, lost: float, lost_moment: float, above: FloatArray) -> Ladder:
    """With what its parts lost, which is known as well as their masses are."""
    slack = 1.0 + 1e-6 + 4.0 * total.error
    lost, lost_moment = slack * lost + UNDERFLOW, slack * lost_moment + UNDERFLOW
    return replace(total, lost=lost, lost_moment=lost_moment, above=slack * above)


def plan_between(plans: Sequence[LadderPlan], terms: int) -> LadderPlan:
    """The plan for a sum of any number of terms: that of the next smaller power of two, moved to its center."""
    plan = plans[terms.bit_length() - 1]
    center = plan.center * (terms / (1 << (terms.bit_length() - 1)))
    return replace(plan, center=center)
