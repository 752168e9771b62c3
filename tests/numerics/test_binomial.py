"""Binomial probabilities against mpmath, and windows whose tails are summed exactly."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.numerics.binomial import (
    BINOMIAL_RELATIVE_ERROR,
    binomial_window,
    excess,
    log_binomial,
)
from calipers.numerics.gamma import stirling_correction

TRIALS = [1, 2, 5, 16, 40, 999, 59_999, 10**6, 10**8, 10**10]
RATES = [1e-9, 1e-4, 0.005, 0.3, 0.5, 0.7, 1.0 - 1e-9]


def true_log(k: int, trials: int, rate: float) -> mp.mpf:
    with mp.workdps(60):
        q = mp.mpf(rate)
        choose = mp.loggamma(trials + 1) - mp.loggamma(k + 1) - mp.loggamma(trials - k + 1)
        return choose + k * mp.log(q) + (trials - k) * mp.log1p(-q)


def places(trials: int, rate: float) -> list[int]:
    """The ends, the mean, and up to 35 deviations around it."""
    mean, spread = trials * rate, math.sqrt(trials * rate * (1.0 - rate))
    found = {0, trials, 1, trials - 1}
    for z in (-35.0, -12.0, -3.0, -0.7, 0.0, 0.4, 1.0, 5.0, 20.0, 35.0):
        found.add(min(trials, max(0, round(mean + z * spread))))
    return sorted(k for k in found if 0 <= k <= trials)


def relative_error(found: float, truth: mp.mpf) -> float:
    with mp.workdps(60):
        return abs(float(mp.expm1(mp.mpf(found) - truth)))


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("rate", RATES)
def test_probabilities_have_the_stated_relative_error(trials: int, rate: float) -> None:
    """Every probability above 1e-300, from one trial to 1e10, at the mean and 35 deviations away."""
    for k in places(trials, rate):
        truth = true_log(k, trials, rate)
        if truth < -690:
            continue
        found = float(log_binomial(np.array([float(k)]), trials, rate)[0])
        assert relative_error(found, truth) <= BINOMIAL_RELATIVE_ERROR, (k, found, truth)


@given(st.integers(1, 10**10), st.floats(1e-12, 1.0 - 1e-12), st.floats(-8.0, 8.0))
def test_probabilities_near_the_mean(trials: int, rate: float, z: float) -> None:
    """Anywhere within eight deviations, for every number of trials and every rate."""
    k = min(trials, max(0, round(trials * rate + z * math.sqrt(trials * rate * (1.0 - rate)))))
    truth = true_log(k, trials, rate)
    found = float(log_binomial(np.array([float(k)]), trials, rate)[0])
    assert relative_error(found, truth) <= BINOMIAL_RELATIVE_ERROR


@pytest.mark.parametrize(("trials", "rate"), [(1, 0.3), (7, 0.5), (40, 0.01), (999, 0.7), (3000, 1e-3)])
def test_probabilities_sum_to_one(trials: int, rate: float) -> None:
    """All of them together, with the rounding that the relative error allows."""
    weights = np.exp(log_binomial(np.arange(trials + 1.0), trials, rate))
    assert abs(math.fsum(weights) - 1.0) <= BINOMIAL_RELATIVE_ERROR


def test_a_rate_of_one_and_no_trials_are_certain() -> None:
    """Bin(5, 1) is 5 and Bin(0, q) is 0."""
    np.testing.assert_array_equal(np.exp(log_binomial(np.arange(6.0), 5, 1.0)), [0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(np.exp(log_binomial(np.zeros(1), 0, 0.3)), [1.0])


def test_a_rate_of_one_needs_one_value() -> None:
    """All others are impossible, so the window holds a single number, however many trials there are."""
    window = binomial_window(10_000, 1.0, -40.0)
    np.testing.assert_array_equal(window.values, [10_000.0])
    np.testing.assert_array_equal(window.weights, [1.0])


@pytest.mark.parametrize(
    ("k", "trials", "rate"),
    [
        (0.5, 5, 0.5),
        (6.0, 5, 0.5),
        (-1.0, 5, 0.5),
        (0.0, 10**10 + 1, 0.5),
        (0.0, 5, 0.0),
        (0.0, 5, 1.1),
        (0.0, 5, math.nan),
    ],
)
def test_what_is_no_binomial_probability_is_refused(k: float, trials: int, rate: float) -> None:
    """Successes that are not whole or not among the trials, too many trials, rates that are no probability."""
    with pytest.raises(InputError):
        log_binomial(np.array([k]), trials, rate)


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 17, 100, 10**6, 10**10])
def test_stirling_remainder(n: int) -> None:
    """R(n) = log n! - (n + 1/2) log n + n - log(2 pi)/2, to 1e-15 absolute (and 1e-13 relative from 16 on)."""
    with mp.workdps(50):
        truth = mp.loggamma(n + 1) - (n + mp.mpf(1) / 2) * mp.log(n) + n - mp.log(2 * mp.pi) / 2
        found = float(stirling_correction(np.array([float(n)]))[0])
        assert abs(found - truth) <= (1e-15 if n >= 16 else 8e-15)
        if n >= 16:
            assert abs(found / truth - 1) <= 1e-13


@given(st.floats(1e-3, 1e10), st.floats(-0.999, 5.0))
def test_excess_has_relative_accuracy(y: float, shift: float) -> None:
    """x log(x/y) + y - x for x = y (1 + shift), the difference of the two floats being exact."""
    x = y * (1.0 + shift)
    if x <= 0.0 or x == y:
        return
    with mp.workdps(60):
        exact_difference = mp.mpf(x) - mp.mpf(y)
        truth = mp.mpf(x) * mp.log(mp.mpf(x) / mp.mpf(y)) - exact_difference
        found = float(excess(np.array([x]), np.array([y]), np.array([float(exact_difference)]))[0])
        assert abs(found / truth - 1) <= 2e-14


def exact_tail(trials: int, rate: float, first: int, last: int) -> mp.mpf:
    """P(first <= Bin <= last), term by term from the end nearer to the mean until nothing is added."""
    with mp.workdps(60):
        q = mp.mpf(rate)
        upward = first > trials * rate
        k = first if upward else last
        term, total = mp.exp(true_log(k, trials, rate)), mp.mpf(0)
        while first <= k <= last and term > total * mp.mpf(10) ** -40:
            total += term
            if upward:
                term *= (trials - k) * q / ((k + 1) * (1 - q))
                k += 1
            else:
                term *= k * (1 - q) / ((trials - k + 1) * q)
                k -= 1
        return total


@pytest.mark.parametrize("log_outside", [-1.0, -20.0, -40.0, -70.0, -300.0, -700.0])
@pytest.mark.parametrize(
    ("trials", "rate"),
    [
        (1, 0.3),
        (4, 0.7),
        (30, 0.5),
        (999, 0.7),
        (59_999, 0.005),
        (10**6, 1e-6),
        (10**9, 1e-5),
        (10**10, 3e-10),
        (50, 1 - 1e-6),
    ],
)
def test_what_a_window_leaves_out_is_as_rare_as_stated(trials: int, rate: float, log_outside: float) -> None:
    """Each tail beyond the window, summed term by term, is at most `outside`; the window is no larger than needed."""
    window = binomial_window(trials, rate, log_outside)
    assert window.outside >= math.exp(log_outside)
    low, high = int(window.values[0]), int(window.values[-1])
    np.testing.assert_array_equal(window.values, np.arange(low, high + 1.0))
    bound = mp.mpf(window.outside)
    if low > 0:
        assert exact_tail(trials, rate, 0, low - 1) <= bound
    if high < trials:
        # The last value of the window is itself that rare: so is what one more record shifts beyond it.
        assert exact_tail(trials, rate, high, trials) <= bound
    spread = math.sqrt(trials * rate * (1.0 - rate))
    assert high - trials * rate <= 2.0 + spread * math.sqrt(-2.0 * log_outside) - 2.0 * log_outside


@given(st.integers(1, 10**10), st.floats(1e-10, 1.0 - 1e-12), st.floats(-600.0, -1.0))
def test_a_window_keeps_its_promise_by_chernoff(trials: int, rate: float, log_outside: float) -> None:
    """Wherever a window ends short of the possible, Chernoff's bound there is at most `outside`."""
    if math.sqrt(trials * rate * (1.0 - rate)) > 5e3:
        return
    window = binomial_window(trials, rate, log_outside)
    with mp.workdps(50):
        q = mp.mpf(rate)
        for k, open_end in (
            (int(window.values[0]) - 1, window.values[0] > 0),
            (int(window.values[-1]), window.values[-1] < trials),
        ):
            if not open_end:
                continue
            share = mp.mpf(k) / trials
            log_bound = trials * (
                mp.log(1 - q) if k == 0 else -share * mp.log(share / q) - (1 - share) * mp.log((1 - share) / (1 - q))
            )
            assert log_bound <= log_outside
