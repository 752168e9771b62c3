"""The upper bound of shuffled batches: where the record is, the others do not tell.

One epoch deals N records, in a fresh random order, into M batches of B; R = N - M B of them are in the remainder. One
record x differs (zeroed out: a ghost keeps its place; or replaced). The theorem (docs/theory/shuffling.md, section 8):
if at least one record is in the remainder, R >= 1, then for every k > 0 and gradients chosen adaptively

    D_k <= (B/N) E[ (X*_1 + ... + X*_M - (R/B)(k - 1))+ ]

with independent copies of the worst-case term X* of `calipers.pld.allocation.worst_case_term`. The idea: x takes the
place of a representative of its batch, and the displaced record goes to the remainder, where nobody looks; so nothing
but one batch sum depends on where x is. The recursion (`calipers.pld.allocation.recursion`) is sharper where many terms
add up, worst-case terms are where one of them decides, or events are rare: every node is the smaller of the two.

The bound holds at each k by itself. The true divergence is convex in k, so a few nodes give a pessimistic PLD of the
epoch (`calipers.pld.core.profile_pmf`), and epochs multiply. Given the order, batches are fixed, so r times the
divergence of one Gaussian release, r = M B / N, is a bound too; no node is larger.

When there is no remainder, see `calipers.pld.allocation.full_epoch`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import lru_cache

from calipers.citations import implements
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_epsilon_bounds,
)
from calipers.pld.allocation.average import AllocatedEpoch, shared_depth, single_depth
from calipers.pld.allocation.crossing import Crossing
from calipers.pld.allocation.profile_scan import ProfileScan, deviation_of, scan_epsilons
from calipers.pld.allocation.recursion import FINE, FINEST, QUICK, ROUGH, USUAL, Effort, recursion_divergence
from calipers.pld.allocation.worst_case_sum import divergence
from calipers.pld.allocation.worst_case_term import WorstCaseTerm, replaced, zeroed_out
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.profile_pmf import ProfileNodes, curve_of_profile, pmf_of_profile
from calipers.pld.core.source import DominatingPair

_NOTHING = 1e-300
"""No less is looked into: a divergence so small is stated as that of a known order."""
_LARGEST_SHIFTS = (3.4, 8.0)
"""Zeroed out, replaced: beyond the first a million rounds hide less than 1e-4 of delta; beyond the second a
multi-resolution grid would leave the range of doubles. The order counts as known there.
"""
_ROUGH, _FINE = 0.2, 0.04
"""Resolutions of the multi-resolution grids that find a single answer and of those that give it."""
_GRID, _ROUGH_GRID = 0.25, 0.5
"""Resolution of the multi-resolution grids of a PLD, and of a rough one."""
_GAP, _FINE_GAP, _ROUGH_GAP = 0.2, 0.1, 0.8
"""Gaps between the nodes of a PLD in deviations of log L, of a finer one and of a rough one."""
_FAR = 2e-12
"""What an epoch shows so rarely decides little: below it nodes are usually twice as far apart."""
_NEGLIGIBLE = 10.0
"""Profiles end where the divergence is e^10 times the smallest that was asked for."""
_LOWEST_LOG_TAIL = -560.0
"""The log of the least probability that is looked at: deeper, products of probabilities leave the doubles."""
_WORTH, _RARE = 0.998, 1e-7
"""Where one control for every threshold is not tried: it gains little, or what it is about hardly happens."""
_CUT = 16.0
"""How much deeper than its value a node of a profile is resolved."""

Queries = ProfileScan[tuple[float, float]]


@implements("calipers:shuffled")
@dataclass(frozen=True)
class ShuffledEpoch(AllocatedEpoch, DominatingPair):
    """One epoch of `rounds` shuffled batches that drops at least one record.

    `participation`: the share of the records that an epoch keeps, M B / N. `substituted`: the record is replaced
    by another one instead of being zeroed out.
    """

    substituted: bool = False
    fine: bool = field(default=False, kw_only=True)
    rough: bool = field(default=False, kw_only=True)

    @property
    def finer(self) -> ShuffledEpoch | None:  # type: ignore[override]
        """The same with the recursion at its finest and more nodes; takes up to a minute."""
        return None if self.fine else changed(self, fine=True)

    @property
    def coarser(self) -> ShuffledEpoch | None:  # type: ignore[override]
        """The same with fewer nodes."""
        return None if self.rough else changed(self, rough=True)

    @property
    def gap(self) -> float:
        """Between the nodes of a PLD, in deviations of log L."""
        return _ROUGH_GAP if self.rough else _FINE_GAP if self.fine else _GAP

    @property
    def grid(self) -> float:
        """Resolution of the multi-resolution grids of a PLD."""
        return _ROUGH_GRID if self.rough else _GRID

    @property
    def effort(self) -> Effort:
        """Of the recursion at the nodes of a PLD."""
        return ROUGH if self.rough else QUICK

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same bound."""
        return self.substituted

    @property
    def far(self) -> float:
        """Below it nodes are twice as far apart."""
        return _FAR

    @property
    def shift(self) -> float:
        """mu of one release whose time is known."""
        return (2.0 if self.substituted else 1.0) / self.sigma

    def term(self, epsilon: float, reverse: bool) -> WorstCaseTerm:
        """The worst-case term at epsilon >= 0."""
        return replaced(self.sigma, epsilon) if self.substituted else zeroed_out(self.sigma, epsilon, reverse)

    def known(self, epsilon: float) -> float:
        """At least the divergence at epsilon >= 0 of an adversary who learns the order."""
        value = self.participation * float(gaussian_delta(self.shift, epsilon))
        return min(1.0, value * (1.0 + 8.0 * GAUSSIAN_RELATIVE_ERROR))

    def says_nothing(self, epsilon: float) -> bool:
        """Whether the divergence is too small to be looked into; e^epsilon may leave the range of doubles there."""
        return self.known(epsilon) < _NOTHING

    def node(self, epsilon: float, reverse: bool, resolution: float, log_tail: float) -> tuple[float, float]:
        """(node, delta): the divergence at the node, which is epsilon >= 0 up to rounding, is at most delta."""
        return _node(self, epsilon, reverse, resolution, log_tail)

    def worst_case(self, epsilon: float, reverse: bool, resolution: float, log_tail: float) -> tuple[float, float]:
        """As `node`, by the theorem alone."""
        return divergence(self.term(epsilon, reverse), self.rounds, self.participation, resolution, log_tail)

    def by_dynamic_program(self, epsilon: float, reverse: bool, effort: Effort = QUICK) -> float:
        """At least the divergence at epsilon >= 0 of every adaptive adversary, by the recursion; 1 where not tried."""
        finer = {QUICK: FINE, USUAL: FINEST}.get(effort) if self.fine else None
        found = 1.0 if finer is None else _by_dynamic_program(self, epsilon, reverse, finer)
        # 1 where the finer grid would be too long
        return found if found < 1.0 else _by_dynamic_program(self, epsilon, reverse, effort)

    @property
    def orientations(self) -> tuple[bool, ...]:
        """The directions that have to be looked at."""
        return (False,) if self.symmetric else (False, True)

    def delta(self, epsilon: float) -> float:
        """The divergence of one epoch, from above (docs/theory/shuffling.md, section 8).

        Args:
            epsilon: At least 0.

        Returns:
            At least the divergence of every adaptive adversary at epsilon, in both directions.
        """
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        known = self.known(epsilon)
        if self.says_nothing(epsilon):
            return known
        log_tail = max(min(-40.0, 2.0 * math.log(max(known, 1e-300))), _LOWEST_LOG_TAIL)
        # At 0 it is the total variation, which has no direction.
        orientations = self.orientations if epsilon > 0.0 else self.orientations[:1]
        return min(known, max(self._delta_one_direction(epsilon, reverse, log_tail) for reverse in orientations))

    def _delta_one_direction(self, epsilon: float, reverse: bool, log_tail: float) -> float:
        """A node lies a rounding error beyond its epsilon: look a little before; at 0 add what k moved by."""
        node, value = self.node(max(0.0, epsilon - 1e-11 * (1.0 + epsilon)), reverse, _FINE, log_tail)
        value = value if node <= epsilon else value + (math.exp(node) - math.exp(epsilon)) * (1.0 + 1e-9)
        return min(value, self.by_dynamic_program(epsilon, reverse, USUAL))

    def epsilon(self, delta: float) -> float:
        """The epsilon of one epoch, from above (docs/theory/shuffling.md, section 8).

        Args:
            delta: In (0, 1).

        Returns:
            At least the smallest epsilon >= 0 at which the divergence of every adaptive adversary is at most delta, in
            both directions.
        """
        delta = OPEN_UNIT.check("delta", delta)
        log_tail = max(math.log(delta) - 20.0, _LOWEST_LOG_TAIL)
        if self.participation <= delta:
            return 0.0
        # A share r of one release at delta is one release at delta / r.
        known = gaussian_epsilon_bounds(self.shift, delta / self.participation, 8.0 * 2.0**-53)[1]
        best = self._epsilon_one_direction(delta, False, known, log_tail)
        for reverse in self.orientations[1:]:
            # One look at the epsilon found so far often settles the other direction.
            if any(self.by_dynamic_program(best, reverse, effort) <= delta for effort in (QUICK, USUAL)):
                continue
            node, value = self.node(max(0.0, best - 1e-11 * (1.0 + best)), reverse, _ROUGH, log_tail)
            if node > best or value > delta:
                best = max(best, self._epsilon_one_direction(delta, reverse, known, log_tail))
        return best

    def _epsilon_one_direction(self, delta: float, reverse: bool, known: float, log_tail: float) -> float:
        def least(epsilon: float, reverse: bool, resolution: float, effort: Effort) -> tuple[float, float]:
            node, value = self.node(epsilon, reverse, resolution, log_tail)
            return node, min(value, self.by_dynamic_program(epsilon, reverse, effort))

        def rough(epsilon: float, reverse: bool = reverse) -> float:
            return math.log(max(least(epsilon, reverse, _ROUGH, ROUGH)[1], 1e-300))

        def fine(epsilon: float) -> tuple[float, float]:
            return least(epsilon, reverse, _FINE, USUAL)

        start = rough(0.0, False)  # at 0 there is no direction
        if start <= math.log(delta):
            node, value = fine(0.0)
            return node if value <= delta else known
        crossing = Crossing(start, delta, known)
        guess = crossing.passed(rough, min(gaussian_epsilon(deviation_of(math.exp(start)), delta), 0.9 * known))
        return crossing.proven(fine, guess)

    @property
    def single_proof(self) -> ShuffledEpoch:  # type: ignore[override]
        """Its own epsilon and delta."""
        return self

    def curve(self, smallest_delta: float) -> TradeoffCurve:
        """The guarantee of one epoch with the null "record absent", resolved down to about `smallest_delta`."""
        return curve_of_profile(*_directed(self, single_depth(smallest_delta)))

    def upper(self, resolution: float = _GAP, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The pessimistic PLD of the epoch; what lies beyond its last node is added.

        A multi-resolution grid for every node is what it costs, so there is one resolution for all, and a few depths.
        """
        del resolution
        return _pmf(self, shared_depth(log_tail))


@lru_cache(maxsize=4096)
def _node(
    epoch: ShuffledEpoch, epsilon: float, reverse: bool, resolution: float, log_tail: float
) -> tuple[float, float]:
    if epoch.shift > _LARGEST_SHIFTS[epoch.substituted]:
        return epsilon, epoch.known(epsilon)
    node, value = epoch.worst_case(epsilon, reverse, resolution, log_tail)
    return node, min(value, epoch.known(epsilon))


@lru_cache(maxsize=1024)
def _by_dynamic_program(epoch: ShuffledEpoch, epsilon: float, reverse: bool, effort: Effort) -> float:
    return recursion_divergence(epoch.term(epsilon, reverse), epoch.rounds, epoch.participation, effort)


@lru_cache(maxsize=16)
def _pmf(epoch: ShuffledEpoch, log_tail: float) -> PrivacyLossPmf:
    return pmf_of_profile(*_directed(epoch, log_tail))


@lru_cache(maxsize=16)
def _directed(epoch: ShuffledEpoch, log_tail: float) -> tuple[ProfileNodes, ProfileNodes | None]:
    """Profiles of both directions, or of one that holds in both."""
    queries = _queries(epoch, False)
    ((_, (node, worst)),) = queries.along([0.0], log_tail, -math.inf)
    start = node, worst if worst <= _RARE else min(worst, epoch.by_dynamic_program(0.0, False, epoch.effort))
    forward = _profile(epoch, False, log_tail, start, queries)
    if epoch.symmetric:
        return forward, None
    # At 0 the divergence has no direction; from its node back to there it grows by no more than k does.
    start = node, min(1.0, start[1] + math.expm1(2.0 * node))
    return forward, _profile(epoch, True, log_tail, start, _queries(epoch, True))


def _queries(epoch: ShuffledEpoch, reverse: bool) -> Queries:
    """What is found out at some epsilon for one profile: values that another one asked for would not be the same."""
    return ProfileScan(
        lambda epsilon, depth: epoch.node(epsilon, reverse, epoch.grid, depth),
        lambda _, found: math.log(max(found[1], 1e-300)),
        math.log(epoch.known(0.0)) - math.log(epoch.rounds),
        _CUT,
    )


def _profile(
    epoch: ShuffledEpoch, reverse: bool, log_tail: float, start: tuple[float, float], queries: Queries
) -> list[tuple[float, float]]:
    """Nodes from that at 0 to where the divergence is negligible, dense on the scale of log L."""
    last = gaussian_epsilon(epoch.shift, math.exp(max(log_tail, -690.0)))
    epsilons = scan_epsilons(deviation_of(start[1]), epoch.shift, epoch.gap, last)
    end = log_tail + _NEGLIGIBLE
    profile, gain = [start], 0.0
    before = start[0], math.log(max(start[1], 1e-300))
    for epsilon, (node, value) in queries.along(epsilons[1:], log_tail, end, math.log(epoch.far), before):
        if gain < _WORTH and value > _RARE:
            # Far out one term decides, and one control for every threshold is as good as one for all.
            better = epoch.by_dynamic_program(epsilon, reverse, epoch.effort)
            gain, value = better / value, min(value, better)
        profile.append((node, value))
    return profile
