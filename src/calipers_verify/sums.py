"""Sums of many independent terms from above: what an epoch shows whose M rounds hide one record.

For such an epoch D_k is at most E[(w0 + w S)+] with S a sum of M independent terms whose stop-loss transform c -> E[(X
- c)+] is known. Here a term is replaced by a measure on whole multiples of a unit, and `lost`, that stands for

    V(c) = sum_i m_i (v_i - c)+ + lost        for every real c,

at least the stop-loss transform everywhere. Facts, as for the PLDs of `calipers_verify.pmfs`:

1. More mass, and mass at larger values, makes V larger.
2. Sums: if V and W are above the stop-loss transforms of two independent terms, the convolution is above that of their
   sum; `lost` becomes lost_1 |2| + lost_2 |1| with the total masses |.|. Terms may depend on the past as long as V is
   above their stop-loss transform given it.
3. Splitting an atom onto its two neighbors, half each, only adds.
4. V is linear between its values, a stop-loss transform is convex and falls with slope at most 1: comparing at the
   values is enough, if the total mass is at least 1.

Multi-resolution grid. Level e holds places on the lattice unit * 2^e. The lowest level reaches `reach` places from the
center to both sides, a higher one `tail` places, so that a heavy tail costs few of them; moving up a level is fact 3.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from flint import arb

from calipers_verify.reading import Refused, spend
from calipers_verify.rows import EMPTY, ONE, Row, coarser, composed, dense, plus, product
from calipers_verify.stop_loss import StopLossBall, ball, rounded_up

MOST_TERM_NODES = 60_000
PLACE = range(-1 << 200, 1 << 200)
UNIT = (Fraction(1, 10**60), Fraction(10**30))


class SumPlan(NamedTuple):
    """How sums are kept: unit; centers and lowest levels of 1, 2, 4, ... terms; places per level and side; between
    which values a single term has its places. Any plan is safe; a bad one proves little.
    """

    unit: Fraction
    centers: tuple[int, ...]
    lowest: tuple[int, ...]
    reach: int
    tail: int
    low: int
    high: int

    def layout(self, terms: int) -> tuple[int, int]:
        """Center and lowest level of a sum of so many terms."""
        j = terms.bit_length() - 1
        if j >= min(len(self.centers), len(self.lowest)):
            raise Refused(f"centers and lowest of a plan should have {j + 1} entries at least, for {terms} terms")
        return self.centers[j] * terms >> j, self.lowest[j]

    def nodes(self, terms: int) -> list[tuple[int, int]]:
        """The places of something as wide as so many terms, in order: value in units, and level."""
        center, lowest = self.layout(terms)
        found, inner, e = list[tuple[int, int]](), -1, lowest
        while inner < max(self.high - center, center - self.low):
            radius = (self.reach if e == lowest else self.tail) << e
            first, last = max(self.low, center - radius), min(self.high, center + radius)
            found += [(n << e, e) for n in range(-(-first >> e), (last >> e) + 1) if abs((n << e) - center) > inner]
            if len(found) > MOST_TERM_NODES:
                raise Refused("a plan has too many nodes")
            inner, e = max(inner, radius), e + 1
        if not found:
            raise Refused("low and high of a plan leave no node between them")
        return sorted(found)


PLACES, REACH = [PLACE, 1, 64], range(8, 20_000)
PLAN = dict(zip(SumPlan._fields, (UNIT, PLACES, [range(200), 1, 64], REACH, REACH, PLACE, PLACE), strict=True))


class Sum(NamedTuple):
    """So many terms: rows by level, and what is lost beyond the last place, in 2^-256 units."""

    terms: int
    levels: dict[int, Row]
    lost: int

    def atoms(self) -> dict[int, int]:
        """Masses by value, in units."""
        found: dict[int, int] = {}
        for e, (low, row) in self.levels.items():
            for place, mass in enumerate(row, low):
                found[place << e] = found.get(place << e, 0) + int(mass)
        return found


def connected(stop_loss: StopLossBall, plan: SumPlan, terms: int = 1) -> Sum:
    """One term, or what stands for `terms` of them: V connects upper bounds of its stop-loss transform at the plan's
    nodes.
    """
    nodes, unit = plan.nodes(terms), ball(plan.unit)
    spend(100 * len(nodes))
    return connecting([(n, e, rounded_up(stop_loss(n * unit) / unit)) for n, e in nodes], terms)


def connecting(nodes: list[tuple[int, int, int]], terms: int = 1) -> Sum:
    """V that is above every convex function of slopes between -1 and 0 below the heights: nodes (value, level, height).

    With C_j the height at node n_j, and sigma_j the slope from n_j to n_(j+1), masses of at least sigma_(j-1) - sigma_j
    and lost >= C_last give V(n_j) >= C_j, by summation. Nodes whose C_j lies above a chord of others are passed over:
    the function is convex, so it is below that chord too.
    """
    kept: list[tuple[int, int, int]] = []
    for n, e, height in nodes:
        while len(kept) > 1:
            (a, _, at_a), (b, _, at_b) = kept[-2:]
            if (at_b - at_a) * (n - a) < (height - at_a) * (b - a):
                break
            kept.pop()
        kept.append((n, e, height))
    falls = [Fraction(at_a - at_b, b - a) for (a, _, at_a), (b, _, at_b) in pairwise(kept)]
    levels: dict[int, dict[int, int]] = {}
    for (n, e, _), (left, right) in zip(kept, pairwise([Fraction(ONE), *falls, Fraction(0)]), strict=True):
        levels.setdefault(e, {})[n >> e] = max(0, -((right - left) // 1))
    return Sum(terms, {e: dense(found) for e, found in levels.items()}, max(0, kept[-1][2]))


def summed(parts: list[tuple[Sum, int]], plan: SumPlan) -> Sum:
    """So many independent copies of each part, kept as the plan says."""
    return composed(parts, 0, lambda one: one, lambda a, b, _: _added(a, b, plan))


def _added(first: Sum, second: Sum, plan: SumPlan) -> Sum:
    """A sum of two independent sums."""
    terms = first.terms + second.terms
    center, lowest = plan.layout(terms)
    totals = [int(sum(sum(row.masses) for row in one.levels.values())) for one in (first, second)]
    levels, a, b, carry = dict[int, Row](), EMPTY, EMPTY, EMPTY  # a, b: all lower levels of either, raised to this one
    e, last = (pick(pick(one.levels) for one in (first, second)) for pick in (min, max))
    while e <= last or carry.masses:
        spend(20)
        here, there = first.levels.get(e, EMPTY), second.levels.get(e, EMPTY)
        if first is second:
            carry = plus(carry, product(here, plus(a, b, here), True))
        else:
            carry = plus(carry, product(here, plus(b, there), True), product(a, there, True))
        if e >= lowest:
            radius, (low, masses) = (plan.reach if e == lowest else plan.tail) << e, carry
            start, end = max(0, -((radius - center) >> e) - low), max(0, ((center + radius) >> e) + 1 - low)
            levels[e] = Row(low + start, masses[start:end])
            carry = plus(Row(low, masses[:start]), Row(low + end, masses[end:]))
        a, carry = coarser(plus(a, here), True), coarser(carry, True)
        b = a if first is second else coarser(plus(b, there), True)
        e += 1
    return Sum(terms, levels, -(-(first.lost * totals[1] + second.lost * totals[0]) // ONE))


def stop_loss_of(found: Sum, unit: Fraction) -> StopLossBall:
    """V of a sum, to be asked at many thresholds."""
    masses, one = found.atoms(), ball(unit)
    values = sorted(masses)
    mass, moment = [0], [found.lost]  # of all values from the right
    for value in reversed(values):
        mass.append(mass[-1] + masses[value])
        moment.append(moment[-1] + masses[value] * value)

    def stop_loss(threshold: arb) -> arb:
        low = (threshold / one).lower()  # an exact number; a smaller threshold gives a larger stop-loss transform
        above = len(values) - bisect_right(values, int(low.floor().unique_fmpz()))
        return one * (arb(moment[above]) - low * mass[above]) / ONE

    return stop_loss
