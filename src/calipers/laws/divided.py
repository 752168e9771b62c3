"""One round of division by a number that depends on the data, from both sides.

The UPPER law is a proof that holds for all gradients, the LOWER law an attack with all gradients on one line.

- `DividedPair`: divisor K without the record, K + 1 with it. One coordinate; in the n - 1 others both sides show
exactly the scale
  law, whose T rounds are one factor of T (n - 1) degrees (`calipers.laws.scale`).
- `RealizedPair`: the realized batch size. All coordinates; two proofs are known, and neither is always better.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar, Protocol

from calipers.bracket import Side
from calipers.laws.batch_revealed import BatchRevealedPair
from calipers.laws.collinear import CollinearPair
from calipers.laws.hidden_bit import HiddenBitPair
from calipers.laws.law import Law
from calipers.laws.realized import RealizedAttack
from calipers.laws.size_and_sum import SizeAndSumPair


class _OneSided(Protocol):
    def law(self, side: Side, resolution: float, log_tail: float) -> Law: ...


@functools.lru_cache(maxsize=64)
def _law(source: _OneSided, side: Side, resolution: float, log_tail: float) -> Law:
    """Laws are asked for again by other directions of the attack, and at other deltas."""
    return source.law(side, resolution, log_tail)


@dataclass(frozen=True)
class DividedPair:
    """N `others`, `rate` q, divisor K without the record and K + 1 with it; the attack's other gradients are v e."""

    sigma: float
    rate: float
    others: int
    divisor: int
    direction: float = 0.0
    symmetric: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    @property
    def proof(self) -> HiddenBitPair:
        """What dominates every choice of gradients."""
        return HiddenBitPair(self.sigma, self.rate, self.others, self.divisor)

    @property
    def attack(self) -> CollinearPair:
        """What one choice of gradients shows."""
        return CollinearPair(self.sigma, self.rate, self.others, self.divisor, self.direction)

    def law(self, side: Side, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The proof's law on Side.UPPER, the attack's on Side.LOWER."""
        return _law(self.proof if side is Side.UPPER else self.attack, side, resolution, log_tail)


@dataclass(frozen=True)
class RealizedPair:
    """N `others`, `rate` q < 1, n `dimension`, divisor the realized batch size; `batch_revealed` selects the proof."""

    sigma: float
    rate: float
    others: int
    dimension: int
    direction: float = -1.0
    batch_revealed: bool = False
    symmetric: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    @property
    def proof(self) -> SizeAndSumPair | BatchRevealedPair:
        """What dominates every choice of gradients."""
        if self.batch_revealed:
            return BatchRevealedPair(self.sigma, self.rate, self.others, self.dimension)
        return SizeAndSumPair(self.sigma, self.rate, self.others)

    @property
    def attack(self) -> RealizedAttack:
        """What one choice of gradients shows."""
        return RealizedAttack(self.sigma, self.rate, self.others, self.dimension, self.direction)

    def law(self, side: Side, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The proof's law on Side.UPPER, the attack's on Side.LOWER."""
        return _law(self.proof if side is Side.UPPER else self.attack, side, resolution, log_tail)
