"""One order of a pair, composed: PLDs, and certified tails around a saddle point.

A direction knows the factors and which dataset comes first. It builds PLDs for a tilt, plans the lattice, and returns
the tails from which `calipers.pld.composition.search` reads numbers. `UpperDirection` composes proofs,
`LowerDirection` attacks; `Direction` is both, for factors that have PLDs on either side, and then tilts and lattices
are chosen by the pessimistic PLDs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from calipers.bracket import Side
from calipers.domains import COUNT
from calipers.errors import InputError
from calipers.memoize import memoize
from calipers.pld.composition.convolve import (
    TWO_STAGE_COUNT,
    LatticePlan,
    LatticeTooLongError,
    block_size,
    compose_lower,
    compose_upper,
)
from calipers.pld.composition.fineness import COARSEST, FACTORS_OWN, SIGNED_CELLS
from calipers.pld.composition.saddle import Saddle, saddle_at
from calipers.pld.composition.tails import (
    ErrorTerms,
    LowerTail,
    TailFocus,
    UpperTail,
    lower_tail,
    single_lower_tail,
    single_upper_tail,
    upper_tail,
)
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AnyPair, AttainedPair, DominatingPair, TwoSidedPair

PILOT, _FINEST_PILOT, _ASTRAY = 0.2, 0.01, 0.3
"""Cells of pilots; they are finer where the total would lie so many deviations astray."""
COARSE_MARGIN = 13.0
"""How much deeper than its curve a PLD of few nodes has to be where nothing is multiplied: that is where it ends."""
_LONGEST_SINGLE_STAGE, _HIGH_NOISE_TOTAL = 600_000.0, 0.01
"""A longer lattice is composed in two stages; of very many steps a shorter one, if the total deviates by more."""
_SEEN, _FAR = 1e-13, 13_000.0
"""Windows leave out steps that are rarer than about this; deviations of a step beyond which a lattice becomes long."""


Kind = TypeVar("Kind", bound=AnyPair)
Order = TypeVar("Order", bound="OneOrder")
CountedPmfs = list[tuple[PrivacyLossPmf, int]]


@dataclass(frozen=True)
class BoundsWithTest:
    """lower <= truth <= upper, and the test behind the lower bound (score threshold, direction)."""

    lower: float
    upper: float
    threshold: float = math.inf
    reversed: bool = False

    def on(self, side: Side) -> float:
        """The bound of one side."""
        return self.upper if side is Side.UPPER else self.lower

    def larger(self, other: BoundsWithTest) -> BoundsWithTest:
        """Bounds of the maximum of two quantities."""
        lead = self if self.lower >= other.lower else other
        return BoundsWithTest(lead.lower, max(self.upper, other.upper), lead.threshold, lead.reversed)

    def tighter(self, other: BoundsWithTest) -> BoundsWithTest:
        """The better of two bounds of one quantity on either side."""
        lead = self if self.lower >= other.lower else other
        return BoundsWithTest(lead.lower, min(self.upper, other.upper), lead.threshold, lead.reversed)


class TailQuery(NamedTuple):
    """One look at a tail: around which saddle, how fine, how deep PLDs are, and the log of the mass that may escape.

    `eta` is the lattice in deviations of a step. Nodes are dense around the `focus`. `placed`: the width of PLDs' cells
    and the tilt that they are placed for, where PLDs that are there already serve.
    """

    saddle: Saddle
    eta: float
    log_tail: float
    log_escape: float
    focus: TailFocus | None = None
    placed: tuple[float, float] | None = None

    def coarser(self, excess: float) -> TailQuery:
        """The same on a lattice that is shorter by this factor, and some; PLDs that are there already may serve it."""
        return self._replace(eta=1.2 * excess * self.eta)


def counted(factors: Sequence[tuple[Kind, int]]) -> tuple[list[tuple[Kind, int]], tuple[bool, ...]]:
    """The factors of a product, and the orders in which they have to be looked at: `reverse`."""
    if not factors:
        raise InputError("A product needs at least one factor.")
    found = [(source, COUNT.check_int("count", count)) for source, count in factors]
    return found, (False,) if all(source.symmetric for source, _ in found) else (False, True)


@dataclass(eq=False)
class PmfCache(Generic[Kind]):
    """PLDs on one side that were built once, for both directions of a product."""

    factors: Sequence[tuple[Kind, int]]
    build: Callable[[Kind, float, float, float | None], PrivacyLossPmf]
    side: Side
    _pmfs: dict[tuple[float, float, float | None], dict[bool, CountedPmfs]] = field(default_factory=dict)

    def pmfs(self, resolution: float, log_tail: float, tilt: float | None, reverse: bool) -> CountedPmfs:
        """Every factor as a PLD; pairs place their cells for `tilt`, which is meant in the given direction."""
        # L^t under Q is (1/L)^(1-t) under P.
        forward = tilt if tilt is None or not reverse else 1.0 - tilt
        key = (resolution, log_tail, forward)
        if key not in self._pmfs:
            if len(self._pmfs) > 6:  # those without a tilt are pilots, which are asked for again and again
                self._pmfs = {known: pmfs for known, pmfs in self._pmfs.items() if known[2] is None}
            built = [(self.build(source, *key), count) for source, count in self.factors]
            for pmf, _ in built:
                self.side.same(pmf.side)
            self._pmfs[key] = {False: built}
        orientations = self._pmfs[key]
        if reverse not in orientations:
            orientations[True] = [(pmf.reverse(), count) for pmf, count in orientations[False]]
        return orientations[reverse]


def upper_cache(factors: Sequence[tuple[DominatingPair, int]]) -> PmfCache[DominatingPair]:
    """The pessimistic PLDs of proofs."""
    return PmfCache(factors, lambda source, *place: source.upper_for(*place), Side.UPPER)


def lower_cache(factors: Sequence[tuple[AttainedPair, int]]) -> PmfCache[AttainedPair]:
    """The optimistic PLDs of attacks."""
    return PmfCache(factors, lambda source, *place: source.lower_for(*place), Side.LOWER)


class OneOrder(ABC):
    """D(P||Q), or D(Q||P) when `reverse`; `pilot` decides how it is computed."""

    alike = False

    def __init__(self, factors: Sequence[tuple[AnyPair, int]], reverse: bool) -> None:
        self.counts, spans = [count for _, count in factors], {source.span for source, _ in factors}
        self._coarse = all(source.coarse for source, _ in factors)
        self.reverse = reverse
        self.span: float | None = spans.pop() if len(spans) == 1 else None

    @abstractmethod
    def pilot(self, log_tail: float) -> CountedPmfs:
        """Cheap PLDs, good enough to find saddle points."""

    def without_looking(
        self, saddle: Saddle, log_tail: float, focus: TailFocus, known: float = 0.0
    ) -> tuple[float, bool]:
        """An upper bound that needs no transform, and whether no look adds to it; `known`: an epsilon to try."""
        return math.inf, False

    @abstractmethod
    def look(self, side: Side, query: TailQuery) -> BoundsWithTest:
        """What one tail says of its focus, on a side that this direction has."""

    def reach(self, log_tail: float) -> float:
        """The largest log ratio of all steps."""
        return math.fsum(count * float(pmf.log_ratio[-1]) for pmf, count in self.pilot(log_tail))

    def steps(self) -> int:
        """Number of composed steps."""
        return sum(self.counts)

    def depth(self, log_smallest: float) -> float:
        """How deep PLDs are for deltas down to e^log_smallest; where nothing is multiplied little is to spare."""
        single = self.steps() == 1 and self._coarse
        return log_smallest - (COARSE_MARGIN if single else math.log(self.steps()) + 18.0)

    def _plan(self, saddle: Saddle, eta: float, log_tail: float, log_escape: float) -> LatticePlan:
        """One stage while the lattice stays short; else half of the error budget eta^2 V for each of two stages.

        Steps that cannot be distinguished are scored `alike`: a second stage would round some of them together.
        """
        steps = self.steps()
        longest = max(self.counts)
        length = 13.0 * math.sqrt(steps) / eta
        # Of high-noise steps every rounding counts, and one stage of them has fewer
        # (`calipers.numerics.low_frequencies`).
        one_hump = saddle.deviation < saddle.mean
        short = 60_000.0 if longest >= 30_000 and saddle.deviation > _HIGH_NOISE_TOTAL else _LONGEST_SINGLE_STAGE
        if self.alike or longest < TWO_STAGE_COUNT or length < short:
            step = max(eta * math.sqrt(saddle.variance / steps), self._finest_step(log_tail))
            if self.span is not None and self.span >= step:
                # Every log ratio lies on this lattice already: nothing is rounded, so let next to nothing escape.
                return LatticePlan(self.span, self.span, saddle.tilt, log_escape - 18.0)
            return LatticePlan(step, step, saddle.tilt, log_escape, one_hump)
        final = sum(_roundings(count) for count in self.counts)
        fine = max(eta * math.sqrt(0.5 * saddle.variance / steps), self._finest_step(log_tail))
        coarse = eta * math.sqrt(0.5 * saddle.variance / final)
        return LatticePlan(coarse, fine, saddle.tilt, log_escape, one_hump)

    def _finest_step(self, log_tail: float) -> float:
        """A lattice finer than this would have no digits left for positions."""
        return 1e-9 * max(float(np.max(np.abs(pmf.log_ratio))) for pmf, _ in self.pilot(log_tail))


class UpperDirection(OneOrder):
    """Proofs, composed in one order."""

    def __init__(self, proofs: PmfCache[DominatingPair], reverse: bool) -> None:
        super().__init__(proofs.factors, reverse)
        self._proofs = proofs

    def upper_pmfs(self, resolution: float, log_tail: float, tilt: float | None) -> CountedPmfs:
        """The factors as pessimistic PLDs in this direction."""
        return self._proofs.pmfs(resolution, log_tail, tilt, self.reverse)

    def rough(self, log_tail: float) -> CountedPmfs:
        """Coarse pessimistic PLDs."""
        return self.upper_pmfs(PILOT, log_tail, None)

    def pilot(self, log_tail: float) -> CountedPmfs:
        """Coarse pessimistic PLDs, finer ones where they are distinguished by their own cells.

        Cells of width w move the mean of the total by about V w^2/6, V being its variance: hardly, unless that is huge.
        """
        return self.upper_pmfs(self._pilot_cells(log_tail), log_tail, None)

    @memoize
    def _pilot_cells(self, log_tail: float) -> float:
        pmfs = self.rough(log_tail)
        if ErrorTerms.of(pmfs).infinite_upper >= 0.99:  # next to nothing is proven, however fine the cells are
            return PILOT
        return min(PILOT, max(_FINEST_PILOT, math.sqrt(6.0 * _ASTRAY / saddle_at(pmfs, 1.0).deviation)))

    def sparse(self, saddle: Saddle, log_tail: float) -> bool:
        """Whether single steps reach so far beyond the deviation of one that a lattice for both is very long."""
        longest = _FAR * math.sqrt(saddle.variance / self.steps())
        far = [(pmf.log_p[np.abs(pmf.log_ratio) > longest], count) for pmf, count in self.pilot(log_tail)]
        return math.fsum(count * float(np.exp(log_p).sum()) for log_p, count in far) > _SEEN

    def end(self, log_tail: float) -> tuple[float, float]:
        """(eps, log delta): beyond the largest possible log ratio only the mass at infinity is left."""
        far, error_terms = self.reach(log_tail), ErrorTerms.of(self.pilot(log_tail))
        leak = error_terms.infinite_upper
        return far + error_terms.shift + 1e-12 * abs(far), math.log(leak) if leak > 0 else -math.inf

    def moment_bound(self, epsilon: float, saddle: Saddle, log_tail: float) -> float:
        """At least D at epsilon, from one moment: (L - k)+ <= L^t / k^(t-1)."""
        pmfs = self.pilot(log_tail)
        error_terms = ErrorTerms.of(pmfs, saddle.tilt)
        moment = math.fsum(count * pmf.cumulants(saddle.tilt)[0] for pmf, count in pmfs)
        exponent = moment - (saddle.tilt - 1.0) * epsilon + saddle.tilt * error_terms.shift + error_terms.log_mass
        exponent += 1e-9 * (1.0 + abs(moment))
        return math.exp(min(0.0, max(exponent, -700.0))) + error_terms.infinite_upper

    def without_looking(
        self, saddle: Saddle, log_tail: float, focus: TailFocus, known: float = 0.0
    ) -> tuple[float, bool]:
        """From the end of the log ratios, and from one moment; of epsilon infinite where it stays so."""
        far, log_leak = self.end(log_tail)
        if focus.epsilon is not None:
            moment = min(1.0, self.moment_bound(focus.epsilon, saddle, log_tail))
            return (min(moment, math.exp(log_leak)), True) if focus.epsilon >= far else (moment, False)
        assert focus.delta is not None
        if log_leak > math.log(focus.delta):
            return math.inf, False
        enough = self.moment_bound(known, saddle, log_tail) <= focus.delta
        return (known if enough else max(0.0, far)), False

    def look(self, side: Side, query: TailQuery) -> BoundsWithTest:
        """What one tail proves of its focus."""
        tail, focus = self.upper(query), query.focus
        assert focus is not None
        if focus.epsilon is not None:
            return BoundsWithTest(0.0, tail.delta(focus.epsilon), math.inf, self.reverse)
        assert focus.delta is not None
        return BoundsWithTest(0.0, tail.epsilon(focus.delta), math.inf, self.reverse)

    def upper(self, query: TailQuery) -> UpperTail:
        """Certified profile nodes around the saddle."""
        if self.steps() == 1:
            pmfs = self.upper_pmfs(query.eta, query.log_tail, query.saddle.tilt)
            return single_upper_tail(pmfs[0][0])
        focus = query.focus
        finest = query.eta if focus is None or focus.delta is None else SIGNED_CELLS * query.eta
        cells, tilt = query.placed or (min(COARSEST, finest), query.saddle.tilt)
        pmfs = self.upper_pmfs(cells, query.log_tail, tilt)
        plan = self._plan(*query[:4])
        try:
            return upper_tail(compose_upper(pmfs, plan), plan.step, plan.tilt, ErrorTerms.of(pmfs, plan.tilt), focus)
        except LatticeTooLongError as error:
            return self.upper(query.coarser(error.excess)._replace(placed=(cells, tilt)))


class LowerDirection(OneOrder):
    """Attacks, composed in one order."""

    def __init__(self, attacks: PmfCache[AttainedPair], reverse: bool) -> None:
        super().__init__(attacks.factors, reverse)
        self._attacks = attacks
        self.alike = any(source.interchangeable for source, _ in attacks.factors)

    def lower_pmfs(self, resolution: float, log_tail: float, tilt: float | None) -> CountedPmfs:
        """The factors as optimistic PLDs in this direction."""
        return self._attacks.pmfs(resolution, log_tail, tilt, self.reverse)

    def pilot(self, log_tail: float) -> CountedPmfs:
        """optimistic PLDs, as fine as attacks are composed."""
        return self.lower_pmfs(FACTORS_OWN, log_tail, None)

    def look(self, side: Side, query: TailQuery) -> BoundsWithTest:
        """What the best of one tail's tests shows of its focus."""
        tests, focus = self.lower(query), query.focus
        assert focus is not None
        if focus.epsilon is not None:
            value, threshold = tests.best_test(focus.epsilon)
        else:
            assert focus.delta is not None
            value = tests.epsilon(focus.delta)
            _, threshold = tests.best_test(value)
        return BoundsWithTest(value, math.inf, threshold, self.reverse)

    def lower(self, query: TailQuery) -> LowerTail:
        """Certified tests around the saddle."""
        cells, tilt = query.placed or (min(query.eta, COARSEST), query.saddle.tilt)
        pmfs = self.lower_pmfs(cells, query.log_tail, tilt)
        if self.steps() == 1:
            return single_lower_tail(pmfs[0][0])
        plan = self._plan(*query[:4])
        try:
            under_p, under_q = compose_lower(pmfs, plan)
        except LatticeTooLongError as error:
            return self.lower(query.coarser(error.excess)._replace(placed=(cells, tilt)))
        return lower_tail(under_p, under_q, plan.step, plan.tilt, ErrorTerms.of(pmfs, plan.tilt), query.focus)


class Direction(UpperDirection, LowerDirection):
    """Factors with PLDs on either side, composed in one order."""

    def __init__(self, proofs: PmfCache[DominatingPair], attacks: PmfCache[AttainedPair], reverse: bool) -> None:
        LowerDirection.__init__(self, attacks, reverse)
        self._proofs = proofs

    def look(self, side: Side, query: TailQuery) -> BoundsWithTest:
        """What one tail proves, or what the best of one tail's tests shows."""
        return (UpperDirection if side is Side.UPPER else LowerDirection).look(self, side, query)

    @classmethod
    def of(cls, factors: Sequence[tuple[TwoSidedPair, int]]) -> tuple[Direction, Direction]:
        """Both orders, which share their PLDs."""
        proofs, attacks = upper_cache(factors), lower_cache(factors)
        return cls(proofs, attacks, False), cls(proofs, attacks, True)


def _roundings(count: int) -> int:
    """How many terms of a factor are rounded to the final lattice."""
    if count < TWO_STAGE_COUNT:
        return count
    times, rest = divmod(count, block_size(count))
    return times + rest
