"""The central limit theorem with an error term, applied to the change of scale (Wang et al. 2026, Section 3.5).

For symmetric trade-off curves with log-slopes l = log|f'| put kl = -integral of l, kappa2 = integral of l^2 and
kappa3 = integral of |l + kl|^3 over [0, 1]. Then m-fold composition is Gaussian up to gamma (Dong et al., Theorem 5):

    G_mu(a + gamma) - gamma <= f^(m)(a) <= G_mu(a - gamma) + gamma       for gamma <= a <= 1 - gamma,
    mu = 2 sqrt(m) kl / sqrt(kappa2 - kl^2),         gamma = 0.56 kappa3 / (sqrt(m) (kappa2 - kl^2)^(3/2)) < 1/2.

f_* = T(N(0,1), N(0, s^2)) is not symmetric; the paper passes to max(f_*, f_*^-1), which is. Along
alpha(t) = 2 Phi(t) - 1, log|f_*'| = log(1/s) - (1/s^2 - 1) t^2/2. The two branches meet at one t*, where
f_*(alpha) = alpha, and f_* is the larger left of it. There l >= 0, and the other branch is the mirror image, l -> -l
with density e^l. So the three integrals run over 0 <= t <= t* only, with 2 phi(t) dt:

    kl = int l (e^l - 1),     kappa2 = int l^2 (e^l + 1),     kappa3 = int (l + kl)^3 + |l - kl|^3 e^l.

Two prices are paid: the maximum discards the better half of the test in every coordinate, and gamma = 0.58/sqrt(m).
Where n - 1 is below about 3.34 K the bound lies above 1 - fpr, which every curve obeys: it says nothing. This includes
26,010 coordinates at K = 59,999, so the distance the paper's Figure 5 shows there cannot come from it. The exact curve
is in `division_ceilings`; these functions are here because the paper's figures are drawn with them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.errors import ConditionError
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import gaussian_tradeoff
from calipers.theorems.division_guarantees import uneven_floor
from calipers.theorems.division_pairs import ROUNDED
from calipers.theorems.registry import theorem, unmet

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


class GaussianLimit(NamedTuple):
    """The two sides of the limit theorem at one fpr, with its mu and gamma."""

    upper: float
    lower: float
    mu: float
    gamma: float


class Functionals(NamedTuple):
    """kl, kappa2 and kappa3 of a symmetric trade-off curve."""

    kl: float
    kappa2: float
    kappa3: float

    def limit(self, copies: int) -> tuple[float, float]:
        """mu and gamma of so many copies."""
        variance = self.kappa2 - self.kl**2
        mu = 2.0 * math.sqrt(copies) * self.kl / math.sqrt(variance)
        return mu, 0.56 * self.kappa3 / (math.sqrt(copies) * variance**1.5)


@lru_cache(maxsize=64)
def scale_functionals(divisor: int) -> Functionals:
    """kl, kappa2, kappa3 of max(f_*, f_*^-1), s = divisor/(divisor + 1), to about 1e-13 of each."""
    log_inverse, r = math.log1p(1.0 / divisor), (2.0 * divisor + 1.0) / divisor**2

    def apart(t: float) -> bool:
        return 2.0 * float(ndtr(t)) - 1.0 < 2.0 * float(ndtr(-t * (1.0 + 1.0 / divisor)))

    _, end = bisect(0.0, 2.0, apart, 100)

    def integrals(start: float, stop: float, kl: float) -> np.ndarray:
        t = 0.5 * (stop - start) * _NODES + 0.5 * (stop + start)
        density = np.exp(-0.5 * t * t) * math.sqrt(2.0 / math.pi) * 0.5 * (stop - start) * _WEIGHTS
        slope = log_inverse - 0.5 * r * t * t
        grown = np.exp(slope)
        cubes = np.abs(slope + kl) ** 3 + np.abs(slope - kl) ** 3 * grown
        return np.array([density @ each for each in (slope * np.expm1(slope), np.square(slope) * (grown + 1.0), cubes)])

    kl, kappa2, _ = integrals(0.0, end, 0.0)
    # |l - kl|^3 has a kink where l = kl.
    kink = min(math.sqrt(max(2.0 * (log_inverse - kl) / r, 0.0)), end)
    kappa3 = integrals(0.0, kink, kl)[2] + integrals(kink, end, kl)[2]
    return Functionals(float(kl), float(kappa2), float(kappa3))


def gaussian_limit(fpr: float, copies: int, functionals: Functionals) -> GaussianLimit:
    """Both sides at fpr, rounded outwards; `ConditionError` where gamma >= 1/2 or fpr is outside [gamma, 1 - gamma]."""
    if functionals.kappa2 <= functionals.kl**2:
        raise unmet("spread-positive", functionals=functionals)
    mu, gamma = functionals.limit(copies)
    if gamma >= 0.5 or not gamma <= fpr <= 1.0 - gamma:
        raise unmet("near-gaussian", gamma=gamma, fpr=fpr)
    upper = float(gaussian_tradeoff(mu, fpr - gamma)) + gamma
    lower = float(gaussian_tradeoff(mu, fpr + gamma)) - gamma
    return GaussianLimit(min(upper + ROUNDED, 1.0), max(lower - ROUNDED, 0.0), mu, gamma)


@theorem("wang-thm-3.12")
def symmetric_composition(fpr: float, copies: int, kl: float, kappa2: float, kappa3: float) -> GaussianLimit:
    """Both sides of the limit theorem for identical copies, with mu and gamma."""
    return gaussian_limit(fpr, copies, Functionals(kl, kappa2, kappa3))


def _upper(fpr: float, copies: int, divisor: int) -> GaussianLimit:
    if copies < 1:
        raise ConditionError("Expected dimension of at least 2: with one coordinate nothing is composed.")
    return gaussian_limit(fpr, copies, scale_functionals(divisor))


@theorem("wang-cor-b.2")
@theorem("wang-thm-3.13")
def expected_gaussian_ceiling(fpr: float, dimension: int, dataset_size: int, steps: int) -> GaussianLimit:
    """G_mu(fpr - gamma) + gamma from T(n - 1) copies; `lower` bounds their composition. Theorem 3.13 is T = 1."""
    return _upper(fpr, steps * (dimension - 1), dataset_size)


@theorem("wang-thm-3.13-batch")
def batch_gaussian_ceiling(fpr: float, dimension: int, dataset_size: int, sample_rate: float) -> float:
    """(q - q(1-q)^N) (G_mu(fpr - gamma) + gamma) + (1 - q + q(1-q)^N) (1 - fpr)."""
    upper = expected_gaussian_ceiling(fpr, dimension, dataset_size, 1).upper
    empty = 0.0 if sample_rate == 1.0 else math.exp(dataset_size * math.log1p(-sample_rate))
    share = sample_rate * (1.0 - empty)
    return min(share * upper + (1.0 - share) * (1.0 - fpr) + ROUNDED, 1.0)


@theorem("wang-thm-a.7")
def floor_gaussian_ceiling_of_rounds(
    fpr: float, dimension: int, dataset_size: int, sample_rate: float, steps: int
) -> GaussianLimit:
    """G_mu(fpr - gamma) + gamma from T(n - 1) copies with K = floor(N q); the two floors must differ."""
    return _upper(fpr, steps * (dimension - 1), uneven_floor(dataset_size, sample_rate))
