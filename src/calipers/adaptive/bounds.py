"""Epsilon, delta, trade-off curve and Renyi divergences of an adaptive run, from both sides.

Renyi divergences need no lattice: sup over policies of E_Q[L^t] obeys V_c = max(1, max_m E_Q[L_m^t] V_{c - c_m}), the
recursion of `calipers.adaptive.recursion` for the function k^(1-t), which it maps to multiples of itself. So adaptive
choice gains nothing there, and the largest sum of divergences that the budget admits is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.adaptive.solver import PRECISION, Solver, depth_of
from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.measure.bounds import Bound, BoundValue
from calipers.memoize import memoize
from calipers.numerics.types import FloatArray
from calipers.pld.composition.renyi import renyi_above, renyi_below

STATEMENT = "calipers:adaptive-menu"


def best_sum(values: Sequence[float], costs: Sequence[int], budget: int) -> float:
    """The largest sum of values, each as often as wanted, whose costs are at most the budget."""
    best = [0.0] * (budget + 1)
    for spent in range(1, budget + 1):
        best[spent] = max(
            [best[spent - 1], *(best[spent - c] + v for v, c in zip(values, costs, strict=True) if c <= spent)]
        )
    return best[budget]


@dataclass(frozen=True, eq=False)
class AdaptiveProof(Bound):
    """At least what any policy within the budget shows."""

    solver: Solver
    reason: str
    side = Side.UPPER

    @implements("calipers:adaptive-menu")
    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """At least epsilon(delta) of every policy: where the chords of the upper profile reach delta."""
        found = self.solver.upper(depth_of(delta))
        return BoundValue(max(_crossing(nodes, values, delta) for nodes, values in found), self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """At least delta(epsilon) of every policy, on the chord in e^epsilon."""
        found = max(_at(nodes, values, epsilon) for nodes, values in self.solver.upper(1.0))
        for _ in range(2):  # the first answer may be all rounding, and says how deep to look at least
            if found < PRECISION.deep:
                deep = self.solver.upper(depth_of(found))
                found = min(found, max(_at(nodes, values, epsilon) for nodes, values in deep))
        return BoundValue(found, self.evidence())

    def renyi(self, order: float) -> BoundValue:
        """The largest sum of divergences that the budget admits, which no policy exceeds."""
        menu = self.solver.menu
        each = [max(renyi_above(factors, order) for factors in step.dominating) for step in menu.steps]
        return BoundValue(best_sum(each, menu.costs, self.solver.budget) * (1.0 + 1e-12), self.evidence())

    @memoize
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The directed guarantee from the profiles of both directions."""
        ways: list[list[tuple[FloatArray, FloatArray]]] = [[], []]
        for depth in {1.0, depth_of(smallest_delta)}:
            found = self.solver.upper(depth)
            for way, nodes in enumerate(found if len(found) == 2 else (*found, *found)):
                ways[way].append(nodes)
        forward, reverse = (tuple(np.concatenate(column) for column in zip(*way, strict=True)) for way in ways)
        return Envelope((TradeoffCurve.from_profile(forward[0], forward[1], Side.UPPER, reverse=reverse),))

    def evidence(self) -> Evidence:
        """The theorem, and how its bound is computed."""
        text = (
            f"{self.reason} Over all policies that choose each step from what was released and stay within the budget "
            "the hockey-stick divergence obeys a recursion over the remaining budget. It is computed on a lattice of "
            "log k; splitting, truncation and rounding are added to the upper bound."
        )
        return Evidence.of(Kind.NUMERICAL, STATEMENT, text)


def _crossing(nodes: FloatArray, values: FloatArray, delta: float) -> float:
    """The smallest epsilon >= 0 from which on chords of (e^nodes, values) are at most delta; infinite if none is."""
    below = np.flatnonzero(values <= delta)
    if not len(below):
        return math.inf
    place = int(below[0])
    if place == 0:
        return 0.0
    high, low = float(values[place - 1]), float(values[place])
    share = (high - delta) / (high - low)
    width = math.expm1(float(nodes[place] - nodes[place - 1]))
    return (float(nodes[place - 1]) + math.log1p(min(share * (1.0 + 1e-9), 1.0) * width)) * (1.0 + 1e-14)


def _at(nodes: FloatArray, values: FloatArray, epsilon: float) -> float:
    """At least the value at epsilon: on a chord, at the last node beyond it, and 1 below the first."""
    place = int(np.searchsorted(nodes, epsilon, side="right")) - 1
    if place < 0:
        return 1.0
    if place + 1 == len(nodes):
        return float(values[-1])
    share = math.expm1(epsilon - float(nodes[place])) / math.expm1(float(nodes[place + 1] - nodes[place]))
    share = min(max(share * (1.0 - 1e-9), 0.0), 1.0)
    return (float(values[place]) * (1.0 - share) + float(values[place + 1]) * share) * (1.0 + 1e-14)


@dataclass(frozen=True, eq=False)
class AdaptiveAttack(Bound):
    """At most what one explicit policy shows."""

    solver: Solver
    description: str
    side = Side.LOWER

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """At most epsilon(delta): log((power - delta) / false positive rate) of the best test."""
        best = 0.0
        for alpha, power in self.solver.tests(depth_of(delta)):
            useful = power > delta
            if np.any(useful & (alpha <= 0.0)):
                return BoundValue(math.inf, self.evidence())
            if np.any(useful):
                gain = np.log((power[useful] - delta) / alpha[useful])
                best = max(best, float(np.max(gain)) * (1.0 - 1e-12))
        return BoundValue(best, self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """At most delta(epsilon): power - e^epsilon times the false positive rate of the best test."""
        found = self._best(epsilon, 1.0)
        if found < PRECISION.deep:
            found = max(found, self._best(epsilon, depth_of(max(found, 1e-10))))
        return BoundValue(found, self.evidence())

    def _best(self, epsilon: float, depth: float) -> float:
        gains = [np.max(power - math.exp(epsilon) * alpha * (1.0 + 1e-12)) for alpha, power in self.solver.tests(depth)]
        return max(0.0, float(max(gains)) * (1.0 - 1e-12))

    def renyi(self, order: float) -> BoundValue:
        """The steps that the budget admits with the largest sum of divergences, taken without looking."""
        menu = self.solver.menu
        kinds = [(step, cost) for step, cost in zip(menu.steps, menu.costs, strict=True) if step.attained]
        each = [renyi_below(step.attained, order) for step, _ in kinds]
        found = best_sum(each, [cost for _, cost in kinds], self.solver.budget) if kinds else 0.0
        return BoundValue(found * (1.0 - 1e-12), self.evidence())

    @memoize
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The tests of the policy in both directions, claims exchanged in the second."""
        points = []
        for depth in {1.0, depth_of(smallest_delta)}:
            found = self.solver.tests(depth)
            (alpha, power), (back_alpha, back_power) = found if len(found) == 2 else (*found, *found)
            points.append((alpha, power, 1.0 - alpha, 1.0 - power))
            points.append((1.0 - back_power, 1.0 - back_alpha, back_power, back_alpha))
        alpha, power, alpha_c, power_c = (np.concatenate(column) for column in zip(*points, strict=True))
        return Envelope((TradeoffCurve.from_tests(alpha, power, alpha_c, power_c, Side.LOWER),))

    def evidence(self) -> Evidence:
        """The policy, so that a reader could run it."""
        text = (
            f"{self.description} The adversary adds up rounded log likelihood ratios of the steps taken so far, takes "
            "the step of the menu that the recursion over the remaining budget prefers at this sum, and claims the "
            "record when the final sum exceeds epsilon. Error rates of this policy are computed exactly, rounding "
            "taken off."
        )
        return Evidence.of(Kind.TEST, STATEMENT, text)
