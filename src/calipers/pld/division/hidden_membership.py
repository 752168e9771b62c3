"""Divisors K against K + 1 when the batch is revealed and the differing record's membership is not.

Neighboring datasets D (N records) and D + one more; a record enters a batch with probability q; the noisy sum is
divided by K on D and by K + 1 on the larger dataset (K = N, or floor(N q) where it jumps). Reveal the batch B drawn
from D, k = |B|, and rescale so that D shows N(0, I). The larger dataset shows

    (1 - q) N(a, s^2 I) + q N(b, s^2 I),    s = K/(K+1),   |a| <= m1 = k/((K+1) sigma),   |b| <= m2 = (K + k)/((K+1)
    sigma).

docs/normalization.md proves that this pair is dominated by the product of the scale PLD in n - 1 coordinates
(`calipers.pld.division.scale`) and, in one coordinate, of the pair whose trade-off function is

    h_k = (1 - q) T(N(0,1), N(m1, s^2)) + q T(N(0,1), N(m2, s^2)),

both terms *at the same alpha*: one test serves both branches, so its error is the mixture of the two, and each is at
least what its own best test achieves. As a pair, h_k observes alpha itself: uniform under Q, with likelihood ratio (1
- q) L1(alpha) + q L2(alpha) under P, where L_i(alpha) is the ratio at the edge of the i-th best test of size alpha.
The sizes of batches are revealed with equal PLDs on both sides, so k mixes the pairs: weights b_k, rounded up to the
next larger k where there are many of them (h_k decreases with k).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from calipers.citations import implements
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import DominatingPair
from calipers.pld.division.cells import MixedCells, cell_ends, mixed_pmf
from calipers.pld.division.folded import WIDEST, half_widths, is_one_sided, log_interval_mass

_MOST_BATCH_SIZES = 100
"""Batch sizes that are distinguished, the others rounded up: more cost time in proportion."""


@dataclass(frozen=True)
class BestTests:
    """For every mean m (rows) and size Phi(-x_j) the best test of N(m, s^2) against N(0, 1).

    `log_ratio[i, j]` is the log likelihood ratio at its edge, `log_mass[i, j]` the P-mass between sizes j - 1 and j,
    with what lies outside the largest test in column 0 and inside the smallest one in the last column.
    """

    log_ratio: FloatArray
    log_mass: FloatArray


def best_tests(means: FloatArray, divisor: int, x: FloatArray) -> BestTests:
    """The tests of sizes Phi(-x_j), x increasing in steps of at most s times `WIDEST`."""
    scale = divisor / (divisor + 1.0)
    growth = (2.0 * divisor + 1.0) / (float(divisor) * divisor)  # 1/s^2 - 1
    centers = means * (divisor + 1.0) ** 2 / (2.0 * divisor + 1.0)
    edges = np.repeat(x[None, :], len(means), axis=0)
    log_mass = np.empty((len(means), len(x) + 1))
    one_sided = is_one_sided(centers, float(x[-1]))
    ends = (x - means[one_sided, None]) / scale
    log_mass[one_sided, 1:-1] = log_interval_mass(ends[:, :-1], np.diff(x) / scale)
    log_mass[one_sided, 0], log_mass[one_sided, -1] = special.log_ndtr(ends[:, 0]), special.log_ndtr(-ends[:, -1])
    two = ~one_sided
    if np.any(two):
        half, center = half_widths(centers[two, None], x[None, :]), centers[two, None]
        edges[two] = center - half
        left, right = (center - half - means[two, None]) / scale, (center + half - means[two, None]) / scale
        step = -np.diff(half, axis=1) / scale
        log_mass[two, 1:-1] = np.logaddexp(_log_between(left[:, :-1], step), _log_between(right[:, 1:], step))
        log_mass[two, 0] = np.logaddexp(special.log_ndtr(left[:, 0]), special.log_ndtr(-right[:, 0]))
        log_mass[two, -1] = _log_between(left[:, -1], 2.0 * half[:, -1] / scale)
    # log of N(m, s^2) over N(0, 1) at the left edge; the right edge has the same ratio.
    m = means[:, None]
    log_ratio = 0.5 * math.log1p(growth) - 0.5 * growth * edges * edges + (edges - 0.5 * m) * m * (1.0 + growth)
    return BestTests(log_ratio, log_mass)


def _shortfall(divisor: int) -> float:
    """1 - s^2."""
    return (2.0 * divisor + 1.0) / (divisor + 1.0) ** 2


def _log_between(low: FloatArray, width: FloatArray) -> FloatArray:
    """log of Phi(low + width) - Phi(low); wide intervals are cut into pieces."""
    steepest = float(np.max((np.abs(low) + width) * width, initial=0.0))
    pieces = max(1, math.ceil(max(float(np.max(width, initial=0.0)) / WIDEST, steepest / 17.0)))
    part = width / pieces
    total = np.full(low.shape, -np.inf)
    for piece in range(pieces):
        total = np.logaddexp(total, log_interval_mass(low + piece * part, part))
    return total


@implements("calipers:hidden-bit")
@dataclass(frozen=True)
class HiddenMembershipPair(DominatingPair):
    """One round in the signal direction, UPPER only: N `others`, `rate` q, divisor K on D and K + 1 on D'.

    With `largest_divisor` one pair serves every divisor K' from K to it, and every dataset of up to N others. Scaling
    by a < 1 and adding noise that keeps N(0, 1) turns N(m/a, s^2) into N(m, s'^2), a^2 = (1 - s'^2)/(1 - s^2), so means
    are stretched by the largest 1/a; more others make batches stochastically larger, and h_k decreases with k.
    """

    sigma: float
    rate: float
    others: int
    divisor: int
    largest_divisor: int | None = None
    finest: ClassVar[float] = 0.02
    """Finer cells than this change epsilon by less than 1e-4 of itself."""

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.UPPER; mass e^log_tail of very large batches, and of far tails, is added to 0 and
        infinity.
        """
        sizes, weights, outside = self._batch_sizes(log_tail)
        largest, scale = float(self.means(sizes[-1:])[1][0]), self.divisor / (self.divisor + 1.0)
        x = cell_ends(log_tail, largest, scale, max(resolution, self.finest))
        return mixed_pmf(self.cells(sizes, weights, x), x, outside, BINOMIAL_RELATIVE_ERROR)

    def means(self, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """m1 and m2 for the given batch sizes."""
        unit = (self.divisor + 1.0) * self.sigma
        if self.largest_divisor is None:
            return sizes / unit, (self.divisor + sizes) / unit
        # (K + k)/(K + 1) = 1 + (k - 1)/(K + 1) falls as K grows, or is below 1.
        stretch = math.sqrt(_shortfall(self.divisor) / _shortfall(self.largest_divisor)) * (1.0 + 1e-15)
        return stretch * sizes / unit, stretch * (self.divisor + np.maximum(sizes, 1.0)) / unit

    def _batch_sizes(self, log_tail: float) -> tuple[FloatArray, FloatArray, float]:
        """Batch sizes, rounded up onto at most `_MOST_BATCH_SIZES` values, their weights, and the mass left out."""
        window = binomial_window(self.others, self.rate, log_tail)
        values, weights = window.values, window.weights
        if len(values) > _MOST_BATCH_SIZES:
            # Rounding up by d costs b_k d: the number of kept values per length is best proportional to sqrt(b_k).
            crowd = np.cumsum(np.sqrt(weights))
            ends = np.searchsorted(
                crowd, crowd[-1] * np.arange(1, _MOST_BATCH_SIZES + 1) / _MOST_BATCH_SIZES * (1.0 - 1e-12)
            )
            ends = np.unique(np.append(np.minimum(ends, len(values) - 1), len(values) - 1))
            starts = np.concatenate(([0], ends[:-1] + 1))
            values, weights = values[ends], np.add.reduceat(weights, starts)
        positive = weights > 0.0
        # What lies below the window is rounded up into it as well; like what lies above, it is at most `outside`.
        return values[positive], weights[positive], 2.0 * window.outside

    def cells(self, sizes: FloatArray, weights: FloatArray, x: FloatArray) -> MixedCells:
        """Per batch size: log ratios of h_k at the sizes Phi(-x_j), and log P-masses between them, tails included."""
        first, second = (best_tests(means, self.divisor, x) for means in self.means(sizes))
        log_stay, log_join = (math.log1p(-self.rate) if self.rate < 1.0 else -math.inf), math.log(self.rate)
        nodes = np.logaddexp(log_stay + first.log_ratio, log_join + second.log_ratio)
        log_p = np.logaddexp(log_stay + first.log_mass, log_join + second.log_mass)
        return MixedCells(weights, nodes, log_p)
