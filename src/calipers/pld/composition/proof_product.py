"""Proofs about several epochs or phases, composed from above only.

A product of PLDs that dominate each epoch dominates the adaptive composition, whatever attacks it. `ProofProduct` is
the upper half of `calipers.pld.composition.product.Product`, as `calipers.pld.composition.attack_product.AttackProduct`
is its lower half: where proof and attack are different statements there is no width to be closed by refining, so each
is computed once, about as finely as its factors are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.numerics.types import FloatArray
from calipers.pld.composition.direction import (
    SINGLE_MARGIN,
    TailQuery,
    UpperDirection,
    counted,
    log_escape_for,
    upper_cache,
)
from calipers.pld.composition.saddle import (
    Saddle,
    minimum,
    saddle_for_delta,
    saddle_for_epsilon,
    saddle_scan,
    with_less_tilt,
)
from calipers.pld.composition.tails import TailFocus, UpperTail
from calipers.pld.core.source import DominatingPair

_ETA = 0.05
"""Lattice in deviations of one factor: it adds a share of about 4e-4 to the variance."""
_RELATIVE = 1e-4
_SPACING, _MOST_SADDLES = 2.0, 60
_DEEPEST = -600.0
_NOTHING_PROVEN = -1e-9
"""Log of the mass at infinity, where that is all there is."""


class ProofProduct:
    """Independent proofs with multiplicities, in both directions."""

    def __init__(self, factors: Sequence[tuple[DominatingPair, int]]) -> None:
        self.factors, orientations = counted(factors)
        cache = upper_cache(self.factors)
        self.directions = [UpperDirection(cache, reverse) for reverse in orientations]
        self.steps = self.directions[0].steps()

    def epsilon(self, delta: float) -> float:
        """At least the smallest epsilon >= 0 with divergence at most delta in both directions."""
        delta = OPEN_UNIT.check("delta", delta)
        log_tail = math.log(delta) - math.log(self.steps) - 18.0
        return max(self._epsilon_one_direction(direction, delta, log_tail) for direction in self.directions)

    def _epsilon_one_direction(self, direction: UpperDirection, delta: float, log_tail: float) -> float:
        far, log_leak = direction.end(log_tail)
        if log_leak > math.log(delta):
            return math.inf
        pilot = direction.pilot(log_tail)
        saddle, best, focus = saddle_for_delta(pilot, math.log(delta)), math.inf, TailFocus(delta=delta)
        for _ in range(4):
            best = min(best, self._tail(direction, saddle, log_tail, focus).epsilon(delta))
            if self.steps == 1 or abs(best - saddle.mean) < 0.7 * saddle.deviation:
                break
            center = best if math.isfinite(best) else saddle.mean + 3.0 * saddle.deviation
            saddle = saddle_for_epsilon(pilot, center)

        lighter = with_less_tilt(pilot, saddle, best) if self.steps > 1 and math.isfinite(best) else ()
        best = minimum(
            lambda each: self._tail(direction, each, log_tail, focus).epsilon(delta), lighter, _RELATIVE, best
        )
        return min(best, max(0.0, far))

    def delta(self, epsilon: float) -> float:
        """At least the divergence at epsilon >= 0 in both directions."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        best = 0.0
        for direction in self.directions:
            best = max(best, self._delta_one_direction(direction, epsilon, best))
        return best

    def _delta_one_direction(self, direction: UpperDirection, epsilon: float, enough: float) -> float:
        """At least the divergence in one direction, no more finely than to see that it is at most `enough`."""
        log_tail = -40.0 - math.log(self.steps)
        if direction.end(log_tail)[1] >= _NOTHING_PROVEN:
            return 1.0
        saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        cheap = direction.moment_bound(epsilon, saddle, log_tail)
        if cheap <= enough:
            return cheap
        if saddle.log_delta < 0.5 * log_tail:
            log_tail = max(saddle.log_delta, _DEEPEST) - math.log(self.steps) - 18.0
            saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        far, log_leak = direction.end(log_tail)
        if epsilon >= far:
            return min(1.0, math.exp(log_leak))
        moment = direction.moment_bound(epsilon, saddle, log_tail)
        if saddle.log_delta < _DEEPEST:
            return min(1.0, moment)
        focus = TailFocus(epsilon=epsilon)
        saddles = chain((saddle,), with_less_tilt(direction.pilot(log_tail), saddle, epsilon) if self.steps > 1 else ())
        best = minimum(lambda each: self._tail(direction, each, log_tail, focus).delta(epsilon), saddles, _RELATIVE)
        return min(1.0, moment, best)

    def _tail(self, direction: UpperDirection, saddle: Saddle, log_tail: float, focus: TailFocus | None) -> UpperTail:
        return direction.upper(TailQuery(saddle, _ETA, log_tail, log_escape_for(saddle, _RELATIVE), focus))

    def curve(self, smallest_delta: float) -> TradeoffCurve:
        """The guarantee with the null "record absent", resolved down to about `smallest_delta`."""
        log_smallest = math.log(OPEN_UNIT.check("smallest_delta", smallest_delta))
        profiles = [_profile(self._swept(direction, log_smallest)) for direction in self.directions]
        backward = profiles[1] if len(profiles) == 2 else None
        return TradeoffCurve.from_profile(*profiles[0], side=Side.UPPER, symmetric=backward is None, reverse=backward)

    def _swept(self, direction: UpperDirection, log_smallest: float) -> UpperTail:
        """All nodes of one direction, saddle after saddle from epsilon = 0 outward."""
        log_tail = log_smallest - (math.log(self.steps) + 18.0 if self.steps > 1 else SINGLE_MARGIN)
        far, log_leak = direction.end(log_tail)
        if log_leak >= _NOTHING_PROVEN:
            return UpperTail(np.array([0.0]), np.array([0.0]))
        pilot = direction.pilot(log_tail)
        first, most = saddle_for_epsilon(pilot, 0.0), _MOST_SADDLES if self.steps > 1 else 1
        found = []
        for saddle in saddle_scan(pilot, first, _SPACING, log_smallest, most):
            tail = self._tail(direction, saddle, log_tail, None)
            near = np.abs(tail.epsilon_nodes - saddle.mean) <= _SPACING * saddle.deviation
            found.append(tail if self.steps == 1 or saddle.tilt <= 1.0 + 1e-6 else tail.taken(near))
        return UpperTail.least([*found, UpperTail(np.array([far]), np.array([log_leak]))])


def _profile(tail: UpperTail) -> tuple[FloatArray, FloatArray]:
    """The nodes at epsilon >= 0, one at 0 among them."""
    nodes = np.unique(np.append(tail.epsilon_nodes[tail.epsilon_nodes > 0], 0.0))
    return nodes, tail.deltas(nodes)
