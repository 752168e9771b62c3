"""Division by the realized batch size with the batch revealed and the record's membership hidden.

Reveal the batch B drawn from D, k = |B| >= 1, in units of its noise sigma/k. Without the new record the larger
dataset shows the same N(0, I); with it, N(m, s^2 I) with s = k/(k+1) and |m| <= 2k/((k+1) sigma), because the mean
moves by (k g - sum)/(k (k+1)). That is Poisson subsampling of a pair of isotropic Gaussians, which factorises into
the scale PLD of n - 1 coordinates and N(m, s^2) against N(0, 1); the latter leaks more the larger m is. An empty
batch is divided by 1 and shows a plain Gaussian with shift 1/sigma.

This keeps the amplification that the published guarantee (membership revealed too) gives away. It depends on the
dimension, and is the better of the two guarantees where batch sizes say too much: few records, or a rate near 1
(compare `size_and_sum`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.domains import OPEN_UNIT
from calipers.numerics.binomial import binomial_window
from calipers.pld.core.gaussian_part import gaussian_pair
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import DominatingPair
from calipers.pld.division.cells import SHIFT_ERROR, MixedCells, cell_ends, mixed_pmf, thinned, thinned_product
from calipers.pld.division.hidden_membership import best_tests
from calipers.pld.division.scale import scale_pair

_NODES, _FACTOR_NODES, _MOST_ATOMS = 1_500, 240, 16_000
_DISTINGUISHED = 60.0
"""Deviations between the lengths of two noise vectors beyond which they count as distinguished with certainty."""


@implements("calipers:batch-revealed")
@dataclass(frozen=True)
class BatchRevealedPair(DominatingPair):
    """One round in all `dimension` coordinates, UPPER only: N `others`, `rate` q."""

    sigma: float
    rate: float
    others: int
    dimension: int
    usual: ClassVar[float] = 0.025
    finest: ClassVar[float] = 0.03
    """Finer cells than this change epsilon by less than 1e-4 of itself."""

    def __post_init__(self) -> None:
        OPEN_UNIT.check("rate", self.rate, "At rate 1 the divisor is the dataset size.")

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.UPPER; rare batch sizes and far tails are added to 0 and infinity."""
        window = binomial_window(self.others, self.rate, log_tail)
        width = max(resolution, self.finest)
        pmfs = [self.in_batch(int(k), width, log_tail).subsample(self.rate) for k in window.values]
        ratio = np.concatenate([pmf.log_ratio for pmf in pmfs])
        log_q = np.concatenate([pmf.log_q + math.log(w) for pmf, w in zip(pmfs, window.weights, strict=True)])
        ratio, log_q = thinned(ratio, log_q, _MOST_ATOMS)
        spared = 2.0 * window.outside
        p_inf = spared + math.fsum(w * pmf.p_inf for pmf, w in zip(pmfs, window.weights, strict=True))
        q_zero = spared + math.fsum(w * pmf.q_zero for pmf, w in zip(pmfs, window.weights, strict=True))
        return PrivacyLossPmf.dominating(
            ratio,
            log_q,
            p_inf=min(1.0, p_inf),
            q_zero=min(1.0, q_zero),
            mass_error=max(pmf.mass_error for pmf in pmfs) + 2e-12,
            shift_error=max(pmf.shift_error for pmf in pmfs) + SHIFT_ERROR,
        )

    def in_batch(self, size: int, resolution: float, log_tail: float) -> PrivacyLossPmf:
        """The distribution of a record that is in the batch, and revealed so."""
        if size == 0:
            return gaussian_pair(1.0 / self.sigma).upper(resolution, log_tail)
        if math.sqrt(2.0 * self.dimension) * math.log1p(1.0 / size) > _DISTINGUISHED:
            return PrivacyLossPmf(np.zeros(0), np.zeros(0), np.zeros(0), Side.UPPER, p_inf=1.0, q_zero=1.0)
        return _isotropic(self.sigma, self.dimension, size, resolution, log_tail)


@functools.lru_cache(maxsize=128)  # both neighbors of a dataset have batches of the same sizes
def _isotropic(sigma: float, dimension: int, size: int, resolution: float, log_tail: float) -> PrivacyLossPmf:
    """N(m, s^2 I) against N(0, I): one coordinate with the signal, times the scale PLD of the others."""
    signal = _signal(sigma, size, resolution, log_tail)
    if dimension == 1:
        return signal
    scale = scale_pair(dimension - 1, size).upper_for(resolution, log_tail, 0.5)
    return thinned_product(signal, scale, _FACTOR_NODES, _NODES)


def _signal(sigma: float, size: int, resolution: float, log_tail: float) -> PrivacyLossPmf:
    mean = 2.0 * size / ((size + 1.0) * sigma)
    x = cell_ends(log_tail, mean, size / (size + 1.0), resolution)
    tests = best_tests(np.array([mean]), size, x)
    return mixed_pmf(MixedCells(np.ones(1), tests.log_ratio, tests.log_mass), x)
