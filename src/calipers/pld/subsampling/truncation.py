"""How a limit on batches treats a unit of several records: how many of them are kept, given how many others joined.

Every record joins with probability q; of more than B that have joined, B are kept, uniformly at random. The unit has
g records, m others have joined, and f = (B - m)+ places are free. If k records of the unit are kept, (k - f)+ of the
others that would be there without it have gone. Given m, k < f means that exactly k have joined; otherwise, with j =
k + i records of the unit joining, i binomial among the g - k that are not kept,

    P(k | m) = C(g, k) q^k C(m, B - k) E[1 / C(m + k + i, B)]
             = C(g, k) q^k prod_{s=1..k} (B - s + 1)/(m + s) E[prod_{s=1..i} (m + k + s - B)/(m + k + s)],

products and sums of positive numbers. What the mean loses where i is cut is a share of it, since the product falls
with i.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import gammaln

from calipers.domains import COUNT, POSITIVE_PROBABILITY
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window, log_binomial
from calipers.numerics.types import FloatArray

DEEPEST = -690.0
_CUT = 1e-18
"""Of i, numbers beyond which less than this is left are not looked at."""
_SOME = 1 << 19
"""Entries of a matrix of probabilities that are held at once."""


@dataclass(frozen=True)
class Truncation:
    """n `others`, `rate` q, batches of at most `largest`, a unit of `unit` records."""

    others: int
    rate: float
    largest: int
    unit: int = 1

    def __post_init__(self) -> None:
        POSITIVE_PROBABILITY.check("rate", self.rate)
        COUNT.check_int("max_batch_size", self.largest)
        COUNT.check_int("records_per_unit", self.unit)

    @property
    def rounding(self) -> float:
        """At least the relative error of every probability below."""
        return 4.0 * BINOMIAL_RELATIVE_ERROR + 1e-13 * self.unit

    @cached_property
    def _sizes(self) -> tuple[FloatArray, FloatArray]:
        """m >= B that matter, with their probabilities; what lies beyond them is counted at the last."""
        window = binomial_window(self.others, self.rate, DEEPEST)
        kept = window.values >= self.largest
        if not np.any(kept):
            return np.array([float(self.largest)]), np.array([window.outside])
        values, weights = window.values[kept], window.weights[kept].copy()
        if values[-1] < self.others:
            weights[-1] += window.outside
        return values, weights

    @cached_property
    def truncated(self) -> float:
        """tau = P(m >= B): the dataset without the unit fills its batch by itself."""
        if self.largest > self.others:
            return 0.0
        # At most one is true, and nearer to the truth than a sum that rounding, which is added, carries beyond it.
        return min(1.0, float(np.sum(self._sizes[1])))

    @property
    def joining(self) -> FloatArray:
        """P(k of the unit's records join), k = 0 .. as many as ever do."""
        return _joining(self.rate, self.unit)

    @cached_property
    def free(self) -> FloatArray:
        """Numbers f of free places, 0 first, at which a unit may find too few; without 0 where no batch is full."""
        first = 0 if self.truncated > 0.0 else 1
        last = min(len(self.joining) - 2, self.largest)  # more than all that ever join is room for all
        found = np.arange(first, last + 1.0)
        return np.asarray(found[(found == 0.0) | (self.largest - found <= self.others)])

    @cached_property
    def probabilities(self) -> FloatArray:
        """P(f places are free) for each of `free`."""
        sizes = self.largest - self.free
        found = np.exp(log_binomial(np.minimum(sizes, self.others), self.others, self.rate))
        return np.where(self.free == 0.0, self.truncated, found)

    @cached_property
    def plain(self) -> float:
        """P(there is room for all that join of the unit)."""
        rest = 1.0 - float(np.sum(self.probabilities))
        if rest >= 0.5:
            return rest
        window = binomial_window(self.others, self.rate, DEEPEST)  # without cancellation
        room = window.values < self.largest - (self.free[-1] if len(self.free) else 0.0)
        return float(np.sum(window.weights[room])) + window.outside

    @cached_property
    def kept(self) -> FloatArray:
        """P(k of the unit's records are kept), a row for each of `free`."""
        rows = _kept_of(self.rate, self.largest, self.unit, tuple(self.free[self.free > 0.0]))
        if len(self.free) == 0 or self.free[0] > 0.0:
            return rows
        return np.vstack((self._kept_if_full, rows))

    @cached_property
    def _kept_if_full(self) -> FloatArray:
        sizes, weights = self._sizes
        return self._kept_by(sizes, weights) / np.sum(weights)

    def _kept_by(self, sizes: FloatArray, weights: FloatArray) -> FloatArray:
        """P(k are kept) of full batches, weighted; one row for each row of weights."""
        count = len(self.joining)
        full, chunk = np.zeros((*weights.shape[:-1], count)), max(2 * count, _SOME // count)
        for start in range(0, len(sizes), chunk):
            some = slice(start, start + chunk)
            full += weights[..., some] @ _kept(self.rate, self.largest, self.unit, sizes[some])
        return full


@lru_cache(maxsize=32)
def _joining(rate: float, unit: int) -> FloatArray:
    chances = np.exp(log_binomial(np.arange(unit + 1.0), unit, rate))
    beyond = np.cumsum(chances[::-1])[::-1]
    return chances[: max(2, int(np.count_nonzero(beyond > 1e-300)))]


@lru_cache(maxsize=8)
def _kept_of(rate: float, largest: int, unit: int, free: tuple[float, ...]) -> FloatArray:
    """The rows of batches that are not full, which are the same whatever the number of others is."""
    chances, places = _joining(rate, unit), np.array(free)
    if not free:
        return np.zeros((0, len(chances)))
    found = _kept(rate, largest, unit, largest - places)
    return np.where(np.arange(len(chances)) < places[:, None], chances, found)


def _kept(rate: float, largest: int, unit: int, sizes: FloatArray) -> FloatArray:
    """P(k | m), a row for each m of `sizes`; meaningful for k >= f."""
    count = len(_joining(rate, unit))
    k, m = np.arange(float(count)), sizes[:, None]
    s = k[1:]
    ratios = np.maximum(largest - s + 1.0, 0.0) / (m + s)
    kept = np.concatenate((np.ones((len(sizes), 1)), np.cumprod(ratios, axis=1)), axis=1)
    log_ways = gammaln(unit + 1.0) - gammaln(k + 1.0) - gammaln(unit - k + 1.0) + k * np.log(rate)
    # The product depends on m and k by their sum alone.
    others, least = _others(rate, unit, count), float(np.min(sizes))
    joined = least + np.arange(float(np.max(sizes)) - least + count) + np.arange(1.0, len(others))[:, None]
    dropped = np.cumprod(np.maximum(joined - largest, 0.0) / joined, axis=0)
    dropped = np.concatenate((np.ones((1, dropped.shape[1])), dropped))
    place, every = np.rint(sizes - least).astype(np.intp)[:, None], np.arange(count)
    mean = (others.T @ dropped)[every, place + every]
    return np.asarray(kept * np.exp(log_ways) * mean)


def _others(rate: float, unit: int, count: int) -> FloatArray:
    """P(Bin(g - k, q) = i), a row for each i that matters, a column for each k."""
    beyond = np.cumsum(np.exp(log_binomial(np.arange(unit + 1.0), unit, rate))[::-1])[::-1]
    i = np.arange(max(1, int(np.count_nonzero(beyond > _CUT))))[:, None]
    n = unit - np.arange(count)
    missed = np.maximum(n - i, 0)
    log_ways = gammaln(n + 1.0) - gammaln(i + 1.0) - gammaln(missed + 1.0)
    never = np.log1p(-rate) if rate < 1.0 else -np.inf
    with np.errstate(invalid="ignore"):
        logs = log_ways + i * np.log(rate) + np.where(missed > 0, missed * never, 0.0)
    return np.asarray(np.where(i <= n, np.exp(logs), 0.0))
