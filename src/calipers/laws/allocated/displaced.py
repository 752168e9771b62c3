"""Shuffled batches of which nothing is left over: the displaced record is seen once, early.

When every record is used in every epoch (B divides N, or the last short batch is kept), the record that makes room
for x must go somewhere, and it is seen there: in the *first* batch, through a gradient c_j chosen before anything was
seen. Who it is may be chosen so that the first batch hardly says it (`calipers.laws.allocated.first_batch`), or at
random, which is simpler and better for small batches with much noise: x stands in the first batch, or in batch t in
place of a random member j. Given the first batch the places of x are then no longer equally likely: batch t has
probability proportional to the mean of the likelihood ratios W_j = exp(<c_j, z> - |c_j|^2/2) of its members. With w_t
that mean over the mean of all, a theorem (docs/mathematics, "nothing left over") says for every number of rounds n <=
N/B and Omega = N/(B n) > 1

    D_k <= U_n(k) + kappa D_k(fixed batches) + zeta(k),

U_n(k) = (1/n) E[(X*_1 + ... + X*_n)+]. Weights w_t up to Omega are as good as n equal rounds (convexity and
majorization); kappa bounds the share of weight that is larger, by Markov's inequality from a moment of w_t - 1,

    kappa = min over p of  Omega / (Omega - 1)^p  E[(w_t - 1)^p],

and zeta is what x itself may show in the first batch while that happens:
zeta = E[(p_1 X'+ + (1 - p_1) X)+] - (1 - p_1) E[X+], p_1 = B/N, X and X' two worst terms.

Moments. A batch is a random sample of the records, so (Hoeffding: less than with replacement)

    B^p E[(w_t - 1)^p] <= sum_b S(p, b) B^b (M_p^((p - b)/(p - 1)) - 1),

S(p, b) the number of partitions of p things into b blocks of two or more, M_p the p-th moment of W_j over its mean. The
mean is at least the geometric mean, and with theta = |mean c| / r that gives, whatever the c_j are,

    M_p <= max over theta in [0, 1] of
           e^((p-1)(1-theta^2) r^2/2) (1 + (1-theta)/(1+theta) (e^(p(p-1)(1+theta)^2 r^2/2) - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.citations import implements
from calipers.domains import COUNT
from calipers.errors import InputError
from calipers.laws.allocated.first_batch import cover, hidden_with_first
from calipers.laws.allocated.hidden_sums import divergences, rough_calls
from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.laws.allocated.recursion import QUICK, Effort
from calipers.laws.allocated.shuffled import ShuffledEpoch
from calipers.laws.core.profile_law import Nodes
from calipers.numerics.types import FloatArray

_ORDERS = (2, 4, 6, 8)
_ANGLES = 4096
_SLACK = 1.0 + 1e-9
"""Covers the rounding of closed forms that are a few operations deep."""
_SHARES = (0.08, 0.15, 0.24, 0.34, 0.42, 0.52, 0.64, 0.8)
"""Numbers of rounds to try, as shares of N/B."""
_EXPONENTS = (5.0, 7.0, 9.0, 11.0, 14.0, 18.0)
"""Minus the logarithms of what may be left uncovered."""
_SMALL_BATCH, _EXPOSED_ALONE = 64, 1e-8
"""Below it a random member says no more than a chosen one where its gradient is small against the noise."""
_SCAN_RESOLUTION, _SCAN_LOG_TAIL = 0.5, -30.0
_FIRST_SCAN, _SCAN_RATIO, _LAST_SCAN = 1.0, 3.0, 4.0
"""Epsilons at which choices are made: the first in deviations of log L, the last in those of one release."""
_SHARED = 3
"""So many small batches' nodes are looked at together on ladders."""
_CLEARLY = 1.6
"""A theorem is left out where its bound seems to be so many times the other one's."""
_LARGEST_EXPONENT = 600.0


@lru_cache(maxsize=64)
def largest_moment(order: int, width: float) -> float:
    """At least M_p for gradients of norm at most `width`, in units of the noise; infinite where it is astronomical."""
    if 2.0 * order * (order - 1) * width**2 > _LARGEST_EXPONENT:
        return math.inf
    angles = np.linspace(0.0, 1.0, _ANGLES)
    low, high = angles[:-1], angles[1:]  # each factor at the end of the interval where it is largest
    spread = np.exp(0.5 * (order - 1) * (1.0 - low**2) * width**2)
    far = np.expm1(0.5 * order * (order - 1) * ((1.0 + high) * width) ** 2)
    return float(np.max(spread * (1.0 + (1.0 - low) / (1.0 + low) * far))) * _SLACK


@lru_cache(maxsize=64)
def blocks_of_two_or_more(things: int, blocks: int) -> int:
    """Partitions of a set into blocks with at least two elements each."""
    if things == 0:
        return int(blocks == 0)
    if blocks <= 0 or things < 2 * blocks:
        return 0
    joined = blocks * blocks_of_two_or_more(things - 1, blocks)
    return joined + (things - 1) * blocks_of_two_or_more(things - 2, blocks - 1)


def sample_moment(order: int, width: float, batch_size: int) -> float:
    """At least E[(w_t - 1)^order] for an even order."""
    moment = largest_moment(order, width)
    if math.isinf(moment):
        return math.inf
    parts = (
        blocks_of_two_or_more(order, blocks)
        * float(batch_size) ** (blocks - order)
        * (moment ** ((order - blocks) / (order - 1)) - 1.0 / _SLACK)
        for blocks in range(1, order // 2 + 1)
    )
    return math.fsum(parts) * _SLACK


def seen_early(term: HiddenTerm, first: float, known: float) -> float:
    """At least zeta: what x adds by standing in the first batch, of share `first`; `known` >= E[X+].

    zeta <= p_1 E[X'+ pi(X')] with pi(s) = P(X > -p_1 s/(1 - p_1)), which grows with s: a staircase above pi turns it
    into a sum of the tail moments E[X'; X' > s].
    """
    right, left = term.branches
    s = np.exp(np.linspace(-6.0, 12.0 + term.epsilon, 240))
    pi = ndtr(left.preimage(first * s / (1.0 - first)))  # as -z is standard normal too
    z = right.preimage(s)
    whole = ndtr(term.right[0] - z)
    beyond = whole - math.exp(term.epsilon) * ndtr(term.right[1] - z) + 1e-13 * whole
    stairs = float(pi[0]) * known + float(np.sum(np.diff(pi, append=1.0) * np.minimum(beyond, known)))
    return first * min(known, stairs * _SLACK)


@implements("calipers:displaced")
@dataclass(frozen=True)
class DisplacedEpoch(ShuffledEpoch):
    """One epoch that uses every record: `rounds` batches of `batch_size`, the last one perhaps shorter.

    `dataset_size` records; participation is certain.
    """

    batch_size: int = 0
    dataset_size: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        COUNT.check_int("batch_size", self.batch_size)
        if self.participation != 1.0 or -(-self.dataset_size // self.batch_size) != self.rounds:
            raise InputError("An epoch without a remainder has ceil(N/B) rounds in which every record takes part.")

    @property
    def far(self) -> float:
        """Of small batches, about where what is exposed is all that is left, a multiple of fixed batches."""
        return _EXPOSED_ALONE if self.batch_size < _SMALL_BATCH else super().far

    @property
    def first(self) -> float:
        """The share of the first batch, B/N."""
        return self.batch_size / self.dataset_size

    def exposed(self, rounds: int) -> float:
        """kappa: at least the expected share of weight beyond what `rounds` equal rounds cover."""
        excess = self.dataset_size / (self.batch_size * rounds) * (1.0 - 1e-15)
        if excess <= 1.0:
            return 1.0
        width = 1.0 / self.sigma
        # A short last batch is a part of a full one, and counts as one.
        batches = (self.rounds - 1) * self.batch_size / (self.dataset_size - self.batch_size)
        bounds = (excess / (excess - 1.0) ** p * sample_moment(p, width, self.batch_size) for p in _ORDERS)
        return min(1.0, batches * min(bounds) * _SLACK)

    finer = None

    def controlled(self, epsilon: float, reverse: bool, effort: Effort = QUICK) -> float:
        """Not tried: weights of rounds are compared by majorization, for terms that are worst at every threshold."""
        del epsilon, reverse, effort
        return 1.0

    def hidden(self, epsilons: Sequence[float], reverse: bool, resolution: float, log_tail: float) -> Nodes:
        """(node, delta) of each: by the theorem that seems better, with the weights that seem best, or by both."""
        chosen = {epsilon: _chosen(self, reverse, epsilon) for epsilon in epsilons}
        nodes = {epsilon: (epsilon, 1.0) for epsilon in epsilons}
        for rounds, group in groupby(epsilons, lambda epsilon: chosen[epsilon].rounds):
            if rounds > 0:
                some = [*group]
                nodes |= zip(some, self.with_rounds(rounds, some, reverse, resolution, log_tail), strict=True)
        for exponent, group in groupby(epsilons, lambda epsilon: chosen[epsilon].exponent):
            some = [epsilon for epsilon in group if exponent > 0.0 and not self._exposes(exponent, *nodes[epsilon])]
            others = self.with_cover(exponent, some, reverse, resolution, log_tail) if some else []
            for epsilon, (other, value) in zip(some, others, strict=True):
                nodes[epsilon] = max(nodes[epsilon][0], other), min(nodes[epsilon][1], value)
        return list(nodes.values())

    def _exposes(self, exponent: float, epsilon: float, value: float) -> bool:
        """Whether what is not covered bounds delta by no less than the value, whatever the rest hides."""
        covered = cover(1.0 / self.sigma, self.batch_size, self.dataset_size, exponent)
        return covered is None or covered.exposed * self.known(epsilon) >= value

    def with_cover(
        self, exponent: float, epsilons: Sequence[float], reverse: bool, resolution: float, log_tail: float
    ) -> Nodes:
        """The theorem for a first batch that says little, where all but about e^-exponent is covered."""
        covered = cover(1.0 / self.sigma, self.batch_size, self.dataset_size, exponent)
        if covered is None:
            return [(epsilon, 1.0) for epsilon in epsilons]
        terms, knowns = [self.term(e, reverse) for e in epsilons], [self.known(e) for e in epsilons]
        waves = self.batch_size >= _SMALL_BATCH or len(terms) < _SHARED
        found = hidden_with_first(terms, knowns, covered, self.first, resolution, log_tail, waves)
        return [
            (node, min(1.0, (value + covered.exposed * known) * _SLACK))
            for (node, value), known in zip(found, knowns, strict=True)
        ]

    def with_rounds(
        self, rounds: int, epsilons: Sequence[float], reverse: bool, resolution: float, log_tail: float
    ) -> Nodes:
        """The theorem with this number of equal rounds."""
        terms, exposed = [self.term(e, reverse) for e in epsilons], self.exposed(rounds)
        found = []
        for term, (node, value) in zip(terms, divergences(terms, rounds, 1.0, resolution, log_tail), strict=True):
            known = self.known(term.epsilon)
            value += exposed * known + seen_early(term, self.first, known)
            found.append((node, min(1.0, value * _SLACK)))
        return found


class _Chosen(NamedTuple):
    """The exponent of what is covered, and a number of equal rounds: each 0 where its theorem is not asked."""

    exponent: float
    rounds: int


@lru_cache(maxsize=4096)
def _chosen(epoch: DisplacedEpoch, reverse: bool, epsilon: float) -> _Chosen:
    """What seems best at epsilon, from rough sums of 1, 2, 4, ... terms: it decides width and cost, not truth."""
    term, known, hidden = epoch.term(epsilon, reverse), epoch.known(epsilon), _hidden(epoch, reverse, epsilon)
    exponent, by_cover = _best_cover(epoch, known, hidden)
    by_rounds, rounds, early = math.inf, 0, seen_early(term, epoch.first, known)
    for share in _SHARES if epoch.batch_size < _SMALL_BATCH else ():
        count = max(1, int(share * epoch.dataset_size / epoch.batch_size))
        value = hidden(count) + epoch.exposed(count) * known + early
        if value < known:
            by_rounds, rounds = min((by_rounds, rounds), (value, count))
    clear = _CLEARLY * min(by_cover, by_rounds) if epsilon < _LAST_SCAN * epoch.shift else math.inf
    return _Chosen(exponent if by_cover <= clear else 0.0, rounds if by_rounds <= clear else 0)


def _hidden(epoch: DisplacedEpoch, reverse: bool, epsilon: float) -> Callable[[float], float]:
    """About what equal rounds hide at epsilon, for any number of them: between the epsilons that were scanned."""
    first = _FIRST_SCAN * epoch.shift / math.sqrt(epoch.rounds)
    last = math.ceil(math.log(_LAST_SCAN * epoch.shift / first, _SCAN_RATIO))
    scanned = np.append(0.0, first * _SCAN_RATIO ** np.arange(last + 1.0))
    place = float(np.interp(epsilon * epsilon, scanned * scanned, np.arange(last + 2.0)))  # most are nearly normal
    below, part = int(place), place - int(place)
    counts, calls = _scan(epoch, reverse, float(scanned[below]))
    if part > 0.0:
        calls = (1.0 - part) * calls + part * _scan(epoch, reverse, float(scanned[below + 1]))[1]
    slope = (calls[-1] - calls[-2]) / (counts[-1] - counts[-2]) if len(counts) > 1 else 0.0

    def hidden(rounds: float) -> float:
        beyond = slope * max(0.0, math.log(rounds) - counts[-1])
        return math.exp(float(np.interp(math.log(rounds), counts, calls)) + beyond)

    return hidden


@lru_cache(maxsize=64)
def _scan(epoch: DisplacedEpoch, reverse: bool, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Logarithms of numbers of rounds, and of about what so many equal ones hide at epsilon."""
    counts, calls = rough_calls(epoch.term(epsilon, reverse), epoch.rounds, _SCAN_RESOLUTION, _SCAN_LOG_TAIL)
    return np.log(counts), np.log(calls)


def _best_cover(epoch: DisplacedEpoch, known: float, hidden: Callable[[float], float]) -> tuple[float, float]:
    """The exponent with the least bound, and about that bound; 0 where batches are too small for any."""
    best = 0.0, math.inf
    for exponent in _EXPONENTS:
        covered = cover(1.0 / epoch.sigma, epoch.batch_size, epoch.dataset_size, exponent)
        if covered is not None:
            squares = covered.many * covered.low**2 + covered.few * covered.high**2
            alike = (covered.many * covered.low + covered.few * covered.high) ** 2 / squares  # so many equal weights
            best = min(best, (exponent, hidden(alike) + covered.exposed * known), key=lambda each: each[1])
    return best
