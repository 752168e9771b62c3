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

With few records the mass at infinity is what counts, and it is not the quotient's: a batch of all N + 1 records shows
noise that is smaller by s = N/(N+1), not a label. So with a `dimension` that batch is compared with the batch of all N
records instead. Reveal which of two comparisons is made: the full batch of D lends a share c of its probability q^N to

    Q:  c q^N N(0, I),      P:  c (1 - q) q^N N(0, I) + q^(N+1) N(m, s^2 I),      |m| <= 2N/((N+1) sigma),

and keeps 1 - c of it for the sizes above, where r = N becomes N/(1 - c). Here c = 1/(N+1). Likewise a batch that holds
the new record alone is divided by 1, as an empty batch is, so it is compared with that: k = 0 shows (1 - q) N(0, 1) + q
N(1/sigma, 1) against N(0, 1), and at k = 1 nothing is left to be compared, r = 0. (A loop that skips empty batches
shows how many there were: this comparison does not cover it, the plain one does.)
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
from calipers.pld.division.batch_revealed import BatchRevealedPair
from calipers.pld.division.cells import MixedCells, cell_ends, log_normal_cells, mixed_pmf

_MOST_ODDS = 160
_FINEST_NOISE = 0.03
_RARE = -50.0
"""Log of a probability that is left to the plain comparison."""


@implements("calipers:size-and-sum", "calipers:full-batch")
@dataclass(frozen=True)
class SizeAndSumPair(DominatingPair):
    """One round, UPPER only: N `others`, `rate` q < 1; with a `dimension` full and empty batches count by noise."""

    sigma: float
    rate: float
    others: int
    dimension: int | None = None
    usual: ClassVar[float] = 0.012
    finest: ClassVar[float] = 0.01
    """Finer cells than this change epsilon by less than 1e-4 of itself."""

    def __post_init__(self) -> None:
        OPEN_UNIT.check("rate", self.rate, "At rate 1 the batch size tells everything.")

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.UPPER; rare sizes, far tails and the size N + 1 are added to 0 and infinity."""
        window = binomial_window(self.others, self.rate, log_tail)
        empty = self.dimension is not None and window.values[0] == 0.0
        odds, weights, outside = self._odds(window, empty)
        mu = 2.0 / self.sigma
        x = cell_ends(log_tail, mu, 1.0, max(resolution, self.finest))
        log_q = log_normal_cells(x)
        stay = math.log1p(-self.rate)
        shifted = log_normal_cells(x, mu)
        with np.errstate(divide="ignore"):
            log_odds = np.log(odds)[:, None]
        nodes = stay + np.logaddexp(0.0, log_odds + mu * x - 0.5 * mu * mu)
        log_p = stay + np.logaddexp(log_q, log_odds + shifted)
        if empty:  # the record alone against no record: no size tells them apart
            alone, join = 0.5 * mu, math.log(self.rate)
            nodes = np.vstack((np.logaddexp(stay, join + alone * x - 0.5 * alone * alone), nodes))
            log_p = np.vstack((np.logaddexp(stay + log_q, join + log_normal_cells(x, alone)), log_p))
            weights = np.append(window.weights[0], weights)
        pmf = mixed_pmf(MixedCells(weights, nodes, log_p), x, outside, BINOMIAL_RELATIVE_ERROR)
        return self._with_full_batch(pmf, resolution, log_tail)

    @property
    def _share(self) -> float:
        """c, what the full batch of D lends to the comparison of full batches."""
        rare = self.others * math.log(self.rate) < _RARE
        return 0.0 if self.dimension is None or rare else 1.0 / (self.others + 1.0)

    def _with_full_batch(self, pmf: PrivacyLossPmf, resolution: float, log_tail: float) -> PrivacyLossPmf:
        """The PLD with the batch of all N + 1 records: at infinity, or compared with that of all N."""
        log_full = self.others * math.log(self.rate)
        if self.dimension is None or log_full < _RARE:
            at_infinity = math.exp(log_full + math.log(self.rate)) * (1.0 + 1e-9)
            return replace(pmf, p_inf=min(1.0, pmf.p_inf + at_infinity))
        pair = BatchRevealedPair(self.sigma, self.rate, self.others, self.dimension)
        noise = pair.in_batch(self.others, max(resolution, _FINEST_NOISE), log_tail)
        log_lent = log_full + math.log(self._share)
        ratio = np.logaddexp(math.log1p(-self.rate), math.log(self.rate / self._share) + noise.log_ratio)
        log_q = log_lent + noise.log_q
        if noise.q_zero > 0.0:  # nothing but the record left out is seen there
            ratio = np.append(math.log1p(-self.rate), ratio)
            log_q = np.append(log_lent + math.log(noise.q_zero), log_q)
        ratio, log_q = np.concatenate((pmf.log_ratio, ratio)), np.concatenate((pmf.log_q, log_q))
        order = np.argsort(ratio, kind="stable")
        lost = math.exp(log_full + math.log(self.rate)) * noise.p_inf * (1.0 + 1e-9)
        return PrivacyLossPmf.dominating(
            ratio[order],
            log_q[order],
            p_inf=min(1.0, pmf.p_inf + lost),
            q_zero=pmf.q_zero,
            mass_error=max(pmf.mass_error, noise.mass_error) + 1e-14 * (1.0 + self.others),
            shift_error=max(pmf.shift_error, noise.shift_error) + 2e-15,
        )

    def _odds(self, window: BinomialWindow, empty: bool) -> tuple[FloatArray, FloatArray, float]:
        """Values of r = k/(N - k + 1), their probabilities under Q, and the probability of sizes left out under P or Q.

        Where `empty` batches are compared apart, k = 0 is left to the caller, and nothing remains for k = 1.
        """
        odds = window.values / (self.others + 1.0 - window.values)
        full = window.values == self.others
        odds = np.where(full, odds / (1.0 - self._share), odds)
        odds = np.where((window.values <= 1.0) & empty, 0.0, odds)
        weights = np.where(full, (1.0 - self._share) * window.weights, window.weights)
        if empty:
            odds, weights = odds[1:], weights[1:]
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
