"""Shuffled batches of which there is no remainder: the displaced record is seen once, early.

When every record is used in every epoch (B divides N, or the last short batch is kept), the record that makes room
for x must go somewhere, and it is seen there. Two rules say where, so that it hardly says who it was: a record of the
first batch (`calipers.pld.allocation.batch_weights`; certificates also use a *pool* of several first batches), or,
batch by batch, one or none by rejection (`calipers.pld.allocation.rejection`), which suits small batches. Which rule,
with which constants, is chosen for every epsilon by a rough estimate, which decides width and cost, not truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT
from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.batch_weights import (
    Majorant,
    dynamic_program_with_first,
    find_majorant,
    first_payoff,
    worst_case_with_first,
)
from calipers.pld.allocation.recursion import QUICK, Effort
from calipers.pld.allocation.rejection import find_rejection, rejection_payoff
from calipers.pld.allocation.release_payoff import Vertices
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.allocation.worst_case_sum import rough_stop_losses

_SLACK = 1.0 + 1e-9
"""Covers the rounding of closed forms that are a few operations deep."""
EXPONENTS = (2.0, 3.5, 5.0, 7.0, 9.0, 11.0, 12.5, 14.0, 16.0, 18.0)
"""Minus the logarithms of what may be left uncovered."""
_POOLS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 28, 40, 60)
"""Numbers of batches in a pool that are tried; more are tighter for long epochs."""
_EVEN = 0.3
"""Numbers of batches of a pool to try, as long as so much of the square of one is at most that of an epoch."""
_SMALL_BATCH, _EXPOSED_ALONE = 64, 1e-8
"""With smaller batches what is exposed decides alone below the second number: nodes are twice as far apart there."""
_SCAN_RESOLUTION, _SCAN_LOG_TAIL = 0.5, -30.0
"""Resolution and depth of the rough sums by which choices are made: they decide how tight a bound is."""
_FIRST_SCAN, _SCAN_RATIO, _LAST_SCAN, _SCANNED = 1.0, 3.0, 4.0, 1e-20
"""Epsilons at which choices are made: the first in deviations of log L, the last in those of one release; values below
the last number are not looked at."""
_LOG_TAIL = -40.0
"""Depth of the sums that give a bound."""
_FEWEST, _LARGEST_WIDTH = 4, 3.0
"""Batches of an epoch, and deviations of the noise of a gradient, with which the rule of rejection is tried."""
_WORSE, _ALIKE = 1.02, 0.25
"""By which factor rough bounds of two rules must differ to be clear, and shares of epsilon for which that, and the
constants of rejection, are found once."""

_RULES = {
    False: "a record of the first batch, drawn with probabilities inverse to its likelihood ratio there (section 9, "
    "'The rule')",
    True: "batch by batch one record or none, by rejection (section 9, 'One or none, batch by batch')",
}
"""By whether it is the rule of rejection."""


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

    def rule_text(self, epsilon: float | None) -> str:
        """Which of the two rules names the record that makes room; at all thresholds (None), both that are tried."""
        if epsilon is not None and self.says_nothing(epsilon):
            return ""
        at = (None,) if epsilon is None else tuple((reverse, _near(epsilon)) for reverse in (False, True))
        found = [_tried(self) if each is None else _rules(self, *each) for each in at]
        used = sorted({rejected for rules in found for rejected, worse in rules if not worse})
        if not used:
            return ""
        if len(used) == 1:
            return f"The other one is chosen by this rule: {_RULES[used[0]]}."
        return (
            "The other one is chosen by one of two rules, and at every threshold e^epsilon the smaller bound counts: "
            f"{_RULES[False]}; or {_RULES[True]}."
        )

    def chosen(self, epsilon: float, reverse: bool) -> Majorant | None:
        """The pool and the weights that seem best at epsilon >= 0."""
        return _chosen(self, reverse, epsilon)

    def payoff(self, epsilon: float, reverse: bool, majorant: Majorant) -> Vertices:
        """J, as a function of the sum of later batches."""
        term, known = self.term(epsilon, reverse), self.known(epsilon)
        if majorant.stages:
            lack = (self.rounds * self.batch_size - self.dataset_size) / self.batch_size
            return rejection_payoff(term, known, self.rounds, lack, majorant)
        places, values = first_payoff(term, known, majorant.pool)
        more = majorant.many * majorant.low + majorant.few * majorant.high + majorant.pool - 1.0 / self.first
        return places - max(0.0, more) * _SLACK * math.expm1(epsilon), values

    def by_dynamic_program(self, epsilon: float, reverse: bool, effort: Effort = QUICK) -> float:
        """As `worst_case`, with the recursion in place of worst-case terms; 1 where not tried."""
        found = 1.0
        for rejected, worse in _rules(self, reverse, _near(epsilon)):
            plan = None if worse and found < 1.0 else _plan(self, reverse, epsilon, rejected)
            if plan is not None and plan.many > 1:
                found = min(found, _by_dynamic_program(self, epsilon, reverse, plan, effort))
        return found

    def worst_case(self, epsilon: float, reverse: bool, resolution: float, log_tail: float) -> tuple[float, float]:
        """(node, delta), with the rules and the weights that seem best."""
        rules = [rejected for rejected, worse in _rules(self, reverse, _near(epsilon)) if not worse]
        plans = [_plan(self, reverse, epsilon, rejected) for rejected in rules]
        found = [self.with_majorant(plan, epsilon, reverse, resolution, log_tail) for plan in plans if plan is not None]
        return min(found, key=lambda node: node[1], default=(epsilon, 1.0))

    def with_majorant(
        self, majorant: Majorant, epsilon: float, reverse: bool, resolution: float, log_tail: float
    ) -> tuple[float, float]:
        """(node, delta) with these weights of later batches."""
        term, payoff = self.term(epsilon, reverse), self.payoff(epsilon, reverse, majorant)
        node, value = worst_case_with_first(term, payoff, majorant, self.first, resolution, log_tail)
        return node, self.exposed(value, majorant, epsilon)

    def exposed(self, value: float, majorant: Majorant, epsilon: float) -> float:
        """With what the weights do not cover: later batches, and the record in the pool."""
        alone = self.first * majorant.pool * majorant.alone
        return min(1.0, (value + majorant.exposed * self.known(epsilon) + alone) * _SLACK)


@lru_cache(maxsize=1024)
def _by_dynamic_program(epoch: FullEpoch, epsilon: float, reverse: bool, majorant: Majorant, effort: Effort) -> float:
    term, payoff = epoch.term(epsilon, reverse), epoch.payoff(epsilon, reverse, majorant)
    found = dynamic_program_with_first(term, payoff, majorant, epoch.first, _LOG_TAIL, effort)
    return epoch.exposed(found, majorant, epsilon)


@lru_cache(maxsize=1024)
def _rules(epoch: FullEpoch, reverse: bool, epsilon: float) -> tuple[tuple[bool, bool], ...]:
    """Both rules, or one: whether it is that of rejection, and whether another is clearly better; best first."""
    tried = [(rejected, _plan(epoch, reverse, epsilon, rejected)) for rejected in (False, True)]
    plans = [(rejected, plan) for rejected, plan in tried if plan is not None]
    if len(plans) < 2:
        return tuple((rejected, False) for rejected, _ in plans)
    rough = reverse, _SCAN_RESOLUTION, _LOG_TAIL
    found = sorted((epoch.with_majorant(plan, epsilon, *rough)[1], rejected) for rejected, plan in plans)
    return tuple((rejected, value > _WORSE * found[0][0]) for value, rejected in found)


def _tried(epoch: FullEpoch) -> tuple[tuple[bool, bool], ...]:
    """The rules that are tried at some epsilon, in the form of `_rules`."""
    first, rejection = bool(_majorants(epoch, False)[0]), epoch.rounds >= _FEWEST and _wide_enough(epoch)
    return tuple((rejected, False) for rejected, tried in ((False, first), (True, rejection)) if tried)


def _wide_enough(epoch: FullEpoch) -> bool:
    return epoch.sigma * _LARGEST_WIDTH >= 1.0


def _plan(epoch: FullEpoch, reverse: bool, epsilon: float, rejected: bool) -> Majorant | None:
    """The weights of one rule with the least bound, about."""
    if not rejected:
        return _chosen(epoch, reverse, epsilon, pools=False)
    if epoch.rounds < _FEWEST or not _wide_enough(epoch):
        return None
    return _rejection_at(epoch, reverse, _near(epsilon))


def _near(epsilon: float) -> float:
    """One of few epsilons."""
    return math.exp(_ALIKE * round(math.log(epsilon) / _ALIKE)) if epsilon > 0.0 else 0.0


@lru_cache(maxsize=1024)
def _rejection_at(epoch: FullEpoch, reverse: bool, epsilon: float) -> Majorant:
    """The constants of rejection with the least bound, about."""

    def worths(counts: FloatArray) -> FloatArray:
        return counts * _worst_case(epoch, reverse, epsilon, counts)

    return find_rejection(epoch.term(epsilon, reverse), epoch.known(epsilon), epoch.rounds, worths)


@lru_cache(maxsize=4096)
def _chosen(epoch: FullEpoch, reverse: bool, epsilon: float, pools: bool = True) -> Majorant | None:
    """The weights with the least bound, about, from rough sums of 1, 2, 4, ... terms."""
    majorants, alike, exposed, alone = _majorants(epoch, pools)
    if not majorants:
        return None
    values = _worst_case(epoch, reverse, epsilon, alike) + exposed * epoch.known(epsilon) + alone
    return majorants[int(np.argmin(values))]


@lru_cache(maxsize=32)
def _majorants(epoch: FullEpoch, several: bool) -> tuple[list[Majorant], FloatArray, FloatArray, FloatArray]:
    """All that are tried, about as many equal weights as they are, and what they expose: a share, and a constant."""
    sizes = epoch.batch_size, epoch.dataset_size
    pools = [pool for pool in _POOLS if pool == 1 or (several and _EVEN * pool**2 <= epoch.rounds)]
    r, raised = 1.0 / epoch.sigma, not several
    found = [find_majorant(r, *sizes, exponent, pool, raised) for pool in pools for exponent in EXPONENTS]
    majorants = [each for each in found if each is not None]
    squares = [each.squares(1.0 / epoch.sigma) + each.pool**2 for each in majorants]
    alone = [epoch.first * each.pool * each.alone for each in majorants]
    return majorants, epoch.first**-2 / np.array(squares), np.array([e.exposed for e in majorants]), np.array(alone)


def _worst_case(epoch: FullEpoch, reverse: bool, epsilon: float, rounds: FloatArray) -> FloatArray:
    """About what so many equal rounds hide at epsilon: between the epsilons that were scanned."""
    first = _FIRST_SCAN * epoch.shift / math.sqrt(epoch.rounds)
    last = math.ceil(math.log(_LAST_SCAN * epoch.shift / first, _SCAN_RATIO))
    scanned = np.append(0.0, np.minimum(first * _SCAN_RATIO ** np.arange(last + 1.0), _LAST_SCAN * epoch.shift))
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
    return np.log(counts), np.log(np.maximum(stop_losses, _SCANNED))
