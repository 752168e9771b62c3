"""Shuffled batches of which nothing is left over: the displaced record is seen once, early.

When every record is used in every epoch (B divides N, or the last short batch is kept), the record that makes room
for x must go somewhere, and it is seen there: in one of the first batches, the *pool*, so that it hardly says who it
was (`calipers.laws.allocated.first_batch`). How many batches the pool has, and how much of the weight of later batches
is to be covered, is chosen for every epsilon by a rough estimate, which decides width and cost, not truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT
from calipers.errors import InputError
from calipers.laws.allocated.first_batch import Cover, controlled_with_first, cover, hidden_with_first
from calipers.laws.allocated.hidden_sums import rough_calls
from calipers.laws.allocated.recursion import QUICK, Effort
from calipers.laws.allocated.shuffled import ShuffledEpoch
from calipers.laws.core.profile_law import Nodes
from calipers.numerics.types import FloatArray

_SLACK = 1.0 + 1e-9
"""Covers the rounding of closed forms that are a few operations deep."""
EXPONENTS = (2.0, 3.5, 5.0, 7.0, 9.0, 11.0, 12.5, 14.0, 16.0, 18.0)
"""Minus the logarithms of what may be left uncovered."""
_POOLS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 28, 40, 60)
_EVEN = 0.3
"""Numbers of batches of a pool to try, as long as so much of the square of one is at most that of an epoch."""
_SMALL_BATCH, _EXPOSED_ALONE = 64, 1e-8
_SCAN_RESOLUTION, _SCAN_LOG_TAIL = 0.5, -30.0
_FIRST_SCAN, _SCAN_RATIO, _LAST_SCAN = 1.0, 3.0, 4.0
"""Epsilons at which choices are made: the first in deviations of log L, the last in those of one release."""
_SHARED = 3
"""So many small batches' nodes are looked at together on ladders."""
_LOG_TAIL = -40.0
_CAREFUL, _NOISY = 3.0, 0.8
"""Where gradients are below so many deviations of the noise, estimates between the epsilons that were scanned are too
large by such a factor, but what is exposed is not."""


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
        """The share of one batch, B/N."""
        return self.batch_size / self.dataset_size

    finer = None

    def chosen(self, epsilon: float, reverse: bool) -> Cover | None:
        """The pool and the weights that seem best at epsilon >= 0."""
        return _chosen(self, reverse, epsilon)

    def controlled(self, epsilon: float, reverse: bool, effort: Effort = QUICK) -> float:
        """As `hidden`, with the recursion in place of worst terms; 1 where not tried."""
        covered = _chosen(self, reverse, epsilon)
        if covered is None or covered.many < 2:
            return 1.0
        return _controlled(self, epsilon, reverse, covered, effort)

    def hidden(self, epsilons: Sequence[float], reverse: bool, resolution: float, log_tail: float) -> Nodes:
        """(node, delta) of each, with the pool and the weights that seem best."""
        nodes: list[tuple[float, float]] = []
        for covered, group in groupby(epsilons, lambda epsilon: _chosen(self, reverse, epsilon)):
            some = [*group]
            if covered is None:
                nodes += [(epsilon, 1.0) for epsilon in some]
            else:
                nodes += self.with_cover(covered, some, reverse, resolution, log_tail)
        return nodes

    def with_cover(
        self, covered: Cover, epsilons: Sequence[float], reverse: bool, resolution: float, log_tail: float
    ) -> Nodes:
        """(node, delta) of each with these weights of later batches."""
        terms, knowns = [self.term(e, reverse) for e in epsilons], [self.known(e) for e in epsilons]
        waves = self.batch_size >= _SMALL_BATCH or len(terms) < _SHARED
        found = hidden_with_first(terms, knowns, covered, self.first, resolution, log_tail, waves)
        return [(node, self.exposed(value, covered, e)) for (node, value), e in zip(found, epsilons, strict=True)]

    def exposed(self, value: float, covered: Cover, epsilon: float) -> float:
        """With what the weights do not cover: later batches, and the record in the pool."""
        alone = self.first * covered.pool * covered.alone
        return min(1.0, (value + covered.exposed * self.known(epsilon) + alone) * _SLACK)


@lru_cache(maxsize=1024)
def _controlled(epoch: DisplacedEpoch, epsilon: float, reverse: bool, covered: Cover, effort: Effort) -> float:
    term, known = epoch.term(epsilon, reverse), epoch.known(epsilon)
    found = controlled_with_first(term, known, covered, epoch.first, _LOG_TAIL, effort)
    return epoch.exposed(found, covered, epsilon)


@lru_cache(maxsize=4096)
def _chosen(epoch: DisplacedEpoch, reverse: bool, epsilon: float) -> Cover | None:
    """The weights with the least bound, about, from rough sums of 1, 2, 4, ... terms; None if there are none."""
    covers, alike, exposed, alone = _covers(epoch)
    if not covers:
        return None
    careful = _CAREFUL if epoch.sigma * _NOISY > 1.0 else 1.0
    values = _hidden(epoch, reverse, epsilon, alike) + careful * (exposed * epoch.known(epsilon) + alone)
    return covers[int(np.argmin(values))]


@lru_cache(maxsize=32)
def _covers(epoch: DisplacedEpoch) -> tuple[list[Cover], FloatArray, FloatArray, FloatArray]:
    """All that are tried, about as many equal weights as they are, and what they expose: a share, and a constant."""
    sizes = epoch.batch_size, epoch.dataset_size
    pools = [pool for pool in _POOLS if pool == 1 or _EVEN * pool**2 <= epoch.rounds]
    found = [cover(1.0 / epoch.sigma, *sizes, exponent, pool) for pool in pools for exponent in EXPONENTS]
    covers = [each for each in found if each is not None]
    weights = [(each.many * each.low + each.few * each.high + each.pool) ** 2 for each in covers]
    squares = [each.squares(1.0 / epoch.sigma) + each.pool**2 for each in covers]
    exposed, alone = ([each.exposed for each in covers], [epoch.first * each.pool * each.alone for each in covers])
    return covers, np.divide(weights, squares), np.array(exposed), np.array(alone)


def _hidden(epoch: DisplacedEpoch, reverse: bool, epsilon: float, rounds: FloatArray) -> FloatArray:
    """About what so many equal rounds hide at epsilon: between the epsilons that were scanned."""
    first = _FIRST_SCAN * epoch.shift / math.sqrt(epoch.rounds)
    last = math.ceil(math.log(_LAST_SCAN * epoch.shift / first, _SCAN_RATIO))
    scanned = np.append(0.0, first * _SCAN_RATIO ** np.arange(last + 1.0))
    place = float(np.interp(epsilon * epsilon, scanned * scanned, np.arange(last + 2.0)))  # most are nearly normal
    below, part = int(place), place - int(place)
    counts, calls = _scan(epoch, reverse, float(scanned[below]))
    if part > 0.0:
        calls = (1.0 - part) * calls + part * _scan(epoch, reverse, float(scanned[below + 1]))[1]
    slope = (calls[-1] - calls[-2]) / (counts[-1] - counts[-2]) if len(counts) > 1 else 0.0
    logs = np.log(rounds)
    return np.asarray(np.exp(np.interp(logs, counts, calls) + slope * np.maximum(0.0, logs - counts[-1])))


@lru_cache(maxsize=64)
def _scan(epoch: DisplacedEpoch, reverse: bool, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Logarithms of numbers of rounds, and of about what so many equal ones hide at epsilon."""
    counts, calls = rough_calls(epoch.term(epsilon, reverse), epoch.rounds, _SCAN_RESOLUTION, _SCAN_LOG_TAIL)
    return np.log(counts), np.log(calls)
