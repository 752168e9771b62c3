"""The order of a trial's outcomes that shows most when the best of many trials is released.

Cut the outcomes of one trial into cells by their likelihood ratio. A score ranks the cells; the test claims the record
where the released outcome is in one of some cells. Let f be the generating function of the number of trials
(`calipers.mechanisms.selection`), and y and y' the masses under P and Q of all cells that rank above a cell of masses p
and q. The released outcome is in this cell with probability

    f(1 - y) - f(1 - y - p) under P,      f(1 - y') - f(1 - y' - q) under Q.

Cells of large ratio should rank high, where they are released most often. But cells of small ratio that rank above them
have more mass under Q than under P, so they hide the others more often under Q. So both extremes rank first, and how
they are best interleaved is a dynamic program: after the i cells of largest and the j cells of smallest ratio, V(i, j)
is the larger of V(i, j + 1) and of what the next cell of large ratio shows plus V(i + 1, j). Whatever order it finds is
one that anybody can use, so its optimality needs no proof.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from calipers.curves.points import Points
from calipers.mechanisms.selection import Trials
from calipers.numerics.types import FloatArray, IntArray

_CELLS, _QUANTILES = 70, np.linspace(-8.0, 8.0, 90)
"""Cells between equal chances of the released outcome, and between normal quantiles, for each of both rates."""
_ROUNDING, _LEAST = 1e-11, 1e-300
"""Relative error of masses and of the generating function, added to both; and a rate that no error is below."""


class OrderRates(NamedTuple):
    """At least the false positive rate and at most the power of a test."""

    wrong: float
    power: float

    def delta(self, epsilon: float) -> float:
        """At most the hockey-stick divergence at e^epsilon."""
        return max(0.0, self.power - math.exp(epsilon) * self.wrong * (1.0 + _ROUNDING))

    def epsilon(self, delta: float) -> float:
        """At most the epsilon at which the divergence is delta."""
        room = (self.power - delta) * (1.0 - _ROUNDING)
        return max(0.0, math.log(room / self.wrong) - _ROUNDING) if room > self.wrong > 0.0 else 0.0

    def step(self, epsilon: float, delta: float) -> float:
        """Newton's step for the logarithm of `self.delta`, towards the epsilon where that is `delta`; -inf if none."""
        own = self.delta(epsilon)
        if not min(own, self.wrong) > 0.0:
            return -math.inf
        return math.log(own / delta) * own * math.exp(-epsilon) / self.wrong


def best_order(tests: Points, trials: Trials, epsilon: float) -> OrderRates:
    """The test of the order that shows most at e^epsilon, of all that rank both extremes first.

    Args:
        tests: Of one trial, by increasing false positive rate; they lie in each other.
        trials: The number of trials.
        epsilon: At least 0.

    Returns:
        Rates of a test of the released outcome: the first at least, the second at most those that it has.
    """
    alpha, beta, alpha_c, power = tests.take(_places(tests, trials))
    p, q = _masses(power, beta) * (1.0 - _ROUNDING), _masses(alpha, alpha_c) * (1.0 + _ROUNDING)
    # Row i, column j: i cells of large ratio and j cells of small ratio rank above.
    above_p = (power[:-1, None] + beta[:0:-1]) * (1.0 + _ROUNDING)
    above_q = (alpha[:-1, None] + alpha_c[:0:-1]) * (1.0 - _ROUNDING)
    right = trials.within(above_p, p[:, None]) * (1.0 - _ROUNDING)
    wrong = np.maximum(trials.within(above_q, q[:, None]) * (1.0 + _ROUNDING), np.where(q > 0.0, _LEAST, 0.0)[:, None])
    gain = np.maximum(right - math.exp(epsilon) * wrong, 0.0)
    claimed = [(i, j) for i, j in _path(gain) if gain[i, j] > 0.0]
    rates = [math.fsum(float(each[i, j]) for i, j in claimed) for each in (wrong, right)]
    return OrderRates(rates[0] * (1.0 + _ROUNDING), rates[1] * (1.0 - _ROUNDING))


def _path(gain: FloatArray) -> list[tuple[int, int]]:
    """Where, along the best path, a cell of large ratio ranks next."""
    count = len(gain)
    value, high = np.zeros((count + 1, count + 1)), np.zeros(gain.shape, dtype=np.bool_)
    for ranked in range(count - 1, -1, -1):
        i = np.arange(ranked + 1)
        j = ranked - i
        first, second = value[i + 1, j] + gain[i, j], value[i, j + 1]
        high[i, j], value[i, j] = first >= second, np.maximum(first, second)
    path, large, small = list[tuple[int, int]](), 0, 0
    while large + small < count:
        if high[large, small]:
            path.append((large, small))
            large += 1
        else:
            small += 1
    return path


def _masses(rates: FloatArray, complements: FloatArray) -> FloatArray:
    """Of the cells between tests, from the smaller of a rate and its complement, which has all digits."""
    found = np.where(rates[1:] <= 0.5, np.diff(rates), -np.diff(complements))
    return np.asarray(np.maximum(found, 0.0))


def _places(tests: Points, trials: Trials) -> IntArray:
    """Tests between which the cells lie: at equal distances of the chance that one of all trials is claimed."""
    shares, last = np.linspace(0.0, 1.0, _CELLS), len(tests.alpha) - 1
    found = [np.array([0, last])]
    for rising, falling in ((tests.alpha, tests.alpha_c), (tests.beta_c, tests.beta)):
        found.append(np.searchsorted(np.maximum.accumulate(trials.missed(rising)), shares))
        found.append(last - np.searchsorted(np.maximum.accumulate(trials.missed(falling)[::-1]), shares))
        quantiles = np.where(rising < 0.5, ndtri(rising), -ndtri(falling))
        found.append(np.searchsorted(np.maximum.accumulate(quantiles), _QUANTILES))
    return np.unique(np.clip(np.concatenate(found), 0, last))
