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

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.citations import implements
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window, log_binomial
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf
from calipers.pld.core.source import DominatingPair
from calipers.pld.division.cells import thinned_product
from calipers.pld.subsampling.fixed_size import subsampled

_FACTOR_NODES, _NODES = 400, 2_000
"""Nodes that two factors, and their product, are thinned to: more are tighter."""


@implements("calipers:moving-rate")
def batch_pmf(others: int, batch: int, log_tail: float) -> PrivacyLossPmf:
    """Pessimistic PLD of the batch of N records: Bin(N, B/(N+1)) against Bin(N, B/N), B < N."""
    first, second = batch / others, batch / (others + 1)
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
class MovingRateProof(DominatingPair):
    """One round on N `others` at rate B/N against N + 1 records at rate B/(N + 1), UPPER only."""

    sigma: float
    others: int
    batch: int
    finest: ClassVar[float] = 0.02
    """Finer cells than this change epsilon by less than 1e-4 of itself."""

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The batch and the record, independent of each other."""
        batch = batch_pmf(self.others, self.batch, log_tail)
        pair = subsampled(self.batch / (self.others + 1.0), 1.0 / self.sigma)
        record = pair.upper(max(resolution, self.finest), log_tail)
        return thinned_product(batch, record, _FACTOR_NODES, _NODES)
