"""One record replaced by another, both hidden in the same random one of M rounds.

Balls-and-bins sampling throws the record into a uniformly random round; a record that is replaced there by another
one contributes u before and v after. With opposite gradients of full norm and all other contributions known,

    P = (1/M) sum_t N(+e_t/sigma, I),      Q = (1/M) sum_t N(-e_t/sigma, I),

and relative to pure noise the densities are the means of

    A_t = exp(x_t/sigma - 1/(2 sigma^2)),      B_t = exp(-x_t/sigma - 1/(2 sigma^2)).

*This pair dominates the epoch, and is attained.* Write the divergence at any k > 0 as E[(mean A - k mean B)+] over pure
noise, where round t contributes A = exp(<u, x> - |u|^2/2), B = exp(<v, x> - |v|^2/2) with gradients u, v that
may depend on what was seen before (in units of sigma, norms at most 1/sigma). Go backwards in time: let W be the
expected positive part as a function of the sum so far; it is convex and increasing, at first W(s) = s+. The last
round turns W into s -> E[W(s + A - k B)]. The logs of A and B are jointly Gaussian with margins fixed by |u| and |v|;
W(s + a(X) - k b(Y)) with a, b increasing has mixed derivative -k a' b' W'' <= 0, so its expectation grows as the
correlation falls (Slepian), and v opposite to u is worst. W is a mixture of stop-loss transforms (s - c)+, and for each
of them, on that line, the best event is {x > z}, with value (s - c) Phi(-z) + Phi(|u| - z) - k Phi(-|v| - z): by the
envelope theorem its derivatives in |u| and |v| are phi(|u| - z) and k phi(|v| + z), both positive, so full norms are
worst. The new W is convex and increasing again and does not depend on the past, so the same argument serves every
earlier round. The sign and size of s never mattered: a constant added to the sum, such as that of a record that may be
left out of the epoch, changes nothing.

For fixed k the divergence is a stop-loss transform on a sum of M independent terms A_t - k B_t, computed on a
multi-resolution grid (`calipers.pld.allocation.multi_resolution`): splitting terms with their mean preserved gives at
least the truth, and the rounded sum is a statistic whose PLD under P and Q gives tests. The pair is symmetric, so k >=
1 is enough. A pessimistic PLD connects the upper values at some k (the profile is convex in k), an optimistic PLD is
that of the best tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from calipers.citations import implements
from calipers.domains import NON_NEGATIVE, OPEN_UNIT, POSITIVE_PROBABILITY
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_epsilon_bounds,
)
from calipers.pld.allocation.average import AllocatedEpoch
from calipers.pld.allocation.average_tests import EventFamily, tail_families
from calipers.pld.allocation.crossing import Crossing
from calipers.pld.allocation.pmf_of_tests import pmf_of_tests
from calipers.pld.allocation.profile_scan import ProfileScan, deviation_of, scan_epsilons
from calipers.pld.allocation.worst_case_sum import WorstCaseSum, divergence, on_grid, threshold_of
from calipers.pld.allocation.worst_case_term import opposite
from calipers.pld.core.gaussian_part import gaussian_pair
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.profile_pmf import pmf_of_profile
from calipers.pld.core.source import TwoSidedPair

_LOWEST_LOG_TAIL = -560.0
"""The log of the least probability that is looked at: deeper, products of probabilities leave the doubles."""
FINEST_RESOLUTION = 0.05
"""Where a PLD is built in a second; a smaller resolution gives this one, which is as valid, only less tight."""
_COARSE, _DEPTHS = 0.2, 6.0
"""Coarser PLDs than this are built as asked, all others with the finest cells; and depths come in such steps."""
_GRID = 2.0
"""Resolution of a multi-resolution grid, in units of that of the PLD: connecting nodes costs more than rounding
terms.
"""
_UPPER_GAPS, _TEST_GAPS = (1.3, 0.08), (8.0, 0.45)
"""Gaps between the nodes of a profile in units of the resolution and of the deviation of log L, and the share of
epsilon to which they may grow as long as that is small against 2/sigma, the width of the far tail."""
_FAR, _NEGLIGIBLE, _SHALLOWER = 18.0, 8.0, 6.0
"""Where the divergence is less than e^18 times the smallest that was asked for, every other node will do; PLDs end at
e^8 times that, and tests at e^6."""
_FIRST_DEPTH = -40.0
"""Depth at which the first node, the advantage, is computed."""
_CUT, _TEST_CUT, _NOTHING = 16.0, 24.0, 1e-300
"""How much deeper than their value nodes and tests of a PLD are resolved; what counts as a value of nothing."""
_ROUGH, _FINE, _FINE_TESTS = 0.2, 0.02, 0.018
"""Resolutions of the multi-resolution grids that find a single answer and of those that give it, proofs and tests."""
_NEAR = 1e-3
"""Tests are tuned anew where proof and test differ by more than this share."""


@lru_cache(maxsize=512)
def _upper_node(pair: ReplacedPair, epsilon: float, resolution: float, log_tail: float) -> tuple[float, float]:
    """(node, delta): the divergence at the node, which is epsilon up to rounding, is at most delta. epsilon >= 0."""
    return divergence(opposite(pair.sigma, epsilon), pair.rounds, pair.participation, resolution, log_tail)


@lru_cache(maxsize=256)
def _tests(pair: ReplacedPair, epsilon: float, resolution: float, log_tail: float) -> EventFamily:
    """Tests on the rounded sum, tuned to epsilon >= 0; by symmetry they serve both directions."""
    term, r = opposite(pair.sigma, epsilon), pair.participation
    # Clipped terms are a statistic too, and near the threshold, to which a test is tuned, they tell as much.
    total = WorstCaseSum(term, pair.rounds, log_tail).ended(threshold_of(term, pair.rounds, r)[0])
    found = on_grid(total, resolution, (1.0 / pair.sigma, -1.0 / pair.sigma))
    values, (noise, present, absent) = found.flat()
    kept = math.exp(-found.error)  # erasure, see `calipers.pld.allocation.average`
    p, q = (kept * (r * row + (1.0 - r) * noise) for row in (present, absent))
    return tail_families(values, p, q, 2.02 * found.drift + 1e-15)[0]


@implements("calipers:replaced-pair")
@dataclass(frozen=True)
class ReplacedPair(AllocatedEpoch, TwoSidedPair):
    """One epoch in which a record, or the one that replaces it, shows up in a uniformly random one of `rounds` rounds.

    `participation`: probability that it shows up at all. `pmf(Side.UPPER, ...)` dominates the pair at every
    epsilon, `pmf(Side.LOWER, ...)` is dominated by it; a smaller `resolution` is tighter, down to `FINEST_RESOLUTION`.
    """

    symmetric: ClassVar[bool] = True
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    @property
    def known(self) -> bool:
        """Whether there is but one round, and the record is in it."""
        return self.rounds == 1 and self.participation == 1.0

    @property
    def coarse(self) -> bool:  # type: ignore[override]
        """A finer PLD would cost more than it tells."""
        return not self.known

    @property
    def shift(self) -> float:
        """mu of one release whose time is known."""
        return 2.0 / self.sigma

    def delta(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) of the divergence at epsilon >= 0, from multi-resolution grids at this epsilon."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        log_tail = -40.0
        # The profile decreases, and a node lies a rounding error beyond the epsilon it was computed for.
        known = float(gaussian_delta(2.0 / self.sigma, epsilon)) * (1.0 + 4.0 * GAUSSIAN_RELATIVE_ERROR)
        if known < _NOTHING:  # and e^epsilon may leave the range of doubles
            return 0.0, known
        before = max(0.0, epsilon - 1e-12 * (1.0 + epsilon))
        upper = _upper_node(self, before, _FINE, log_tail)[1]
        while math.log(max(upper, _NOTHING)) < 0.5 * log_tail and log_tail > _LOWEST_LOG_TAIL:
            log_tail = max(2.4 * math.log(max(upper, _NOTHING)), _LOWEST_LOG_TAIL)
            upper = _upper_node(self, before, _FINE, log_tail)[1]
        lower, _ = _tests(self, epsilon, _FINE_TESTS, log_tail).best(epsilon)
        return lower, min(upper, known)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """(lower, upper) of the smallest epsilon >= 0 with divergence at most delta."""
        delta = OPEN_UNIT.check("delta", delta)
        log_tail = max(math.log(delta) - 25.0, _LOWEST_LOG_TAIL)
        # Replacing a record whose round is known is the Gaussian mechanism, which leaks more.
        known = gaussian_epsilon_bounds(2.0 / self.sigma, delta, 2.0**-52)[1]
        upper = self._passed(delta, known, log_tail)
        lower = _tests(self, upper, _FINE_TESTS, log_tail).epsilon(delta)[0]
        if upper - lower > _NEAR * upper:  # tests tuned to an epsilon far from theirs show less than they might
            lower = max(lower, _tests(self, lower or upper, _FINE_TESTS, log_tail).epsilon(delta)[0])
        return lower, upper

    def _passed(self, delta: float, known: float, log_tail: float) -> float:
        """At least the smallest epsilon >= 0 with divergence at most delta, and at most the known one."""

        def rough(epsilon: float) -> float:
            return math.log(max(_upper_node(self, epsilon, _ROUGH, log_tail)[1], _NOTHING))

        start = rough(0.0)
        if start <= math.log(delta):
            node, value = _upper_node(self, 0.0, _FINE, log_tail)
            return min(node, known) if value <= delta else known
        crossing = Crossing(start, delta, known)
        guess = min(gaussian_epsilon(deviation_of(math.exp(start)), delta), 0.9 * known)
        return crossing.proven(
            lambda epsilon: _upper_node(self, epsilon, _FINE, log_tail),
            crossing.passed(rough, guess),
        )

    @property
    def single_pair(self) -> ReplacedPair:  # type: ignore[override]
        """Its own epsilon and delta."""
        return self

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD of L from above; mass up to about e^log_tail may lie beyond its last node, and is added."""
        if self.known:
            return gaussian_pair(self.shift).upper(resolution, log_tail)
        return _upper_pmf(self, *_within(resolution, log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD of L from below: tests on ever larger epsilons."""
        if self.known:
            return gaussian_pair(self.shift).lower(resolution, log_tail)
        return _lower_pmf(self, *_within(resolution, log_tail))

    def nodes(self, resolution: float, log_tail: float, gaps: tuple[float, float]) -> list[float]:
        """Epsilons from 0 to where the divergence is about e^log_tail, dense on the scale of log L."""
        advantage = _upper_node(self, 0.0, _GRID * resolution, _FIRST_DEPTH)[1]
        # log L varies as that of two Gaussians of the same advantage, and in its far tail like 2/sigma.
        last, scale = gaussian_epsilon(self.shift, math.exp(max(log_tail, -690.0))), gaps[0] * resolution
        return scan_epsilons(deviation_of(advantage), self.shift, scale, last, gaps[1] / scale)


def _within(resolution: float, log_tail: float) -> tuple[float, float]:
    POSITIVE_PROBABILITY.check("resolution", resolution)
    # Building a PLD costs far more than composing it, so whoever begins roughly is given the one asked for next.
    cells = resolution if resolution > _COARSE else FINEST_RESOLUTION
    return cells, max(-_DEPTHS * math.ceil(-log_tail / _DEPTHS), _LOWEST_LOG_TAIL)


def _scan_tests(pair: ReplacedPair, resolution: float) -> ProfileScan[EventFamily]:
    return ProfileScan(
        lambda epsilon, depth: _tests(pair, epsilon, _GRID * resolution, depth),
        lambda epsilon, tests: math.log(max(tests.best(epsilon)[0], _NOTHING)),
        -math.log(pair.rounds),
        _TEST_CUT,
    )


def _scan_nodes(pair: ReplacedPair, resolution: float) -> ProfileScan[tuple[float, float]]:
    return ProfileScan(
        lambda epsilon, depth: _upper_node(pair, epsilon, _GRID * resolution, depth),
        lambda _, found: math.log(max(found[1], _NOTHING)),
        -math.log(pair.rounds),
        _CUT,
    )


@lru_cache(maxsize=12)
def _lower_pmf(pair: ReplacedPair, resolution: float, log_tail: float) -> PrivacyLossPmf:
    nodes = pair.nodes(resolution, log_tail, _TEST_GAPS)
    along = _scan_tests(pair, resolution).along(nodes, log_tail, log_tail + _SHALLOWER)
    families = [tests for _, tests in along]
    # Tests end before the pessimistic PLD does, by which tilts are chosen: their farthest atoms would outweigh the
    # rest.
    return pmf_of_tests(families, families, log_tail + _SHALLOWER)


@lru_cache(maxsize=12)
def _upper_pmf(pair: ReplacedPair, resolution: float, log_tail: float) -> PrivacyLossPmf:
    nodes = pair.nodes(resolution, log_tail, _UPPER_GAPS)
    along = _scan_nodes(pair, resolution).along(nodes, log_tail, log_tail + _NEGLIGIBLE, log_tail + _FAR)
    return pmf_of_profile([node for _, node in along])
