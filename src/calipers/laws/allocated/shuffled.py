"""The upper jaw of shuffled batches: where the record is, the others do not tell.

One epoch deals N records, in a fresh random order, into M batches of B; R = N - M B of them are left over. One record x
differs (zeroed out: a ghost keeps its place; or replaced). The theorem (docs/mathematics, "shuffled batches"): if at
least one record is left over, R >= 1, then for every k > 0 and gradients chosen adaptively

    D_k <= (B/N) E[ (X*_1 + ... + X*_M - (R/B)(k - 1))+ ]

with independent copies of the worst term X* of `calipers.laws.allocated.hidden_term`. The idea: x takes the place of a
representative of its batch, and the displaced record goes to the left over places, where nobody looks; so nothing but
one batch sum depends on where x is.

The bound holds at each k by itself. The true divergence is convex in k, so a few nodes give an UPPER law of the epoch
(`calipers.laws.core.profile_law`), and epochs multiply. Given the order, batches are fixed, so r times the divergence
of one Gaussian release, r = M B / N, is a bound too; every node is the smaller of the two.

When nothing is left over, see `calipers.laws.allocated.displaced`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calipers.citations import implements
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.laws.allocated.average import AllocatedEpoch, lone_depth, shared_depth
from calipers.laws.allocated.controlled_sum import controlled_divergence
from calipers.laws.allocated.hidden_sum import divergence
from calipers.laws.allocated.hidden_term import HiddenTerm, replaced, zeroed_out
from calipers.laws.core.law import Law
from calipers.laws.core.profile_law import Nodes, curve_of_profile, law_of_profile
from calipers.laws.core.source import UpperSource
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_epsilon_bounds,
    normal_tail_quantile,
)

_LARGEST_SHIFTS = (3.4, 8.0)
"""Zeroed out, replaced: beyond the first a million rounds hide less than 1e-4 of delta; beyond the second a ladder
would leave the range of doubles. The order counts as known there."""
_ROUGH, _FINE = 0.2, 0.04
"""Resolutions of the ladders that find a single answer and of those that give it."""
_LADDER = 0.3
"""Resolution of the ladders of a law."""
_GAP, _GROWTH = 0.24, 0.14
"""Gaps between the nodes of a law in deviations of log L; the share of epsilon to which they may grow, as long as that
is small against the shift, the width of the far tail."""
_FAR = 1e-9
"""Below it nodes are twice as far apart: what an epoch shows so rarely decides little."""
_LESS = 0.8
"""Of the bound of one direction: once the other one's is less than this share of it, its nodes may lie far apart in the
curve of a lone epoch, which is read where the larger counts."""
_NEGLIGIBLE, _UNREAD = 10.0, 14.0
"""Laws end where the divergence is e^10 times the smallest that was asked for; which direction's bound is larger does
not matter below e^14 times that."""
_LOWEST_LOG_TAIL = -560.0
_WORTH, _CLEARLY, _SKIPPED, _RARE = 0.998, 0.994, 2, 1e-7
"""Where better nodes of a law are no longer looked for: they gain little, or what they are about hardly happens."""
_CUT, _DEPTH_STEP = 16.0, 4.0
"""How much deeper than its value a node of a law is resolved; depths come in steps, so that nodes can be shared."""


@implements("calipers:shuffled")
@dataclass(frozen=True)
class ShuffledEpoch(AllocatedEpoch, UpperSource):
    """One epoch of `rounds` shuffled batches that leaves at least one record over.

    `participation`: the share of the records that an epoch keeps, M B / N. `substituted`: the record is replaced
    by another one instead of being zeroed out.
    """

    substituted: bool = False

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same bound."""
        return self.substituted

    @property
    def shift(self) -> float:
        """mu of one release whose time is known."""
        return (2.0 if self.substituted else 1.0) / self.sigma

    def term(self, epsilon: float, reverse: bool) -> HiddenTerm:
        """The worst term at epsilon >= 0."""
        return replaced(self.sigma, epsilon) if self.substituted else zeroed_out(self.sigma, epsilon, reverse)

    def known(self, epsilon: float) -> float:
        """At least the divergence at epsilon >= 0 of an adversary who is told the order."""
        value = self.participation * float(gaussian_delta(self.shift, epsilon))
        return min(1.0, value * (1.0 + 8.0 * GAUSSIAN_RELATIVE_ERROR))

    def node(self, epsilon: float, reverse: bool, resolution: float, log_tail: float) -> tuple[float, float]:
        """(node, delta): the divergence at the node, which is epsilon >= 0 up to rounding, is at most delta."""
        return _node(self, epsilon, reverse, resolution, log_tail)

    def hidden(self, epsilon: float, reverse: bool, resolution: float, log_tail: float) -> tuple[float, float]:
        """As `node`, by the theorem alone."""
        return divergence(self.term(epsilon, reverse), self.rounds, self.participation, resolution, log_tail)

    def controlled(self, epsilon: float, reverse: bool) -> float:
        """At least the divergence at epsilon of adversaries with one control for every strike; 1 where not tried."""
        return _controlled(self, epsilon, reverse)

    @property
    def ways(self) -> tuple[bool, ...]:
        """The directions that have to be looked at."""
        return (False,) if self.symmetric else (False, True)

    def delta(self, epsilon: float) -> float:
        """At least the divergence of one epoch at epsilon >= 0, in both directions."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        known = self.known(epsilon)
        log_tail = max(min(-40.0, 2.0 * math.log(max(known, 1e-300))), _LOWEST_LOG_TAIL)
        ways = self.ways if epsilon > 0.0 else self.ways[:1]  # at 0 it is the total variation, which has no direction
        return min(known, max(self._delta_one_way(epsilon, reverse, log_tail) for reverse in ways))

    def _delta_one_way(self, epsilon: float, reverse: bool, log_tail: float) -> float:
        """A node lies a rounding error beyond its epsilon: look a little before; at 0 add what k moved by."""
        node, value = self.node(max(0.0, epsilon - 1e-11 * (1.0 + epsilon)), reverse, _FINE, log_tail)
        value = value if node <= epsilon else value + (math.exp(node) - math.exp(epsilon)) * (1.0 + 1e-9)
        return min(value, self.controlled(epsilon, reverse))

    def epsilon(self, delta: float) -> float:
        """At least the smallest epsilon >= 0 with divergence at most delta in both directions."""
        delta = OPEN_UNIT.check("delta", delta)
        log_tail = max(math.log(delta) - 20.0, _LOWEST_LOG_TAIL)
        if self.participation <= delta:
            return 0.0
        # A share r of one release at delta is one release at delta / r.
        known = gaussian_epsilon_bounds(self.shift, delta / self.participation, 8.0 * 2.0**-53)[1]
        best = self._epsilon_one_way(delta, False, known, log_tail)
        for reverse in self.ways[1:]:
            # One look at the epsilon found so far often settles the other direction.
            node, value = self.node(max(0.0, best - 1e-11 * (1.0 + best)), reverse, _ROUGH, log_tail)
            if node > best or (value > delta and self.controlled(best, reverse) > delta):
                best = max(best, self._epsilon_one_way(delta, reverse, known, log_tail))
        return best

    def _epsilon_one_way(self, delta: float, reverse: bool, known: float, log_tail: float) -> float:
        log_delta = math.log(delta)

        better = True  # whether one control for every strike was, where it was asked last: far out it is not

        def excess(epsilon: float, resolution: float) -> tuple[float, float]:
            nonlocal better
            node, value = self.node(epsilon, reverse, resolution, log_tail)
            if resolution == _FINE and better:
                controlled = self.controlled(epsilon, reverse)
                value, better = min(value, controlled), controlled < value
            return node, math.log(max(value, 1e-300)) - log_delta

        low, high = 0.0, known
        below, above = excess(low, _ROUGH)[1], excess(high, _ROUGH)[1]
        if below <= 0.0:
            node, fine = excess(0.0, _FINE)
            return node if fine <= 0.0 else known
        for _ in range(12):
            # The logarithm is concave over most of its range: half way by value, half way by position.
            secant = low + (high - low) * below / (below - above) if above < 0.0 else high
            middle = 0.5 * (secant + 0.5 * (low + high))
            value = excess(middle, _ROUGH)[1]
            low, below, high, above = (middle, value, high, above) if value > 0.0 else (low, below, middle, value)
            if high - low < 0.05 * high:
                break
        slope = max((below - above) / (high - low), 1e-6)
        guess, best = min(high, low + below / slope), known
        for _ in range(6):
            node, over = excess(guess, _FINE)
            if over <= 0.0:
                best = min(best, node)
            margin = 2e-5 * slope * guess  # of log delta: a share 2e-5 of epsilon
            if over <= 0.0 and (guess == 0.0 or over > -3.0 * margin):
                break
            guess = min(known, max(0.0, guess + (over + margin) / slope))
        return best

    @property
    def lone_proof(self) -> ShuffledEpoch:  # type: ignore[override]
        """Its own epsilon and delta."""
        return self

    def curve(self, smallest_delta: float) -> TradeoffCurve:
        """The guarantee of one epoch with the null "record absent", resolved down to about `smallest_delta`."""
        return curve_of_profile(*_directed(self, lone_depth(smallest_delta), lone=True))

    def upper(self, resolution: float = _GAP, log_tail: float = -40.0) -> Law:
        """The UPPER law of the epoch; what lies beyond its last node is charged.

        A ladder for every node is what it costs, so there is one resolution for all, and a few depths.
        """
        del resolution
        return _law(self, shared_depth(log_tail))


@lru_cache(maxsize=4096)
def _node(
    epoch: ShuffledEpoch, epsilon: float, reverse: bool, resolution: float, log_tail: float
) -> tuple[float, float]:
    known = epoch.known(epsilon)
    if epoch.shift > _LARGEST_SHIFTS[epoch.substituted]:
        return epsilon, known
    node, value = epoch.hidden(epsilon, reverse, resolution, log_tail)
    return node, min(value, known)


@lru_cache(maxsize=1024)
def _controlled(epoch: ShuffledEpoch, epsilon: float, reverse: bool) -> float:
    found = controlled_divergence(epoch.term(epsilon, reverse), epoch.rounds, epoch.participation)
    return 1.0 if found is None else found


@lru_cache(maxsize=16)
def _law(epoch: ShuffledEpoch, log_tail: float) -> Law:
    return law_of_profile(*_directed(epoch, log_tail, lone=False))


@lru_cache(maxsize=16)
def _directed(epoch: ShuffledEpoch, log_tail: float, lone: bool) -> tuple[Nodes, Nodes | None]:
    """Profiles of both directions, or of one that holds in both."""
    forward = _profile(epoch, False, log_tail)
    if epoch.symmetric:
        return forward, None
    # At 0 the divergence has no direction; from its node back to there it grows by no more than k does.
    node, value = forward[0]
    first = (node, min(1.0, value + math.expm1(2.0 * node)))
    if not lone:
        return forward, _profile(epoch, True, log_tail, first)
    backward = _profile(epoch, True, log_tail, first, forward)
    # What an adversary shows who is told the order bounds both directions, where one has come down to it.
    told = ((node, value) for node, value in forward if value == epoch.known(node))
    backward = sorted([*backward, *(each for each in told if each[0] < backward[-1][0])])
    for place in range(len(backward) - 1, 0, -1):
        backward[place:place] = _between(epoch, backward[place - 1], backward[place], forward, log_tail)
    return forward, backward


def _between(
    epoch: ShuffledEpoch, left: tuple[float, float], right: tuple[float, float], other: Nodes, log_tail: float
) -> list[tuple[float, float]]:
    """Reversed nodes between two of them, as long as the chord passes the other direction's bound."""
    nodes, bounds = np.array(other).T
    inside = (nodes > left[0]) & (nodes < right[0]) & (bounds > math.exp(log_tail + _UNREAD))
    share = np.expm1(nodes[inside] - left[0]) / math.expm1(right[0] - left[0])
    near = right[0] - left[0] <= max(2.0 * nodes[1], _GAP * epoch.shift)
    if near or np.all(left[1] + share * (right[1] - left[1]) <= bounds[inside]):
        return []
    middle = 0.5 * (left[0] + right[0])
    node, value = _deep_enough(epoch, middle, True, math.log(max(right[1], 1e-300)), log_tail)
    found = (node, value if value <= _RARE else min(value, epoch.controlled(middle, True)))
    before = _between(epoch, left, found, other, log_tail)
    return [*before, found, *_between(epoch, found, right, other, log_tail)]


def _profile(
    epoch: ShuffledEpoch,
    reverse: bool,
    log_tail: float,
    first: tuple[float, float] | None = None,
    other: Nodes | None = None,
) -> list[tuple[float, float]]:
    """Nodes from 0 to where the divergence is negligible, dense on the scale of log L; `first` where it is known.

    Where the `other` direction's bound is clearly larger, every node is twice as far as the one before it.
    """
    places, bounds = np.array(other or [(0.0, 0.0)]).T
    expected = math.log(epoch.known(0.0)) - math.log(epoch.rounds)
    profile: list[tuple[float, float]] = []
    epsilon, deviation, fall, settled = 0.0, 0.0, 0.0, False
    gain, skipped = 0.0, _SKIPPED  # how much one control for every strike lowered the last node where both were asked
    last = gaussian_epsilon(epoch.shift, math.exp(max(log_tail, -690.0)))
    while True:
        alone = epoch.controlled(epsilon, reverse) if skipped < _SKIPPED and expected > math.log(_RARE) else 1.0
        if not profile and first is not None:
            node, value = first
        elif settled:
            node, value = epsilon, epoch.known(epsilon)
        elif profile and alone < profile[-1][1]:  # where it is not tried it is 1
            node, value, skipped = epsilon, min(epoch.known(epsilon), alone), skipped + 1
        else:
            node, value = _deep_enough(epoch, epsilon, reverse, expected, log_tail)
            if gain < _WORTH and value > _RARE:
                better = epoch.controlled(epsilon, reverse)
                # Far out one term decides, and one control for every strike is as good as one for all; where it is
                # clearly better, the next nodes do without the ladder.
                gain, value = better / value, min(value, better)
                skipped = 0 if gain < _CLEARLY else _SKIPPED
        profile.append((node, value))
        # Far out what is charged stays and what is known falls: once it is less, it is so from there on.
        settled = settled or value == epoch.known(epsilon) < _FAR
        if value <= math.exp(log_tail + _NEGLIGIBLE) or epsilon >= last:
            return profile
        deviation = deviation or 2.0 * float(normal_tail_quantile(0.5 * max(1.0 - value, 1e-12)))
        gap = max(_GAP * deviation, min(_GROWTH * epsilon, _GAP * epoch.shift))
        gap = gap if value > _FAR else max(gap, 2.0 * _GAP * min(epsilon, epoch.shift))
        if value < _LESS * float(np.interp(node, places, bounds)):
            gap = max(gap, epsilon)
        epsilon += gap
        # The logarithm of a profile is nearly a line from one node to the next; where a bound does not fall, which
        # its proof allows, it is no reason to look less deep.
        if len(profile) > 1:
            fall = max(0.0, math.log(profile[-2][1] / max(value, 1e-300)) / (node - profile[-2][0]))
        expected = math.log(max(value, 1e-300)) - 1.5 * fall * gap


def _deep_enough(
    epoch: ShuffledEpoch, epsilon: float, reverse: bool, expected: float, log_tail: float
) -> tuple[float, float]:
    """A node no deeper than its value, of about e^expected, needs: what is cut is a share of about e^-16 of it."""
    while True:
        depth = max(log_tail, _DEPTH_STEP * math.floor((expected - _CUT) / _DEPTH_STEP))
        node, value = epoch.node(epsilon, reverse, _LADDER, depth)
        if depth <= log_tail or value > math.exp(depth + _CUT - _DEPTH_STEP):
            return node, value
        expected = min(math.log(max(value, 1e-300)), depth) - _DEPTH_STEP
