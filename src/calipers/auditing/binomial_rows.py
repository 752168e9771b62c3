"""Many binomial distributions with one number of trials, each over the window of values that matters.

A row is a distribution Bin(trials, rate). All rows are tilted from one: with b the probabilities at a fixed rate r,

    P[Bin(trials, u) = k] = b(k) (u/r)^k ((1-u)/(1-r))^(trials-k),

so that logarithms of factorials are computed once (`calipers.numerics.binomial`), and a row costs one exponential for
each value. What lies outside a window is one incomplete beta function.

Every number returned is at least the probability it stands for: the relative error is added to the upper bound.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.auditing.statistics import TAIL_RELATIVE_ERROR, at_least, at_most
from calipers.numerics.binomial import log_binomial
from calipers.numerics.types import FloatArray, IntArray

_BLOCK = 2**20
_TINY = 1e-300


class BinomialRows:
    """Laws Bin(trials, rate) for rates near `count`/`trials`; windows reach `reach` standard deviations."""

    def __init__(self, trials: int, count: int, reach: float) -> None:
        self.trials, self.reach = trials, reach
        self._rate = min(max(count, 0.5), trials - 0.5) / trials
        self._start, self._logs = 0, np.empty(0)
        # The two logarithms of a tilt are rounded once each and multiplied by up to `trials`; the rest is the error of
        # the probabilities, and of sums over a window.
        self._charge = 1.0 + 2.0 * TAIL_RELATIVE_ERROR + 16.0 * 2.0**-53 * trials

    def _windows(self, rates: FloatArray) -> tuple[IntArray, int]:
        """The first value of each row's window, and the common length."""
        mean = self.trials * rates
        deviation = np.sqrt(np.maximum(mean * (1.0 - rates), 0.0))
        half = math.ceil(self.reach * float(deviation.max()) + 0.5 * self.reach * self.reach)
        first = np.maximum(np.floor(mean) - half, 0.0).astype(np.int64)
        length = int(min(2 * half + 2, self.trials + 1))
        return np.minimum(first, self.trials + 1 - length), length

    def span(self, rates: FloatArray) -> tuple[int, int]:
        """The first and, plus one, the last value in any of the windows."""
        first, length = self._windows(rates)
        return int(first.min()), int(first.max()) + length

    def rows_at_once(self, rates: FloatArray) -> int:
        """How many rows fit into a block of memory."""
        return max(1, _BLOCK // self._windows(rates)[1])

    def _probabilities(self, rates: FloatArray) -> tuple[IntArray, FloatArray]:
        """(first values, rows of probabilities), added to the upper bound."""
        first, length = self._windows(rates)
        values = first[:, None] + np.arange(length)
        low, high = int(values[:, 0].min()), int(values[:, -1].max())
        if low < self._start or high >= self._start + self._logs.size:
            low, high = min(low, self._start) if self._logs.size else low, max(high, self._start + self._logs.size - 1)
            self._start = low
            self._logs = log_binomial(np.arange(low, high + 1.0), self.trials, self._rate)
        inside = np.clip(rates, _TINY, 1.0 - 2.0**-53)
        up = np.log(inside / self._rate)[:, None]
        down = (np.log1p(-inside) - math.log1p(-self._rate))[:, None]
        exponent = self._logs[values - self._start]
        exponent += values * up
        exponent += (self.trials - values) * down
        return first, np.exp(exponent, out=exponent) * self._charge

    def masses(self, rates: FloatArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """(first values, probabilities in the windows, what lies before each window, what lies after it)."""
        first, found = self._probabilities(rates)
        last = first + found.shape[1] - 1
        before = np.where(first > 0, at_most(np.maximum(first - 1, 0), self.trials, rates), 0.0)
        after = np.where(last < self.trials, at_least(np.minimum(last + 1, self.trials), self.trials, rates), 0.0)
        # A rate of 0 was raised to 1e-300, which moves no more than `trials` times that.
        return first, found, before * self._charge + self.trials * _TINY, after * self._charge + self.trials * _TINY

    def tails(self, rates: FloatArray, least: FloatArray) -> FloatArray:
        """At least P[Bin(trials, rates[i]) >= least[i, j]]; 0 where least is above `trials`."""
        first, found = self._probabilities(rates)
        length = found.shape[1]
        last = first + length - 1
        after = np.where(last < self.trials, at_least(np.minimum(last + 1, self.trials), self.trials, rates), 0.0)
        table = np.empty((rates.size, length + 1))
        table[:, -1] = after * self._charge
        table[:, :-1] = np.cumsum(found[:, ::-1], axis=1)[:, ::-1] + table[:, -1:]
        place = least.astype(np.int64) - first[:, None]
        tail = np.take_along_axis(table, np.clip(place, 0, length), axis=1)
        tail = np.where(place <= 0, 1.0, np.minimum(tail, 1.0))
        tail = np.where((rates >= 1.0)[:, None], 1.0, tail)
        return np.where(least > self.trials, 0.0, tail)
