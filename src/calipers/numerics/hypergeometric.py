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
from calipers.numerics.types import FloatArray, IntArray

MARKED = Domain(0, 100_000, integer=True)


def _falling(start: FloatArray, count: int) -> FloatArray:
    """log of start (start - 1) ... of 0, 1, ..., count factors in columns; -inf where a factor is not positive."""
    factors = start[:, None] - np.arange(count, dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.where(factors > 0, np.log(np.maximum(factors, 1e-300)), -np.inf)
    return np.concatenate((np.zeros((len(start), 1)), np.cumsum(logs, axis=1)), axis=1)


def hypergeometric(population: int, marked: int, draws: int) -> tuple[FloatArray, float]:
    """P(a batch of `draws` of `population` records holds k of the `marked` ones), k = 0 .. marked, and their error.

    Post-condition: every probability above 1e-300 has at most the returned relative error.
    """
    rows, error = hypergeometric_rows(np.array([population]), marked, draws)
    return rows[0], error


def hypergeometric_rows(populations: IntArray, marked: int, draws: int) -> tuple[FloatArray, float]:
    """`hypergeometric` for many populations, a row for each."""
    marked, least = MARKED.check_int("marked", marked), int(np.min(populations))
    if not (marked <= least and 0 <= draws <= least):
        raise InputError(
            f"Expected marked <= population and 0 <= draws <= population, got {marked}, {draws} of {least}."
        )
    k, sizes = np.arange(marked + 1), populations.astype(np.float64)
    inside, outside = _falling(np.array([float(draws)]), marked), _falling(sizes - draws, marked)
    below = _falling(sizes, marked)[:, -1:]
    ways = gammaln(marked + 1.0) - gammaln(k + 1.0) - gammaln(marked - k + 1.0)
    with np.errstate(invalid="ignore"):
        logs = ways + inside[:, k] + outside[:, marked - k] - below
    logs = np.where(np.isnan(logs), -np.inf, logs)
    # Every logarithm and every partial sum is rounded once; gammaln is accurate to a few units of its value.
    largest = math.log(float(np.max(sizes)) + 2.0)
    error = 2.3e-16 * (4.0 * (marked + 4.0) * largest + 12.0 * abs(float(gammaln(marked + 1.0))))
    return np.exp(np.minimum(logs, 0.0)), error + 1e-15
