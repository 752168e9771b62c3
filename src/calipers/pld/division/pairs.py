"""One round of division by a number that depends on the data, from both sides.

The pessimistic PLD is a proof that holds for all gradients, the optimistic PLD an attack with all gradients on one
line.

- `DividedPair`: divisor K without the record, K + 1 with it. One coordinate; in the n - 1 others both sides show
  exactly the scale PLD, whose T rounds are one factor of T (n - 1) degrees (`calipers.pld.division.scale`).
- `ScaleFactor`: that factor.
- `RealizedPair`: the realized batch size, in all coordinates.

A PLD of many batch sizes costs more than a composition of it, and questions ask for PLDs at many resolutions and
depths. So PLDs are built at few of them (finer and deeper than asked for, which is a bound as well) and kept.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.numerics.binomial import log_binomial
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair, DominatingPair, TwoSidedPair
from calipers.pld.division.collinear import CollinearPair
from calipers.pld.division.hidden_membership import HiddenMembershipPair
from calipers.pld.division.length_tests import Rounds, revealed_round
from calipers.pld.division.realized import RealizedAttack
from calipers.pld.division.scale import scale_pair
from calipers.pld.division.size_and_sum import SizeAndSumPair

_USUAL_UPPER, _USUAL_LOWER = 0.025, 0.05
_FINE, _FINE_FROM = 0.02, 0.004
"""Cells of width w cost a share of w^2/6 (proof) or w^2/12 (attack) of a step's variance."""
_DEPTHS = (-60.0, -120.0, -240.0, -480.0, -720.0)
_scale = functools.lru_cache(maxsize=32)(scale_pair)
_MOST_BLOCKS = 50_000
"""Where moments only have to be finite, sizes are put into so many blocks."""


def _coarse(usual: float, finest: float, resolution: float, log_tail: float) -> tuple[float, float]:
    """Cells of one of two widths, and the first depth that suffices."""
    width = max(_FINE if resolution < _FINE_FROM else usual, finest)
    return width, next((depth for depth in _DEPTHS if depth <= log_tail), log_tail)


@functools.lru_cache(maxsize=32)
def _proven(source: DominatingPair, resolution: float, log_tail: float) -> PrivacyLossPmf:
    return source.upper(resolution, log_tail)


@functools.lru_cache(maxsize=32)
def shown(source: AttainedPair, resolution: float, log_tail: float) -> PrivacyLossPmf:
    """The attack's PLD, kept."""
    return source.lower(resolution, log_tail)


class _ProofAndAttack(TwoSidedPair):
    """A proof, and an attack of its own that shows less."""

    exact: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    @property
    @abstractmethod
    def proof(self) -> HiddenMembershipPair | SizeAndSumPair:
        """What dominates every choice of gradients."""

    @property
    @abstractmethod
    def attack(self) -> CollinearPair | RealizedAttack:
        """What one choice of gradients shows."""

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The proof's PLD."""
        return _proven(self.proof, *_coarse(self.proof.usual, self.proof.finest, resolution, log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The attack's PLD."""
        return shown(self.attack, *_coarse(self.attack.usual, self.attack.finest, resolution, log_tail))


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
    def revealed(self) -> Rounds:
        """The coordinate when batch and membership are revealed."""
        largest = self.others if self.covers is None else self.covers[0]
        return revealed_round(self.sigma, self.others, largest, self.divisor)

    @property
    def slope(self) -> float:
        """The largest shift of the coordinate, in deviations of its noise."""
        return self.revealed.mean

    def known_moment(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order], order > 1, of the pair or of the swapped one: batch and membership are
        revealed.
        """
        return self.revealed.log_moment(1.0 - order if reverse else order)


@dataclass(frozen=True)
class ScaleFactor(TwoSidedPair):
    """The coordinates without signal of all rounds: see `calipers.pld.division.scale`. Exact from both sides."""

    degrees: int
    divisor: int
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    def log_moment_bound(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order] of the pair or of the swapped one, in closed form."""
        revealed = Rounds(1, self.degrees, 0.0, float(self.divisor))
        return revealed.log_moment(1.0 - order if reverse else order)

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD from above."""
        return _proven(_scale(self.degrees, self.divisor), *_coarse(_USUAL_UPPER, 0.0, resolution, log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD from below."""
        return shown(_scale(self.degrees, self.divisor), *_coarse(_USUAL_LOWER, 0.0, resolution, log_tail))


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

    def known_moment(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^order], order > 1, of the pair or of the swapped one.

        The record left out shows what the smaller dataset shows, so L >= 1 - q. The other way the size is revealed, and
        a batch of all records is compared with one of all but one by its noise: with b_k and r_k of
        `calipers.pld.division.size_and_sum` L = (1 - q) + q (1 - q) r_k/q l, and t-th powers are convex, so E[L^t] is
        at most 1 - q + q ((1 - q) r_k/q)^t e^(t (t-1) mu^2/2). The full batch lends c = 1/(N+1) of its probability.
        """
        n, q = self.others, self.rate
        if reverse:
            return -(order - 1.0) * math.log1p(-q) * (1.0 + 1e-14)
        signal = 2.0 * order * (order - 1.0) / self.sigma**2  # the sum moves by two clipped gradients
        log_b, odds = _odds_of_sizes(n, q)
        join = float(np.logaddexp.reduce(log_b + order * odds)) + signal
        # n coordinates of noise smaller by s = N/(N+1): log (s^-t (1 + t (1/s^2 - 1))^(-1/2))^n.
        shrunk = self.dimension * (order * math.log1p(1.0 / n) - 0.5 * math.log1p(order * (2.0 + 1.0 / n) / n))
        full = n * math.log(q) + (order - 1.0) * math.log(n + 1.0) + signal + shrunk
        value = float(np.logaddexp(math.log1p(-q), math.log(q) + np.logaddexp(join, full)))
        return value * (1.0 + 1e-12) + 1e-9


@functools.lru_cache(maxsize=4)
def _odds_of_sizes(others: int, rate: float) -> tuple[FloatArray, FloatArray]:
    """log b_k and log((1 - q) r_k/q) for k = 1 .. N, the last without what it lends; at least that for blocks of k.

    r_k grows with k, and b_k has one peak: a block counts as its last odds, and as its largest probability times its
    length.
    """
    last = np.unique(np.linspace(1.0, others, min(others, _MOST_BLOCKS)).astype(np.intp)).astype(np.float64)
    first = np.concatenate(([1.0], last[:-1] + 1.0))
    mode = np.clip(math.floor((others + 1) * rate), first, last)
    log_b = np.log(last - first + 1.0)
    log_b += np.max([log_binomial(places, others, rate) for places in (first, mode, last)], axis=0)
    kept = np.where(last == others, others / (others + 1.0), 1.0)
    if last[-1] == first[-1]:
        log_b += np.log(kept)
    return log_b, np.log(last / ((others + 1.0 - last) * kept)) + math.log1p(-rate) - math.log(rate)
