"""Clopper-Pearson bounds and Equations (2) and (3), against exact rational and multiprecision arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.auditing.statistics import (
    TAIL_RELATIVE_ERROR,
    at_least,
    at_most,
    error_level,
    gains,
    lower_rate,
    upper_rate,
)
from calipers.errors import InputError
from calipers.theorems.division_guarantees import audited_epsilon


def exact_at_most(successes: int, trials: int, probability: float) -> Fraction:
    """P[Bin <= successes] in rational arithmetic; the float probability is itself a fraction."""
    p = Fraction(probability)
    return sum((comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(successes + 1)), Fraction(0))


def tail_at_most(successes: int, trials: int, probability: float) -> mpmath.mpf:
    """The same for many trials: terms from the largest down, until they no longer count (successes below the mean)."""
    with mpmath.workdps(40):
        p = mpmath.mpf(probability)
        term = mpmath.binomial(trials, successes) * p**successes * (1 - p) ** (trials - successes)
        total, i = mpmath.mpf(0), successes
        while i >= 0 and term > total * mpmath.mpf(10) ** -35:
            total += term
            term *= mpmath.mpf(i) * (1 - p) / ((trials - i + 1) * p)
            i -= 1
        return total


@given(st.integers(1, 60), st.data(), st.floats(1e-12, 0.5))
def test_bounds_hold_in_exact_arithmetic(trials: int, data: st.DataObject, error: float) -> None:
    """At the upper bound the lower tail is at most the error, at the lower bound the upper tail; no tolerance."""
    successes = data.draw(st.integers(0, trials))
    high, low = float(upper_rate(successes, trials, error)), float(lower_rate(successes, trials, error))
    assert low < successes / trials or successes == 0
    assert high > successes / trials or successes == trials
    assert high == 1.0 or exact_at_most(successes, trials, high) <= Fraction(error)
    assert low == 0.0 or 1 - exact_at_most(successes - 1, trials, low) <= Fraction(error)


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 10), (3, 40), (17, 1000), (400, 10_000), (12, 10**6), (480_000, 10**6), (9, 10**8)]
)
@pytest.mark.parametrize("error", [0.3, 0.025, 1e-6])
def test_upper_bounds_are_valid_and_tight_for_many_trials(successes: int, trials: int, error: float) -> None:
    """The tail at the bound is at most the error, and within a relative 1e-5 of it: nothing is given away."""
    tail = tail_at_most(successes, trials, float(upper_rate(successes, trials, error)))
    assert tail <= mpmath.mpf(error)
    assert tail > mpmath.mpf(error) * (1 - mpmath.mpf("1e-5"))


@pytest.mark.parametrize(("successes", "trials"), [(5, 100), (900, 10_000), (49_000, 10**5), (30, 10**7)])
def test_tails_are_as_accurate_as_they_say(successes: int, trials: int) -> None:
    """P[Bin <= k] agrees with multiprecision sums within TAIL_RELATIVE_ERROR; the mirrored tail is the same number."""
    for factor in (1.001, 1.1, 1.5):
        probability = min(successes / trials * factor + 3 / trials, 0.5)
        exact = tail_at_most(successes, trials, probability)
        assert abs(float(at_most(successes, trials, probability)) / exact - 1) < TAIL_RELATIVE_ERROR
    mirrored = float(at_least(trials - successes, trials, 0.5))
    assert mirrored == pytest.approx(float(at_most(successes, trials, 0.5)), rel=1e-12)


def test_textbook_interval() -> None:
    """3 of 10 at 95 %: (0.0667, 0.6525), and the rule of three for 0 of n."""
    low, high = (float(limit(3, 10, error_level(0.95) / 2)) for limit in (lower_rate, upper_rate))
    assert (round(low, 4), round(high, 4)) == (0.0667, 0.6525)
    assert float(upper_rate(0, 1000, 0.05)) == pytest.approx(1 - 0.05 ** (1 / 1000), rel=1e-8)
    assert float(lower_rate(1, 1000, 0.05)) == pytest.approx(1 - 0.95 ** (1 / 1000), rel=1e-8)
    assert error_level(0.95) <= 1 - 0.95


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0), st.sampled_from([0.0, 1e-10, 1e-5, 0.1]))
def test_equation_two_is_never_rounded_up(fpr: float, fnr: float, delta: float) -> None:
    """The returned epsilon is at most the exact value of Equation (2), and close to it."""
    with mpmath.workdps(40):
        values = [mpmath.mpf(0)]
        for own, other in ((fpr, fnr), (fnr, fpr)):
            room = 1 - mpmath.mpf(delta) - mpmath.mpf(own)
            if room > 0:
                values.append(mpmath.log(room / mpmath.mpf(other)))
        exact = max(values)
        found = audited_epsilon(fpr, fnr, delta)
        assert found <= exact
        assert found >= exact - mpmath.mpf("1e-9")


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 20.0))
def test_equation_three_is_never_rounded_up(fpr: float, fnr: float, epsilon: float) -> None:
    """The returned delta is at most the exact value of Equation (3), and within 1e-14 of it."""
    with mpmath.workdps(40):
        odds = mpmath.exp(mpmath.mpf(epsilon))
        a, b = mpmath.mpf(fpr), mpmath.mpf(fnr)
        exact = max(mpmath.mpf(0), 1 - a - odds * b, 1 - b - odds * a)
        found = max(0.0, *map(float, gains(fpr, fnr, epsilon)))
        assert found <= exact
        assert found >= exact - mpmath.mpf("1e-14")


def test_equation_two_is_never_rounded_up_where_little_room_is_left() -> None:
    """1 - delta - fpr = 2^-40: an absolute error of one unit there would already show."""
    for fnr in (1e-14, 3e-15, 1e-13):
        with mpmath.workdps(40):
            exact = mpmath.log(mpmath.mpf(2) ** -40 / mpmath.mpf(fnr))
        assert 0.0 < audited_epsilon(1.0 - 2.0**-40, fnr, 0.0) <= exact


@pytest.mark.parametrize(
    "call",
    [
        lambda: upper_rate(-1, 10, 0.05),
        lambda: upper_rate(11, 10, 0.05),
        lambda: upper_rate(2.5, 10, 0.05),
        lambda: upper_rate(True, 10, 0.05),
        lambda: upper_rate("3", 10, 0.05),
        lambda: upper_rate(3, 0, 0.05),
        lambda: upper_rate(3, 10, 0.0),
        lambda: upper_rate(3, 10, float("nan")),
        lambda: error_level(1.0),
        lambda: gains(-0.1, 0.5, 0.0),
        lambda: gains(0.1, float("nan"), 0.0),
        lambda: gains(0.1, 0.5, -1.0),
    ],
)
def test_what_is_no_count_or_rate_is_refused(call: object) -> None:
    """Counts outside 0..n, fractions, booleans, NaN and rates outside [0, 1] raise InputError."""
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
