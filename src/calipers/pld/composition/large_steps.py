"""Compositions of steps that are rarely large: outcomes with a large step apart from those without.

At a low sampling rate nearly every step shows next to nothing, and rarely one shows much. Exponential tilting then
gives a total with two humps, and the answer lies between them, where the rounding error of a transform, which is
relative to the whole mass, exceeds it. Call a step large if its log ratio exceeds a threshold in modulus (measure b),
and small otherwise (measure s). For T steps

    (s + b)^T = s^T + [(s + b)^T - s^T].

- **No large step**, s^T: steps are bounded by about two deviations of their sum, so every tilted sum has one hump.
- **At least one**: both parts are computed together, (S, J)(S', J') = (S S', S J' + J S' + J J'), sums of products
  of positive measures, so the rounding error of J is relative to the mass of J (`calipers.numerics.fourier`).

The hockey-stick divergence is the sum of both parts. UPPER: the sum of their upper bounds. LOWER: whoever sees the
steps knows whether one is large, and uses a test of its own in either case; powers and false positive rates add up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from calipers.bracket import Side
from calipers.memoize import memoize
from calipers.numerics.elementary import bisect, distinct, log_sums_at
from calipers.numerics.fourier import fast_length, product_with_large_jumps
from calipers.numerics.types import FloatArray
from calipers.pld.composition.convolve import (
    LatticePlan,
    LatticeTooLongError,
    block_of,
    refuse_length,
    separated,
    small_range,
)
from calipers.pld.composition.direction import (
    BoundsWithTest,
    CountedPmfs,
    Direction,
    TailQuery,
)
from calipers.pld.composition.factors import Factor, joined, window_of
from calipers.pld.composition.fineness import eta_for, log_escape_for
from calipers.pld.composition.lattice import LatticeMeasure, Window, rescore, resplit, score_pmf, split_pmf
from calipers.pld.composition.saddle import saddle_for_delta, saddle_for_epsilon
from calipers.pld.composition.step_sizes import epsilon_of_one_step, restricted, size_threshold, without_largest
from calipers.pld.composition.tails import ErrorTerms, LowerTail, TailFocus, UpperTail, lower_tail, upper_tail
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import KnownPmfs

StepKind = tuple[PrivacyLossPmf, PrivacyLossPmf, int]
"""Small and large steps of one kind, and how many steps there are."""

_CELLS = 0.0035
"""Cells of one step, in deviations of the observation."""
_MOST_EXPECTED, _MOST_KINDS = 6.0, 12
"""Large steps that are expected, and kinds of steps, at most: with more a lattice for all is shorter."""
_POINTS, _RESOLVED, _FEWEST_POINTS = 1e5, 0.01, 3e4
"""The lattice of totals has about so many points, or steps of this share of the deviation of the small steps' sum where
these are fewer, but no less than the last."""
_FINE, _FINE_STEP = 5e-4, 0.05
"""The lattice on which blocks are made: in deviations of the small steps' sum, and of one step where that is less."""
_BLOCKS = range(24, 41)
"""Steps of a kind are made in so many blocks: of few the lattice of totals rounds little. Single steps are left over
where their number is not a multiple."""
_TILTS, _LESS_TILT = 60, 0.3
"""Tilts that are tried. The least tilt is taken at which outcomes with a large step have e to this more mass than at
the best one, in units of the divergence: the lattice is far shorter, and rounding errors are small enough."""
_LOOKS, _NEAR, _FURTHER = 4, 0.9, 1.07
"""Looks for an epsilon, each around the one before, until two have about this ratio; that of a curve's epsilons."""
_DECIDING, _SEEN_BY_LATTICE = 0.2, 12.0
"""Thresholds are at least about this share of the epsilon that is asked about, and so many steps of the lattice."""
_ESCAPE, _NEGLIGIBLE = 12.0, 12.0
"""Logs of how much smaller than delta the mass is that may leave a window, and that of steps counted as infinite."""


class SizedSteps:
    """Steps in two sizes: bounds around an epsilon from outcomes without a large step and from those with one."""

    def __init__(self, pmfs: Mapping[Side, CountedPmfs], threshold: float, deviation: float, log_tail: float) -> None:
        self.pmfs, self.deviation, self.log_tail = pmfs, deviation, log_tail
        # Of totals that deviate by d, tilts of a few times epsilon/d^2 matter; epsilon is some deviations.
        self._tilts = 1.0 + np.append(0.0, np.geomspace(1e-3, 100.0 / max(deviation, 1e-9), _TILTS))
        self._parts = {
            side: [[(restricted(pmf, large, threshold), n) for pmf, n in pmfs[side]] for large in (False, True)]
            for side in pmfs
        }
        self.expected = math.fsum(n * float(np.exp(pmf.log_p).sum()) for pmf, n in self._parts[Side.UPPER][1])
        self.both = all(pmf.size for pmfs in self._parts.values() for part in pmfs for pmf, _ in part)

    @functools.cached_property
    def _small(self) -> Direction:
        small, counts = {side: self._parts[side][0] for side in Side}, [n for _, n in self.pmfs[Side.UPPER]]
        kinds = [(KnownPmfs({side: small[side][i][0] for side in Side}), n) for i, n in enumerate(counts)]
        return Direction.of(kinds)[0]

    def guess(self, log_delta: float) -> float:
        """About the epsilon of outcomes without a large step."""
        return saddle_for_delta(self._small.pilot(self.log_tail), log_delta).mean

    @functools.cached_property
    def _log_moments(self) -> tuple[FloatArray, FloatArray]:
        """log E_Q[L^t], and the same of outcomes in which some step is large, at the orders that are tried."""
        small, large = np.zeros(len(self._tilts)), np.zeros(len(self._tilts))
        for (usual, count), (jump, _) in zip(*self._parts[Side.UPPER], strict=True):
            log_small, log_large = (log_sums_at(self._tilts, pmf.log_ratio, pmf.log_q) for pmf in (usual, jump))
            small, large = small + count * log_small, large + count * np.logaddexp(0.0, log_large - log_small)
        # log(e^large - 1), whatever its size.
        return small + large, np.asarray(small + large + np.log(-np.expm1(-np.maximum(large, 1e-300))))

    def plan(self, center: float, log_delta: float) -> LatticePlan:
        """Tilted to where outcomes with a large step are most visible at epsilon = center.

        In units of the tilted mass, a delta at center is e^(log_delta + (tilt - 1) center) / E_Q[L^tilt], and a share
        of that may leave the window.
        """
        everything, moments = self._log_moments
        exponents = moments - (self._tilts - 1.0) * center
        chosen = int(np.argmax(exponents <= exponents.min() + _LESS_TILT))
        log_escape = min(log_delta + (self._tilts[chosen] - 1.0) * center - everything[chosen], 0.0) - _ESCAPE
        beyond = np.arange(len(self._tilts)) > chosen
        spans = (moments[beyond] - everything[chosen] - log_escape) / (self._tilts[beyond] - self._tilts[chosen])
        far = max(float(np.min(spans, initial=1e3)), 0.0) + 8.0 * self.deviation
        step = max(far / _POINTS, min(_RESOLVED * self.deviation, far / _FEWEST_POINTS))
        steps = sum(n for _, n in self.pmfs[Side.UPPER])
        fine = min(step, self.deviation * min(_FINE, _FINE_STEP / math.sqrt(steps)))
        return LatticePlan(step, fine, float(self._tilts[chosen]), log_escape)

    @memoize
    def _large(self, plan: LatticePlan, side: Side) -> tuple[LatticePlan, list[LatticeMeasure]]:
        """The part with a large step, UPPER or under P and under Q, and its plan, as much coarser as it takes."""
        try:
            sides = _factors(self._kinds(side), plan, side)
            window = functools.reduce(joined, [window_of(factors, plan.log_escape) for factors in sides])
            return plan, [_composed(factors, window, plan) for factors in sides]
        except LatticeTooLongError as error:
            coarser = 1.2 * error.excess
        return self._large(replace(plan, step=coarser * plan.step, fine_step=coarser * plan.fine_step), side)

    def _large_upper(self, center: float, log_delta: float, focus: TailFocus) -> UpperTail:
        """The part with a large step, from above."""
        plan, [measure] = self._large(self.plan(center, log_delta), Side.UPPER)
        return upper_tail(measure, plan.step, plan.tilt, ErrorTerms.of(self.pmfs[Side.UPPER], plan.tilt), focus)

    def _large_lower(self, center: float, log_delta: float) -> LowerTail:
        """Tests of outcomes with a large step."""
        plan, [under_p, under_q] = self._large(self.plan(center, log_delta), Side.LOWER)
        error_terms = replace(ErrorTerms.of(self.pmfs[Side.LOWER], plan.tilt), infinite_lower=0.0)
        return lower_tail(under_p, under_q, plan.step, plan.tilt, error_terms, TailFocus(epsilon=center))

    def _kinds(self, side: Side) -> list[StepKind]:
        return [(small, large, n) for (small, n), (large, _) in zip(*self._parts[side], strict=True)]

    def _query(self, center: float, tolerance: float) -> TailQuery:
        """At outcomes without a large step around epsilon = center."""
        saddle = saddle_for_epsilon(self._small.pilot(self.log_tail), center)
        eta = min(0.05, max(1e-3, eta_for(saddle, 0.3 * tolerance)))
        escape = min(log_escape_for(saddle, 0.02 * tolerance), -20.0)
        return TailQuery(saddle, eta, self.log_tail, escape, TailFocus(epsilon=center))

    def _small_bound(self, least: float) -> float:
        """At least the log of the divergence of outcomes without a large step at every epsilon >= least."""
        saddle = saddle_for_epsilon(self._small.pilot(self.log_tail), least)
        return math.log(self._small.moment_bound(least, saddle, self.log_tail))

    @memoize
    def _small_upper(self, center: float, least: float, log_delta: float, tolerance: float) -> UpperTail:
        """Outcomes without a large step at epsilon >= least, from above: by one moment where that is negligible."""
        log_bound = self._small_bound(least)
        if log_bound <= log_delta - _NEGLIGIBLE:
            return UpperTail(np.array([least]), np.array([log_bound]))
        far, log_leak = self._small.end(self.log_tail)
        composed = self._small.upper(self._query(center, tolerance))
        return UpperTail.least([composed, UpperTail(np.array([far]), np.array([log_leak]))])

    def upper(self, center: float, least: float, log_delta: float, tolerance: float, near: float) -> UpperTail:
        """Nodes of an upper bound of the divergence at epsilon >= least, tilted for `center`, dense around `near`."""
        without = self._small_upper(center, least, log_delta, tolerance)
        found = [without, self._large_upper(center, log_delta, TailFocus(epsilon=near))]
        nodes = distinct(np.concatenate([tail.epsilon_nodes for tail in found]))
        total = np.sum([tail.deltas(nodes) for tail in found], axis=0)
        with np.errstate(divide="ignore"):
            return UpperTail(nodes, np.log(total) + 1e-13)

    def lower(self, center: float, least: float, log_delta: float, tolerance: float) -> tuple[LowerTail, ...]:
        """Tests at epsilon >= least of outcomes with a large step, and of those without where they show anything."""
        large = self._large_lower(center, log_delta)
        if self._small_bound(least) <= log_delta - _NEGLIGIBLE:
            return (large,)
        return large, self._small.lower(self._query(center, tolerance))


class LargeSteps:
    """One direction of a composition, its large steps apart; see the module docstring."""

    def __init__(self, direction: Direction, log_delta: float, log_tail: float, tolerance: float) -> None:
        self.reverse, self.log_delta, self.log_tail, self.tolerance = direction.reverse, log_delta, log_tail, tolerance
        negligible = math.exp(log_delta - _NEGLIGIBLE)
        self.pmfs: dict[Side, CountedPmfs] = {
            Side.UPPER: without_largest(direction.upper_pmfs(_CELLS, log_tail, None), negligible),
            Side.LOWER: without_largest(direction.lower_pmfs(_CELLS, log_tail, None), negligible),
        }
        self.threshold, self.deviation = size_threshold(self.pmfs[Side.UPPER])
        least = self._sized(0)
        self.useful = self.deviation > 0.0 and least.both and 0.0 < least.expected <= _MOST_EXPECTED

    @memoize
    def _sized(self, larger: int) -> SizedSteps:
        """Steps that are large beyond a threshold which was doubled so often."""
        found = SizedSteps(self.pmfs, self.threshold * 2.0**larger, self.deviation, self.log_tail)
        return found if found.both or larger == 0 else self._sized(larger - 1)

    def _around(self, center: float) -> SizedSteps:
        """A large step decides about an epsilon of its own size: those that are far smaller only add mass.

        Nor is a step large that the lattice of totals can hardly tell from none.
        """
        coarse = self._sized(0).plan(center, self.log_delta).step
        least = max(_DECIDING * center, _SEEN_BY_LATTICE * coarse) / self.threshold
        return self._sized(max(0, math.ceil(math.log2(max(least, 1e-9)))))

    @memoize
    def upper(self, center: float, least: float, near: float) -> UpperTail:
        """Nodes of an upper bound of the divergence at epsilon >= least, tilted for `center`, dense around `near`."""
        return self._around(center).upper(center, least, self.log_delta, self.tolerance, near)

    @memoize
    def lower(self, center: float, least: float) -> tuple[LowerTail, ...]:
        """Tests at epsilon >= least, dense around center: of outcomes with a large step, and of those without."""
        return self._around(center).lower(center, least, self.log_delta, self.tolerance)

    def guess(self, delta: float) -> float:
        """About the epsilon at delta: of outcomes without a large step, or of one step alone."""
        return max(self._sized(0).guess(math.log(delta)), epsilon_of_one_step(self.pmfs[Side.UPPER], delta))

    def epsilon(self, delta: float) -> BoundsWithTest:
        """Bounds of the smallest epsilon >= 0 with divergence at most delta."""
        following = self.guess(delta)
        for _ in range(_LOOKS):
            center, least = following, _NEAR * following
            best = self.upper(center, least, center).epsilon(delta)
            if 1.02 * least < best < center / _NEAR:
                best = min(best, self.upper(center, least, best).epsilon(delta))
                break
            # Nothing is known below `least`; and a lattice may end before the answer.
            following = best if 1.02 * least < best < math.inf else (0.5 if best < center else 2.0) * center
        below = 0.0
        if 0.0 < best < math.inf:
            tests = self.lower(best, _NEAR * best)
            below, _ = bisect(0.0, best, lambda at: sum(part.delta(at) for part in tests) > delta, 60, share=1e-6)
        return BoundsWithTest(below, best, below, self.reverse)

    def delta(self, epsilon: float) -> BoundsWithTest:
        """Bounds of the divergence at epsilon."""
        lower = sum(part.delta(epsilon) for part in self.lower(epsilon, epsilon))
        upper = min(1.0, self.upper(epsilon, epsilon, epsilon).delta(epsilon))
        return BoundsWithTest(lower, upper, epsilon, self.reverse)

    def nodes(self, center: float, epsilon: FloatArray) -> UpperTail:
        """Upper bounds at every epsilon."""
        with np.errstate(divide="ignore"):
            return UpperTail(epsilon, np.log(self.upper(center, float(epsilon[0]), center).deltas(epsilon)))

    def tests(self, center: float, epsilon: FloatArray) -> LowerTail:
        """The tests that show most at every epsilon, one of either kind."""
        rates = []
        for at in epsilon.tolist():
            both = [tail.rates(at) for tail in self.lower(center, float(epsilon[0]))]
            rates.append([sum(column) for column in zip(*both, strict=True)])
        power, alpha = np.array(rates).T
        useful = (power > 0.0) & (alpha > 0.0)
        return LowerTail(epsilon[useful], np.log(power[useful]) - 1e-13, np.log(alpha[useful]) + 1e-13)

    def places(self) -> Iterator[FloatArray]:
        """Epsilons of a whole curve, some around each center: dense near 0, then ever further apart."""
        first = 0.1 * self.deviation * np.arange(40)
        yield from np.split(first, 2)
        last = max(float(pmf.log_ratio[-1]) for pmf, _ in self.pmfs[Side.UPPER])
        while first[-1] < last:
            first = first[-1] * _FURTHER ** np.arange(1.0, 25.0)
            yield first


def _in_two_parts(kind: StepKind, step: float, tilt: float, side: Side) -> list[tuple[LatticeMeasure, LatticeMeasure]]:
    """Small and large steps on a lattice, normalized together: UPPER one pair of measures, LOWER P's and Q's."""
    measures: list[tuple[LatticeMeasure, ...]] = [
        (split_pmf(pmf, step, tilt),) if side is Side.UPPER else score_pmf(pmf, step, tilt) for pmf in kind[:2]
    ]
    found = []
    for parts in zip(*measures, strict=True):
        log_norm = float(np.logaddexp(*(part.log_norm for part in parts)))
        small, large = (
            replace(part, weights=part.weights * math.exp(part.log_norm - log_norm), log_norm=log_norm)
            for part in parts
        )
        found.append((small, large))
    return found


def _factors(kinds: Sequence[StepKind], plan: LatticePlan, side: Side) -> list[list[Factor]]:
    """All steps on the lattice of totals, in blocks where a kind occurs often: UPPER, or under P and under Q."""
    tilts = (plan.tilt,) if side is Side.UPPER else (plan.tilt - 1.0, plan.tilt)
    found: list[list[Factor]] = [[] for _ in tilts]
    for kind in kinds:
        rest = kind[2]
        if plan.in_blocks(rest):
            times = min(_BLOCKS, key=lambda blocks: kind[2] % blocks)
            size, rest = divmod(rest, times)
            measures = _in_two_parts(kind, plan.fine_step, plan.tilt, side)
            ranges = [small_range(small, size) for small, _ in measures]
            inside = min(low for low, _ in ranges), max(high for _, high in ranges)
            coarsen = resplit if side is Side.UPPER else rescore
            for listed, tilt, (small, large) in zip(found, tilts, measures, strict=True):
                parts = separated(small, inside)
                listed.append(block_of(parts, tilt, size, times, plan, coarsen, large))
        if rest:
            for listed, (small, large) in zip(found, _in_two_parts(kind, plan.step, plan.tilt, side), strict=True):
                listed.append(Factor.plain(small, rest, large))
    return found


def _composed(factors: Sequence[Factor], window: Window, plan: LatticePlan) -> LatticeMeasure:
    """The part of all totals in which at least one step is large."""
    refuse_length(window, plan.longest)
    n = fast_length(window.high - window.low + 1)
    values, error = product_with_large_jumps([factor.cyclic(n) for factor in factors])
    escape = 2.0 * window.loose + 1.01 * math.fsum(f.count * f.escape for f in factors)
    log_norm = math.fsum(f.count * f.log_norm for f in factors)
    positions = np.arange(window.low, window.low + n)
    return LatticeMeasure(positions, np.roll(values, -(window.low % n)), log_norm, error, escape, window)


def large_steps(direction: Direction, log_delta: float, log_tail: float, tolerance: float) -> LargeSteps | None:
    """The composition with its large steps apart, where these are rare."""
    if direction.alike or len(direction.counts) > _MOST_KINDS or direction.steps() == 1:
        return None
    found = LargeSteps(direction, log_delta, log_tail, tolerance)
    return found if found.useful else None
