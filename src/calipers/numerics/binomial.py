"""Binomial and hypergeometric probabilities with relative accuracy.

**Binomial**, for up to 1e10 trials. A binomial coefficient written with log-gamma functions loses everything: at 1e8
trials the three logarithms are near 1e9 and their difference near 1. With Stirling's formula taken out exactly, log
n! = n log n - n + log(2 pi n)/2 + R(n), what remains is small:

    log b(k) = R(n) - R(k) - R(n-k) - n D(k/n, q) + log(n / (2 pi k (n-k))) / 2,

where R is the remainder of Stirling's series (`stirling_correction` of `numerics.gamma`), and n D = k log(k/(n q)) +
(n-k) log((n-k)/(n p)) is a sum of two terms of the form x psi(log(y/x)), psi(u) = e^u - 1 - u >= 0, evaluated without
cancellation around x = y. (The decomposition is C. Loader's, 2000.)

**Hypergeometric** probabilities: how many of a few marked records a random batch holds. With g marked records among
n, a batch of B holds k of them with probability

    C(g, k) B (B-1) ... (B-k+1) (n-B) (n-B-1) ... (n-B-g+k+1) / (n (n-1) ... (n-g+1)),

g factors above and below, so sums of g logarithms lose next to nothing, however large n is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from calipers.domains import POSITIVE_PROBABILITY, Domain
from calipers.errors import InputError
from calipers.numerics.elementary import bisect
from calipers.numerics.gamma import exponential_excess, stirling_correction
from calipers.numerics.types import FloatArray, IntArray

BINOMIAL_RELATIVE_ERROR = 1e-12
"""Relative error of a binomial probability above 1e-300 for up to 1e10 trials (checked; typically 1e-14)."""

TRIALS = Domain(0, 10**10, integer=True)


def excess(x: FloatArray, y: FloatArray, difference: FloatArray) -> FloatArray:
    """x log(x/y) + y - x = x psi(log(y/x)) >= 0 for x > 0, given x - y exactly enough."""
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.log1p(-difference / x)
    return x * exponential_excess(np.where(np.abs(difference) <= 0.5 * x, near, np.log(y / x)))


def log_binomial(k: FloatArray, trials: int, rate: float) -> FloatArray:
    """log P(Bin(trials, rate) = k) for whole k in 0 .. trials, with the stated relative error of its exponential."""
    trials = TRIALS.check_int("trials", trials)
    rate = POSITIVE_PROBABILITY.check("rate", rate)
    k = np.asarray(k, dtype=np.float64)
    if np.any((k < 0) | (k > trials) | (k != np.floor(k))):
        raise InputError(f"Expected whole numbers of successes between 0 and {trials}.")
    if rate == 1.0 or trials == 0:
        certain = trials if rate == 1.0 else 0
        return np.where(k == certain, 0.0, -np.inf)
    n = float(trials)
    rest = n - k
    exact = Fraction(trials) * Fraction(rate)
    mean, other = float(exact), float(trials - exact)
    # The rounding of the mean, times the slope of log b, would cost sqrt(mean) units in the last place.
    distance = (k - mean) - float(exact - Fraction(mean))
    inside = (k > 0) & (rest > 0)
    k_in, rest_in = np.where(inside, k, 1.0), np.where(inside, rest, 1.0)
    exponent = excess(k_in, np.asarray(mean), np.where(inside, distance, 1.0 - mean)) + excess(
        rest_in, np.asarray(other), np.where(inside, -distance, 1.0 - other)
    )
    remainders = stirling_correction(n) - stirling_correction(k_in) - stirling_correction(rest_in)
    interior = remainders - exponent + 0.5 * np.log(n / (2.0 * math.pi * k_in * rest_in))
    ends = np.where(k == 0, n * math.log1p(-rate), n * math.log(rate))
    return np.where(inside, interior, ends)


@dataclass(frozen=True)
class BinomialWindow:
    """The values of a binomial variable that matter, and their probabilities.

    P(below values[0]) and P(above values[-1]) are at most `outside` each.
    """

    values: FloatArray
    weights: FloatArray
    outside: float


@lru_cache(maxsize=32)
def binomial_window(trials: int, rate: float, log_outside: float) -> BinomialWindow:
    """All k around the mean beyond which either tail has at most e^log_outside mass, for the caller to charge."""
    trials = TRIALS.check_int("trials", trials)
    rate = POSITIVE_PROBABILITY.check("rate", rate)
    if rate == 1.0 or trials == 0:
        return BinomialWindow(np.array([float(trials)]), np.ones(1), 0.0)
    mean = trials * rate
    low, high = (_edge(trials, mean, end, log_outside) for end in (0.0, float(trials)))
    values = np.arange(max(0, math.floor(low)), min(trials, math.ceil(high)) + 1, dtype=np.float64)
    return BinomialWindow(values, np.exp(log_binomial(values, trials, rate)), math.exp(log_outside))


def _chernoff(k: float, trials: int, mean: float) -> float:
    """log of the Chernoff bound of the tail from k on, away from the mean; crude rounding is harmless here."""
    near = k * math.log(k / mean) if k > 0.0 else 0.0
    rest = trials - k
    far = rest * math.log(rest / (trials - mean)) if rest > 0.0 else 0.0
    return -(near + far)


def _edge(trials: int, mean: float, end: float, log_outside: float) -> float:
    """A point between the mean and `end` beyond which the tail is small enough, or `end`."""
    if mean in (0.0, float(trials)) or _chernoff(end, trials, mean) > log_outside:
        return end
    # The two terms nearly cancel around the mean: their rounding, 1e-16 of the trials, counts as not yet small.
    return bisect(mean, end, lambda k: _chernoff(k, trials, mean) + 1e-14 * trials > log_outside, 64, 0.5)[1]


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
