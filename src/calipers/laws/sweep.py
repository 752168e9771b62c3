"""Whole trade-off curves of a product, from both sides.

One tilted composition is accurate within a few deviations of its center, so a curve is swept: saddle
after saddle, from eps = 0 outward, until delta falls below what was asked for. UPPER: all nodes
bound one convex decreasing profile, so the nodes of all sweeps may be used together. LOWER: all
tests exist, so their convex hull does. Both directions of the pair enter, and the curves are
symmetric: they are about a record being added or removed.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import OPEN_UNIT
from calipers.laws.direction import Direction, eta_for, log_escape_for
from calipers.laws.product import Product
from calipers.laws.saddle import Saddle, saddle_for_epsilon
from calipers.laws.tails import LowerTail, UpperTail
from calipers.numerics.types import FloatArray, IntArray

_SPACING = 2.0
_NODES_PER_SADDLE = 160
_MOST_SADDLES = 200


def _saddles(direction: Direction, log_tail: float, log_smallest: float) -> list[Saddle]:
    """Centers from eps = 0 until the estimated delta is below the smallest one asked for."""
    pilot = direction.pilot(log_tail)
    found = [saddle_for_epsilon(pilot, 0.0)]
    if direction.steps() == 1:
        return found
    while found[-1].log_delta > log_smallest and len(found) < _MOST_SADDLES:
        last = found[-1]
        following = saddle_for_epsilon(pilot, last.mean + _SPACING * last.deviation)
        if following.mean <= last.mean + 0.1 * last.deviation or following.deviation < 1e-2 * found[0].deviation:
            break  # the law is bounded and this is its far end
        found.append(following)
    return found


def _thinned(eps: FloatArray, saddle: Saddle, everything: bool) -> IntArray:
    """Indices of the nodes to keep: those near the saddle, at most a fixed number of them, and the last."""
    if everything:
        return np.arange(len(eps))
    reach = (0.5 * _SPACING + 0.6) * saddle.deviation
    start = min(saddle.mean - reach, 0.0) if saddle.tilt == 1.0 else saddle.mean - reach
    near = np.flatnonzero((eps >= start) & (eps <= saddle.mean + reach))
    if len(near) <= _NODES_PER_SADDLE:
        return near
    chosen: IntArray = np.unique(np.linspace(0, len(near) - 1, _NODES_PER_SADDLE).round().astype(np.int64))
    return near[chosen]


def _swept(direction: Direction, log_tail: float, log_smallest: float, tolerance: float) -> tuple[UpperTail, LowerTail]:
    """The nodes and the tests of one direction, from all saddles."""
    eps, log_delta, thresholds, log_power, log_alpha = [], [], [], [], []
    single = direction.steps() == 1
    for saddle in _saddles(direction, log_tail, log_smallest):
        eta = min(eta_for(saddle, tolerance), (0.6 if single else 1.5) * math.sqrt(tolerance))
        log_escape = log_escape_for(saddle, 0.1 * tolerance)
        upper = direction.upper(saddle, eta, log_tail, log_escape)
        kept = _thinned(upper.epsilon_nodes, saddle, single)
        eps.append(upper.epsilon_nodes[kept])
        log_delta.append(upper.log_delta_nodes[kept])
        lower = direction.lower(saddle, eta, log_tail, log_escape)
        kept = _thinned(lower.thresholds, saddle, single)
        thresholds.append(lower.thresholds[kept])
        log_power.append(lower.log_power[kept])
        log_alpha.append(lower.log_alpha[kept])
    far, log_leak = direction.end(log_tail)
    nodes, values = np.concatenate([*eps, [far]]), np.concatenate([*log_delta, [log_leak]])
    order = np.argsort(nodes, kind="stable")
    # The profile decreases, so a bound at one node holds at every later one.
    tail = UpperTail(nodes[order], np.minimum.accumulate(values[order]))
    return tail, LowerTail(np.concatenate(thresholds), np.concatenate(log_power), np.concatenate(log_alpha))


def sweep(product: Product, smallest_delta: float = 1e-12, tolerance: float = 1e-3) -> dict[Side, TradeoffCurve]:
    """Symmetric UPPER and LOWER trade-off curves, resolved down to `smallest_delta`."""
    smallest_delta = OPEN_UNIT.check("smallest_delta", smallest_delta)
    log_smallest = math.log(smallest_delta)
    uppers, lowers = [], []
    for direction in product.directions:
        log_tail = log_smallest - math.log(direction.steps()) - 18.0
        upper, lower = _swept(direction, log_tail, log_smallest, tolerance)
        uppers.append(upper)
        lowers.append(lower)
    nodes = np.unique(np.concatenate([np.array([0.0]), *[u.epsilon_nodes[u.epsilon_nodes > 0] for u in uppers]]))
    delta = np.max([u.deltas(nodes) for u in uppers], axis=0)
    guarantee = TradeoffCurve.from_profile(nodes, delta, side=Side.UPPER, symmetric=True)
    # A rate too small for a double is rounded up: an attack may claim more false positives, never fewer.
    alpha = np.exp(np.maximum(np.concatenate([t.log_alpha for t in lowers]), -690.0))
    power = np.exp(np.concatenate([t.log_power for t in lowers]))
    useful = (alpha < power) & (power <= 1.0)
    attack = TradeoffCurve.from_tests(alpha[useful], power[useful], side=Side.LOWER).symmetrised()
    return {Side.UPPER: guarantee, Side.LOWER: attack}
