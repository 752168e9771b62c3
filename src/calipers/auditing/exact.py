"""Is P(E) > e^epsilon Q(E) + delta? One exact test of that very hypothesis, and the bounds it gives.

E happened in x of n runs of one hypothesis (probability p in each) and in y of m runs of the other (probability q). Two
confidence bounds, one for p and one for q, answer a harder question than was asked: both have to hold, though only one
combination of p and q matters, and up to two thirds of the trials are wasted. Here the combination is tested itself.

**Order.** Outcomes (X, Y) are put in a fixed order: more X and fewer Y speak against privacy. The order is that of
L(X, Y), the bound on leakage that confidence limits of both rates give, their widths weighted as the first part of the
trials suggests. It decides about power and about nothing else.

**Size.** Against "delta(epsilon) <= d" the p-value is the probability of an outcome at least as bad as the one seen,
at the worst (p, q) with p <= e^epsilon q + d. More p makes it larger, so p = e^epsilon q + d is the worst; q is
unknown, and is taken at its worst within an exact confidence interval, whose error b is added (Berger and Boos 1994):

    p-value(d) = b + sup over q in the interval of P[L(X, Y) >= L(x, y)],  X ~ Bin(n, e^epsilon q + d), Y ~ Bin(m, q).

It increases in d because the order does not depend on d (Buehler 1957): all d below a rejected one are rejected, and
the largest rejected one is a lower confidence bound. For epsilon at a given delta the same holds word for word.

**The supremum is bounded, not searched.** The interval is cut into cells. For q in [u, v] the outcome is worst if Y is
drawn with u and X with v (both are stochastically monotone, and the region is monotone in X and Y), so one sum bounds
the whole cell; cells that matter are cut again. Sums run over windows; what lies outside is added in full, and so is
the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy import special

from calipers.auditing.binomial_rows import BinomialRows
from calipers.auditing.statistics import EPSILON, lower_rate, upper_rate, wilson_upper
from calipers.citations import implements
from calipers.domains import PROBABILITY
from calipers.numerics.types import FloatArray

INTERVAL_SHARE = 0.01
"""The part of the error that the interval for q may cost."""

_CELLS = 8  # cells for each standard deviation of Y, before those that matter are cut again
_PIECES, _POINTS, _MOST_CUTS, _MOST_CELLS = 4, 6, 6, 150
_SLACK = 1.07  # cells are cut until their bounds exceed the p-value at some point by this factor at most
_EVALUATIONS = 8
_CLOSE = 0.03  # a bound is left where it is when it could gain so many standard deviations at most
_ROUNDOFF = 8.0 * 2.0**-53

ScoreLine = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class EventCounts:
    """E happened in `likely` = (x, n) runs where it should be likely, in `rare` = (y, m) where it should not.

    `weights` are the parts of the standard error that come from p and from q; they must not depend on these counts.
    """

    likely: tuple[int, int]
    rare: tuple[int, int]
    error: float
    weights: tuple[float, float]

    @property
    def rates(self) -> tuple[float, float]:
        """The shares x/n and y/m."""
        return self.likely[0] / self.likely[1], self.rare[0] / self.rare[1]

    def deviation(self, odds: float) -> float:
        """The standard error of x/n - odds y/m, for planning."""
        parts = [max(count, 0.5) * max(trials - count, 0.5) / trials**3 for count, trials in (self.likely, self.rare)]
        return math.sqrt(parts[0] + odds * odds * parts[1])

    @cached_property
    def quantile(self) -> float:
        """z with upper normal tail `error`, for planning; at least 1/2."""
        return max(-float(special.ndtri(self.error)), 0.5)

    @cached_property
    def _limits(self) -> tuple[int, FloatArray]:
        """(a count of Y, Clopper and Pearson's upper limit of q there and at all that follow), at its weight.

        They put outcomes in order and prove nothing, so the inversion need not be verified.
        """
        y, m = self.rare
        start, stop = self._rows[1].span(np.concatenate((self._cells[0], self._cells[1])))
        start, stop = min(start, y), max(stop, y)
        counts = np.minimum(np.arange(start, stop + 1.0), m - 1.0)
        error = float(special.ndtr(-self.quantile * self.weights[1]))
        limits = np.asarray(special.betainccinv(counts + 1.0, m - counts, error), dtype=np.float64)
        limits[start + np.arange(limits.size) >= m] = 1.0
        return start, np.maximum.accumulate(limits)

    @cached_property
    def most_rare(self) -> float:
        """The upper limit of q at the count seen, at its weight: an estimate."""
        start, limits = self._limits
        return float(limits[self.rare[0] - start])

    @cached_property
    def least_likely(self) -> float:
        """Wilson's lower limit of p, at its weight: an estimate."""
        x, n = self.likely
        return float(1.0 - wilson_upper(np.array((n - x) / n), n, self.quantile * self.weights[0]))

    @cached_property
    def _cells(self) -> tuple[FloatArray, FloatArray]:
        """The interval for q, cut into cells that are equally many standard deviations wide."""
        y, m = self.rare
        half = 0.5 * INTERVAL_SHARE * self.error
        ends = np.array([float(lower_rate(y, m, half)), float(upper_rate(y, m, half))])
        angles = np.arcsin(np.sqrt(ends))
        count = max(1, math.ceil(2.0 * math.sqrt(m) * _CELLS * float(angles[1] - angles[0])))
        edges = np.square(np.sin(np.linspace(angles[0], angles[1], count + 1)))
        edges[0], edges[-1] = ends
        return edges[:-1], edges[1:]

    @cached_property
    def _rows(self) -> tuple[BinomialRows, BinomialRows]:
        """The distributions of X and Y, summed over windows wide enough for this error."""
        reach = math.sqrt(-2.0 * math.log(self.error)) + 2.0
        (x, n), (y, m) = self.likely, self.rare
        return BinomialRows(n, x, reach), BinomialRows(m, y, reach)

    def p_value(self, slope: float, offset: float, line: ScoreLine) -> float:
        """At least the p-value of p <= line(q), outcomes ordered by whether slope * (limit of q) + offset is exceeded.

        Post-condition: valid for every increasing `line`; never smaller for a line that is nowhere smaller.
        """
        least = self._least(slope, offset)
        low, high = self._cells
        found = self._sums(low, high, least, line)
        largest = point = 0.0
        for _ in range(_MOST_CUTS):
            best = np.argsort(found)[-_POINTS:]
            middle = 0.5 * (low[best] + high[best])
            point = max(point, float(self._sums(middle, middle, least, line).max()))
            near = found > _SLACK * point
            if not near.any():
                break
            if np.count_nonzero(near) > _MOST_CELLS:  # the rest keeps the bounds it has
                near &= found >= np.sort(found)[-_MOST_CELLS]
            largest = max(largest, float(found[~near].max(initial=0.0)))
            edges = np.linspace(low[near], high[near], _PIECES + 1)
            low, high = edges[:-1].ravel(), edges[1:].ravel()
            found = self._sums(low, high, least, line)
        return min(1.0, max(largest, float(found.max())) + INTERVAL_SHARE * self.error)

    def _least(self, slope: float, offset: float) -> FloatArray:
        """The least X that, next to so many Y, is at least as bad as what was seen; n + 1 where none is."""
        x, n = self.likely
        start, limits = self._limits
        z = self.quantile * self.weights[0]
        center = np.maximum(offset + slope * limits, 0.0)
        hopeless = center >= 1.0 - z * z / n
        center = np.where(hopeless, 0.5, center)
        # A little is taken off, so that rounding adds outcomes and drops none.
        least = np.ceil(n * center + z * np.sqrt(n * center * (1.0 - center)) - 1e-6 - 1e-12 * n)
        least = np.where(hopeless, n + 1.0, np.maximum(least, 0.0))
        seen = self.rare[0] - start
        least[: seen + 1] = np.minimum(least[: seen + 1], x)
        return np.asarray(np.minimum.accumulate(least[::-1])[::-1], dtype=np.float64)

    def _sums(self, low: FloatArray, high: FloatArray, least: FloatArray, line: ScoreLine) -> FloatArray:
        """For each cell at least P[X >= least(Y)], X drawn with line(high) and Y with low."""
        likely, rare = self._rows
        start, _ = self._limits
        p = np.minimum(line(high) * (1.0 + _ROUNDOFF) + _ROUNDOFF, 1.0)
        found = np.empty(low.size)
        step = min(likely.rows_at_once(p), rare.rows_at_once(low))
        for begin in range(0, low.size, step):
            rows = slice(begin, begin + step)
            first, masses, before, after = rare.masses(low[rows])
            place = first[:, None] - start + np.arange(masses.shape[1] + 1)
            # Beyond the listed counts the last one stands in: it asks for fewer X.
            tails = likely.tails(p[rows], least[np.minimum(place, least.size - 1)])
            found[rows] = before + (masses * tails[:, :-1]).sum(axis=1) + after * tails[:, -1]
        return found


@implements("berger1994:p-value", "buehler1957:limits")
@lru_cache(maxsize=64)  # a verdict asks again what a row of the table has asked
def exact_delta(counts: EventCounts, epsilon: float) -> float:
    """The largest d found such that P(E) <= e^epsilon Q(E) + d is rejected at level `error`; 0 if none is.

    Post-condition: it exceeds P(E) - e^epsilon Q(E), and so delta(epsilon), with probability at most `error`.
    """
    odds = math.exp(EPSILON.check("epsilon", epsilon))
    p, q = counts.rates
    most = p - odds * q
    if most <= 0.0:
        return 0.0
    offset = counts.least_likely - odds * counts.most_rare

    def p_value(delta: float) -> float:
        return counts.p_value(odds, offset, lambda rate: odds * (1.0 + _ROUNDOFF) * rate + delta)

    return _largest_rejected(p_value, most - counts.quantile * counts.deviation(odds), most, counts.error)


@implements("berger1994:p-value", "buehler1957:limits")
@lru_cache(maxsize=64)  # a verdict asks again what a row of the table has asked
def exact_epsilon(counts: EventCounts, delta: float) -> float:
    """The largest e found such that P(E) <= e^e Q(E) + delta is rejected at level `error`; 0 if none is.

    Post-condition: it exceeds log((P(E) - delta)/Q(E)), and so epsilon(delta), with probability at most `error`.
    """
    delta = PROBABILITY.check("delta", delta)
    room = counts.least_likely - delta
    if room <= 0.0 or counts.most_rare <= 0.0:
        return 0.0
    slope = room / counts.most_rare
    p, q = counts.rates
    # With y = 0 nothing bounds the estimate; 30 times the limit is far beyond what can be rejected.
    most = math.log((p - delta) / q) if q > 0.0 else math.log(30.0 * slope)
    if most <= 0.0:
        return 0.0

    def p_value(epsilon: float) -> float:
        odds = math.exp(epsilon) * (1.0 + _ROUNDOFF)
        return counts.p_value(slope, delta, lambda rate: odds * rate + delta)

    guess = math.log(slope)
    if q > 0.0 and room > 0.0:
        guess = max(guess, most - counts.quantile * counts.deviation(math.exp(most)) / (p - delta))
    return _largest_rejected(p_value, guess, min(most, 700.0), counts.error)


def _largest_rejected(p_value: Callable[[float], float], guess: float, most: float, error: float) -> float:
    """A point in [0, most] whose p-value is at most `error`, close to the last one; 0 if 0 is not rejected.

    The normal quantile of the p-value is nearly a straight line, so chords find the place in few evaluations. Only
    points that were evaluated are returned.
    """
    level = float(special.ndtri((1.0 - INTERVAL_SHARE) * error))

    def height(point: float) -> float:
        inside = min(max(p_value(point) - INTERVAL_SHARE * error, 1e-300), 1.0 - 1e-12)
        return float(special.ndtri(inside)) - level

    low, high = 0.0, most
    point, other, other_height = min(max(guess, 0.0), most), most, max(-level, 0.1)
    for _ in range(_EVALUATIONS):
        value = height(point)
        if value <= 0.0:
            low = point
            if value > -_CLOSE:
                break
        elif point == 0.0:
            return 0.0
        else:
            high = point
        slope = (other_height - value) / (other - point) if other != point else 0.0
        other, other_height = point, value
        # A hair below the chord's answer, so that the next point is likely to be rejected.
        aim = point - (value + 0.3 * _CLOSE) / slope if slope > 0.0 else 0.5 * (low + high)
        point = aim if low < aim < high else (0.0 if aim <= 0.0 and low == 0.0 else 0.5 * (low + high))
    return low
