"""Adaptive compositions, measured from both sides.

`Product` holds factors (anything that can state its PLD on a side, with a multiplicity) and
answers epsilon(delta), delta(epsilon) and whole curves with a certified lower and upper value.
Composition of dominating pairs dominates the composed mechanism, and a product of the pairs of
one fixed attack is itself an attack, so both bounds are products of PLDs. They are searched for as
those of one side alone (`calipers.pld.composition.search`), and where the tilted total has more than one hump, with
large steps apart (`calipers.pld.composition.large_steps`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from calipers.bracket import Side
from calipers.citations import implements
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.errors import CertificationError, InputError
from calipers.pld.composition.direction import BoundsWithTest, Direction
from calipers.pld.composition.large_steps import large_steps
from calipers.pld.composition.search import DEEPEST, Question, SearchedProduct, Start
from calipers.pld.composition.tails import TailFocus
from calipers.pld.core.source import TwoSidedPair

SMALLEST_DELTA = 1e-300
"""Smaller values are no longer relatively accurate as doubles: a lower bound is 0 there."""
_DEEPER = 6
"""Depths at which large steps are looked at."""
MOST_STEPS = 10**11
"""More steps than this are refused: the rounding of their masses and ratios would exceed any answer."""


class Product(SearchedProduct[TwoSidedPair, Direction]):
    """An adaptive composition of sources with multiplicities."""

    sides = (Side.LOWER, Side.UPPER)

    @implements("zhu2022:thm10")
    def __init__(self, factors: Sequence[tuple[TwoSidedPair, int]]) -> None:
        super().__init__(factors)
        if self.steps > MOST_STEPS:
            raise InputError(
                f"Expected at most {MOST_STEPS:.0e} composed steps, got {self.steps:.3e}: every step's rounding is "
                "charged, and that of so many leaves nothing to say. Fixed batches have a closed form for any number "
                "of epochs."
            )
        self.symmetric = len(self.directions) == 1

    def _orders(self, orientations: tuple[bool, ...]) -> list[Direction]:
        return list(Direction.of(self.factors)[: len(orientations)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Product) and self.factors == other.factors

    def __hash__(self) -> int:
        return hash(tuple(self.factors))

    def epsilon(self, delta: float, tolerance: float = 1e-3) -> BoundsWithTest:
        """Bounds of epsilon(delta) = smallest eps >= 0 with D <= delta in both directions.

        Args:
            delta: In (0, 1).
            tolerance: The share of the upper bound that the two may be apart, where that can be reached.

        Returns:
            lower <= epsilon(delta) <= upper at every tolerance, and the test that shows the lower one.
        """
        delta = OPEN_UNIT.check("delta", delta)
        tolerance = OPEN_UNIT.check("tolerance", tolerance)
        if self.certain_leak() > delta:
            return BoundsWithTest(math.inf, math.inf, math.inf, False)  # rejecting where Q vanishes beats every epsilon
        # The upper bound is finer anyway, so nearly the whole tolerance is the lower bound's: V theta eta^2 / 12.
        return self._answer(Question(TailFocus(delta=delta), tolerance, 1.7, True))

    def delta(self, epsilon: float, tolerance: float = 1e-3) -> BoundsWithTest:
        """Bounds of delta(epsilon), the larger of both directions, at epsilon >= 0: lower <= truth <= upper."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        tolerance = OPEN_UNIT.check("tolerance", tolerance)
        best, leak = self._answer(Question(TailFocus(epsilon=epsilon), tolerance)), self.certain_leak()
        if best.lower < leak:
            best = BoundsWithTest(leak, max(leak, best.upper), math.inf, best.reversed)
        return best if best.lower >= SMALLEST_DELTA else dataclasses.replace(best, lower=0.0)

    def certain_leak(self) -> float:
        """At most the probability of an outcome that only one of the two datasets can produce."""
        stated = [((source.p_inf, source.q_zero), count) for source, count in self.factors]
        kept = [
            math.fsum(count * math.log1p(-min(leaks[orientation], 0.5)) for leaks, count in stated)
            for orientation in (0, 1)
        ]
        return max(abs(math.expm1(log_kept)) * (1.0 - 1e-12) for log_kept in kept)

    def _searched(self, start: Start[Direction], asked: Question) -> BoundsWithTest:
        """By tilted composition, with large steps apart, or the best of both where neither is narrow enough.

        Large steps are distinguished first where the tilted total has more than one hump; at epsilon = 0, where every
        total lies around its answer, if a lattice would be very long.
        """
        direction, saddle, log_tail, _ = start
        # Where every log ratio lies on one lattice a transform rounds nothing.
        humps = saddle.deviation > saddle.mean and direction.span is None
        first, second = super()._searched, self._apart
        if humps and (asked.focus.epsilon != 0.0 or direction.sparse(saddle, log_tail)):
            first, second = second, first
        found = first(start, asked)
        return found if self._narrow(found, asked) else found.tighter(second(start, asked))

    def _apart(self, start: Start[Direction], asked: Question) -> BoundsWithTest:
        """From outcomes with a large step and those without; of an epsilon ever deeper, since a saddle point says
        little of a total with several humps.
        """
        direction, saddle, *_ = start
        best = BoundsWithTest(0.0, math.inf, math.inf, direction.reverse)
        delta, epsilon, tolerance = asked.focus.delta, asked.focus.epsilon, asked.tolerance
        assert tolerance is not None
        log_delta = min(saddle.log_delta, 0.0) - 10.0 if delta is None else math.log(delta)
        for _ in range(_DEEPER):
            apart = large_steps(direction, log_delta, direction.depth(log_delta), tolerance)
            if apart is None:
                break
            if delta is not None:
                try:
                    return apart.epsilon(delta)
                except CertificationError:  # no lattice holds both sizes
                    break
            assert epsilon is not None
            best = best.tighter(apart.delta(epsilon))
            if best.upper <= 0.0 or self._narrow(best, asked) or math.log(best.upper) > log_delta:
                break
            log_delta = max(math.log(best.upper) - 20.0, DEEPEST)
        return best
