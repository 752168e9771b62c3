"""One round of division by a number that depends on the data, from both sides.

The pessimistic PLD is a proof that holds for all gradients, the optimistic PLD an attack with all gradients on one
line.

- `DividedPair`: divisor K without the record, K + 1 with it. One coordinate; in the n - 1 others both sides show
  exactly the scale PLD, whose T rounds are one factor of T (n - 1) degrees (`calipers.pld.division.scale`).
- `ScaleFactor`: that factor.
- `RealizedPair`: the realized batch size, in all coordinates.
- `MovingRatePair`: nothing is divided, but the sampling rate is computed from the dataset.

A PLD of many batch sizes costs more than a composition of it, and questions ask for PLDs at many resolutions and
depths. So PLDs are built as fine as it pays, at few depths (deeper than asked for, which is a bound as well), and kept.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair, DominatingPair, TwoSidedPair
from calipers.pld.division.collinear import CollinearPair
from calipers.pld.division.hidden_membership import HiddenMembershipPair
from calipers.pld.division.moving_rate import MovingRateProof
from calipers.pld.division.realized import RealizedAttack
from calipers.pld.division.scale import log_moment, scale_pair
from calipers.pld.division.size_and_sum import SizeAndSumPair

_SCALE_CELL = 0.02
"""Cells of width w cost a share of w^2/6 (proof) or w^2/12 (attack) of the variance."""
_DEPTHS = (-60.0, -120.0, -240.0, -480.0, -720.0)
"""Log tails at which PLDs are built: few, so that questions at many depths share them."""
_scale = functools.lru_cache(maxsize=32)(scale_pair)


def _depth(log_tail: float) -> float:
    """The first that suffices."""
    return next((depth for depth in _DEPTHS if depth <= log_tail), log_tail)


@functools.lru_cache(maxsize=32)
def _proven(source: DominatingPair, cell: float, log_tail: float) -> PrivacyLossPmf:
    return source.upper(cell, log_tail)


@functools.lru_cache(maxsize=32)
def _shown(source: AttainedPair, cell: float, log_tail: float) -> PrivacyLossPmf:
    return source.lower(cell, log_tail)


class _ProofAndAttack(TwoSidedPair):
    """A proof, and an attack of its own that shows less."""

    exact: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    @property
    @abstractmethod
    def proof(self) -> DominatingPair:
        """What dominates every choice of gradients."""

    @property
    @abstractmethod
    def attack(self) -> CollinearPair | RealizedAttack:
        """What one choice of gradients shows."""

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The proof's PLD."""
        return _proven(self.proof, 0.0, _depth(log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The attack's PLD."""
        return _shown(self.attack, 0.0, _depth(log_tail))


@dataclass(frozen=True)
class DividedPair(_ProofAndAttack):
    """N `others`, `rate` q, divisor K without the record and K + 1 with it.

    In the attack the other gradients are v e, v = `direction`, and the record's is w e, w = `record`. With `covers`
    = (N', K') the proof holds for up to N' others and every divisor from K to K' at once.
    """

    sigma: float
    rate: float
    others: int
    divisor: int
    direction: float = 0.0
    record: float = 1.0
    covers: tuple[int, int] | None = None
    moment_depth: ClassVar[float] = -690.0

    @property
    def proof(self) -> HiddenMembershipPair:
        """What dominates every choice of gradients."""
        others, largest = self.covers if self.covers is not None else (self.others, None)
        return HiddenMembershipPair(self.sigma, self.rate, others, self.divisor, largest_divisor=largest)

    @property
    def attack(self) -> CollinearPair:
        """What one choice of gradients shows."""
        return CollinearPair(self.sigma, self.rate, self.others, self.divisor, self.direction, self.record)

    @property
    def slope(self) -> float:
        """The largest shift of the coordinate, in deviations of its noise, when batch and membership are revealed."""
        largest = self.others if self.covers is None else self.covers[0]
        stretch = math.sqrt((largest + 1.0) / (self.others + 1.0))  # see HiddenMembershipPair: 1 - s^2 is about 2/K
        return stretch * (self.divisor + max(largest, 1)) / ((self.divisor + 1.0) * self.sigma)

    def known_moment(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order], order > 1, of the pair or of the swapped one: batch and membership are
        revealed.
        """
        return log_moment(1.0 - order if reverse else order, 1, self.divisor, self.slope)


@dataclass(frozen=True)
class ScaleFactor(TwoSidedPair):
    """The coordinates without signal of all rounds: see `calipers.pld.division.scale`. Exact from both sides."""

    degrees: int
    divisor: int
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    def log_moment_bound(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order] of the pair or of the swapped one, in closed form."""
        return log_moment(1.0 - order if reverse else order, self.degrees, self.divisor)

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD from above."""
        return _proven(_scale(self.degrees, self.divisor), _SCALE_CELL, _depth(log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD from below."""
        return _shown(_scale(self.degrees, self.divisor), _SCALE_CELL, _depth(log_tail))


@dataclass(frozen=True)
class RealizedPair(_ProofAndAttack):
    """N `others`, `rate` q < 1, n `dimension`, divisor the realized batch size."""

    sigma: float
    rate: float
    others: int
    dimension: int
    direction: float = -1.0
    record: float = 1.0

    @property
    def proof(self) -> SizeAndSumPair:
        """What dominates every choice of gradients."""
        return SizeAndSumPair(self.sigma, self.rate, self.others)

    @property
    def attack(self) -> RealizedAttack:
        """What one choice of gradients shows."""
        return RealizedAttack(self.sigma, self.rate, self.others, self.dimension, self.direction, self.record)

    @property
    def slope(self) -> float:
        """Two clipped gradients change at most, in deviations of the noise."""
        return 2.0 / self.sigma


@dataclass(frozen=True)
class MovingRatePair(_ProofAndAttack):
    """One round on N `others` at rate B/N against N + 1 records at rate B/(N + 1); others v e, the record w e below."""

    sigma: float
    others: int
    batch: int
    direction: float = -1.0
    record: float = 1.0

    @property
    def proof(self) -> MovingRateProof:
        """What dominates every choice of gradients."""
        return MovingRateProof(self.sigma, self.others, self.batch)

    @property
    def attack(self) -> CollinearPair:
        """What one choice of gradients shows."""
        before, after = (self.batch / size for size in (self.others, self.others + 1))
        return CollinearPair(self.sigma, before, self.others, 1, self.direction, self.record, after)
