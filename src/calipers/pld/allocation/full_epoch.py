"""Shuffled batches of which there is no remainder: the displaced record is seen once, early.

When every record is used in every epoch (B divides N, or the last short batch is kept), the record that makes room
for x must go somewhere, and it is seen there: in one of the first batches, the *pool*, so that it hardly says who it
was (`calipers.pld.allocation.batch_weights`). How many batches the pool has, and how much of the weight of later
batches is to be covered, is chosen for every epsilon by a rough estimate, which decides width and cost, not truth.
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
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.batch_weights import (
    Majorant,
    dynamic_program_with_first,
    find_majorant,
    worst_case_with_first,
)
from calipers.pld.allocation.recursion import QUICK, Effort
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.allocation.worst_case_sums import rough_stop_losses
from calipers.pld.core.profile_pmf import ProfileNodes

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
"""So many small batches' nodes are looked at together on multi-resolution grids."""
_LOG_TAIL = -40.0
_CAREFUL, _NOISY = 3.0, 0.8
"""Where gradients are below so many deviations of the noise, estimates between the epsilons that were scanned are too
large by such a factor, but what is exposed is not."""


@implements("calipers:displaced")
@dataclass(frozen=True)
class FullEpoch(ShuffledEpoch):
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

    def chosen(self, epsilon: float, reverse: bool) -> Majorant | None:
        """The pool and the weights that seem best at epsilon >= 0."""
        return _chosen(self, reverse, epsilon)

    def by_dynamic_program(self, epsilon: float, reverse: bool, effort: Effort = QUICK) -> float:
        """As `worst_case`, with the recursion in place of worst-case terms; 1 where not tried."""
        majorant = _chosen(self, reverse, epsilon)
        if majorant is None or majorant.many < 2:
            return 1.0
        return _by_dynamic_program(self, epsilon, reverse, majorant, effort)

    def worst_case(self, epsilons: Sequence[float], reverse: bool, resolution: float, log_tail: float) -> ProfileNodes:
        """(node, delta) of each, with the pool and the weights that seem best."""
        nodes: list[tuple[float, float]] = []
        for majorant, group in groupby(epsilons, lambda epsilon: _chosen(self, reverse, epsilon)):
            some = [*group]
            if majorant is None:
                nodes += [(epsilon, 1.0) for epsilon in some]
            else:
                nodes += self.with_majorant(majorant, some, reverse, resolution, log_tail)
        return nodes

    def with_majorant(
        self, majorant: Majorant, epsilons: Sequence[float], reverse: bool, resolution: float, log_tail: float
    ) -> ProfileNodes:
        """(node, delta) of each with these weights of later batches."""
        terms, knowns = [self.term(e, reverse) for e in epsilons], [self.known(e) for e in epsilons]
        waves = self.batch_size >= _SMALL_BATCH or len(terms) < _SHARED
        found = worst_case_with_first(terms, knowns, majorant, self.first, resolution, log_tail, waves)
        return [(node, self.exposed(value, majorant, e)) for (node, value), e in zip(found, epsilons, strict=True)]

    def exposed(self, value: float, majorant: Majorant, epsilon: float) -> float:
        """With what the weights do not cover: later batches, and the record in the pool."""
        alone = self.first * majorant.pool * majorant.alone
        return min(1.0, (value + majorant.exposed * self.known(epsilon) + alone) * _SLACK)


@lru_cache(maxsize=1024)
def _by_dynamic_program(epoch: FullEpoch, epsilon: float, reverse: bool, majorant: Majorant, effort: Effort) -> float:
    term, known = epoch.term(epsilon, reverse), epoch.known(epsilon)
    found = dynamic_program_with_first(term, known, majorant, epoch.first, _LOG_TAIL, effort)
    return epoch.exposed(found, majorant, epsilon)


@lru_cache(maxsize=4096)
def _chosen(epoch: FullEpoch, reverse: bool, epsilon: float) -> Majorant | None:
    """The weights with the least bound, about, from rough sums of 1, 2, 4, ... terms; None if there are none."""
    majorants, alike, exposed, alone = _majorants(epoch)
    if not majorants:
        return None
    careful = _CAREFUL if epoch.sigma * _NOISY > 1.0 else 1.0
    values = _worst_case(epoch, reverse, epsilon, alike) + careful * (exposed * epoch.known(epsilon) + alone)
    return majorants[int(np.argmin(values))]


@lru_cache(maxsize=32)
def _majorants(epoch: FullEpoch) -> tuple[list[Majorant], FloatArray, FloatArray, FloatArray]:
    """All that are tried, about as many equal weights as they are, and what they expose: a share, and a constant."""
    sizes = epoch.batch_size, epoch.dataset_size
    pools = [pool for pool in _POOLS if pool == 1 or _EVEN * pool**2 <= epoch.rounds]
    found = [find_majorant(1.0 / epoch.sigma, *sizes, exponent, pool) for pool in pools for exponent in EXPONENTS]
    majorants = [each for each in found if each is not None]
    weights = [(each.many * each.low + each.few * each.high + each.pool) ** 2 for each in majorants]
    squares = [each.squares(1.0 / epoch.sigma) + each.pool**2 for each in majorants]
    exposed, alone = (
        [each.exposed for each in majorants],
        [epoch.first * each.pool * each.alone for each in majorants],
    )
    return majorants, np.divide(weights, squares), np.array(exposed), np.array(alone)


def _worst_case(epoch: FullEpoch, reverse: bool, epsilon: float, rounds: FloatArray) -> FloatArray:
    """About what so many equal rounds hide at epsilon: between the epsilons that were scanned."""
    first = _FIRST_SCAN * epoch.shift / math.sqrt(epoch.rounds)
    last = math.ceil(math.log(_LAST_SCAN * epoch.shift / first, _SCAN_RATIO))
    scanned = np.append(0.0, first * _SCAN_RATIO ** np.arange(last + 1.0))
    place = float(np.interp(epsilon * epsilon, scanned * scanned, np.arange(last + 2.0)))  # most are nearly normal
    below, part = int(place), place - int(place)
    counts, stop_losses = _scan(epoch, reverse, float(scanned[below]))
    if part > 0.0:
        stop_losses = (1.0 - part) * stop_losses + part * _scan(epoch, reverse, float(scanned[below + 1]))[1]
    slope = (stop_losses[-1] - stop_losses[-2]) / (counts[-1] - counts[-2]) if len(counts) > 1 else 0.0
    logs = np.log(rounds)
    return np.asarray(np.exp(np.interp(logs, counts, stop_losses) + slope * np.maximum(0.0, logs - counts[-1])))


@lru_cache(maxsize=64)
def _scan(epoch: FullEpoch, reverse: bool, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Logarithms of numbers of rounds, and of about what so many equal ones hide at epsilon."""
    counts, stop_losses = rough_stop_losses(
        epoch.term(epsilon, reverse), epoch.rounds, _SCAN_RESOLUTION, _SCAN_LOG_TAIL
    )
    return np.log(counts), np.log(stop_losses)
