"""The steps of the proof of Theorem 4.1, against mpmath, against sums by FFT and against simulation."""

from __future__ import annotations

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest

from calipers.errors import ConditionError, InputError
from calipers.theorems.lognormal_ratio import berry_esseen_distance
from calipers.theorems.shuffle_one_epoch import shuffle_delta
from calipers.theorems.shuffle_proof import (
    expanded_integral,
    threshold_fnr,
    threshold_interval,
    tradeoff_near_half,
    whole_line_cost,
)

SETTINGS = [(1.0, 300), (0.9, 400), (2.0, 60), (5.0, 40)]
RUNS = 20_000


def whole_line(level, sigma, rounds, last=mp.inf):
    """int Phi(level - m(z)) phi(z) dz over z < last, by mpmath."""
    scale = mp.sqrt((rounds - 1) * mp.expm1(mp.mpf(sigma) ** -2))

    def integrand(z):
        return mp.ncdf(level - mp.expm1(z / sigma + mp.mpf(1) / (2 * sigma**2)) / scale) * mp.npdf(z)

    points = [-12, -6, -3, 0, 1.5, 3, 4.5, 6, 9]
    points = [p for p in points if p < last] + ([last] if last < 9 else [])
    return mp.quad(integrand, points)


@cache
def simulated_ratios(sigma, rounds, runs, present, seed):
    """Means of `rounds` likelihood ratios, with the record in the first round or in none."""
    draws = np.random.default_rng(seed).standard_normal((runs, rounds))
    if present:
        draws[:, 0] += 1.0 / sigma
    return np.exp(draws / sigma - 0.5 / sigma**2).mean(axis=1)


@pytest.mark.parametrize(("sigma", "rounds"), SETTINGS)
def test_d2_the_interval_holds_the_quantiles(sigma, rounds):
    """The thresholds of fpr = 1/2 -+ delta, simulated, lie inside; a twenty-fifth of the width would not."""
    delta = 0.02
    found = threshold_interval(sigma, rounds, delta)
    sample = simulated_ratios(sigma, rounds, RUNS, present=False, seed=1)
    low, high = np.quantile(sample, [0.5 - delta, 0.5 + delta])
    assert found.lower < low < high < found.upper
    narrow = (found.upper - found.lower) / 50.0
    assert 0.5 * (found.lower + found.upper) == pytest.approx(1.0, abs=1e-9)
    assert not (1.0 - narrow < low and high < 1.0 + narrow)


@pytest.mark.parametrize(("sigma", "rounds"), SETTINGS)
@pytest.mark.parametrize("threshold", [0.7, 1.0, 1.2])
def test_d4_encloses_the_integral_and_the_rate(sigma, rounds, threshold):
    """The integral by mpmath is within the enclosure less the distance; the simulated rate within the enclosure."""
    found = threshold_fnr(sigma, rounds, threshold)
    distance = berry_esseen_distance(sigma, rounds - 1)
    level = (threshold - 1.0) * rounds / math.sqrt((rounds - 1) * math.expm1(sigma**-2))
    exact = float(whole_line(level, sigma, rounds, sigma * math.log(rounds * threshold) - 0.5 / sigma))
    if found.lower > 0.0:
        assert exact - distance - 1.5e-4 < found.lower <= exact - distance
    if found.upper < 1.0:
        assert exact + distance <= found.upper < exact + distance + 1.5e-4
    rate = float(np.mean(simulated_ratios(sigma, rounds, RUNS, present=True, seed=2) < threshold))
    assert found.lower - 3.0 / math.sqrt(RUNS) < rate < found.upper + 3.0 / math.sqrt(RUNS)


def test_d3_two_rounds_are_the_integral_of_a_lognormal():
    """D.3 at M = 2: the inner integral is the lognormal law, and the outer one is the simulated rate."""
    sigma, threshold = 1.3, 0.9

    def integrand(z):
        rest = 2 * threshold - mp.exp(z / sigma + 1 / (2 * sigma**2))
        return mp.ncdf(sigma * mp.log(rest) + 1 / (2 * sigma)) * mp.npdf(z) if rest > 0 else mp.mpf(0)

    last = sigma * math.log(2 * threshold) - 0.5 / sigma
    exact = float(mp.quad(integrand, [-12, -4, -2, 0, last]))
    runs = 400_000
    rate = float(np.mean(simulated_ratios(sigma, 2, runs, present=True, seed=3) < threshold))
    assert abs(rate - exact) < 3.0 / math.sqrt(runs)
    absent = float(np.mean(simulated_ratios(sigma, 2, runs, present=False, seed=3) < threshold))
    assert abs(absent - exact) > 30.0 / math.sqrt(runs)


@pytest.mark.parametrize(("sigma", "rounds"), SETTINGS)
@pytest.mark.parametrize("fpr", [0.45, 0.5, 0.55])
def test_d5_holds_the_curve(sigma, rounds, fpr):
    """The curve at fpr, by simulation, lies inside; the distance is charged for the test and for the integral."""
    found = tradeoff_near_half(sigma, rounds, fpr)
    threshold = np.quantile(simulated_ratios(sigma, rounds, RUNS, present=False, seed=1), 1.0 - fpr)
    rate = float(np.mean(simulated_ratios(sigma, rounds, RUNS, present=True, seed=2) < threshold))
    assert found.lower - 5.0 / math.sqrt(RUNS) < rate < found.upper + 5.0 / math.sqrt(RUNS)
    distance = berry_esseen_distance(sigma, rounds - 1)
    assert found.lower < 1.0 - fpr - 2.0 * distance + 1e-3
    assert 0.0 <= found.lower < found.upper <= 1.0


@pytest.mark.parametrize(("sigma", "rounds"), [*SETTINGS, (0.5, 10**7)])
def test_d6_and_d7_bound_what_they_say(sigma, rounds):
    """theta is at least the normal tail it stands for; D.7 is below the integral at the worst x and mu(z)."""
    distance = berry_esseen_distance(sigma, rounds - 1)
    for fpr in (0.48, 0.5, 0.52):
        around = abs(fpr - 0.5)
        kappa = float(mp.sqrt(2) * mp.erfinv(2 * (mp.mpf(distance) + around)))
        reach = kappa * math.sqrt(math.expm1(sigma**-2) / rounds)
        tail = float(mp.ncdf(-(sigma * mp.log(rounds * (1 - reach)) - 1 / (2 * mp.mpf(sigma)))))
        assert tail <= whole_line_cost(sigma, rounds, around) < 10.0 * tail + 1e-300
        worst = float(mp.sqrt(2) * mp.erfinv(2 * (1 - fpr - mp.mpf(distance)) - 1)) - 0.5 * kappa / (rounds - 1)
        exact = float(whole_line(worst, sigma, rounds))
        assert expanded_integral(sigma, rounds, fpr) <= exact
        # The printed expression, term by term.
        v, m = mp.mpf(sigma) ** -2, mp.mpf(rounds - 1)
        first = mp.sqrt(mp.expm1(v) / m) / mp.sqrt(2 * mp.pi) + kappa / m / mp.sqrt(8 * mp.pi)
        second = (mp.exp(2 * v) + mp.exp(v) - 1) / m + kappa * mp.sqrt(mp.expm1(v)) / m**1.5 + kappa**2 / (4 * m**2)
        literal = 1 - mp.mpf(fpr) - distance - first - second / mp.sqrt(8 * mp.e * mp.pi)
        assert literal - mp.mpf(10) ** -11 < expanded_integral(sigma, rounds, fpr) <= literal
        # The slack is the second order: Phi' is below its maximum, Phi'' bounded by its largest value.
        assert exact - expanded_integral(sigma, rounds, fpr) < 3.0 * math.exp(3.0 * sigma**-2) / math.sqrt(rounds)


@pytest.mark.parametrize(("sigma", "rounds"), [(1.0, 10**5), (0.7, 10**7), (2.0, 10**5)])
def test_the_steps_together_are_no_worse_than_the_theorem(sigma, rounds):
    """D.7 - theta - distance at fpr = 1/2 is at least 1/2 - delta of Equation (53), which rounds kappa and theta up."""
    curve = (
        expanded_integral(sigma, rounds, 0.5)
        - whole_line_cost(sigma, rounds, 0.0)
        - berry_esseen_distance(sigma, rounds - 1)
    )
    assert curve >= 0.5 - shuffle_delta(sigma, rounds, sharp=True).delta


def test_conditions_are_refused_with_their_numbers():
    with pytest.raises(ConditionError, match="below 1/2, got"):
        threshold_interval(1.0, 10, 0.1)
    with pytest.raises(ConditionError, match=r"0\.49"):
        tradeoff_near_half(1.0, 1000, 0.01)
    with pytest.raises(ConditionError, match="t > 0"):
        whole_line_cost(1.0, 40, 0.4999999 - berry_esseen_distance(1.0, 39))
    with pytest.raises(InputError, match="delta"):
        threshold_interval(1.0, 1000, 0.5)
