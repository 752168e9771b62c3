"""Attacks on several epochs or phases, composed from below only.

An attack chooses the gradients of all records in every step, so the attacks on different epochs and phases of one run
add up to one attack on the whole: its observations are independent given the dataset, and the best test is a threshold
on the sum of their log likelihood ratios. Each factor states an optimistic PLD, whose products are dominated by
products of the truth (`calipers.pld.allocation.pmf_of_tests`); no pessimistic PLD is ever asked for, because for
shuffled batches there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.memoize import memoize
from calipers.pld.composition.direction import (
    ATTACK_RESOLUTION,
    SINGLE_MARGIN,
    LowerDirection,
    TailQuery,
    counted,
    log_escape_for,
    lower_cache,
)
from calipers.pld.composition.saddle import (
    Saddle,
    minimum,
    saddle_for_delta,
    saddle_for_epsilon,
    saddle_scan,
    with_less_tilt,
)
from calipers.pld.composition.tails import LowerTail, TailFocus
from calipers.pld.core.source import AttainedPair

_RELATIVE = 1e-4
_SPACING, _SPARSE, _MANY = 2.0, 3.0, 20_000
"""Deviations between the centers of a curve's tests, and of so many steps: each knows tests several deviations away."""
_USUAL_CURVE = 1e-12
_MOST_SADDLES = 61
_DEEPEST = -600.0


class AttackProduct:
    """Independent attacks with multiplicities, in both directions.

    Every number is shown by an explicit test: the sum of all log likelihood ratios against a threshold.
    """

    def __init__(self, factors: Sequence[tuple[AttainedPair, int]]) -> None:
        self.factors, orientations = counted(factors)
        cache = lower_cache(self.factors)
        self.directions = [LowerDirection(cache, reverse) for reverse in orientations]
        self.steps = self.directions[0].steps()

    def delta(self, epsilon: float) -> tuple[float, bool]:
        """(delta, reversed): at most delta(epsilon) of the truth, and the direction that shows it; epsilon >= 0."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        return max((self._delta_one_direction(each, epsilon), each.reverse) for each in self.directions)

    def _delta_one_direction(self, direction: LowerDirection, epsilon: float) -> float:
        if epsilon == 0.0:
            return self._start(direction, self._depth(_USUAL_CURVE)).delta(0.0)
        log_tail = -40.0 - math.log(self.steps)
        saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        if saddle.log_delta < _DEEPEST:
            return 0.0
        if saddle.log_delta < 0.5 * log_tail:
            log_tail = saddle.log_delta - math.log(self.steps) - 30.0
            saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        saddles, focus = (
            chain((saddle,), self._lighter(direction, saddle, log_tail, epsilon)),
            TailFocus(epsilon=epsilon),
        )
        return -minimum(lambda each: -_tail(each, log_tail, direction, focus).delta(epsilon), saddles, _RELATIVE)

    def epsilon(self, delta: float) -> tuple[float, bool]:
        """(epsilon, reversed): at most epsilon(delta) of the truth; 0 if no test shows more."""
        delta = OPEN_UNIT.check("delta", delta)
        return max((self._epsilon_one_direction(each, delta), each.reverse) for each in self.directions)

    def _epsilon_one_direction(self, direction: LowerDirection, delta: float) -> float:
        log_tail, focus, best = math.log(delta) - math.log(self.steps) - 18.0, TailFocus(delta=delta), 0.0
        saddle = saddle_for_delta(direction.pilot(log_tail), math.log(delta))
        for _ in range(4):
            found = _tail(saddle, log_tail, direction, focus).epsilon(delta)
            best = max(best, found)
            if self.steps == 1 or abs(found - saddle.mean) < 0.7 * saddle.deviation:
                break
            saddle = saddle_for_epsilon(direction.pilot(log_tail), found)
        lighter = self._lighter(direction, saddle, log_tail, best)
        return -minimum(lambda each: -_tail(each, log_tail, direction, focus).epsilon(delta), lighter, _RELATIVE, -best)

    def _lighter(self, direction: LowerDirection, saddle: Saddle, log_tail: float, epsilon: float) -> Iterable[Saddle]:
        """Saddles with less of a tilt, at which tests of several epochs may show more."""
        return with_less_tilt(direction.pilot(log_tail), saddle, epsilon) if self.steps > 1 else ()

    def tests(self, smallest_delta: float) -> tuple[list[LowerTail], list[LowerTail]]:
        """Explicit tests of Q against P and of P against Q, whose error rates reach down to about `smallest_delta`."""
        log_smallest = math.log(OPEN_UNIT.check("smallest_delta", smallest_delta))
        log_tail = self._depth(smallest_delta)
        spacing = _SPACING if self.steps < _MANY else _SPARSE
        orientations: list[list[LowerTail]] = []
        for direction in self.directions:
            pilot, most = direction.pilot(log_tail), _MOST_SADDLES if self.steps > 1 else 1
            _, *others = saddle_scan(pilot, saddle_for_epsilon(pilot, 0.0), spacing, log_smallest, most)
            further = [direction.lower(_query(saddle, log_tail)) for saddle in others]
            orientations.append([self._start(direction, log_tail), *further])
        return orientations[0], orientations[-1]

    def _depth(self, smallest_delta: float) -> float:
        return math.log(smallest_delta) - (math.log(self.steps) + 18.0 if self.steps > 1 else SINGLE_MARGIN)

    @memoize
    def _start(self, direction: LowerDirection, log_tail: float) -> LowerTail:
        """The tests around epsilon = 0, with which curves begin and which show the advantage."""
        return direction.lower(_query(saddle_for_epsilon(direction.pilot(log_tail), 0.0), log_tail))


def _query(saddle: Saddle, log_tail: float, focus: TailFocus | None = None) -> TailQuery:
    cells = (ATTACK_RESOLUTION, saddle.tilt)
    return TailQuery(saddle, ATTACK_RESOLUTION, log_tail, log_escape_for(saddle, _RELATIVE), focus, cells)


def _tail(saddle: Saddle, log_tail: float, direction: LowerDirection, focus: TailFocus) -> LowerTail:
    return direction.lower(_query(saddle, log_tail, focus))
