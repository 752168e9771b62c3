"""Families of tests against a record hidden in one of T rounds.

Two hypotheses show T normal observations w_1 ... w_T of deviation sigma, of which one, at a uniformly random place,
has mean `present` when the record is there and mean `absent` when it is zeroed out. (With probability 1 - r the record
sits this epoch out, and all means are 0, under both.)

A *test* is an event E with its two probabilities; P(E) - k Q(E) bounds the divergence at k = e^eps from below.
Forward tests are stored as (Q(E), P(E)), reversed ones as (P(E), Q(E)): false positive rate first. Both
are kept with relative accuracy, small events being what matters.

The oldest test looks at the largest observation only:

    P(max w < C) = Phi((C - mean)/sigma) Phi(C/sigma)^(T-1) .

It is the event of Chua et al. (2024), Equation (3), with means 2 and 1, and that behind f_sub, Equation (17) of
Ertan and van Dijk (2026), with means 1 and 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray

SMALLEST_PROBABILITY = 1e-290
"""Tests with a rarer error are left out: its digits are lost."""
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
"""Of the normal density."""


@dataclass(frozen=True)
class EventFamily:
    """Tests with one statistic: true false positive rates <= `alpha`, true powers >= `power`."""

    alpha: FloatArray
    power: FloatArray
    threshold: FloatArray

    def best(self, epsilon: float) -> tuple[float, float]:
        """(delta, threshold): delta <= the divergence at epsilon; (0, inf) if no test attacks there."""
        if len(self.alpha) == 0:
            return 0.0, math.inf
        with np.errstate(over="ignore"):
            with_error = np.exp(epsilon + np.log(self.alpha))
            gains = self.power - with_error - 4.0 * UNIT_ROUNDOFF * (self.power + (3.0 + epsilon) * with_error)
        j = int(np.argmax(gains))
        return (float(gains[j]), float(self.threshold[j])) if gains[j] > 0 else (0.0, math.inf)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """(epsilon, threshold): at that epsilon >= 0 the test shows at least delta; (0, inf) if none does anywhere."""
        excess = self.power * (1.0 - 4.0 * UNIT_ROUNDOFF) - delta
        usable = np.flatnonzero(excess > 0)
        if len(usable) == 0:
            return 0.0, math.inf
        shown = np.log(excess[usable]) - np.log(self.alpha[usable])
        j = int(np.argmax(shown))
        value = float(shown[j]) - 1e-14 * (1.0 + abs(float(shown[j])))
        return (value, float(self.threshold[usable[j]])) if value > 0 else (0.0, math.inf)


def family(
    alpha: FloatArray, power: FloatArray, threshold: FloatArray, relative_error: FloatArray | float
) -> EventFamily:
    """Tests whose probabilities are known up to a relative error, counted against them."""
    usable = (alpha > SMALLEST_PROBABILITY) & (power > SMALLEST_PROBABILITY)
    error = np.broadcast_to(np.asarray(relative_error), alpha.shape)[usable]
    return EventFamily(alpha[usable] * (1.0 + error), power[usable] * (1.0 - error), threshold[usable])


def tail_families(values: FloatArray, p: FloatArray, q: FloatArray, error: float) -> tuple[EventFamily, EventFamily]:
    """Tests {score > t} forward and {score < t} reversed, t between consecutive values; p, q are masses."""
    between = 0.5 * (values[1:] + values[:-1])
    error = error + 4.0 * len(values) * UNIT_ROUNDOFF
    above_p, above_q = np.cumsum(p[::-1])[::-1][1:], np.cumsum(q[::-1])[::-1][1:]
    below_p, below_q = np.cumsum(p)[:-1], np.cumsum(q)[:-1]
    return family(above_q, above_p, between, error), family(below_p, below_q, between, error)


def maximum_probabilities(
    noise_multiplier: float, rounds: int, threshold: FloatArray, shift: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """P(max w >= C), P(max w < C) and a relative error of both, w with one mean at `shift` and deviation sigma."""
    arguments = ((threshold - shift) / noise_multiplier, threshold / noise_multiplier)
    tails = tuple(log_ndtr(x) for x in arguments)
    below = tails[0] + (rounds - 1) * tails[1]
    # Two roundings of an argument x, and two more inside log_ndtr, move log Phi(x) by 4 u |x| phi(x)/Phi(x), and the
    # probability of falling below by that share of itself. Its complement 1 - e^S moves by e^S/(1 - e^S) <= 1/|S|
    # times as much of itself: in the far tail, where S = -Phi(-x), by about x^2 u each.
    moved = [
        np.abs(x) * np.exp(-0.5 * x * x - _LOG_SQRT_TWO_PI - tail) for x, tail in zip(arguments, tails, strict=True)
    ]
    arguments_error = 4.5 * UNIT_ROUNDOFF * (moved[0] + (rounds - 1) * moved[1]) / np.clip(np.abs(below), 1e-300, 1.0)
    # Otherwise log_ndtr is accurate to a few units in the last place (`tests/numerics/test_accuracy.py`).
    return -np.expm1(below), np.exp(below), 8.0 * UNIT_ROUNDOFF * (2.0 - below) + arguments_error


@dataclass(frozen=True)
class MaximumTests:
    """Tests on the largest of T observations: {max_t w_t >= C} forward, {max_t w_t < C} reversed, in closed form.

    `present` and `absent` are the means of the shifted observation under the two hypotheses.
    """

    sigma: float
    rounds: int
    present: float
    absent: float
    participation: float = 1.0

    def families(self, thresholds: FloatArray) -> tuple[EventFamily, EventFamily]:
        """Forward and reversed tests with these thresholds C."""
        hit, miss, error_p = maximum_probabilities(self.sigma, self.rounds, thresholds, self.present)
        alarm, silence, error_q = maximum_probabilities(self.sigma, self.rounds, thresholds, self.absent)
        error = np.maximum(error_p, error_q)
        if self.participation < 1.0:
            noise, quiet, error_n = maximum_probabilities(self.sigma, self.rounds, thresholds, 0.0)
            r, s = self.participation, 1.0 - self.participation
            hit, miss = r * hit + s * noise, r * miss + s * quiet
            alarm, silence = r * alarm + s * noise, r * silence + s * quiet
            error = np.maximum(error, error_n) + 4.0 * UNIT_ROUNDOFF
        return family(alarm, hit, thresholds, error), family(miss, silence, thresholds, error)

    def range(self, epsilon: float) -> tuple[float, float]:
        """Where good thresholds lie: one observation passes ratio e^eps, and the largest of the noise is passed too."""
        gap = self.present - self.absent
        crossing = self.sigma**2 * epsilon / gap + 0.5 * (self.present + self.absent)
        middle = max(crossing, self.sigma * math.sqrt(2.0 * math.log(self.rounds)))
        return -8.0 * self.sigma, middle + self.present + 8.0 * self.sigma

    def delta(self, epsilon: float, reverse: bool) -> tuple[float, float]:
        """(delta, C) with the divergence at epsilon >= delta, C the best threshold found."""
        return self._search(lambda tests: tests.best(epsilon), epsilon, reverse)

    def epsilon(self, delta: float, reverse: bool) -> tuple[float, float]:
        """(epsilon, C) with the divergence at epsilon >= delta; no such test gives epsilon 0."""
        return self._search(lambda tests: tests.epsilon(delta), -math.log(delta), reverse)

    def _search(
        self, value: Callable[[EventFamily], tuple[float, float]], epsilon: float, reverse: bool
    ) -> tuple[float, float]:
        """The best point of a grid, then of finer grids around it. Any threshold is valid."""
        low, high = self.range(epsilon)
        found = (0.0, math.inf)
        for points in (4001, 401, 401, 401):
            best, threshold = value(self.families(np.linspace(low, high, points))[reverse])
            if best <= 0.0:
                break
            found = max(found, (best, threshold))
            gap = (high - low) / (points - 1)
            low, high = found[1] - gap, found[1] + gap
        return found
