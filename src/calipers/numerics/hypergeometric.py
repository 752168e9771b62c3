"""Hypergeometric probabilities with relative accuracy: how many of a few marked records a random batch holds.

With g marked records among n, a batch of B holds k of them with probability

    C(g, k) B (B-1) ... (B-k+1) (n-B) (n-B-1) ... (n-B-g+k+1) / (n (n-1) ... (n-g+1)),

g factors above and below, so sums of g logarithms lose next to nothing, however large n is.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from calipers.domains import Domain
from calipers.errors import InputError
from calipers.numerics.types import FloatArray

MARKED = Domain(0, 100_000, integer=True)


def _falling(start: float, count: int) -> FloatArray:
    """log of start (start - 1) ... of 0, 1, ..., count factors; -inf where a factor is not positive."""
    factors = start - np.arange(count, dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.where(factors > 0, np.log(np.maximum(factors, 1e-300)), -np.inf)
    return np.concatenate(([0.0], np.cumsum(logs)))


def hypergeometric(population: int, marked: int, draws: int) -> tuple[FloatArray, float]:
    """P(a batch of `draws` of `population` records holds k of the `marked` ones), k = 0 .. marked, and their error.

    Post-condition: every probability above 1e-300 has at most the returned relative error.
    """
    marked = MARKED.check_int("marked", marked)
    if not (marked <= population and 0 <= draws <= population):
        raise InputError(
            f"Expected marked <= population and 0 <= draws <= population, got {marked}, {draws} of {population}."
        )
    k = np.arange(marked + 1)
    inside, outside = _falling(float(draws), marked), _falling(float(population - draws), marked)
    below = _falling(float(population), marked)[-1]
    ways = gammaln(marked + 1.0) - gammaln(k + 1.0) - gammaln(marked - k + 1.0)
    with np.errstate(invalid="ignore"):
        logs = ways + inside[k] + outside[marked - k] - below
    logs = np.where(np.isnan(logs), -np.inf, logs)
    # Every logarithm and every partial sum is rounded once; gammaln is accurate to a few units of its value.
    error = 2.3e-16 * (4.0 * (marked + 4.0) * math.log(population + 2.0) + 12.0 * abs(float(gammaln(marked + 1.0))))
    return np.exp(np.minimum(logs, 0.0)), error + 1e-15
