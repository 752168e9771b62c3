"""Fourier coefficients of a T-fold sum at low frequencies, to full relative accuracy however large T is.

A transform knows the coefficients of one term up to c u log2(n), and the T-th power multiplies that by T: 1e-8 for a
million terms, more than a high-noise run's delta has room for. But a sum of many terms is smooth, so all but a few
dozen of its coefficients vanish, and those few can be summed directly in a form that loses nothing. With weights w at
positions s around a whole number m, total W, and x = 2 pi k / n,

    sum of w_s e^(-i x s) = e^(-i x m) (W + d),    d = sum of w_s (e^(-i x (s - m)) - 1),

and 1 - cos = 2 sin^2 of the half keeps its digits. All terms of d together are at most a = x * sum of w_s |s - m|, so d
errs by a few units in the last place of a, and

    (W + d)^T = exp(T log W + T log(1 + d/W))

by T times that: a is about 1/sqrt(T) where the power is not negligible. W itself, a rounded sum, costs T u.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.numerics.types import FloatArray, IntArray

_UNIT_ROUNDOFF = 2.0**-53
_ROUNDINGS = 100.0
"""Of one term of d and of pairwise sums, in units of u times a: angle, sine, product, blocks of 128 and their tree."""
_FEWEST, _WORTH, _MOST_FREQUENCIES, _MOST_TERMS = 20_000, 1e-7, 600, 4_000_000


@dataclass(frozen=True)
class LowFrequencies:
    """Coefficients of a product at some frequencies, and the 2-norm, back in the data, of all their errors."""

    index: IntArray
    values: np.ndarray
    error: float


def low_frequencies(factors: Sequence[tuple[FloatArray, int]], product: np.ndarray, n: int) -> LowFrequencies | None:
    """The coefficients of the product of all (weights on Z/n, count) that are not negligible, where they are few.

    `product` holds rough coefficients (those of `rfft`), which decide where to look and nothing else. Weights have
    a sum near 1 and are taken as they stand. None where it would cost too much or change little.
    """
    if sum(count for _, count in factors) < _FEWEST:
        return None
    index = _not_negligible([weights for weights, _ in factors], product)
    if index is None:
        return None
    logs, charge = np.zeros(len(index), dtype=np.complex128), np.zeros(len(index))
    turns = np.zeros(len(index), dtype=np.int64)
    for weights, count in factors:
        middle, log_one, rounding = _one_term(weights, index, n)
        logs, charge = logs + count * log_one, charge + count * rounding
        turns = (turns + _turned(index, count * middle, n)) % n
    return _coefficients(index, logs, turns, charge, n)


def low_frequencies_of_powers(
    weights: FloatArray, powers: Sequence[int], product: np.ndarray, n: int
) -> list[LowFrequencies] | None:
    """The same of some powers of one vector, which are summed once; `product` is that of the lowest power."""
    index = _not_negligible([weights], product)
    if index is None:
        return None
    middle, log_one, rounding = _one_term(weights, index, n)
    return [_coefficients(index, k * log_one, _turned(index, k * middle, n), k * rounding, n) for k in powers]


def _not_negligible(weights: Sequence[FloatArray], product: np.ndarray) -> IntArray | None:
    """The frequencies at which a product is not negligible, where they are few enough to be summed directly."""
    index = np.flatnonzero(np.abs(product) > _WORTH)
    few = 0 < len(index) <= _MOST_FREQUENCIES
    return index if few and max(np.count_nonzero(each) for each in weights) * len(index) <= _MOST_TERMS else None


def _turned(index: IntArray, places: int, n: int) -> IntArray:
    """By how many n-th parts of a circle so many places turn every coefficient."""
    # Products of two places exceed 32 bits, which an index has on some platforms.
    return np.asarray(index.astype(np.int64) * (places % n) % n)


def _coefficients(index: IntArray, logs: np.ndarray, turns: IntArray, charge: FloatArray, n: int) -> LowFrequencies:
    values = np.exp(logs) * np.exp(-2j * math.pi * (turns / n))
    relative = np.expm1(np.minimum(1.01 * charge + _UNIT_ROUNDOFF * (8.0 * np.abs(logs) + 16.0), 1.0))
    doubled = np.where((index == 0) | (2 * index == n), 1.0, 2.0)  # the other half of the circle
    error = math.sqrt(float(np.sum(doubled * (np.abs(values) * relative) ** 2)) / n)
    return LowFrequencies(index, values, 1.01 * error)


def _one_term(weights: FloatArray, index: IntArray, n: int) -> tuple[int, np.ndarray, FloatArray]:
    """A whole number near the middle, log(W + d) at every frequency, and at least the error of that log."""
    places = np.flatnonzero(weights)
    weights = weights[places]
    first = complex(np.sum(weights * np.exp(-2j * math.pi / n * places)))
    middle = round(-math.atan2(first.imag, first.real) * n / (2.0 * math.pi)) % n
    away = (places - middle + n // 2) % n - n // 2
    mass = math.fsum(weights)
    distance = float(np.sum(np.abs(weights * away))) / mass * (1.0 + 1e-12)
    real, imag = np.empty(len(index)), np.empty(len(index))
    for i, k in enumerate(index):
        angle = (2.0 * math.pi * float(k) / n) * away
        half = np.sin(0.5 * angle)
        real[i] = -2.0 * float(np.sum(weights * half * half)) / mass
        imag[i] = -float(np.sum(weights * np.sin(angle))) / mass
    moved = 2.0 * math.pi / n * index * distance
    # log(1 + d) moves by at most |change of d| / |1 + d|. Its modulus is not to be had from |1 + d|^2 - 1 where that is
    # near -1 (a single wide term), nor from |1 + d| where that is near 1 (many terms).
    modulus, size = 2.0 * real + (real * real + imag * imag), np.maximum(np.hypot(1.0 + real, imag), 1e-300)
    log_size = np.where(modulus < -0.5, np.log(size), 0.5 * np.log1p(np.maximum(modulus, -0.5)))
    log_one = math.log(mass) + log_size + 1j * np.arctan2(imag, 1.0 + real)
    return middle, log_one, _UNIT_ROUNDOFF * (_ROUNDINGS * moved / size + 4.0)
