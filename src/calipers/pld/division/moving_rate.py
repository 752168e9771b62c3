"""A Poisson rate that is computed from the dataset: B/N on one neighbor, B/(N + 1) on the other.

D has N records, each in the batch with probability q = B/N; D' has one more, and all are drawn with q' = B/(N + 1). One
record changes how often all the others are drawn, and that shows in the sum.

**Proof.** Reveal the batch of the N common records. On D it is drawn with rate q, on D' with q', independently of the
differing record, which joins with probability q'. Given the batch, D' shows (1 - q') N(0, I) + q' N(g, I) against
N(0, I) in units of sigma: the Poisson pair of rate q'. The batch itself has the ratio (q'/q)^k ((1 - q')/(1 -
q))^(N-k) with k its size. So a round is dominated, for all gradients and whatever was seen before, by the product of

    Bin(N, q') against Bin(N, q)       and       (1 - q') N(0, 1) + q' N(1/sigma, 1) against N(0, 1).

**Attack.** All others +e, the record -e: the sum's mean moves by q' for the others who stay away, and by q' for the
record (`calipers.pld.division.collinear` with a joined rate).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window, log_binomial
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf
from calipers.pld.core.source import TwoSidedPair
from calipers.pld.division.cells import thinned_product
from calipers.pld.division.collinear import CollinearPair
from calipers.pld.division.pairs import shown
from calipers.pld.subsampling.fixed_size import subsampled

_FACTOR_NODES, _NODES = 400, 2_000


@implements("calipers:moving-rate")
def batch_pmf(others: int, batch: int, log_tail: float) -> PrivacyLossPmf:
    """pessimistic PLD of the batch of N records: Bin(N, B/(N+1)) against Bin(N, B/N), rates at most 1."""
    first, second = (min(1.0, batch / size) for size in (others, others + 1))
    if first == 1.0:  # nobody stays away from D
        if second == 1.0:
            return PrivacyLossPmf(np.zeros(1), np.zeros(1), np.zeros(1), Side.UPPER)
        log_all = np.array([others * math.log(second)])
        return PrivacyLossPmf(log_all, log_all.copy(), np.zeros(1), Side.UPPER, p_inf=-math.expm1(float(log_all[0])))
    windows = [binomial_window(others, rate, log_tail) for rate in (first, second)]
    k = np.arange(min(w.values[0] for w in windows), max(w.values[-1] for w in windows) + 1.0)
    log_q = log_binomial(k, others, first)
    # q'/q = N/(N+1), and (1 - q')/(1 - q) = 1 + B/((N+1)(N-B)); both without cancellation.
    stay = math.log1p(batch / ((others + 1.0) * (others - batch)))
    ratio = (others - k) * stay - k * math.log1p(1.0 / others)
    order = np.argsort(ratio)
    ratio, log_q = ratio[order], log_q[order]
    lost = 2.0 * math.exp(log_tail)
    return PrivacyLossPmf.dominating(
        ratio,
        log_q,
        p_inf=lost,
        q_zero=lost,
        # The rate itself is rounded, by 1e-16 of itself.
        mass_error=ATOM_ROUNDING + BINOMIAL_RELATIVE_ERROR + 1e-15 * math.sqrt(-log_tail * others),
        shift_error=1e-15 + 4e-16 * float(np.max(np.abs(ratio), initial=0.0)),
    )


@dataclass(frozen=True)
class MovingRatePair(TwoSidedPair):
    """One round on N `others` at rate B/N against N + 1 records at rate B/(N + 1); others v e, the record w e below."""

    sigma: float
    others: int
    batch: int
    direction: float = -1.0
    record: float = 1.0
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0
    exact: ClassVar[bool] = False
    """The proof is about more than the attack shows."""

    @property
    def attack(self) -> CollinearPair:
        """What one choice of gradients shows."""
        rates = [min(1.0, self.batch / size) for size in (self.others, self.others + 1)]
        return CollinearPair(self.sigma, rates[0], self.others, 1, self.direction, self.record, rates[1])

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The proof's PLD, at a few depths."""
        return _proven(self, *_shared(resolution, log_tail))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The attack's PLD, at a few depths."""
        return shown(self.attack, *_shared(resolution, log_tail))


def _shared(resolution: float, log_tail: float) -> tuple[float, float]:
    return max(0.02, min(resolution, 0.04)), min(-60.0, 60.0 * math.floor(log_tail / 60.0))


@functools.lru_cache(maxsize=32)
def _proven(pair: MovingRatePair, resolution: float, log_tail: float) -> PrivacyLossPmf:
    joined = min(1.0, pair.batch / (pair.others + 1.0))
    record = subsampled(joined, 1.0 / pair.sigma).upper(resolution, log_tail)
    batch = batch_pmf(pair.others, pair.batch, log_tail)
    if batch.size == 1:
        ratio = record.log_ratio + batch.log_ratio[0]
        return _shifted(record, batch, ratio)
    return thinned_product(batch, record, _FACTOR_NODES, _NODES)


def _shifted(record: PrivacyLossPmf, batch: PrivacyLossPmf, ratio: FloatArray) -> PrivacyLossPmf:
    """The product with a batch that has one value and otherwise lies where D has none."""
    return PrivacyLossPmf.dominating(
        ratio,
        record.log_q,
        p_inf=min(1.0, record.p_inf + batch.p_inf),
        q_zero=record.q_zero,
        mass_error=record.mass_error + batch.mass_error,
        shift_error=record.shift_error + batch.shift_error + 1e-15,
    )
