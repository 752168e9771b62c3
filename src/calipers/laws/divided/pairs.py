"""One round of division by a number that depends on the data, from both sides.

The UPPER law is a proof that holds for all gradients, the LOWER law an attack with all gradients on one line.

- `DividedPair`: divisor K without the record, K + 1 with it. One coordinate; in the n - 1 others both sides show
  exactly the scale law, whose T rounds are one factor of T (n - 1) degrees (`calipers.laws.divided.scale`).
- `ScaleFactor`: that factor.
- `RealizedPair`: the realized batch size. All coordinates; three proofs are known, and none is always best.

A law of many batch sizes costs more than a composition of it, and questions ask for laws at many resolutions and
depths. So laws are built at few of them (finer and deeper than asked for, which is a bound as well) and kept.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from calipers.laws.core.law import Law
from calipers.laws.core.source import LawSource, LowerSource, UpperSource
from calipers.laws.divided.batch_revealed import BatchRevealedPair
from calipers.laws.divided.collinear import CollinearPair
from calipers.laws.divided.hidden_bit import HiddenBitPair
from calipers.laws.divided.realized import RealizedAttack
from calipers.laws.divided.scale import scale_pair
from calipers.laws.divided.size_and_sum import SizeAndSumPair
from calipers.laws.divided.told_apart import Rounds, told_round

_USUAL_UPPER, _USUAL_LOWER = 0.025, 0.05
_FINE, _FINE_FROM = 0.02, 0.004
"""Cells of width w cost a share of w^2/6 (proof) or w^2/12 (attack) of a step's variance."""
_DEPTHS = (-60.0, -120.0, -240.0, -480.0, -720.0)


def _coarse(usual: float, finest: float, resolution: float, log_tail: float) -> tuple[float, float]:
    """Cells of one of two widths, and the first depth that suffices."""
    width = max(_FINE if resolution < _FINE_FROM else usual, finest)
    return width, next((depth for depth in _DEPTHS if depth <= log_tail), log_tail)


@functools.lru_cache(maxsize=32)
def _proven(source: UpperSource, resolution: float, log_tail: float) -> Law:
    return source.upper(resolution, log_tail)


@functools.lru_cache(maxsize=32)
def _shown(source: LowerSource, resolution: float, log_tail: float) -> Law:
    return source.lower(resolution, log_tail)


class _ProofAndAttack(LawSource):
    """A proof, and an attack of its own that shows less."""

    @property
    @abstractmethod
    def proof(self) -> HiddenBitPair | SizeAndSumPair | BatchRevealedPair:
        """What dominates every choice of gradients."""

    @property
    @abstractmethod
    def attack(self) -> CollinearPair | RealizedAttack:
        """What one choice of gradients shows."""

    @property
    def exact(self) -> bool:
        """The proof is about more than the attack shows."""
        return False

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The proof's law."""
        return _proven(self.proof, *_coarse(self.proof.usual, self.proof.finest, resolution, log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The attack's law."""
        return _shown(self.attack, *_coarse(self.attack.usual, self.attack.finest, resolution, log_tail))


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
    symmetric: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0
    moment_depth: ClassVar[float] = -690.0

    @property
    def proof(self) -> HiddenBitPair:
        """What dominates every choice of gradients."""
        others, largest = self.covers if self.covers is not None else (self.others, None)
        return HiddenBitPair(self.sigma, self.rate, others, self.divisor, largest_divisor=largest)

    @property
    def attack(self) -> CollinearPair:
        """What one choice of gradients shows."""
        return CollinearPair(self.sigma, self.rate, self.others, self.divisor, self.direction, self.record)

    @property
    def told(self) -> Rounds:
        """The coordinate when batch and membership are told."""
        largest = self.others if self.covers is None else self.covers[0]
        return told_round(self.sigma, self.others, largest, self.divisor)

    @property
    def slope(self) -> float:
        """The largest shift of the coordinate, in deviations of its noise."""
        return self.told.mean

    def known_moment(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order], order > 1, of the pair or of the swapped one: batch and membership are told."""
        return self.told.log_moment(1.0 - order if reverse else order)


@dataclass(frozen=True)
class ScaleFactor(LawSource):
    """The coordinates without signal of all rounds: see `calipers.laws.divided.scale`. Exact from both sides."""

    degrees: int
    divisor: int
    symmetric: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    def log_moment_bound(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order] of the pair or of the swapped one, in closed form."""
        told = Rounds(1, self.degrees, 0.0, float(self.divisor))
        return told.log_moment(1.0 - order if reverse else order)

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The law from above."""
        return _proven(_scale(self.degrees, self.divisor), *_coarse(_USUAL_UPPER, 0.0, resolution, log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The law from below."""
        return _shown(_scale(self.degrees, self.divisor), *_coarse(_USUAL_LOWER, 0.0, resolution, log_tail))


@functools.lru_cache(maxsize=32)
def _scale(degrees: int, divisor: int) -> LawSource:
    return scale_pair(degrees, divisor)


@dataclass(frozen=True)
class RealizedPair(_ProofAndAttack):
    """N `others`, `rate` q < 1, n `dimension`, divisor the realized batch size; `statement` names the proof."""

    sigma: float
    rate: float
    others: int
    dimension: int
    direction: float = -1.0
    record: float = 1.0
    statement: str = "calipers:size-and-sum"
    symmetric: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    @property
    def proof(self) -> SizeAndSumPair | BatchRevealedPair:
        """What dominates every choice of gradients."""
        if self.statement == "calipers:batch-revealed":
            return BatchRevealedPair(self.sigma, self.rate, self.others, self.dimension)
        compared = self.dimension if self.statement == "calipers:full-batch" else None
        return SizeAndSumPair(self.sigma, self.rate, self.others, compared)

    @property
    def attack(self) -> RealizedAttack:
        """What one choice of gradients shows."""
        return RealizedAttack(self.sigma, self.rate, self.others, self.dimension, self.direction, self.record)
