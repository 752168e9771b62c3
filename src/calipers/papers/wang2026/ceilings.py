"""Figures 5 and 7, and the limit theorem next to the exact test.

**What the paper draws.** Upper bounds of its own guarantees: the ceiling f_bar = T(N(0, I), N(0, s^2 I)) in the n - 1
coordinates without signal (Theorems 3.8 and A.4; mixed with ID for division by |B|, Theorem 3.10), and that ceiling
bounded once more by a central limit theorem (Theorems 3.13 and A.7), because it has no closed form in the paper.

**What is drawn here next to it.** The ceiling itself: it is a chi-square test, exact in any dimension
(`calipers.theorems.division_ceilings`). And the mechanism: the bracket of its trade-off curve. For division by N q or
floor(N q) the ceiling is also an attack on the mechanism where all gradients are on one line, since the n - 1 other
coordinates show the change of scale whatever the batch is. For division by |B| it is not: there the ceiling bounds a
guarantee that reveals more than the mechanism does.

**Where the limit theorem says nothing.** G_mu(a - gamma) + gamma < 1 - a for some a if and only if the largest
distance of G_mu from ID exceeds 2 gamma: put x = a - gamma, then 1 - x - G_mu(x) > 2 gamma, and the maximum of the left
side is 2 Phi(mu/2) - 1. With mu proportional to sqrt(n - 1)/K and gamma to 1/sqrt(n - 1) this needs n - 1 above about
3.34 K.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.citations import implements
from calipers.numerics.chi_square import log_scale_test_error
from calipers.numerics.elementary import fewest
from calipers.numerics.normal import gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.wang2026 import published
from calipers.papers.wang2026.settings import coordinates_of, divisors, others_in
from calipers.run import Run
from calipers.theorems.division_limits import scale_functionals

RELATIVE_ERROR, SMALLEST = 1e-9, 1e-300
"""Relative rounding of a ceiling above SMALLEST (checked against mpmath in the tests); below, nothing is resolved."""

ALPHA: FloatArray = np.unique(np.concatenate((np.geomspace(1e-4, 0.1, 31), np.linspace(0.02, 0.98, 49))))
"""Where curves are drawn and listed."""

FIGURE_5_METHODS = {
    "PrivImage, DP-FETA": ("expected", published.LARGE_MODEL, published.FIGURE_5_EXPECTED_RATE),
    "DPSGD-HF": ("expected", published.SMALL_MODEL, published.FIGURE_5_EXPECTED_RATE),
    "DPSUR": ("realized", published.SMALL_MODEL, published.FIGURE_5_REALIZED_RATE),
}
"""What each method divides by, its coordinates and its rate."""


class Ceiling(NamedTuple):
    """The paper's upper bounds of a guarantee: `share` of f_bar with `degrees` coordinates, the rest of ID."""

    degrees: int
    divisor: int
    share: float = 1.0

    @classmethod
    def of(cls, run: Run) -> Ceiling:
        """Theorem 3.8, 3.10 (one round) or A.4, by the run's divisor."""
        degrees = run.total_steps * (coordinates_of(run) - 1)
        if run.normalization == "realized":
            share = run.rate * (1.0 - (1.0 - run.rate) ** others_in(run))
            return cls(degrees, others_in(run), share)
        return cls(degrees, int(divisors(run, False).values[0]))

    def exact(self, alpha: FloatArray) -> FloatArray:
        """The ceiling at every alpha, by the chi-square test."""
        logs = log_scale_test_error(np.log(alpha), self.degrees, -2.0 * math.log1p(1.0 / self.divisor))
        return np.asarray(self.share * np.exp(logs) + (1.0 - self.share) * (1.0 - alpha), dtype=np.float64)

    def limit(self) -> tuple[float, float] | None:
        """mu and gamma of the limit theorem, or None where gamma >= 1/2."""
        mu, gamma = scale_functionals(self.divisor).limit(self.degrees)
        return (mu, gamma) if gamma < 0.5 else None

    def by_limit(self, alpha: FloatArray) -> FloatArray:
        """Theorem 3.13 or A.7 at every alpha; NaN where it does not apply."""
        found = self.limit()
        if found is None:
            return np.full_like(alpha, np.nan)
        mu, gamma = found
        inside = (alpha >= gamma) & (alpha <= 1.0 - gamma)
        bound = gaussian_tradeoff(mu, np.where(inside, alpha - gamma, 0.5)) + gamma
        mixed = self.share * np.minimum(bound, 1.0) + (1.0 - self.share) * (1.0 - alpha)
        return np.asarray(np.where(inside, mixed, np.nan), dtype=np.float64)


@implements("calipers:limit-theorem-says-something")
def smallest_telling_copies(divisor: int) -> int:
    """The smallest n - 1 at which the limit theorem is below 1 - fpr at some fpr; it is not at any smaller one.

    mu grows and gamma falls with the number of copies, so the condition holds from some number on.
    """

    def telling(copies: int) -> bool:
        mu, gamma = scale_functionals(divisor).limit(copies)
        return bool(gamma < 0.5 and 2.0 * float(ndtr(0.5 * mu)) - 1.0 > 2.0 * gamma)

    return fewest(telling, 0, 1)


def kept_share(divisor: int) -> float:
    """mu of the limit theorem over the separation of the exact test, both per root of a coordinate, for large n.

    The exact log likelihood ratio of n coordinates has means +-n kl' and variance n v; its separation in deviations is
    sqrt(n/2) * 2 log(1 + 1/K) to first order in 1/K.
    """
    return scale_functionals(divisor).limit(1)[0] / (math.sqrt(2.0) * math.log1p(1.0 / divisor))
