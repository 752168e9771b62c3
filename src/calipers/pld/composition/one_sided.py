"""One side of a composition: proofs composed from above, attacks composed from below.

`calipers.pld.composition.product` narrows a bracket from both sides until its bounds agree. Where the proof is one
statement and the attack another, the bounds stay apart however fine the grid is, so each is computed alone. A product
of PLDs that dominate each step dominates the adaptive composition, whatever attacks it (`ProofProduct`). An attack
chooses the gradients of all records in every step, so attacks on different epochs and phases add up to one attack on
the whole: the sum of their log likelihood ratios against a threshold (`AttackProduct`).

Both are searched alike: look around a saddle point, look again where the answer lies far from it, and with less of a
tilt where rare large steps decide. The saddle decides how well a bound is computed, never whether it holds; all that is
found on the way is a bound, and the best is returned.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.errors import CertificationError
from calipers.pld.composition.direction import (
    Kind,
    LowerDirection,
    TailQuery,
    UpperDirection,
    counted,
    lower_cache,
    upper_cache,
)
from calipers.pld.composition.fineness import (
    FACTORS_OWN,
    eta_for,
    eta_for_delta,
    finest_eta,
    log_escape_for,
    signed_eta,
)
from calipers.pld.composition.saddle import Saddle, saddle_for_delta, saddle_for_epsilon, with_less_tilt
from calipers.pld.composition.sweep import curve_of_proofs, curve_of_tests, plans_of, tests_of
from calipers.pld.composition.tails import LowerTail, TailFocus
from calipers.pld.core.source import AttainedPair, DominatingPair

Order = TypeVar("Order", UpperDirection, LowerDirection)

_LOOKS, _NEAR = 4, 0.7
"""Looks around an answer; one that is within so many deviations of its saddle point is as good as the grid."""
_LESS_TILT_GAINS = 1e-4
"""Ever less of a tilt is tried as long as a bound is better by this share."""
_ESCAPE = 1e-5
"""The share of delta that may leave a window."""
_USUAL, _DEEPEST = math.log(1e-8), -600.0
"""Logs of the delta that PLDs are made for until a smaller one is met, and of the smallest that is resolved."""
_NOTHING_PROVEN = 1.0 - 1e-9
"""Mass at infinity, where that is all there is."""


class ShownBound(NamedTuple):
    """One bound: its value, whether the datasets are exchanged, and the threshold of the test that shows it."""

    value: float
    reversed: bool = False
    threshold: float = math.inf


class _Question(NamedTuple):
    """Epsilon at a delta, or delta at an epsilon, and how finely; `signed`: as fine as the bound of a bracket."""

    focus: TailFocus
    tolerance: float | None
    signed: bool = False


class _OneSided(ABC, Generic[Kind, Order]):
    """Factors with multiplicities, in both orders of the datasets."""

    side: Side
    _share: float
    """Cells and lattice, as a share of those by which both sides of a bracket are as wide as the tolerance."""

    def __init__(self, factors: Sequence[tuple[Kind, int]]) -> None:
        self.factors, orientations = counted(factors)
        self.directions: list[Order] = self._orders(orientations)
        self.steps: int = self.directions[0].steps()

    @abstractmethod
    def _orders(self, orientations: tuple[bool, ...]) -> list[Order]: ...

    @abstractmethod
    def _look(self, direction: Order, query: TailQuery) -> ShownBound:
        """What one tail says of its focus."""

    @abstractmethod
    def _before_looking(
        self, direction: Order, saddle: Saddle, log_tail: float, asked: _Question, known: float
    ) -> tuple[ShownBound, bool]:
        """A bound that needs no transform, and whether it is enough, given that `known` is to be exceeded."""

    def _nothing_said(self, direction: Order, log_tail: float, delta: float) -> bool:
        """Whether no epsilon has this delta."""
        return False

    def _epsilon(self, asked: _Question, delta: float) -> ShownBound:
        log_delta, best = math.log(delta), ShownBound(0.0)
        log_tail = self._depth(log_delta)
        if any(self._nothing_said(direction, log_tail, delta) for direction in self.directions):
            return ShownBound(math.inf)
        starts = [(saddle_for_delta(each.pilot(log_tail), log_delta), each) for each in self.directions]
        for saddle, direction in sorted(starts, key=lambda start: -start[0].mean):
            best = max(best, self._searched(direction, saddle, log_tail, asked, best.value), key=_value)
        return best

    def _delta(self, asked: _Question, epsilon: float) -> ShownBound:
        best = ShownBound(0.0)
        # Total variation has no direction.
        for direction in self.directions if epsilon > 0.0 else self.directions[:1]:
            log_tail = self._depth(_USUAL)
            if self._nothing_said(direction, log_tail, _NOTHING_PROVEN):
                return ShownBound(1.0)
            saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
            for _ in range(_LOOKS):
                needed = self._depth(max(saddle.log_delta, _DEEPEST))
                if needed >= log_tail - 1.0:
                    break
                try:
                    pilot = direction.pilot(needed)
                except CertificationError:  # too deep for doubles; what is cut off is charged at any depth
                    break
                log_tail, saddle = needed, saddle_for_epsilon(pilot, epsilon)
            best = max(best, self._searched(direction, saddle, log_tail, asked, best.value), key=_value)
        return best

    def _depth(self, log_delta: float) -> float:
        return self.directions[0].depth(log_delta)

    def _searched(
        self, direction: Order, saddle: Saddle, log_tail: float, asked: _Question, known: float
    ) -> ShownBound:
        """The best of all looks: of epsilon each around the answer of the one before, then with less of a tilt."""
        best, enough = self._before_looking(direction, saddle, log_tail, asked, known)
        if enough:
            return best
        pilot, better = direction.pilot(log_tail), min if self.side is Side.UPPER else max
        for look in range(_LOOKS):
            found = self._look(direction, self._query(saddle, log_tail, asked))
            best = better(best, found, key=_value)
            distance = found.value - saddle.mean
            if asked.focus.delta is None or self.steps == 1 or abs(distance) <= _NEAR * saddle.deviation:
                break
            moved = saddle_for_epsilon(pilot, saddle.mean + min(distance, 3.0 * saddle.deviation))
            if look == _LOOKS - 1 or abs(moved.tilt - saddle.tilt) <= 1e-3 * saddle.tilt:
                break
            saddle = moved
        epsilon = best.value if asked.focus.epsilon is None else asked.focus.epsilon
        # Lattices for a tolerance are fine enough for what usually happens, however a tilt spreads the total.
        coarse = self.steps > 1 and asked.tolerance is None and math.isfinite(epsilon)
        for lighter in with_less_tilt(pilot, saddle, epsilon) if coarse else ():
            before, found = best, self._look(direction, self._query(lighter, log_tail, asked))
            best = better(before, found, key=_value)
            if abs(best.value - before.value) <= _LESS_TILT_GAINS * before.value:
                break
        return best

    def _query(self, saddle: Saddle, log_tail: float, asked: _Question) -> TailQuery:
        eta = FACTORS_OWN
        if asked.tolerance is not None:
            wanted = eta_for if asked.focus.epsilon is None else eta_for_delta
            eta = max(finest_eta(self.steps), self._share * wanted(saddle, asked.tolerance))
        if asked.signed:
            eta = signed_eta(saddle, self.steps, eta)
        return TailQuery(saddle, eta, log_tail, log_escape_for(saddle, _ESCAPE), asked.focus)


class ProofProduct(_OneSided[DominatingPair, UpperDirection]):
    """Independent proofs, composed from above."""

    side = Side.UPPER
    _share = 0.3

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
        return self._epsilon(_Question(TailFocus(delta=delta), tolerance, signed), delta).value

    def delta(self, epsilon: float, tolerance: float | None = None) -> float:
        """At least the divergence at epsilon >= 0 in both directions; `tolerance` as for `epsilon`."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        return self._delta(_Question(TailFocus(epsilon=epsilon), tolerance), epsilon).value

    def curve(self, smallest_delta: float, tolerance: float | None = None) -> TradeoffCurve:
        """The guarantee with the null "record absent", resolved down to about `smallest_delta`."""
        log_smallest = math.log(OPEN_UNIT.check("smallest_delta", smallest_delta))
        log_tail = self._depth(log_smallest)
        proven = [not self._nothing_said(each, log_tail, _NOTHING_PROVEN) for each in self.directions]
        plans = [
            plans_of(each, log_smallest, tolerance) if some else []
            for each, some in zip(self.directions, proven, strict=True)
        ]
        return curve_of_proofs(self.directions, plans, log_tail)

    def _nothing_said(self, direction: UpperDirection, log_tail: float, delta: float) -> bool:
        return direction.end(log_tail)[1] > math.log(delta)

    def _before_looking(
        self, direction: UpperDirection, saddle: Saddle, log_tail: float, asked: _Question, known: float
    ) -> tuple[ShownBound, bool]:
        far, log_leak = direction.end(log_tail)
        if asked.focus.delta is not None:
            enough = direction.moment_bound(known, saddle, log_tail) <= asked.focus.delta
            return (ShownBound(known), True) if enough else (ShownBound(max(0.0, far)), False)
        epsilon = asked.focus.epsilon
        assert epsilon is not None
        if epsilon >= far:  # no log ratio reaches epsilon: only mass at infinity is left
            return ShownBound(min(1.0, math.exp(log_leak))), True
        moment = min(1.0, direction.moment_bound(epsilon, saddle, log_tail))
        return ShownBound(moment), moment <= known or saddle.log_delta < _DEEPEST

    def _look(self, direction: UpperDirection, query: TailQuery) -> ShownBound:
        tail, focus = direction.upper(query), query.focus
        assert focus is not None
        if focus.epsilon is not None:
            return ShownBound(tail.delta(focus.epsilon))
        assert focus.delta is not None
        return ShownBound(tail.epsilon(focus.delta))


class AttackProduct(_OneSided[AttainedPair, LowerDirection]):
    """Independent attacks, composed from below: every number is shown by an explicit test of the sum of all scores."""

    side = Side.LOWER
    _share = 1.4

    def _orders(self, orientations: tuple[bool, ...]) -> list[LowerDirection]:
        cache = lower_cache(self.factors)
        return [LowerDirection(cache, reverse) for reverse in orientations]

    def epsilon(self, delta: float, tolerance: float | None = None) -> ShownBound:
        """At most epsilon(delta) of the truth; 0 if no test shows more. Arguments as of `ProofProduct.epsilon`."""
        delta = OPEN_UNIT.check("delta", delta)
        return self._epsilon(_Question(TailFocus(delta=delta), tolerance), delta)

    def delta(self, epsilon: float, tolerance: float | None = None) -> ShownBound:
        """At most delta(epsilon) of the truth; epsilon >= 0."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        return self._delta(_Question(TailFocus(epsilon=epsilon), tolerance), epsilon)

    def tests(self, smallest_delta: float, tolerance: float | None = None) -> tuple[LowerTail, LowerTail]:
        """Explicit tests of Q against P and of P against Q, whose error rates reach down to about `smallest_delta`."""
        log_smallest = math.log(OPEN_UNIT.check("smallest_delta", smallest_delta))
        found = [tests_of(each, plans_of(each, log_smallest, tolerance)) for each in self.directions]
        return found[0], found[-1]

    def curve(self, smallest_delta: float, tolerance: float | None = None) -> TradeoffCurve:
        """What these tests attain, with the null "record absent"."""
        return curve_of_tests(*([tests] for tests in self.tests(smallest_delta, tolerance)))

    def _before_looking(
        self, direction: LowerDirection, saddle: Saddle, log_tail: float, asked: _Question, known: float
    ) -> tuple[ShownBound, bool]:
        return ShownBound(0.0, direction.reverse), asked.focus.delta is None and saddle.log_delta < _DEEPEST

    def _look(self, direction: LowerDirection, query: TailQuery) -> ShownBound:
        tests, focus = direction.lower(query), query.focus
        assert focus is not None
        if focus.epsilon is not None:
            value, threshold = tests.best_test(focus.epsilon)
        else:
            assert focus.delta is not None
            value = tests.epsilon(focus.delta)
            _, threshold = tests.best_test(value)
        return ShownBound(value, direction.reverse, threshold)


def _value(shown: ShownBound) -> float:
    return shown.value
