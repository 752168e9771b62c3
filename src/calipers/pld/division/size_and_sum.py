"""Dividing by the realized batch size: releasing the size and the noisy sum dominates the quotient.

D has N records, D' one more, and records enter a batch with probability q. Who knows |B| and the noisy sum can
divide, so the pair (|B|, sum) dominates the mechanism, in every dimension. Given |B| = k, the batch of D is a uniform
k-subset A. The batch of D' is such a subset too when the new record stayed out, or, when it came in, a uniform
(k-1)-subset with the new record: that is A less one of its elements, chosen uniformly, plus the new record. Reveal A
and the element: the sum moves by a difference of two clipped gradients, of length at most 2. With b_k the
probabilities of Bin(N, q) the pair is dominated by

    Q:  b_k N(0, 1),       P:  (1 - q) b_k N(0, 1) + q b_(k-1) N(2/sigma, 1),        k = 0 .. N,

and P has mass q^(N+1) at k = N + 1, where Q has none. Since q b_(k-1)/b_k = (1 - q) r with r = k/(N - k + 1), the
ratio at (k, x) is

    L = (1 - q) (1 + r e^(mu x - mu^2/2)),      mu = 2/sigma,

linear in r. So sizes can be put on a few values of r: splitting r linearly onto two neighbors is a mean preserving
spread of L at every x.

Where a batch may well hold every record (few of them, or a rate near 1) the mass at infinity is what counts, and this
proof gives no finite epsilon at a delta below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from calipers.citations import implements
from calipers.domains import OPEN_UNIT
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, BinomialWindow, binomial_window
from calipers.numerics.types import FloatArray
from calipers.pld.composition.lattice import weighted_counts
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import DominatingPair
from calipers.pld.division.cells import MixedCells, cell_ends, log_normal_cells, mixed_pmf

_MOST_ODDS = 160
"""Ratios r onto which all batch sizes are put; twice as many change epsilon by less than 1e-4 of itself."""


@implements("calipers:size-and-sum")
@dataclass(frozen=True)
class SizeAndSumPair(DominatingPair):
    """One round in any dimension, UPPER only: N `others`, `rate` q < 1."""

    sigma: float
    rate: float
    others: int
    finest: ClassVar[float] = 0.012
    """Finer cells than this change epsilon by less than 1e-4 of itself."""

    def __post_init__(self) -> None:
        OPEN_UNIT.check("rate", self.rate, "At rate 1 the batch size tells everything.")

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.UPPER; rare sizes, far tails and the size N + 1 are added to 0 and infinity."""
        odds, weights, outside = self._odds(binomial_window(self.others, self.rate, log_tail))
        mu = 2.0 / self.sigma
        x = cell_ends(log_tail, mu, 1.0, max(resolution, self.finest))
        stay = math.log1p(-self.rate)
        with np.errstate(divide="ignore"):
            log_odds = np.log(odds)[:, None]
        nodes = stay + np.logaddexp(0.0, log_odds + mu * x - 0.5 * mu * mu)
        log_p = stay + np.logaddexp(log_normal_cells(x), log_odds + log_normal_cells(x, mu))
        pmf = mixed_pmf(MixedCells(weights, nodes, log_p), x, outside, BINOMIAL_RELATIVE_ERROR)
        full = math.exp((self.others + 1.0) * math.log(self.rate)) * (1.0 + 1e-9)
        return replace(pmf, p_inf=min(1.0, pmf.p_inf + full))

    def _odds(self, window: BinomialWindow) -> tuple[FloatArray, FloatArray, float]:
        """Values of r = k/(N - k + 1), their probabilities under Q, and that of sizes left out under P or Q."""
        odds, weights = window.values / (self.others + 1.0 - window.values), window.weights
        if len(odds) > _MOST_ODDS:
            # Splitting over a gap g adds g^2/6 to the variance: gaps are best proportional to b_k^(-1/3).
            crowd = np.cumsum(np.cbrt(weights))
            places = np.searchsorted(crowd, crowd[-1] * np.linspace(0.0, 1.0, _MOST_ODDS) * (1.0 - 1e-12))
            kept = odds[np.unique(np.concatenate(([0], places, [len(odds) - 1])))]
            below = np.clip(np.searchsorted(kept, odds, side="right") - 1, 0, len(kept) - 2)
            share = np.clip((odds - kept[below]) / (kept[below + 1] - kept[below]), 0.0, 1.0)
            weights = weighted_counts(below, weights * (1.0 - share), len(kept)) + weighted_counts(
                below + 1, weights * share, len(kept)
            )
            odds = kept
        positive = weights > 0.0
        # A size beyond the window has at most probability `outside` under Q on each side; one record more shifts the
        # size by at most one, which the factor covers: P(Bin(N+1, q) beyond by one) <= (1 + 1/q) outside.
        return odds[positive], weights[positive], 2.0 * window.outside * (1.0 + 1.0 / self.rate)
