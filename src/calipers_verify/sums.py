"""Sums of many independent terms from above: what an epoch shows whose M rounds hide one record.

For such an epoch D_k is at most E[(w0 + w S)+] with S a sum of M independent terms whose call c -> E[(X - c)+] is
known. Here a term is replaced by a measure on whole multiples of a unit, and `lost`, that stands for

    V(c) = sum_i m_i (v_i - c)+ + lost        for every real c,

at least the call everywhere. Facts, as for the laws of `calipers_verify.lattice`:

1. More mass, and mass at larger values, makes V larger.
2. Sums: if V and W are above the calls of two independent terms, the convolution is above that of their sum; `lost`
   becomes lost_1 |2| + lost_2 |1| with the total masses |.|. Terms may depend on the past as long as V is above their
   call given it.
3. Splitting an atom onto its two neighbors, half each, only adds.
4. V is linear between its values, a call is convex and falls with slope at most 1: comparing at the values is enough,
   if the total mass is at least 1.

Ladder. Rung e holds places on the lattice unit * 2^e. The lowest rung reaches `reach` places from the center to both
sides, a higher one `tail` places, so that a heavy tail costs few of them; moving up a rung is fact 3.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from flint import arb

from calipers_verify.calls import Call, ball, rounded_up
from calipers_verify.reading import Effort, Items, Rational, Refused, Whole
from calipers_verify.rows import HALVES, ONE, Row, composed, dense, halved, plus, product

MOST_TERM_NODES = 60_000
FAR = 1 << 200
PLAN = {
    "unit": Rational(10**30),
    "centers": Items(Whole(-FAR, FAR), 1, 64),
    "lowest": Items(Whole(0, 200), 1, 64),
    "reach": Whole(8, 20_000),
    "tail": Whole(8, 20_000),
    "low": Whole(-FAR, FAR),
    "high": Whole(-FAR, FAR),
}
Node = tuple[int, int]
"""Value in units, and rung."""


class Plan(NamedTuple):
    """How sums are kept: unit; centers and lowest rungs of 1, 2, 4, ... terms; places per rung and side; between which
    values a single term has its places. Any plan is safe; a bad one proves little.
    """

    unit: Fraction
    centers: tuple[int, ...]
    lowest: tuple[int, ...]
    reach: int
    tail: int
    low: int
    high: int

    def layout(self, terms: int) -> tuple[int, int]:
        """Center and lowest rung of a sum of so many terms."""
        j = terms.bit_length() - 1
        return self.centers[j] * terms >> j, self.lowest[j]

    def radius(self, e: int, lowest: int) -> int:
        """How far from the center rung e reaches, in units."""
        return self.reach << e if e == lowest else self.tail << e

    def nodes(self, terms: int) -> list[Node]:
        """The places of something as wide as so many terms, in order."""
        found, inner, (center, lowest) = list[Node](), -1, self.layout(terms)
        e = lowest
        while inner < max(self.high - center, center - self.low):
            radius = self.radius(e, lowest)
            first, last = max(self.low, center - radius), min(self.high, center + radius)
            found += [(n << e, e) for n in range(-(-first >> e), (last >> e) + 1) if abs((n << e) - center) > inner]
            if len(found) > MOST_TERM_NODES:
                raise Refused("a plan has too many nodes")
            inner, e = max(inner, radius), e + 1
        if len(found) < 2:
            raise Refused("a plan has too few nodes")
        return sorted(found)


class Sum(NamedTuple):
    """So many terms: rows by rung, and what is lost beyond the last place, in 2^-256 units."""

    terms: int
    rungs: dict[int, Row]
    lost: int

    def total(self) -> int:
        """The mass of all rungs."""
        return sum(int(sum(row.masses)) for row in self.rungs.values())

    def atoms(self) -> dict[int, int]:
        """Masses by value, in units."""
        found: dict[int, int] = {}
        for e, (low, row) in self.rungs.items():
            for place, mass in enumerate(row, low):
                found[place << e] = found.get(place << e, 0) + int(mass)
        return found


def connected(call: Call, plan: Plan, effort: Effort, terms: int = 1) -> Sum:
    """One term, or something that stands for `terms` of them: V connects upper bounds of its call at the plan's nodes.

    With C_j at least the call at node n_j, and sigma_j the slope from n_j to n_(j+1), masses of at least
    sigma_(j-1) - sigma_j and lost >= C_last give V(n_j) >= C_j, by summation. Nodes whose C_j lies above a chord of
    others are passed over: the call is convex, so it is below that chord too.
    """
    nodes, unit = plan.nodes(terms), ball(plan.unit)
    effort.spend(100 * len(nodes))
    nodes, heights = _hull(nodes, [rounded_up(call(n * unit) / unit) for n, _ in nodes])
    falls = [Fraction(ONE)]  # the slope to the left of the first node, at most; beyond the last it is 0
    falls += [Fraction(a - b, nodes[i + 1][0] - nodes[i][0]) for i, (a, b) in enumerate(pairwise(heights))]
    falls.append(Fraction(0))
    rungs: dict[int, dict[int, int]] = {}
    for i, (n, e) in enumerate(nodes):
        excess = falls[i] - falls[i + 1]
        rungs.setdefault(e, {})[n >> e] = max(0, -((-excess.numerator) // excess.denominator))
    return Sum(terms, {e: dense(found) for e, found in rungs.items()}, max(0, heights[-1]))


def _hull(nodes: list[Node], heights: list[int]) -> tuple[list[Node], list[int]]:
    """The nodes at which the largest convex function below the heights touches them."""
    kept: list[int] = []
    for i, (n, _) in enumerate(nodes):
        while len(kept) > 1:
            a, b = kept[-2:]
            if (heights[b] - heights[a]) * (n - nodes[a][0]) < (heights[i] - heights[a]) * (nodes[b][0] - nodes[a][0]):
                break
            kept.pop()
        kept.append(i)
    return [nodes[i] for i in kept], [heights[i] for i in kept]


def summed(parts: list[tuple[Sum, int]], plan: Plan, effort: Effort) -> Sum:
    """So many independent copies of each part, kept as the plan says."""
    return composed(parts, 0, lambda one: one, lambda a, b, _: _added(a, b, plan, effort))


def _added(first: Sum, second: Sum, plan: Plan, effort: Effort) -> Sum:
    """A sum of two independent sums."""
    terms = first.terms + second.terms
    middle, lowest = plan.layout(terms)
    lost = -(-(first.lost * second.total() + second.lost * first.total()) // ONE)
    rungs: dict[int, Row] = {}
    finer: tuple[Row | None, Row | None] = (None, None)  # all lower rungs of either sum, raised to this one
    carry: Row | None = None
    e, last = (pick(pick(one.rungs) for one in (first, second)) for pick in (min, max))
    while e <= last or carry is not None:
        here = first.rungs.get(e), second.rungs.get(e)
        both = plus(finer[0], here[0]), plus(finer[1], here[1])
        for a, b in ((here[0], both[1]), (finer[0], here[1])):
            if a is not None and b is not None:
                carry = plus(carry, product(a, b, True, effort))
        if carry is not None and e >= lowest:
            kept, carry = _inside(carry, e, middle, plan.radius(e, lowest))
            if kept is not None:
                rungs[e] = kept
        finer, carry, e = (_raised(both[0]), _raised(both[1])), _raised(carry), e + 1
    return Sum(terms, rungs, lost)


def _raised(row: Row | None) -> Row | None:
    """The row one rung up: odd places give half of their mass, rounded up, to both neighbors."""
    return None if row is None else halved(row, HALVES, True)


def _inside(row: Row, e: int, middle: int, radius: int) -> tuple[Row | None, Row | None]:
    """The places within the radius of the middle, and all others."""
    low, masses = row
    start = max(0, -((radius - middle) >> e) - low)
    end = min(len(masses), ((middle + radius) >> e) - low + 1)
    if start >= end:
        return None, row
    left = Row(low, masses[:start]) if start else None
    right = Row(low + end, masses[end:]) if end < len(masses) else None
    return Row(low + start, masses[start:end]), plus(left, right)


class Calls:
    """V of a sum, asked at many strikes."""

    def __init__(self, found: Sum, unit: Fraction) -> None:
        masses: dict[int, Any] = found.atoms()
        self.unit, self.values = ball(unit), sorted(masses)
        self.mass, self.moment = [0], [found.lost]  # of all values from the right
        for value in reversed(self.values):
            self.mass.append(self.mass[-1] + masses[value])
            self.moment.append(self.moment[-1] + masses[value] * value)

    def __call__(self, strike: arb) -> arb:
        """At least E[(S - strike)+]."""
        low = (strike / self.unit).lower()  # an exact number; a smaller strike gives a larger call
        above = len(self.values) - bisect_right(self.values, int(low.floor().unique_fmpz()))
        return self.unit * (arb(self.moment[above]) - low * self.mass[above]) / ONE
