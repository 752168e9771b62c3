"""Adaptive compositions, measured from both sides.

`Product` holds factors (anything that can state its PLD on a side, with a multiplicity) and
answers epsilon(delta), delta(epsilon) and whole curves with a certified lower and upper value.
Composition of dominating pairs dominates the composed mechanism, and a product of the pairs of
one fixed attack is itself an attack, so both bounds are products of PLDs.

How fine to compute is decided from the tolerance. Splitting atoms over cells of width H adds
about H^2/6 to the variance of a step's log ratio, hence theta (theta - 1) E[H^2]/12 to its log moment;
that moves epsilon by T theta E[H^2]/12, and the lower bound loses half as much. With cells and lattice
both at `eta` standard deviations of a step, the upper bound is off by V theta eta^2 / 6 and the lower bound
by half of that, V being the variance of the tilted total. We solve for eta, compute, look at the width, and
refine if needed. The upper bound is what people sign, so beyond the tolerance it is computed as if
on a lattice of 1e-4, where that is affordable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from calipers.citations import implements
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.errors import CertificationError, InputError
from calipers.pld.composition.direction import (
    BoundsWithTest,
    Direction,
    TailQuery,
    counted,
)
from calipers.pld.composition.fineness import (
    eta_for,
    eta_for_delta,
    finest_eta,
    log_escape_for,
    signed_eta,
    within,
)
from calipers.pld.composition.large_steps import large_steps
from calipers.pld.composition.saddle import Saddle, saddle_at, saddle_for_delta, saddle_for_epsilon
from calipers.pld.composition.tails import TailFocus
from calipers.pld.core.source import TwoSidedPair

_MOMENTS_MISS = 1.05
"""One moment exceeds delta by more than this factor (or is 1), and its deep PLDs may cost more than all else."""
_DEEPEST_LOG_DELTA = -640.0
"""Below e^-640 a delta is reported as at most a moment bound: nothing finer fits into a double."""
SMALLEST_DELTA = 1e-300
"""Smaller values are no longer relatively accurate as doubles: a lower bound is 0 there."""
_ROUNDS = 6
MOST_STEPS = 10**11
"""More steps than this are refused: the rounding of their masses and ratios would exceed any answer."""


class Product:
    """An adaptive composition of sources with multiplicities."""

    @implements("zhu2022:thm10")
    def __init__(self, factors: Sequence[tuple[TwoSidedPair, int]]) -> None:
        self.factors, orientations = counted(factors)
        steps = sum(count for _, count in self.factors)
        if steps > MOST_STEPS:
            raise InputError(
                f"Expected at most {MOST_STEPS:.0e} composed steps, got {steps:.3e}: every step's rounding is charged, "
                "and that of so many leaves nothing to say. Fixed batches have a closed form for any number of epochs."
            )
        self.symmetric = orientations == (False,)
        self.bounded = all(source.bounded for source, _ in self.factors)
        self.directions = list(Direction.of(self.factors)[: len(orientations)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Product) and self.factors == other.factors

    def __hash__(self) -> int:
        return hash(tuple(self.factors))

    def epsilon(self, delta: float, tolerance: float = 1e-3) -> BoundsWithTest:
        """Bounds of epsilon(delta) = smallest eps >= 0 with D <= delta in both directions."""
        delta = OPEN_UNIT.check("delta", delta)
        tolerance = OPEN_UNIT.check("tolerance", tolerance)
        log_tail = math.log(delta) - math.log(self.directions[0].steps()) - 18.0
        if self.certain_leak() > delta:
            return BoundsWithTest(math.inf, math.inf, math.inf, False)  # rejecting where Q vanishes beats every epsilon
        ordered = [
            (saddle_for_delta(orientation.pilot(log_tail), math.log(delta)), orientation)
            for orientation in self.directions
        ]
        ordered.sort(key=lambda item: -item[0].mean)
        best = _solve_epsilon(ordered[0][1], ordered[0][0], delta, log_tail, tolerance)
        for saddle, direction in ordered[1:]:
            # A cheap or a rough proof that the other direction needs no more settles the matter.
            if direction.moment_bound(best.lower, saddle, log_tail) <= delta:
                continue
            eta = within(2.0 * eta_for(saddle, tolerance))
            rough = direction.upper(TailQuery(saddle, eta, log_tail, log_escape_for(saddle, 1e-2)))
            if rough.epsilon(delta) > best.lower:
                other = _solve_epsilon(direction, saddle, delta, log_tail, tolerance)
                best = _larger(best, other)
        return BoundsWithTest(
            best.lower, min(best.upper, self._farthest(delta, log_tail)), best.threshold, best.reversed
        )

    def _farthest(self, delta: float, log_tail: float) -> float:
        """An epsilon beyond which only mass at infinity is left, if that is at most delta; else infinite."""
        ends = [direction.end(log_tail) for direction in self.directions]
        covered = all(log_leak <= math.log(delta) for _, log_leak in ends)
        return max(0.0, max(far for far, _ in ends)) if covered else math.inf

    def certain_leak(self) -> float:
        """At most the probability of an outcome that only one of the two datasets can produce."""
        stated = [((source.p_inf, source.q_zero), count) for source, count in self.factors]
        kept = [
            math.fsum(count * math.log1p(-min(leaks[orientation], 0.5)) for leaks, count in stated)
            for orientation in (0, 1)
        ]
        return max(abs(math.expm1(log_kept)) * (1.0 - 1e-12) for log_kept in kept)

    def delta(self, epsilon: float, tolerance: float = 1e-3) -> BoundsWithTest:
        """Bounds of delta(epsilon), the larger of both directions, at epsilon >= 0."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        tolerance = OPEN_UNIT.check("tolerance", tolerance)
        best = self._delta_one_direction(self.directions[0], epsilon, tolerance, 0.0)
        for direction in self.directions[1:]:
            if epsilon > 0.0:
                best = _larger(best, self._delta_one_direction(direction, epsilon, tolerance, best.lower))
            elif best.upper - best.lower > tolerance * best.upper:  # total variation has no direction
                best = _tighter(best, self._delta_one_direction(direction, epsilon, tolerance, 0.0))
        return best if best.lower >= SMALLEST_DELTA else BoundsWithTest(0.0, best.upper, best.threshold, best.reversed)

    def _delta_one_direction(
        self, direction: Direction, epsilon: float, tolerance: float, known: float
    ) -> BoundsWithTest:
        """Bounds of D at epsilon in one direction, or a cheap proof that it is at most `known`."""
        for log_tail in (-40.0, -160.0, _DEEPEST_LOG_DELTA - 60.0):
            far, log_leak = direction.end(log_tail)
            if epsilon < far or self.bounded:
                break
        if epsilon >= far:  # no log ratio reaches epsilon: only mass at infinity is left
            leak = self.certain_leak()
            return BoundsWithTest(leak, max(leak, math.exp(log_leak)), far, direction.reverse)
        saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        if saddle.log_delta < _DEEPEST_LOG_DELTA:
            # A tilt belongs to the PLDs it was found for: deeper ones reach further and prove nothing at that tilt.
            deepest = saddle_for_epsilon(direction.pilot(_DEEPEST_LOG_DELTA - 60.0), epsilon)
            bound = direction.moment_bound(epsilon, deepest, _DEEPEST_LOG_DELTA - 60.0)
            return BoundsWithTest(0.0, bound, math.inf, direction.reverse)
        if known > 0.0:
            bound = direction.moment_bound(epsilon, saddle, min(log_tail, math.log(known) - 40.0))
            if bound <= known:
                return BoundsWithTest(0.0, bound, math.inf, direction.reverse)
        if saddle.log_delta < 0.375 * log_tail:
            log_tail = math.floor(saddle.log_delta / 20.0 - 1.0) * 20.0 - 20.0 - math.log(direction.steps())
            saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        found = _solve_delta(direction, saddle, epsilon, log_tail, tolerance, known)
        if found.upper <= known:
            return found
        if found.upper > _MOMENTS_MISS * found.lower:
            moments = direction.moment_bound(epsilon, saddle, min(log_tail, saddle.log_delta - 60.0))
            found = _tighter(found, BoundsWithTest(0.0, moments, math.inf, direction.reverse))
        return found


def _larger(first: BoundsWithTest, second: BoundsWithTest) -> BoundsWithTest:
    """Bounds of the maximum of two quantities."""
    lead = first if first.lower >= second.lower else second
    return BoundsWithTest(lead.lower, max(first.upper, second.upper), lead.threshold, lead.reversed)


def _tighter(first: BoundsWithTest, second: BoundsWithTest) -> BoundsWithTest:
    """The better of two bounds of one quantity on either side."""
    lead = first if first.lower >= second.lower else second
    return BoundsWithTest(lead.lower, min(first.upper, second.upper), lead.threshold, lead.reversed)


def _solve_epsilon(
    direction: Direction, saddle: Saddle, delta: float, log_tail: float, tolerance: float
) -> BoundsWithTest:
    """By tilted composition, with large steps apart, or the best of both where neither is narrow enough.

    Large steps are distinguished first where the tilted total has more than one hump.
    """
    # Where every log ratio lies on one lattice a transform rounds nothing.
    humps = saddle.deviation > saddle.mean and direction.span is None
    first, second = (_conditioned_epsilon, _tilted_epsilon) if humps else (_tilted_epsilon, _conditioned_epsilon)
    best = first(direction, saddle, delta, log_tail, tolerance)
    if math.isfinite(best.upper) and best.upper - best.lower <= tolerance * best.upper:
        return best
    return _tighter(best, second(direction, saddle, delta, log_tail, tolerance))


def _conditioned_epsilon(
    direction: Direction, saddle: Saddle, delta: float, log_tail: float, tolerance: float
) -> BoundsWithTest:
    """From outcomes with a large step and those without."""
    apart = large_steps(direction, math.log(delta), log_tail, tolerance)
    nothing = BoundsWithTest(0.0, math.inf, math.inf, direction.reverse)
    try:
        return nothing if apart is None else apart.epsilon(delta)
    except CertificationError:  # no lattice holds both sizes
        return nothing


def _tilted_epsilon(
    direction: Direction, saddle: Saddle, delta: float, log_tail: float, tolerance: float
) -> BoundsWithTest:
    """Refine until upper - lower <= tolerance * upper, or the finest grid; always a valid bracket."""
    # The upper bound is computed finer anyway, so nearly the whole tolerance is the lower bound's: V theta eta^2 / 12.
    finest = finest_eta(direction.steps())
    eta = max(finest, within(1.7 * eta_for(saddle, tolerance)))
    best = BoundsWithTest(0.0, math.inf, math.inf, direction.reverse)
    width = math.inf
    for _ in range(_ROUNDS):
        relative = max(1e-9, 0.1 * tolerance * max(saddle.mean, 0.05 * saddle.deviation) * (saddle.tilt - 1.0))
        log_escape = log_escape_for(saddle, min(relative, 1e-3))
        tests = direction.lower(TailQuery(saddle, eta, log_tail, log_escape, TailFocus(delta=delta)))
        lower = tests.epsilon(delta)
        light = _lighter(direction, log_tail, saddle, lower)
        fine = signed_eta(light, direction.steps(), eta)
        signed_escape = log_escape - (5.0 if saddle.deviation < saddle.mean else 0.0)
        upper = direction.upper(TailQuery(light, fine, log_tail, signed_escape, TailFocus(delta=delta))).epsilon(delta)
        best = _tighter(best, BoundsWithTest(lower, upper, tests.best_test(lower)[1], direction.reverse))
        width, before = best.upper - best.lower, width
        if width <= tolerance * best.upper or eta <= finest or (math.isfinite(width) and width > 0.8 * before):
            break
        center = best.lower if math.isinf(best.upper) else 0.5 * (best.lower + best.upper)
        if abs(center - saddle.mean) > saddle.deviation or math.isinf(best.upper):
            saddle = _recentered(direction, log_tail, saddle, center, math.isinf(best.upper))
        else:
            ratio = width / (tolerance * best.upper)
            eta = max(finest, eta * max(0.2, 0.85 / math.sqrt(ratio)))
    return best


def _lighter(direction: Direction, log_tail: float, saddle: Saddle, epsilon: float) -> Saddle:
    """A slightly smaller tilt, where that makes the far right tail, and so the lattice, much lighter."""
    lighter = saddle_at(direction.pilot(log_tail), 1.0 + 0.85 * (saddle.tilt - 1.0))
    near = abs(lighter.mean - epsilon) < 1.5 * lighter.deviation
    return lighter if near and lighter.deviation < 0.85 * saddle.deviation else saddle


def _recentered(direction: Direction, log_tail: float, saddle: Saddle, center: float, beyond: bool) -> Saddle:
    """A saddle nearer to the answer; when the window held no answer at all, one further to the right."""
    target = saddle.mean + 3.0 * saddle.deviation if beyond else center
    moved = saddle_for_epsilon(direction.pilot(log_tail), target)
    if abs(moved.tilt - saddle.tilt) <= 1e-9 * saddle.tilt:
        return saddle_at(direction.pilot(log_tail), 1.0 + 1.3 * (saddle.tilt - 1.0) + 1e-6)
    return moved


def _solve_delta(
    direction: Direction, saddle: Saddle, epsilon: float, log_tail: float, tolerance: float, known: float
) -> BoundsWithTest:
    """As `_solve_epsilon`; at epsilon = 0 every total lies around its answer, and the plain transform comes first.

    An answer that is at most `known` need not be any narrower.
    """
    best = BoundsWithTest(0.0, 1.0, math.inf, direction.reverse)
    # Where every log ratio lies on one lattice a transform rounds nothing.
    humps = epsilon > 0.0 and saddle.deviation > saddle.mean and direction.span is None
    tries = ["conditioned", "tilted"] if humps else ["tilted", "conditioned"]
    if not humps and saddle.deviation > saddle.mean and direction.span is None:
        # Large steps that are rare are better distinguished than put on a finer lattice, or on one that is too long.
        sparse = direction.sparse(saddle, log_tail)
        tries = ["conditioned", "tilted"] if sparse else ["glance", "conditioned", "tilted"]
    for each in tries:
        if each == "conditioned":
            found = _conditioned_delta(direction, saddle, epsilon, tolerance)
        else:
            rounds = 1 if each == "glance" else _ROUNDS
            found = _tilted_delta(direction, saddle, epsilon, log_tail, tolerance, known, rounds)
        best = _tighter(best, found)
        if best.upper <= known or best.upper - best.lower <= tolerance * best.upper:
            break
    if best.lower > best.upper:
        raise CertificationError(f"bounds of delta crossed at epsilon={epsilon}: {best}. Please report this.")
    return best


def _conditioned_delta(direction: Direction, saddle: Saddle, epsilon: float, tolerance: float) -> BoundsWithTest:
    """Looks ever deeper, since a saddle point says little of a total with several humps."""
    best = BoundsWithTest(0.0, 1.0, math.inf, direction.reverse)
    log_delta = min(saddle.log_delta, 0.0) - 10.0
    for _ in range(_ROUNDS):
        log_tail = log_delta - math.log(direction.steps()) - 18.0
        apart = large_steps(direction, log_delta, log_tail, tolerance)
        if apart is None:
            return best
        best = _tighter(best, apart.delta(epsilon))
        if best.upper <= 0.0 or best.upper - best.lower <= tolerance * best.upper or math.log(best.upper) > log_delta:
            return best
        log_delta = max(math.log(best.upper) - 20.0, _DEEPEST_LOG_DELTA)
    return best


def _tilted_delta(
    direction: Direction,
    saddle: Saddle,
    epsilon: float,
    log_tail: float,
    tolerance: float,
    known: float = 0.0,
    rounds: int = _ROUNDS,
) -> BoundsWithTest:
    """Refine until upper - lower <= tolerance * upper, upper <= known, or the finest grid; always a valid bracket."""
    finest = finest_eta(direction.steps())
    eta = max(finest, eta_for_delta(saddle, tolerance))
    best = BoundsWithTest(0.0, 1.0, math.inf, direction.reverse)
    width = math.inf
    for _ in range(rounds):
        log_escape = log_escape_for(saddle, 0.1 * tolerance)
        focus = TailFocus(epsilon=epsilon)
        upper = direction.upper(TailQuery(saddle, eta, log_tail, log_escape, focus)).delta(epsilon)
        if upper <= known:
            return BoundsWithTest(best.lower, min(upper, best.upper), best.threshold, direction.reverse)
        lower, threshold = direction.lower(TailQuery(saddle, eta, log_tail, log_escape, focus)).best_test(epsilon)
        best = _tighter(best, BoundsWithTest(lower, upper, threshold, direction.reverse))
        width, before = best.upper - best.lower, width
        if width <= tolerance * best.upper or eta <= finest or width > 0.8 * before:
            break
        eta = max(finest, eta * max(0.2, 0.85 / math.sqrt(width / (tolerance * best.upper))))
    return best
