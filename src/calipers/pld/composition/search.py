"""The search for epsilon(delta) and delta(epsilon) of a composition: which tilt, which lattice, how fine.

In each order of the datasets: find a saddle point, and PLDs deep enough for it; look at the tail there from the sides
that are asked for; look again around the answer where that lies far away; take less of a tilt where rare large steps
decide; and where there are two sides, refine until upper - lower <= tolerance * upper. The order that promises less
comes second, and ends as soon as it certainly needs no more than the other one. All of this decides how well a bound is
computed, never whether it holds: whatever is found on the way is a bound, and the best of them is returned.

How fine follows from the tolerance. Splitting atoms over cells of width H adds about H^2/6 to the variance of a step's
log ratio, hence theta (theta - 1) E[H^2]/12 to its log moment; that moves epsilon by T theta E[H^2]/12, and the lower
bound loses half as much. With cells and lattice both at `eta` standard deviations of a step, the upper bound is off by
V theta eta^2 / 6 and the lower bound by half of that, V being the variance of the tilted total. The upper bound is what
people sign, so beyond the tolerance it is computed as if on a lattice of 1e-4, where that is affordable (`signed`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple

from calipers.bracket import Side
from calipers.errors import CertificationError
from calipers.pld.composition.direction import BoundsWithTest, Kind, Order, TailQuery, UpperDirection, counted
from calipers.pld.composition.fineness import (
    FACTORS_OWN,
    eta_for,
    eta_for_delta,
    finest_eta,
    log_escape_for,
    signed_eta,
)
from calipers.pld.composition.saddle import Saddle, lighter, saddle_for_delta, saddle_for_epsilon, with_less_tilt
from calipers.pld.composition.tails import TailFocus

_ROUNDS, _LOOKS, _NEAR = 6, 4, 0.7
"""Ever finer lattices; looks around an answer; one that is within so many deviations of its saddle point is as good as
the grid."""
_ROUGH = 2.0
"""Cells and lattice of the look that may show that the second order needs no more."""
_CLEARLY = 10.0
"""Logarithm: an attack whose estimate is so much smaller than another order's is not looked at."""
_LESS_TILT_GAINS = 1e-4
"""Ever less of a tilt is tried as long as a bound is better by this share."""
_ESCAPE, _MOST_ESCAPE = 1e-5, 1e-3
"""The share of delta that may leave a window, and at most where only a tolerance decides."""
_USUAL, DEEPEST, _DEEPEST_TAIL, _ESTIMATED = math.log(1e-8), -640.0, -700.0, 1.2
"""Logs of the delta that PLDs are made for until a smaller one is met; of the smallest that is resolved, below which
delta is reported as at most a moment bound, since nothing finer fits into a double; and of what PLDs leave out, at the
least. The log of a delta may be so many times that of its estimate."""


class Question(NamedTuple):
    """Epsilon at a delta, or delta at an epsilon, and how finely.

    `tolerance`: the share of the answer that cells and lattice may cost; None: as finely as factors are known. `share`:
    of the cells and lattice by which both sides are about as wide as the tolerance. `signed`: the upper bound is
    what people sign.
    """

    focus: TailFocus
    tolerance: float | None
    share: float = 1.0
    signed: bool = False

    def eta(self, saddle: Saddle, steps: int) -> float:
        """Cells and lattice in units of a step's deviation."""
        if self.tolerance is None:
            return FACTORS_OWN
        wanted = (eta_for if self.focus.epsilon is None else eta_for_delta)(saddle, self.tolerance)
        return max(finest_eta(steps), self.share * wanted)

    def query(self, side: Side, start: Start[Order], saddle: Saddle) -> TailQuery:
        """A look around a saddle."""
        steps, relative = start.direction.steps(), _ESCAPE
        eta, signed = self.eta(saddle, steps), self.signed and side is Side.UPPER
        if signed:
            eta = signed_eta(saddle, steps, eta)
        if self.tolerance is not None:
            # The share of delta by which epsilon moves by all of itself.
            whole = max(saddle.mean, 0.05 * saddle.deviation) * (saddle.tilt - 1.0) if self.focus.delta else 1.0
            relative = max(1e-9, min(_ESCAPE if signed else _MOST_ESCAPE, 0.1 * self.tolerance * whole))
        return TailQuery(saddle, eta, start.log_tail, log_escape_for(saddle, relative), self.focus)


class Start(NamedTuple, Generic[Order]):
    """Where to look first in one order of the datasets, how deep PLDs are, and whether a look can show the answer."""

    direction: Order
    saddle: Saddle
    log_tail: float
    resolved: bool = True

    @classmethod
    def of(cls, direction: Order, focus: TailFocus) -> Start[Order]:
        """The saddle of a delta; or that of an epsilon, with PLDs of the usual depth."""
        if focus.delta is not None:
            log_tail = direction.depth(math.log(focus.delta))
            return cls(direction, saddle_for_delta(direction.pilot(log_tail), math.log(focus.delta)), log_tail)
        assert focus.epsilon is not None
        return cls._at(direction, focus.epsilon, direction.depth(_USUAL))

    def deepened(self, focus: TailFocus) -> Start[Order]:
        """The same with PLDs deep enough for the delta of an epsilon."""
        found = self
        while focus.epsilon is not None and (needed := found._needed(focus.epsilon)) < found.log_tail - 1.0:
            try:
                deeper = self._at(self.direction, focus.epsilon, max(needed, 4.0 * found.log_tail))
            except CertificationError:  # too deep for doubles; what is cut off is charged at any depth
                break
            # A tilt belongs to the PLDs it was found for: deeper ones reach further, and may jump over epsilon.
            found = deeper._replace(resolved=found.resolved and deeper.resolved)
        return found

    @classmethod
    def _at(cls, direction: Order, epsilon: float, log_tail: float) -> Start[Order]:
        saddle = saddle_for_epsilon(direction.pilot(log_tail), epsilon)
        return cls(direction, saddle, log_tail, saddle.log_delta >= DEEPEST or epsilon >= direction.reach(log_tail))

    def _needed(self, epsilon: float) -> float:
        """How deep PLDs have to be, by what these ones say; as deep as can be where they do not reach epsilon."""
        beyond = epsilon >= self.direction.reach(self.log_tail)
        # What proofs cut off is added to delta, however much smaller than its estimate that is.
        times = _ESTIMATED if isinstance(self.direction, UpperDirection) else 1.0
        return max(_DEEPEST_TAIL, -math.inf if beyond else self.direction.depth(times * self.saddle.log_delta))

    def promise(self, focus: TailFocus) -> float:
        """An estimate of the answer, of delta its logarithm; ratios that do not reach epsilon show less than any."""
        if focus.epsilon is None:
            return self.saddle.mean
        return self.log_tail if focus.epsilon >= self.direction.reach(self.log_tail) else self.saddle.log_delta


class SearchedProduct(ABC, Generic[Kind, Order]):
    """Factors with multiplicities in the orders that differ, and the bounds that their tails give on some sides."""

    sides: tuple[Side, ...]

    def __init__(self, factors: Sequence[tuple[Kind, int]]) -> None:
        self.factors, orientations = counted(factors)
        self.directions: list[Order] = self._orders(orientations)
        self.steps: int = self.directions[0].steps()

    @abstractmethod
    def _orders(self, orientations: tuple[bool, ...]) -> list[Order]: ...

    def _answer(self, asked: Question) -> BoundsWithTest:
        """Bounds of the larger of both orders; total variation has no direction."""
        starts = [Start.of(direction, asked.focus) for direction in self.directions]
        first, *others = sorted(starts, key=lambda start: -start.promise(asked.focus))
        best = self._in_order(first.deepened(asked.focus), asked)
        for start in others:
            if asked.focus.epsilon == 0.0:
                best = best if self._narrow(best, asked) else best.tighter(self._in_order(start, asked))
                continue
            known = best.lower if Side.LOWER in self.sides else best.upper
            if not self._clearly_less(start, asked, known):
                start = start.deepened(asked.focus)  # the same order
                if not self._dismissed(start, asked, known):
                    best = best.larger(self._in_order(start, asked))
        if best.lower > best.upper:
            raise CertificationError(f"bounds crossed at {asked.focus}: {best}. Please report this.")
        return best

    def _narrow(self, found: BoundsWithTest, asked: Question) -> bool:
        """Whether nothing finer is needed; of one side alone it is not known how far it is off."""
        if len(self.sides) == 1 or asked.tolerance is None:
            return True
        return math.isfinite(found.upper) and found.upper - found.lower <= asked.tolerance * found.upper

    def _clearly_less(self, start: Start[Order], asked: Question, known: float) -> bool:
        """Whether PLDs of the usual depth show that this order needs no more; deeper ones may take long to build."""
        direction, saddle, log_tail, _ = start
        if Side.UPPER in self.sides:
            return direction.without_looking(saddle, log_tail, asked.focus, known)[0] <= known
        return asked.focus.epsilon is not None and start.promise(asked.focus) < math.log(max(known, 1e-300)) - _CLEARLY

    def _dismissed(self, start: Start[Order], asked: Question, known: float) -> bool:
        """Whether this order certainly needs no more than `known`: by one moment, or by a rough look."""
        direction, saddle, log_tail, resolved = start
        if Side.UPPER not in self.sides:
            return False
        bound, enough = direction.without_looking(saddle, log_tail, asked.focus, known)
        if bound <= known or enough or not resolved or asked.tolerance is None:
            return bound <= known
        rough = asked._replace(share=_ROUGH, signed=False)
        return direction.look(Side.UPPER, rough.query(Side.UPPER, start, saddle)).upper <= known

    def _in_order(self, start: Start[Order], asked: Question) -> BoundsWithTest:
        """Bounds in one order: what needs no transform, and what looks add."""
        direction, saddle, log_tail, resolved = start
        bound, enough = direction.without_looking(saddle, log_tail, asked.focus)
        best = BoundsWithTest(0.0, bound, math.inf, direction.reverse)
        # Where mass at infinity exceeds delta no look proves anything.
        enough = enough or not resolved or (Side.LOWER not in self.sides and math.isinf(bound))
        return best if enough else best.tighter(self._searched(start, asked))

    def _searched(self, start: Start[Order], asked: Question) -> BoundsWithTest:
        """Refine until both sides agree, or the finest lattice; one side alone is looked at once."""
        best, width = BoundsWithTest(0.0, math.inf, math.inf, start.direction.reverse), math.inf
        for _ in range(_ROUNDS):
            for side in self.sides:
                found, start = self._looked(side, start, asked)
                best = best.tighter(found)
            width, before = best.upper - best.lower, width
            finest = asked.eta(start.saddle, self.steps) <= finest_eta(self.steps)
            if self._narrow(best, asked) or finest or math.isinf(width) or width > 0.8 * before:
                break
            assert asked.tolerance is not None
            finer = max(0.2, 0.85 * math.sqrt(asked.tolerance * best.upper / width))
            asked = asked._replace(share=finer * asked.share)
        return best

    def _looked(self, side: Side, start: Start[Order], asked: Question) -> tuple[BoundsWithTest, Start[Order]]:
        """The best of all looks, of epsilon each around the answer of the one before; and where the last one was.

        Lattices for a tolerance are fine enough for what usually happens, however a tilt spreads the total: there less
        of a tilt only makes those of upper bounds shorter. Others are looked at with ever less of it.
        """
        direction, saddle, log_tail, _ = start
        pilot, epsilon = direction.pilot(log_tail), asked.focus.epsilon
        best = BoundsWithTest(0.0, math.inf, math.inf, direction.reverse)
        for look in range(_LOOKS):
            lattice = self.steps > 1 and asked.tolerance is not None
            less = lighter(pilot, saddle) if side is Side.UPPER and lattice else saddle
            found = direction.look(side, asked.query(side, start, less))
            best, distance = best.tighter(found), found.on(side) - saddle.mean
            if epsilon is not None or self.steps == 1 or abs(distance) <= _NEAR * saddle.deviation:
                break
            moved = saddle_for_epsilon(pilot, saddle.mean + min(distance, 3.0 * saddle.deviation))
            if look == _LOOKS - 1 or abs(moved.tilt - saddle.tilt) <= 1e-3 * saddle.tilt:
                break
            saddle = moved
        center = best.on(side) if epsilon is None else epsilon
        coarse = self.steps > 1 and asked.tolerance is None and math.isfinite(center)
        for less in with_less_tilt(pilot, saddle, center) if coarse else ():
            before = best.on(side)
            best = best.tighter(direction.look(side, asked.query(side, start, less)))
            if abs(best.on(side) - before) <= _LESS_TILT_GAINS * before:
                break
        return best, start._replace(saddle=saddle)
