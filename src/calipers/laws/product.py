"""Adaptive compositions, measured from both sides.

`Product` holds factors (anything that can state its law on a side, with a multiplicity) and
answers epsilon(delta), delta(epsilon) and whole curves with a certified lower and upper value.
Composition of dominating pairs dominates the composed mechanism, and a product of the pairs of
one fixed attack is itself an attack, so both jaws are products of laws.

How fine to compute is decided from the tolerance. Splitting atoms over cells of width H adds
about H^2/6 to the variance of a step's log ratio, hence theta (theta - 1) E[H^2]/12 to its log moment;
that moves epsilon by T theta E[H^2]/12, and the lower jaw loses half as much. With cells and lattice
both at `eta` standard deviations of a step, the upper jaw is off by V theta eta^2 / 6 and the lower jaw
by half of that, V being the variance of the tilted total. We solve for eta, compute, look at the width, and
refine if needed. The upper jaw is what people sign, so beyond the tolerance it is computed as if
on a lattice of 1e-4, where that is affordable.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.errors import CertificationError, InputError
from calipers.laws.convolve import (
    TWO_STAGE_COUNT,
    LatticePlan,
    LatticeTooLongError,
    block_size,
    compose_lower,
    compose_upper,
)
from calipers.laws.law import Law
from calipers.laws.pair import Pair
from calipers.laws.saddle import Saddle, saddle_at, saddle_for_delta, saddle_for_epsilon
from calipers.laws.tails import Charges, LowerTail, UpperTail, lower_tail, single_tail, upper_tail

_COARSEST, _FINEST = 0.25, 1e-4
_PILOT = 0.2
_DEEPEST_LOG_DELTA = -640.0
"""Below e^-640 a delta is reported as at most a moment bound: nothing finer fits into a double."""
_ROUNDS = 6
_LONGEST_SINGLE_STAGE = 250_000.0
_SIGNED_STEP, _SIGNED_LENGTH, _SIGNED_CELLS = 0.95e-4, 60_000.0, 0.45
"""The upper jaw is split no coarser than this lattice, as long as a lattice of this length can hold it.

Cells are cheaper than lattice points, so they are this much finer than the lattice.
"""


class LawSource(Protocol):
    """Anything that can be discretised from both sides, such as `Pair`."""

    @property
    def symmetric(self) -> bool:
        """Whether (P, Q) and (Q, P) have the same law."""
        ...

    def law(self, side: Side, resolution: float, log_tail: float) -> Law:
        """A law on `side`; finer `resolution` is tighter; tails beyond e^log_tail may be lumped."""
        ...


@dataclass(frozen=True)
class Jaws:
    """lower <= truth <= upper, and the test behind the lower jaw (score threshold, direction)."""

    lower: float
    upper: float
    threshold: float
    reversed: bool


class Shelf:
    """Laws that were built once, for both directions of a product."""

    def __init__(self, factors: Sequence[tuple[LawSource, int]]) -> None:
        self.factors = list(factors)
        self._laws: dict[tuple[Side, float, float, float | None], list[tuple[Law, int]]] = {}

    def laws(self, side: Side, resolution: float, log_tail: float, tilt: float | None) -> list[tuple[Law, int]]:
        """Every factor as a law on `side`; pairs place their cells for `tilt`."""
        key = (side, resolution, log_tail, tilt)
        if key not in self._laws:
            if len(self._laws) > 12:
                self._laws.clear()
            self._laws[key] = [
                (
                    source.law(side, resolution, log_tail, tilt)
                    if isinstance(source, Pair)
                    else source.law(side, resolution, log_tail),
                    count,
                )
                for source, count in self.factors
            ]
        return self._laws[key]


class Direction:
    """One order of the pair: D(P||Q), or D(Q||P) when `reverse`."""

    def __init__(self, shelf: Shelf, reverse: bool) -> None:
        self.shelf = shelf
        self.factors = shelf.factors
        self.reverse = reverse
        spans = {getattr(source, "span", None) for source, _ in self.factors}
        self.span: float | None = spans.pop() if len(spans) == 1 else None

    def laws(self, side: Side, resolution: float, log_tail: float, tilt: float | None) -> list[tuple[Law, int]]:
        """The factors as laws on one side, in this direction; `tilt` is meant in this direction."""
        # L^t under Q is (1/L)^(1-t) under P.
        forward = tilt if tilt is None or not self.reverse else 1.0 - tilt
        built = self.shelf.laws(side, resolution, log_tail, forward)
        return [(law.reverse(), count) for law, count in built] if self.reverse else built

    def steps(self) -> int:
        """Number of composed steps."""
        return sum(count for _, count in self.factors)

    def pilot(self, log_tail: float) -> list[tuple[Law, int]]:
        """Cheap UPPER laws, good enough to find saddle points."""
        return self.laws(Side.UPPER, _PILOT, log_tail, None)

    def _plan(self, saddle: Saddle, eta: float, log_tail: float, log_escape: float) -> LatticePlan:
        """One stage while the lattice stays short; else half of the error budget eta^2 V for each of two stages."""
        steps = self.steps()
        longest = max(count for _, count in self.factors)
        length = 13.0 * math.sqrt(steps) / eta
        if longest < TWO_STAGE_COUNT or length < (_LONGEST_SINGLE_STAGE if longest < 30_000 else 60_000.0):
            step = max(eta * math.sqrt(saddle.variance / steps), self._finest_step(log_tail))
            if self.span is not None and self.span >= step:
                step = self.span  # every log ratio lies on this lattice already: nothing is rounded
            return LatticePlan(step, step, saddle.tilt, log_escape, saddle.deviation < saddle.mean)
        final = sum(_roundings(count) for _, count in self.factors)
        fine = max(eta * math.sqrt(0.5 * saddle.variance / steps), self._finest_step(log_tail))
        coarse = eta * math.sqrt(0.5 * saddle.variance / final)
        return LatticePlan(coarse, fine, saddle.tilt, log_escape, saddle.deviation < saddle.mean)

    def _finest_step(self, log_tail: float) -> float:
        """A lattice finer than this would have no digits left for positions."""
        return 1e-9 * max(float(np.max(np.abs(law.log_ratio))) for law, _ in self.pilot(log_tail))

    def end(self, log_tail: float) -> tuple[float, float]:
        """(eps, log delta): beyond the largest possible log ratio only the mass at infinity is left."""
        laws = self.pilot(log_tail)
        charges = Charges.of(laws)
        far = math.fsum(count * float(law.log_ratio[-1]) for law, count in laws)
        leak = charges.infinite_upper
        return far + charges.shift + 1e-12 * abs(far), math.log(leak) if leak > 0 else -math.inf

    def moment_bound(self, epsilon: float, saddle: Saddle, log_tail: float) -> float:
        """At least D at epsilon, from one moment: (L - k)+ <= L^t / k^(t-1)."""
        laws = self.pilot(log_tail)
        charges = Charges.of(laws)
        moment = math.fsum(count * law.cumulants(saddle.tilt)[0] for law, count in laws)
        exponent = moment - (saddle.tilt - 1.0) * epsilon + saddle.tilt * charges.shift + charges.log_mass
        exponent += 1e-9 * (1.0 + abs(moment))
        return math.exp(min(0.0, max(exponent, -700.0))) + charges.infinite_upper

    def upper(
        self, saddle: Saddle, eta: float, log_tail: float, log_escape: float, focus: float | None = None
    ) -> UpperTail:
        """Certified profile nodes around the saddle, dense where log delta is near `focus`."""
        if self.steps() == 1:
            laws = self.laws(Side.UPPER, eta, log_tail, saddle.tilt)
            tail = single_tail(laws[0][0])
            assert isinstance(tail, UpperTail)
            return tail
        cells = min(_COARSEST, eta if focus is None else _SIGNED_CELLS * eta)
        laws = self.laws(Side.UPPER, cells, log_tail, saddle.tilt)
        plan = self._plan(saddle, eta, log_tail, log_escape)
        try:
            return upper_tail(compose_upper(laws, plan), plan.step, plan.tilt, Charges.of(laws), focus)
        except LatticeTooLongError as error:
            return self.upper(saddle, 1.2 * error.excess * eta, log_tail, log_escape, focus)

    def lower(self, saddle: Saddle, eta: float, log_tail: float, log_escape: float) -> LowerTail:
        """Certified tests around the saddle."""
        laws = self.laws(Side.LOWER, min(eta, _COARSEST), log_tail, saddle.tilt)
        if self.steps() == 1:
            tail = single_tail(laws[0][0])
            assert isinstance(tail, LowerTail)
            return tail
        plan = self._plan(saddle, eta, log_tail, log_escape)
        try:
            under_p, under_q = compose_lower(laws, plan)
        except LatticeTooLongError as error:
            return self.lower(saddle, 1.2 * error.excess * eta, log_tail, log_escape)
        return lower_tail(under_p, under_q, plan.step, plan.tilt, Charges.of(laws))


def _roundings(count: int) -> int:
    """How many terms of a factor are rounded to the final lattice."""
    if count < TWO_STAGE_COUNT:
        return count
    times, rest = divmod(count, block_size(count))
    return times + rest


def log_escape_for(saddle: Saddle, relative: float) -> float:
    """Log of the mass that may leave the window so that delta moves by at most the share `relative`.

    The tail sum that is delta, in units of the largest weight, is E[g(Y)] for a bell-shaped Y of the
    given deviation: about 0.4 deviations when those are short, 1/(tilt (tilt - 1) 2.5 deviations) when
    the weights fall off first.
    """
    short = 0.4 * saddle.deviation
    steep = 1.0 / (2.5 * saddle.tilt * max(saddle.tilt - 1.0, 1e-9) * saddle.deviation)
    return max(-34.0, math.log(relative * min(0.5, short, steep)) - 1.5)


class Product:
    """An adaptive composition of sources with multiplicities."""

    @implements("zhu2022:thm10")
    def __init__(self, factors: Sequence[tuple[LawSource, int]]) -> None:
        if not factors or any(count < 1 for _, count in factors):
            raise InputError("A product needs at least one factor, each with a count of at least 1.")
        self.factors = list(factors)
        self.symmetric = all(source.symmetric for source, _ in self.factors)
        shelf = Shelf(self.factors)
        self.bounded = all(_is_bounded(source) for source, _ in self.factors)
        self.directions = [Direction(shelf, False)]
        if not self.symmetric:
            self.directions.append(Direction(shelf, True))

    def epsilon(self, delta: float, tolerance: float = 1e-3) -> Jaws:
        """Jaws of epsilon(delta) = smallest eps >= 0 with D <= delta in both directions."""
        delta = OPEN_UNIT.check("delta", delta)
        log_tail = math.log(delta) - math.log(self.directions[0].steps()) - 18.0
        if self.certain_leak() > delta:
            return Jaws(math.inf, math.inf, math.inf, False)  # rejecting where Q vanishes beats every epsilon
        ordered = []
        for direction in self.directions:
            pilot = direction.pilot(log_tail)
            ordered.append((saddle_for_delta(pilot, math.log(delta)), direction))
        ordered.sort(key=lambda item: -item[0].mean)
        best = _solve_epsilon(ordered[0][1], ordered[0][0], delta, log_tail, tolerance)
        for saddle, direction in ordered[1:]:
            # A cheap or a rough proof that the other direction needs no more settles the matter.
            if direction.moment_bound(best.lower, saddle, log_tail) <= delta:
                continue
            rough = direction.upper(
                saddle, _within(2.0 * eta_for(saddle, tolerance)), log_tail, log_escape_for(saddle, 1e-2)
            )
            if rough.epsilon(delta) > best.lower:
                other = _solve_epsilon(direction, saddle, delta, log_tail, tolerance)
                best = _larger(best, other)
        return best

    def certain_leak(self) -> float:
        """At most the probability of an outcome that only one of the two datasets can produce."""
        leaks = []
        for name in ("p_inf", "q_zero"):
            kept = math.fsum(count * math.log1p(-min(getattr(s, name, 0.0), 0.5)) for s, count in self.factors)
            leaks.append(-math.expm1(kept) * (1.0 - 1e-12))
        return max(leaks)

    def delta(self, epsilon: float, tolerance: float = 1e-3) -> Jaws:
        """Jaws of delta(epsilon), the larger of both directions, at epsilon >= 0."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        found = [self._delta_one_way(direction, epsilon, tolerance) for direction in self.directions]
        return functools.reduce(_larger, found)

    def _delta_one_way(self, direction: Direction, epsilon: float, tolerance: float) -> Jaws:
        """Jaws of D at epsilon in one direction."""
        for log_tail in (-40.0, -160.0, _DEEPEST_LOG_DELTA - 60.0):
            far, log_leak = direction.end(log_tail)
            if epsilon < far or self.bounded:
                break
        if epsilon >= far:  # no log ratio reaches epsilon: only mass at infinity is left
            leak = self.certain_leak()
            return Jaws(leak, max(leak, math.exp(log_leak)), far, direction.reverse)
        saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        if saddle.log_delta < _DEEPEST_LOG_DELTA:
            bound = direction.moment_bound(epsilon, saddle, _DEEPEST_LOG_DELTA - 60.0)
            return Jaws(0.0, bound, math.inf, direction.reverse)
        if saddle.log_delta < 0.375 * log_tail:
            log_tail = math.floor(saddle.log_delta / 20.0 - 1.0) * 20.0 - 20.0 - math.log(direction.steps())
            saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        return _solve_delta(direction, saddle, epsilon, log_tail, tolerance)


def _is_bounded(source: LawSource) -> bool:
    """Whether the law's last atom is its true end, so that nothing but mass at infinity lies beyond it."""
    if not isinstance(source, Pair):
        return False
    return all(math.isinf(part.log_p_above(part.range_for(-40.0)[1])) for part in source.smooth)


def _larger(first: Jaws, second: Jaws) -> Jaws:
    """Jaws of the maximum of two quantities."""
    lead = first if first.lower >= second.lower else second
    return Jaws(lead.lower, max(first.upper, second.upper), lead.threshold, lead.reversed)


def eta_for(saddle: Saddle, tolerance: float) -> float:
    """Cells and lattice in units of a step's deviation so that epsilon's width is about 0.6 tolerance."""
    allowed = 0.6 * tolerance * max(saddle.mean, 0.05 * saddle.deviation)
    return _within(math.sqrt(4.0 * allowed / (saddle.variance * saddle.tilt)))


def _within(eta: float) -> float:
    return min(_COARSEST, max(_FINEST, eta))


def _finest_eta(steps: int) -> float:
    """The finest eta whose lattice stays within a few hundred thousand points, in one stage or two."""
    return max(_FINEST, 13.0 * math.sqrt(min(float(steps), 2.0 * math.sqrt(steps))) / 4e5)


def _signed_eta(saddle: Saddle, steps: int, eta: float) -> float:
    """The finer eta of the upper jaw: cells and lattice together cost no more than a lattice of _SIGNED_STEP."""
    if steps == 1:
        return min(eta, max(0.1 * eta, 2e-3))
    # A total made of few large steps is not bell-shaped, and errors weigh more than the saddle point says.
    caution = 0.55 if saddle.deviation > saddle.mean else 1.0
    wanted = caution * _SIGNED_STEP * math.sqrt(steps / (1.0 + _SIGNED_CELLS**2)) / saddle.deviation
    affordable = caution**1.5 * 13.0 * math.sqrt(min(float(steps), 2.0 * math.sqrt(steps))) / _SIGNED_LENGTH
    return float(min(eta, max(affordable, wanted)))


def _solve_epsilon(direction: Direction, saddle: Saddle, delta: float, log_tail: float, tolerance: float) -> Jaws:
    """Refine until upper - lower <= tolerance * upper, or the finest grid; always a valid bracket."""
    # The upper jaw is computed finer anyway, so nearly the whole tolerance is the lower jaw's: V theta eta^2 / 12.
    finest = _finest_eta(direction.steps())
    eta = max(finest, _within(1.7 * eta_for(saddle, tolerance)))
    best = Jaws(0.0, math.inf, math.inf, direction.reverse)
    rough, width = True, math.inf
    for _ in range(_ROUNDS):
        relative = max(1e-9, 0.1 * tolerance * max(saddle.mean, 0.05 * saddle.deviation) * (saddle.tilt - 1.0))
        log_escape = log_escape_for(saddle, min(relative, 1e-3))
        tests = direction.lower(saddle, eta, log_tail, log_escape)
        lower = tests.epsilon(delta)
        if rough and abs(lower - saddle.mean) > 0.7 * saddle.deviation:
            # The estimate of where epsilon lies was poor; look there before spending on the upper jaw.
            saddle, rough = _recentred(direction, log_tail, saddle, lower, False), False
            best = Jaws(max(lower, best.lower), best.upper, tests.best_test(lower)[1], direction.reverse)
            continue
        light = _lighter(direction, log_tail, saddle, lower)
        fine = _signed_eta(light, direction.steps(), eta)
        upper = direction.upper(light, fine, log_tail, log_escape - 5.0, math.log(delta)).epsilon(delta)
        if lower > best.lower:
            best = Jaws(lower, best.upper, tests.best_test(lower)[1], direction.reverse)
        if upper < best.upper:
            best = Jaws(best.lower, upper, best.threshold, best.reversed)
        width, before = best.upper - best.lower, width
        if width <= tolerance * best.upper or eta <= finest or (math.isfinite(width) and width > 0.8 * before):
            return best
        center = best.lower if math.isinf(best.upper) else 0.5 * (best.lower + best.upper)
        if abs(center - saddle.mean) > saddle.deviation or math.isinf(best.upper):
            saddle = _recentred(direction, log_tail, saddle, center, math.isinf(best.upper))
        else:
            ratio = width / (tolerance * best.upper)
            eta = max(finest, eta * max(0.2, 0.85 / math.sqrt(ratio)))
    return best


def _lighter(direction: Direction, log_tail: float, saddle: Saddle, epsilon: float) -> Saddle:
    """A slightly smaller tilt, where that makes the far right tail, and so the lattice, much lighter."""
    lighter = saddle_at(direction.pilot(log_tail), 1.0 + 0.85 * (saddle.tilt - 1.0))
    near = abs(lighter.mean - epsilon) < 1.5 * lighter.deviation
    return lighter if near and lighter.deviation < 0.85 * saddle.deviation else saddle


def _recentred(direction: Direction, log_tail: float, saddle: Saddle, center: float, beyond: bool) -> Saddle:
    """A saddle nearer to the answer; when the window held no answer at all, one further to the right."""
    target = saddle.mean + 3.0 * saddle.deviation if beyond else center
    moved = saddle_for_epsilon(direction.pilot(log_tail), target)
    if abs(moved.tilt - saddle.tilt) <= 1e-9 * saddle.tilt:
        return saddle_at(direction.pilot(log_tail), 1.0 + 1.3 * (saddle.tilt - 1.0) + 1e-6)
    return moved


def _solve_delta(direction: Direction, saddle: Saddle, epsilon: float, log_tail: float, tolerance: float) -> Jaws:
    """Refine until upper - lower <= tolerance * upper, or the finest grid; always a valid bracket."""
    # Both jaws together move log delta by V theta (theta - 1) eta^2 / 4, and by about eta^2 / 4 however flat the tilt.
    curvature = 1.0 + saddle.variance * saddle.tilt * (saddle.tilt - 1.0)
    finest = _finest_eta(direction.steps())
    eta = max(finest, _within(math.sqrt(4.0 * 0.6 * tolerance / curvature)))
    best = Jaws(0.0, 1.0, math.inf, direction.reverse)
    width = math.inf
    for _ in range(_ROUNDS):
        log_escape = log_escape_for(saddle, 0.1 * tolerance)
        upper = direction.upper(saddle, eta, log_tail, log_escape).delta(epsilon)
        lower, threshold = direction.lower(saddle, eta, log_tail, log_escape).best_test(epsilon)
        if lower > best.lower:
            best = Jaws(lower, best.upper, threshold, direction.reverse)
        best = Jaws(best.lower, min(upper, best.upper), best.threshold, best.reversed)
        width, before = best.upper - best.lower, width
        if width <= tolerance * best.upper or eta <= finest or width > 0.8 * before:
            break
        eta = max(finest, eta * max(0.2, 0.85 / math.sqrt(width / (tolerance * best.upper))))
    if best.lower > best.upper:
        raise CertificationError(f"delta jaws crossed at epsilon={epsilon}: {best}. Please report this.")
    return best
