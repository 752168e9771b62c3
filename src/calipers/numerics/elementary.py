"""Elementary steps that many rooms take: checking arrays, halving, sums and complements of exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from calipers.domains import Domain
from calipers.errors import InputError
from calipers.numerics.types import FloatArray

STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""B_2j / (2j (2j-1)): the remainder of Stirling's formula is the sum of these over n^(2j-1)."""


def checked(domain: Domain, name: str, values: ArrayLike, remedy: str = "") -> FloatArray:
    """The values as an array of floats, or `InputError` unless all lie in the domain: `Domain.check` for many."""
    array = np.asarray(values, dtype=np.float64)
    above = array > domain.low if domain.low_open else array >= domain.low
    below = array < domain.high if domain.high_open else array <= domain.high
    if not np.all(above & below & np.isfinite(array) & (not domain.integer or array % 1.0 == 0.0)):
        raise InputError(f"Expected {name} in {domain}, got {name}={values!r}.{remedy and ' ' + remedy}")
    return array


def bisect(
    low: float, high: float, rises: Callable[[float], bool], rounds: int, within: float = 0.0, *, share: float = 0.0
) -> tuple[float, float]:
    """[low, high] halved to the upper half where `rises(middle)`, else to the lower one.

    It ends after `rounds`, or once the interval is no longer than `within` or than a `share` of its larger end.

    Post-condition: `rises` was true at `low` and false at `high`, unless that end was never moved. (The ends may also
    come in the other order, and then stay so.)
    """
    for _ in range(rounds):
        if abs(high - low) <= max(within, share * max(abs(low), abs(high))):
            break
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rises(middle) else (low, middle)
    return low, high


def bisect_ratio(
    low: float, high: float, rises: Callable[[float], bool], rounds: int, within: float = 1.0
) -> tuple[float, float]:
    """As `bisect` for positive ends, by their geometric mean, until one is at most `within` times the other."""
    ends = bisect(math.log(low), math.log(high), lambda at: rises(math.exp(at)), rounds, math.log(within))
    return math.exp(ends[0]), math.exp(ends[1])


def fewest(suffices: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest whole number above `low` that suffices, if all larger ones do; `high` > `low` is tried first."""
    while not suffices(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def row_logsumexp(rows: FloatArray) -> FloatArray:
    """log of the row sums of exp(rows)."""
    peak = rows.max(axis=1)
    shares = rows - peak[:, None]
    np.exp(shares, out=shares)
    return np.asarray(peak + np.log(shares.sum(axis=1)))


def log_sums_at(rates: FloatArray, places: np.ndarray, log_weights: FloatArray | float) -> FloatArray:
    """log of the sum of e^(s x) times weights over places x, at every rate s: as many at once as a cache holds."""
    rows = max(1, 16_384 // len(places))
    blocks = [rates[start : start + rows] for start in range(0, len(rates), rows)]
    return np.concatenate([row_logsumexp(np.multiply.outer(block, places) + log_weights) for block in blocks])


def log_complement(log_value: FloatArray) -> FloatArray:
    """log(1 - exp(log_value)) for log_value <= 0; -inf at 0."""
    far = log_value < -math.log(2.0)
    found = np.empty_like(log_value)
    with np.errstate(divide="ignore"):
        found[far], found[~far] = np.log1p(-np.exp(log_value[far])), np.log(-np.expm1(log_value[~far]))
    return found


def distinct(values: FloatArray) -> FloatArray:
    """The values in order, each once: `numpy.unique` without the masked arrays that it loads."""
    ordered = np.sort(values)
    return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]])
