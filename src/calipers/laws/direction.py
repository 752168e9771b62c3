"""One order of a pair, composed: laws on both sides, certified tails around a saddle point.

`Direction` knows the factors and which dataset comes first. It builds laws for a tilt, plans the
lattice, and returns the tails from which `calipers.laws.product` reads numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from calipers.bracket import Side
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
from calipers.laws.saddle import Saddle, saddle_at
from calipers.laws.tails import Charges, Focus, LowerTail, UpperTail, lower_tail, single_tail, upper_tail

COARSEST, FINEST = 0.25, 1e-4
SIGNED_CELLS = 0.35
"""For the upper jaw of epsilon cells are this much finer than the lattice: they are cheaper than its points."""
_PILOT, _FINEST_PILOT, _ASTRAY = 0.2, 0.01, 0.3
"""Cells of pilots; they are finer where the total would lie so many deviations astray."""
_LONGEST_SINGLE_STAGE = 250_000.0


class LawSource(Protocol):
    """Anything that can be discretized from both sides, such as `Pair`."""

    @property
    def symmetric(self) -> bool:
        """Whether (P, Q) and (Q, P) have the same law."""
        ...

    def law(self, side: Side, resolution: float, log_tail: float) -> Law:
        """A law on `side`; finer `resolution` is tighter; tails beyond e^log_tail may be lumped."""
        ...


@dataclass(frozen=True)
class Jaws:
    """lower <= truth <= upper, and the test behind the lower jaw (score threshold, direction).

    Where several proofs or attacks compete, `proof` is the statement behind the upper jaw and `attack` says which
    attack gave the lower one.
    """

    lower: float
    upper: float
    threshold: float
    reversed: bool
    proof: str = ""
    attack: str = ""


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
            built = []
            for source, count in self.factors:
                placed = (tilt,) if isinstance(source, Pair) else ()
                law = source.law(side, resolution, log_tail, *placed)
                side.same(law.side)
                built.append((law, count))
            self._laws[key] = built
        return self._laws[key]


class Direction:
    """One order of the pair: D(P||Q), or D(Q||P) when `reverse`."""

    def __init__(self, shelf: Shelf, reverse: bool) -> None:
        self.shelf = shelf
        self.factors = shelf.factors
        self.reverse = reverse
        spans = {getattr(source, "span", None) for source, _ in self.factors}
        self.span: float | None = spans.pop() if len(spans) == 1 else None
        self._pilot: float | None = None

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
        """Cheap UPPER laws, good enough to find saddle points.

        Cells of width w move the mean of the total by about V w^2/6, V being its variance: hardly, unless that is huge.
        """
        if self._pilot is None:
            rough = saddle_at(self.laws(Side.UPPER, _PILOT, log_tail, None), 1.0)
            self._pilot = min(_PILOT, max(_FINEST_PILOT, math.sqrt(6.0 * _ASTRAY / rough.deviation)))
        return self.laws(Side.UPPER, self._pilot, log_tail, None)

    def _plan(self, saddle: Saddle, eta: float, log_tail: float, log_escape: float) -> LatticePlan:
        """One stage while the lattice stays short; else half of the error budget eta^2 V for each of two stages."""
        steps = self.steps()
        longest = max(count for _, count in self.factors)
        length = 13.0 * math.sqrt(steps) / eta
        if longest < TWO_STAGE_COUNT or length < (_LONGEST_SINGLE_STAGE if longest < 30_000 else 60_000.0):
            step = max(eta * math.sqrt(saddle.variance / steps), self._finest_step(log_tail))
            if self.span is not None and self.span >= step:
                # Every log ratio lies on this lattice already: nothing is rounded, so let next to nothing escape.
                return LatticePlan(self.span, self.span, saddle.tilt, log_escape - 18.0)
            return LatticePlan(step, step, saddle.tilt, log_escape, saddle.deviation < saddle.mean)
        final = sum(_roundings(count) for _, count in self.factors)
        fine = max(eta * math.sqrt(0.5 * saddle.variance / steps), self._finest_step(log_tail))
        coarse = eta * math.sqrt(0.5 * saddle.variance / final)
        return LatticePlan(coarse, fine, saddle.tilt, log_escape, saddle.deviation < saddle.mean)

    def plan(self, saddle: Saddle, eta: float, log_tail: float, log_escape: float) -> LatticePlan:
        """A lattice around any tilt, with a window that the total rarely leaves at either end."""
        return replace(self._plan(saddle, eta, log_tail, log_escape), bell_shaped=False)

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
        charges = Charges.of(laws, saddle.tilt)
        moment = math.fsum(count * law.cumulants(saddle.tilt)[0] for law, count in laws)
        exponent = moment - (saddle.tilt - 1.0) * epsilon + saddle.tilt * charges.shift + charges.log_mass
        exponent += 1e-9 * (1.0 + abs(moment))
        return math.exp(min(0.0, max(exponent, -700.0))) + charges.infinite_upper

    def upper(
        self, saddle: Saddle, eta: float, log_tail: float, log_escape: float, focus: Focus | None = None
    ) -> UpperTail:
        """Certified profile nodes around the saddle, dense around the `focus`."""
        if self.steps() == 1:
            laws = self.laws(Side.UPPER, eta, log_tail, saddle.tilt)
            tail = single_tail(laws[0][0])
            assert isinstance(tail, UpperTail)
            return tail
        cells = min(COARSEST, eta if focus is None or focus.delta is None else SIGNED_CELLS * eta)
        laws = self.laws(Side.UPPER, cells, log_tail, saddle.tilt)
        plan = self._plan(saddle, eta, log_tail, log_escape)
        try:
            return upper_tail(compose_upper(laws, plan), plan.step, plan.tilt, Charges.of(laws, plan.tilt), focus)
        except LatticeTooLongError as error:
            return self.upper(saddle, 1.2 * error.excess * eta, log_tail, log_escape, focus)

    def lower(
        self, saddle: Saddle, eta: float, log_tail: float, log_escape: float, focus: Focus | None = None
    ) -> LowerTail:
        """Certified tests around the saddle, dense around the `focus`."""
        laws = self.laws(Side.LOWER, min(eta, COARSEST), log_tail, saddle.tilt)
        if self.steps() == 1:
            tail = single_tail(laws[0][0])
            assert isinstance(tail, LowerTail)
            return tail
        plan = self._plan(saddle, eta, log_tail, log_escape)
        try:
            under_p, under_q = compose_lower(laws, plan)
        except LatticeTooLongError as error:
            return self.lower(saddle, 1.2 * error.excess * eta, log_tail, log_escape, focus)
        return lower_tail(under_p, under_q, plan.step, plan.tilt, Charges.of(laws, plan.tilt), focus)


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
    # A total with more than one hump may have little mass near the answer.
    caution = 6.0 if saddle.deviation > saddle.mean else 0.0
    return max(-38.0, math.log(relative * min(0.5, short, steep)) - 1.5 - caution)


def eta_for(saddle: Saddle, tolerance: float) -> float:
    """Cells and lattice in units of a step's deviation so that epsilon's width is about 0.6 tolerance."""
    allowed = 0.6 * tolerance * max(saddle.mean, 0.05 * saddle.deviation)
    return within(math.sqrt(4.0 * allowed / (saddle.variance * saddle.tilt)))


def within(eta: float) -> float:
    """eta between the finest and the coarsest that make sense."""
    return min(COARSEST, max(FINEST, eta))
