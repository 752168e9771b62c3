"""Whole trade-off curves of a product, from both sides.

One tilted composition is accurate within a few deviations of its center, so a curve is swept: saddle
after saddle, from eps = 0 outward, until delta falls below what was asked for. UPPER: all nodes
bound one convex decreasing profile, so the nodes of all sweeps may be used together. LOWER: all
tests exist, so their convex hull does. `directed_sweep` keeps the order of the pair: its null is Q, and what
the swapped pair shows enters mirrored, since refusing to reject is a test of the swapped pair. `sweep` is
symmetric: a guarantee about a record being added or removed, which no single attack need attain
(`calipers.curves.envelope`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

import numpy as np

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import OPEN_UNIT
from calipers.numerics.elementary import distinct
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.composition.direction import Direction, LowerDirection, TailQuery, UpperDirection
from calipers.pld.composition.fineness import FACTORS_OWN, eta_for, log_escape_for
from calipers.pld.composition.large_steps import large_steps
from calipers.pld.composition.product import Product
from calipers.pld.composition.saddle import Saddle, saddle_for_epsilon, saddle_scan
from calipers.pld.composition.tails import LowerTail, UpperTail

_SPACING = 2.0
"""Distance of the saddle points of a curve, in deviations of the total."""
_NODES_PER_SADDLE = 160
"""Nodes that are kept around a saddle point."""
_MOST_SADDLES = 200
"""Saddle points of a curve, at most; what lies beyond has the last one's nodes."""
_ESCAPE = 1e-4
"""The share of delta that may leave a window where no tolerance is given."""
_LEAST = -690.0
"""Log of the smallest error rate that a curve keeps; what is smaller is rounded up to it."""
_DEEPEST_APART = math.log(1e-30)
"""Curves that go deeper are left to transforms: large steps apart would take many seconds there."""


def _saddles(direction: UpperDirection | LowerDirection, log_tail: float, log_smallest: float) -> list[Saddle]:
    """Centers from eps = 0 until the estimated delta is below the smallest one asked for."""
    pilot = direction.pilot(log_tail)
    first = saddle_for_epsilon(pilot, 0.0)
    found = saddle_scan(pilot, first, _SPACING, log_smallest, _MOST_SADDLES if direction.steps() > 1 else 1)
    # Where deviations vanish the PLD is bounded and this is its far end.
    return list(itertools.takewhile(lambda saddle: saddle.deviation >= 1e-2 * first.deviation, found))


def plans_of(
    direction: UpperDirection | LowerDirection, log_smallest: float, tolerance: float | None
) -> list[TailQuery]:
    """Looks at all of a curve, as fine as a tolerance asks, or (None) as factors are known."""
    log_tail = direction.depth(log_smallest)
    saddles = _saddles(direction, log_tail, log_smallest)
    if tolerance is None:
        return [TailQuery(each, FACTORS_OWN, log_tail, log_escape_for(each, _ESCAPE)) for each in saddles]
    coarsest = (0.6 if direction.steps() == 1 else 1.5) * math.sqrt(tolerance)
    return [
        TailQuery(saddle, min(eta_for(saddle, tolerance), coarsest), log_tail, log_escape_for(saddle, 0.1 * tolerance))
        for saddle in saddles
    ]


def _thinned(eps: FloatArray, query: TailQuery, steps: int) -> IntArray:
    """Indices of the nodes to keep: a fixed number of those near the saddle; all of what is as fine as factors are."""
    saddle = query.saddle
    if steps == 1 or query.eta == FACTORS_OWN:
        return np.arange(len(eps))
    reach = (0.5 * _SPACING + 0.6) * saddle.deviation
    start = min(saddle.mean - reach, 0.0) if saddle.tilt == 1.0 else saddle.mean - reach
    near = np.flatnonzero((eps >= start) & (eps <= saddle.mean + reach))
    if len(near) <= _NODES_PER_SADDLE:
        return near
    chosen: IntArray = np.linspace(0, len(near) - 1, _NODES_PER_SADDLE).round().astype(np.intp)
    return near[chosen]


def _nodes_of(direction: UpperDirection, plans: Sequence[TailQuery], log_tail: float) -> UpperTail:
    """The nodes of one direction, from all saddles."""
    found = []
    for query in plans:
        tail = direction.upper(query)
        found.append(tail.taken(_thinned(tail.epsilon_nodes, query, direction.steps())))
    far, log_leak = direction.end(log_tail)
    return UpperTail.least([*found, UpperTail(np.array([far]), np.array([log_leak]))])


def tests_of(direction: LowerDirection, plans: Sequence[TailQuery]) -> LowerTail:
    """The tests of one direction, from all saddles."""
    found = [(np.array([]), np.array([]), np.array([]))]
    for query in plans:
        tests = direction.lower(query)
        kept = _thinned(tests.thresholds, query, direction.steps())
        found.append((tests.thresholds[kept], tests.log_power[kept], tests.log_alpha[kept]))
    return LowerTail(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _conditioned(
    direction: Direction,
    log_tail: float,
    plans: Sequence[TailQuery],
    log_smallest: float,
    tolerance: float,
    sides: Collection[Side],
) -> tuple[list[UpperTail], list[LowerTail], bool] | None:
    """Where the tilted total has more than one hump, what its large steps say of it, distinguished, from eps = 0
    outward: nodes (eps, log delta), and tests, each where it was asked for; and whether they reach the smallest delta.
    """
    humps = any(plan.saddle.tilt > 1.0 and plan.saddle.deviation > plan.saddle.mean for plan in plans)
    if not humps or direction.span is not None or log_smallest < _DEEPEST_APART:
        return None
    apart = large_steps(direction, log_smallest, log_tail, tolerance)
    if apart is None:
        return None
    proven, shown, last = [], [], 1.0
    for some in apart.places():
        center = float(some[len(some) // 2])
        if Side.LOWER in sides:
            shown.append(apart.tests(center, some))
            last = shown[-1].delta(float(some[-1]))
        if Side.UPPER in sides:
            proven.append(apart.nodes(center, some))
            last = proven[-1].delta(float(some[-1]))
        if last < math.exp(log_smallest):
            break
    return ([UpperTail.least(proven)] if proven else []), shown, last < math.exp(log_smallest)


def sweep(product: Product, smallest_delta: float = 1e-12, tolerance: float = 1e-3) -> dict[Side, TradeoffCurve]:
    """Symmetric UPPER and LOWER trade-off curves, resolved down to `smallest_delta`."""
    directed = directed_sweep(product, smallest_delta, tolerance)
    return {side: curve.symmetrized() for side, curve in directed.items()}


def directed_sweep(
    product: Product,
    smallest_delta: float = 1e-12,
    tolerance: float = 1e-3,
    sides: Collection[Side] = tuple(Side),
) -> dict[Side, TradeoffCurve]:
    """UPPER and LOWER curves of Q (null) against P, resolved down to `smallest_delta` in both corners."""
    smallest_delta = OPEN_UNIT.check("smallest_delta", smallest_delta)
    log_smallest = math.log(smallest_delta)
    uppers, lowers, found = [], [], {}
    for direction in product.directions:
        log_tail = direction.depth(log_smallest)
        plans = plans_of(direction, log_smallest, tolerance)
        rare = _conditioned(direction, log_tail, plans, log_smallest, tolerance, sides)
        if rare is not None:
            # Around the other humps a transform has nothing to add to large steps that reach the end, nor around 0
            # where its lattice would be very long.
            first = 1 if direction.sparse(plans[0].saddle, log_tail) else 0
            single = [plan for plan in plans[1:] if not rare[2] or plan.saddle.deviation <= plan.saddle.mean]
            plans = [*plans[first:1], *single]
        if Side.UPPER in sides:
            proven = _nodes_of(direction, plans, log_tail)
            uppers.append(proven if rare is None else UpperTail.least([proven, *rare[0]]))
        if Side.LOWER in sides:
            lowers.append([tests_of(direction, plans), *(rare[1] if rare is not None else [])])
    if uppers:
        found[Side.UPPER] = _curve_of_nodes(uppers)
    if lowers:
        found[Side.LOWER] = curve_of_tests(lowers[0], lowers[-1])
    return found


def curve_of_proofs(
    directions: Sequence[UpperDirection], plans: Sequence[Sequence[TailQuery]], log_tail: float
) -> TradeoffCurve:
    """The UPPER curve of one order that is symmetric, or of both; without plans nothing but the end is known."""
    return _curve_of_nodes([_nodes_of(*each, log_tail) for each in zip(directions, plans, strict=True)])


def _curve_of_nodes(tails: Sequence[UpperTail]) -> TradeoffCurve:
    """From the nodes at eps >= 0 of one order, or of both."""
    profiles = []
    for tail in tails:
        nodes = np.append(0.0, distinct(tail.epsilon_nodes[tail.epsilon_nodes > 0]))
        profiles.append((nodes, tail.deltas(nodes)))
    backward = profiles[1] if len(profiles) == 2 else None
    return TradeoffCurve.from_profile(*profiles[0], side=Side.UPPER, symmetric=backward is None, reverse=backward)


def curve_of_tests(forward: Sequence[LowerTail], backward: Sequence[LowerTail]) -> TradeoffCurve:
    """The LOWER curve of Q (null) against P from tests of this order, and of the other one with the claims exchanged.

    A test of the swapped pair with false positive rate a and power b claims Q where it does not claim P: seen from here
    it has false positive rate 1 - b and misses with probability a.
    """
    alpha, power = _rates(forward)
    back_alpha, back_power = _rates(backward)
    return TradeoffCurve.from_tests(
        np.concatenate((alpha, 1.0 - back_power)),
        np.concatenate((power, 1.0 - back_alpha)),
        np.concatenate((1.0 - alpha, back_power)),
        np.concatenate((1.0 - power, back_alpha)),
        side=Side.LOWER,
    )


def _rates(tails: Sequence[LowerTail]) -> tuple[FloatArray, FloatArray]:
    """(false positive rate, power) of the tests that are better than guessing."""
    # A rate too small for a double is rounded up: an attack may claim more false positives, never fewer; none has more
    # than all.
    alpha = np.exp(np.clip(np.concatenate([[0.0], *[t.log_alpha for t in tails]]), _LEAST, 0.0))
    power = np.exp(np.concatenate([[0.0], *[t.log_power for t in tails]]))
    useful = (alpha < power) & (power <= 1.0)
    return alpha[useful], power[useful]
