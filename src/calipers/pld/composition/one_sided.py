"""One side of a composition: proofs composed from above, attacks composed from below.

`calipers.pld.composition.product` narrows a bracket from both sides until its bounds agree. Where the proof is one
statement and the attack another, the bounds stay apart however fine the grid is, so each is computed alone, by the same
search (`calipers.pld.composition.search`). A product of PLDs that dominate each step dominates the adaptive
composition, whatever attacks it (`ProofProduct`). An attack chooses the gradients of all records in every step, so
attacks on different epochs and phases add up to one attack on the whole: the sum of their log likelihood ratios
against a threshold (`AttackProduct`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.pld.composition.direction import (
    BoundsWithTest,
    LowerDirection,
    UpperDirection,
    lower_cache,
    upper_cache,
)
from calipers.pld.composition.search import Question, SearchedProduct
from calipers.pld.composition.sweep import curve_of_proofs, curve_of_tests, plans_of, tests_of
from calipers.pld.composition.tails import LowerTail, TailFocus
from calipers.pld.core.source import AttainedPair, DominatingPair

_PROOF_SHARE, _ATTACK_SHARE = 0.3, 1.4
"""Cells and lattice of one side alone, as a share of those by which both of a bracket are as wide as the tolerance."""
_NOTHING_PROVEN = math.log1p(-1e-9)
"""Log of the mass at infinity, where that is all there is."""


class ShownBound(NamedTuple):
    """One bound: its value, whether the datasets are exchanged, and the threshold of the test that shows it."""

    value: float
    reversed: bool = False
    threshold: float = math.inf

    @classmethod
    def of(cls, found: BoundsWithTest) -> ShownBound:
        """The lower one of two."""
        return cls(found.lower, found.reversed, found.threshold)


class ProofProduct(SearchedProduct[DominatingPair, UpperDirection]):
    """Independent proofs, composed from above."""

    sides = (Side.UPPER,)

    def _orders(self, orientations: tuple[bool, ...]) -> list[UpperDirection]:
        cache = upper_cache(self.factors)
        return [UpperDirection(cache, reverse) for reverse in orientations]

    def epsilon(self, delta: float, tolerance: float | None = None, signed: bool = False) -> float:
        """At least the smallest epsilon >= 0 with divergence at most delta in both directions.

        Args:
            delta: In (0, 1).
            tolerance: The share of epsilon that cells and lattice may cost; None: as finely as factors are known.
            signed: Whether to compute it as finely as the upper bound of a bracket.
        """
        delta = OPEN_UNIT.check("delta", delta)
        return self._answer(Question(TailFocus(delta=delta), tolerance, _PROOF_SHARE, signed)).upper

    def delta(self, epsilon: float, tolerance: float | None = None) -> float:
        """At least the divergence at epsilon >= 0 in both directions; `tolerance` as for `epsilon`."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        return self._answer(Question(TailFocus(epsilon=epsilon), tolerance, _PROOF_SHARE)).upper

    def curve(self, smallest_delta: float, tolerance: float | None = None) -> TradeoffCurve:
        """The guarantee with the null "record absent", resolved down to about `smallest_delta`."""
        log_smallest = math.log(OPEN_UNIT.check("smallest_delta", smallest_delta))
        log_tail = self.directions[0].depth(log_smallest)
        plans = [
            plans_of(each, log_smallest, tolerance) if each.end(log_tail)[1] <= _NOTHING_PROVEN else []
            for each in self.directions
        ]
        return curve_of_proofs(self.directions, plans, log_tail)


class AttackProduct(SearchedProduct[AttainedPair, LowerDirection]):
    """Independent attacks, composed from below: every number is shown by an explicit test of the sum of all scores."""

    sides = (Side.LOWER,)

    def _orders(self, orientations: tuple[bool, ...]) -> list[LowerDirection]:
        cache = lower_cache(self.factors)
        return [LowerDirection(cache, reverse) for reverse in orientations]

    def epsilon(self, delta: float, tolerance: float | None = None) -> ShownBound:
        """At most epsilon(delta) of the truth; 0 if no test shows more. Arguments as of `ProofProduct.epsilon`."""
        delta = OPEN_UNIT.check("delta", delta)
        return ShownBound.of(self._answer(Question(TailFocus(delta=delta), tolerance, _ATTACK_SHARE)))

    def delta(self, epsilon: float, tolerance: float | None = None) -> ShownBound:
        """At most delta(epsilon) of the truth; epsilon >= 0."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        return ShownBound.of(self._answer(Question(TailFocus(epsilon=epsilon), tolerance, _ATTACK_SHARE)))

    def tests(self, smallest_delta: float, tolerance: float | None = None) -> tuple[LowerTail, LowerTail]:
        """Explicit tests of Q against P and of P against Q, whose error rates reach down to about `smallest_delta`."""
        log_smallest = math.log(OPEN_UNIT.check("smallest_delta", smallest_delta))
        found = [tests_of(each, plans_of(each, log_smallest, tolerance)) for each in self.directions]
        return found[0], found[-1]

    def curve(self, smallest_delta: float, tolerance: float | None = None) -> TradeoffCurve:
        """What these tests attain, with the null "record absent"."""
        return curve_of_tests(*([tests] for tests in self.tests(smallest_delta, tolerance)))
