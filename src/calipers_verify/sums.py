"""Sums of many independent terms from above: what an epoch shows whose M rounds hide one record.

For such an epoch D_k is at most E[(w0 + w S)+] with S a sum of M independent terms whose call c -> E[(X - c)+] is a
closed form (`calipers_verify.epochs`). Here a term is replaced by a measure on whole multiples of a unit, and `lost`,
that stands for

    V(c) = sum_i m_i (v_i - c)+ + lost        for every real c,

at least the call everywhere. Facts, as for the laws of `calipers_verify.lattice`:

1. More mass, and mass at larger values, makes V larger. An atom beyond a cap u may move to u if m (v - u) is added to
   `lost`.
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
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from flint import arb, fmpz

from calipers_verify.calls import ONE, ball, rounded_up
from calipers_verify.lattice import MOST_NODES, MOST_PLACES, product_up
from calipers_verify.reading import Effort, Refused, each, fields, items, rational, whole

MOST_REACH = 20_000
HIGHEST_RUNG = 200
Strip = tuple[int, list[Any]]
"""The first place of a piece of one rung, and the masses from there on."""


class Plan(NamedTuple):
    """How a sum is kept: unit, centers and lowest rungs of 1, 2, 4, ... terms, places per rung and side, caps."""

    unit: Fraction
    centers: tuple[int, ...]
    lowest: tuple[int, ...]
    reach: int
    tail: int
    low: int
    high: int

    def radius(self, e: int, lowest: int) -> int:
        """How far from the center rung e reaches, in units."""
        return self.reach << e if e == lowest else self.tail << e


def read_plan(record: Any, terms: int) -> Plan:
    """The plan in `record` for sums of up to `terms` terms. Any plan is safe; a bad one proves little."""
    record = fields(record, ("unit", "centers", "lowest", "reach", "tail", "low", "high"), "a plan")
    limit, bits = 1 << HIGHEST_RUNG, terms.bit_length()
    high = whole(record["high"], 1, limit, "high")
    return Plan(
        rational(record["unit"], 0, 10**30, "unit"),
        tuple(each(record["centers"], bits, lambda n: whole(n, -limit, limit, "a center"), "centers")),
        tuple(each(record["lowest"], bits, lambda e: whole(e, 0, HIGHEST_RUNG, "a rung"), "lowest")),
        whole(record["reach"], 8, MOST_REACH, "reach"),
        whole(record["tail"], 8, MOST_REACH, "tail"),
        whole(record["low"], -limit, high - 1, "low"),
        high,
    )


class Sum(NamedTuple):
    """Masses (in 2^-256) by rung, and what was lost beyond the caps, in 2^-256 units."""

    rungs: dict[int, Strip]
    lost: int

    def total(self) -> int:
        """The mass of all rungs."""
        return sum(int(sum(masses)) for _, masses in self.rungs.values())


def connected(call: Callable[[arb], arb], plan: Plan, effort: Effort) -> Sum:
    """One term: V connects upper bounds of the call at the plan's nodes, so that it is above the call everywhere.

    With C_j at least the call at node n_j, and sigma_j the slope from n_j to n_(j+1), masses of at least
    sigma_(j-1) - sigma_j and lost >= C_last give V(n_j) >= C_j, by summation.
    """
    nodes = _nodes(plan)
    effort.spend(100 * len(nodes))
    unit = ball(plan.unit)
    heights = [rounded_up(call(n * unit) / unit) for n, _ in nodes]
    falls = [Fraction(ONE)]  # the slope to the left of the first node, at most; beyond the last it is 0
    falls += [Fraction(a - b, nodes[i + 1][0] - nodes[i][0]) for i, (a, b) in enumerate(pairwise(heights))]
    falls.append(Fraction(0))
    rungs: dict[int, dict[int, int]] = {}
    for i, (n, e) in enumerate(nodes):
        excess = falls[i] - falls[i + 1]
        rungs.setdefault(e, {})[n >> e] = max(0, -((-excess.numerator) // excess.denominator))
    return Sum({e: _dense(found) for e, found in rungs.items()}, heights[-1])


def _nodes(plan: Plan) -> list[tuple[int, int]]:
    """(value in units, rung) of the places between the caps, in order."""
    center, found, inner = plan.centers[0], [], -1
    e = plan.lowest[0]
    while inner < max(plan.high - center, center - plan.low):
        radius = plan.radius(e, plan.lowest[0])
        first, last = max(plan.low, center - radius), min(plan.high, center + radius)
        found += [(n << e, e) for n in range(-(-first >> e), (last >> e) + 1) if abs((n << e) - center) > inner]
        if len(found) > MOST_NODES:
            raise Refused("a plan has too many nodes")
        inner, e = max(inner, radius), e + 1
    if len(found) < 2:
        raise Refused("a plan has too few nodes")
    return sorted(found)


def _dense(found: dict[int, int]) -> Strip:
    low, high = min(found), max(found)
    masses = [fmpz(0)] * (high - low + 1)
    for place, mass in found.items():
        masses[place - low] = fmpz(mass)
    return low, masses


def _joined(first: Strip | None, second: Strip | None) -> Strip | None:
    """The sum of two strips of one rung."""
    if first is None or second is None:
        return second if first is None else first
    low, end = min(first[0], second[0]), max(first[0] + len(first[1]), second[0] + len(second[1]))
    if end - low > MOST_PLACES:
        raise Refused("a plan spreads a sum over too many places")
    masses = [fmpz(0)] * (end - low)
    for start, values in (first, second):
        for i, mass in enumerate(values, start - low):
            masses[i] += mass
    return low, masses


def _raised(strip: Strip | None) -> Strip | None:
    """The strip one rung up: odd places give half of their mass, rounded up, to both neighbors."""
    if strip is None:
        return None
    low, masses = strip
    if low % 2:
        low, masses = low - 1, [fmpz(0), *masses]
    if len(masses) % 2 == 0:
        masses = [*masses, fmpz(0)]
    even = masses[0::2]
    for i, mass in enumerate(masses[1::2]):
        half = (mass + 1) >> 1
        even[i] += half
        even[i + 1] += half
    return low // 2, even


def added(first: Sum, second: Sum, plan: Plan, middle: int, lowest: int, effort: Effort) -> Sum:
    """A sum of two independent sums, kept as `plan` says around `middle`."""
    lost = -(-(first.lost * second.total() + second.lost * first.total()) // ONE)
    rungs: dict[int, Strip] = {}
    finer_first: Strip | None = None
    finer_second: Strip | None = None
    carry: Strip | None = None
    e = min(min(first.rungs), min(second.rungs))
    last = max(max(first.rungs), max(second.rungs))
    while e <= last or carry is not None:
        here_first, here_second = first.rungs.get(e), second.rungs.get(e)
        both_first, both_second = _joined(finer_first, here_first), _joined(finer_second, here_second)
        for a, b in ((here_first, both_second), (finer_first, here_second)):
            if a is not None and b is not None:
                carry = _joined(carry, (a[0] + b[0], product_up(a[1], b[1], effort)))
        if carry is not None:
            carry, more = _capped(carry, e, plan)
            lost += more
        if carry is not None and e >= lowest:
            kept, carry = _inside(carry, e, middle, plan.radius(e, lowest))
            if kept is not None:
                rungs[e] = kept
        finer_first, finer_second, carry, e = _raised(both_first), _raised(both_second), _raised(carry), e + 1
    return Sum(rungs, lost)


def _capped(strip: Strip, e: int, plan: Plan) -> tuple[Strip, int]:
    """The strip without places beyond the caps, and what moving to the upper cap lost (fact 1)."""
    low, masses = strip
    bottom, top = min(-(-plan.low >> e), plan.high >> e), plan.high >> e
    if low < bottom:
        below, masses = masses[: bottom - low], masses[bottom - low :] or [fmpz(0)]
        masses[0] += sum(below)
        low = bottom
    lost = 0
    if low + len(masses) - 1 > top:
        keep = max(0, top - low + 1)
        above = masses[keep:]
        lost = int(sum(mass * (low + keep + i - top) for i, mass in enumerate(above))) << e
        masses = masses[:keep]
        if not masses:
            low, masses = top, [fmpz(0)]
        masses[-1] += sum(above)
    return (low, masses), lost


def _inside(strip: Strip, e: int, middle: int, radius: int) -> tuple[Strip | None, Strip | None]:
    """The places within the radius of the middle, and all others."""
    low, masses = strip
    start = max(0, -((radius - middle) >> e) - low)
    end = min(len(masses), ((middle + radius) >> e) - low + 1)
    if start >= end:
        return None, strip
    kept = (low + start, masses[start:end])
    left = (low, masses[:start]) if start else None
    right = (low + end, masses[end:]) if end < len(masses) else None
    return kept, _joined(left, right)


def summed(term: Sum, terms: int, plan: Plan, effort: Effort) -> Sum:
    """The sum of so many copies of one term, by doubling."""
    base, result, size, done = term, None, 1, 0
    for j in range(terms.bit_length()):
        if terms >> j & 1:
            done += size
            middle = plan.centers[j] * done // size
            result = base if result is None else added(result, base, plan, middle, plan.lowest[j], effort)
        if size * 2 <= terms:
            size *= 2
            base = added(base, base, plan, plan.centers[j + 1], plan.lowest[j + 1], effort)
    assert result is not None
    return result


class Calls:
    """V of a finished sum, asked at many strikes."""

    def __init__(self, found: Sum, unit: Fraction) -> None:
        masses: dict[int, int] = {}
        for e, (low, strip) in found.rungs.items():
            for i, mass in enumerate(strip):
                value = (low + i) << e
                masses[value] = masses.get(value, 0) + int(mass)
        self.unit, self.values = unit, sorted(masses)
        self.mass, self.moment = [0], [found.lost]  # of all values from the right
        for value in reversed(self.values):
            self.mass.append(self.mass[-1] + masses[value])
            self.moment.append(self.moment[-1] + masses[value] * value)

    def __call__(self, strike: arb) -> arb:
        """At least E[(S - strike)+]."""
        low = (strike / ball(self.unit)).lower()  # an exact number; a smaller strike gives a larger call
        above = len(self.values) - bisect_right(self.values, int(low.floor().unique_fmpz()))
        return ball(self.unit) * (arb(self.moment[above]) - low * self.mass[above]) / ONE


def read_plans(value: Any, count: int, terms: int) -> list[Plan]:
    """One plan for all of `count` nodes, or one for each."""
    found = [read_plan(record, terms) for record in items(value, 1, count, "plans")]
    if len(found) not in (1, count):
        raise Refused("there should be one plan, or one for every place of the law")
    return found
