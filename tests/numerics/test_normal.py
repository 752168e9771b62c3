"""The Gaussian profile and its inverses against mpmath at 60 digits."""

from __future__ import annotations

import math
import random

import mpmath as mp
import numpy as np
import pytest

from calipers.errors import InputError
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_epsilon_bounds,
    gaussian_mu,
    gaussian_power,
    gaussian_tradeoff,
    log_normal_tail_quantile,
    mills_ratio,
    normal_tail,
    normal_tail_quantile,
)

DIGITS = 60


def oracle_tail(x):
    return mp.erfc(x / mp.sqrt(2)) / 2


def oracle_delta(mu, eps):
    mu, eps = mp.mpf(mu), mp.mpf(eps)
    return oracle_tail(eps / mu - mu / 2) - mp.exp(eps) * oracle_tail(eps / mu + mu / 2)


def oracle_quantile(probability):
    """x with oracle_tail(x) = probability, from a rough start by Newton in 60 digits."""
    x = mp.mpf(float(normal_tail_quantile(probability)))
    for _ in range(4):
        x += (oracle_tail(x) - mp.mpf(probability)) / mp.npdf(x)
    return x


def relative_error(value, truth):
    return abs(float((mp.mpf(float(value)) - truth) / truth))


def settings_of_the_profile(count):
    """(mu, eps) with mu in [1e-6, 50], eps in [0, 500], delta from 1e-300 to 1, tails and corners included."""
    rng = random.Random(20250101)
    chosen = [(mu, eps) for mu in (1e-6, 1e-3, 0.3, 1.0, 7.0, 50.0) for eps in (0.0, 1e-9, 1e-4, 0.1, 3.0, 499.0)]
    while len(chosen) < count:
        mu = 10 ** rng.uniform(-6, math.log10(50))
        depth = rng.uniform(-0.5 * mu, 37.0)
        chosen.append((mu, min(max(mu * (depth + 0.5 * mu), 0.0), 500.0)))
    return chosen


def test_the_profile_is_accurate_down_to_1e_minus_300():
    with mp.workdps(DIGITS):
        checked = 0
        for mu, eps in settings_of_the_profile(900):
            truth = oracle_delta(mu, eps)
            if truth > mp.mpf("1e-300"):
                checked += 1
                assert relative_error(gaussian_delta(mu, eps), truth) < 0.1 * GAUSSIAN_RELATIVE_ERROR, (mu, eps)
        assert checked > 700


def test_the_profile_at_negative_eps():
    with mp.workdps(DIGITS):
        for mu, eps in [(1e-6, -1e-7), (0.5, -0.3), (3.0, -20.0), (1.0, -1e-12)]:
            assert relative_error(gaussian_delta(mu, eps), oracle_delta(mu, eps)) < GAUSSIAN_RELATIVE_ERROR


def test_the_largest_epsilon_has_a_delta_of_zero_and_no_warning():
    assert list(gaussian_delta([0.5, 1e-5, 1e5], 1.7e308)) == [0.0, 0.0, 0.0]


def test_mu_and_eps_broadcast_and_zero_mu_is_perfect_privacy():
    table = gaussian_delta(np.array([[0.0], [1.0]]), np.array([0.0, 1.0, -1.0]))
    assert table.shape == (2, 3)
    assert table[0].tolist() == [0.0, 0.0, -math.expm1(-1.0)]
    assert table[1, 0] == pytest.approx(math.erf(0.5 / math.sqrt(2.0)), rel=1e-14)


def test_epsilon_inverts_the_profile():
    """The mpmath profile at the returned eps is delta up to what one ulp of eps can change it."""
    rng = random.Random(7)
    with mp.workdps(DIGITS):
        for _ in range(250):
            mu, delta = 10 ** rng.uniform(-6, math.log10(50)), 10 ** rng.uniform(-300, -0.01)
            eps = gaussian_epsilon(mu, delta)
            if eps == 0.0:
                assert oracle_delta(mu, 0) <= mp.mpf(delta) * (1 + mp.mpf("1e-12"))
                continue
            b = mp.mpf(eps) / mu + mp.mpf(mu) / 2
            slope = mp.exp(eps) * oracle_tail(b)
            error_of_eps = abs(oracle_delta(mu, eps) - mp.mpf(delta)) / slope
            ill_posed = GAUSSIAN_RELATIVE_ERROR * delta / slope
            assert error_of_eps <= max(GAUSSIAN_RELATIVE_ERROR * eps, ill_posed), (mu, delta)


def test_mu_inverts_the_profile():
    rng = random.Random(8)
    with mp.workdps(DIGITS):
        for _ in range(250):
            eps, delta = 10 ** rng.uniform(-8, math.log10(500)), 10 ** rng.uniform(-300, -0.01)
            mu = gaussian_mu(eps, delta)
            density = mp.npdf(mp.mpf(eps) / mu - mp.mpf(mu) / 2)
            assert abs(oracle_delta(mu, eps) - mp.mpf(delta)) / density <= GAUSSIAN_RELATIVE_ERROR * mu, (eps, delta)
        for delta in (1e-300, 1e-9, 0.5, 0.99):
            truth = 2 * oracle_quantile((1 - mp.mpf(delta)) / 2) if delta > 0.1 else None
            mu = gaussian_mu(0.0, delta)
            assert relative_error(mp.erf(mp.mpf(mu) / mp.sqrt(8)), mp.mpf(delta)) < 1e-14
            assert truth is None or relative_error(mu, truth) < 1e-14


def test_mu_of_an_epsilon_next_to_nothing() -> None:
    """epsilon = 5e-324 adds nothing to delta = 1e-300: mu is sqrt(2 pi) delta; its first guess had no digits."""
    assert gaussian_mu(5e-324, 1e-300) == pytest.approx(math.sqrt(2.0 * math.pi) * 1e-300, rel=1e-12)


TABLE_3 = {
    0.1: (0.03, 0.03, 0.02),
    0.5: (0.14, 0.12, 0.09),
    1.0: (0.27, 0.24, 0.18),
    2.0: (0.50, 0.45, 0.35),
    4.0: (0.92, 0.84, 0.67),
    6.0: (1.31, 1.20, 0.97),
    8.0: (1.67, 1.53, 1.26),
    10.0: (2.00, 1.85, 1.54),
}


@pytest.mark.parametrize("eps", TABLE_3)
def test_table_3_of_gomez_et_al_to_the_printed_digits(eps):
    assert tuple(round(gaussian_mu(eps, delta), 2) for delta in (1e-5, 1e-6, 1e-9)) == TABLE_3[eps]


def test_the_curve_is_accurate_when_alpha_or_beta_is_tiny():
    rng = random.Random(9)
    cases = [(10 ** rng.uniform(-6, math.log10(50)), 10 ** rng.uniform(-300, 0)) for _ in range(300)]
    with mp.workdps(DIGITS):
        for mu, alpha in cases:
            x = oracle_quantile(alpha)
            for value, truth in (
                (gaussian_tradeoff(mu, alpha), oracle_tail(mp.mpf(mu) - x)),
                (gaussian_power(mu, alpha), oracle_tail(x - mp.mpf(mu))),
            ):
                if truth > mp.mpf("1e-300"):
                    assert relative_error(value, truth) < GAUSSIAN_RELATIVE_ERROR, (mu, alpha)


def test_a_complement_carries_alpha_next_to_one():
    """G_mu is its own inverse, so alpha = 1 - c must give back a beta with G_mu(beta) = 1 - c."""
    with mp.workdps(DIGITS):
        truth = oracle_tail(mp.mpf(1) + oracle_quantile(1e-40))
        assert relative_error(gaussian_tradeoff(1.0, 1.0, 1e-40), truth) < GAUSSIAN_RELATIVE_ERROR
    assert gaussian_tradeoff(1.0, 1.0) == 0.0


def test_tails_and_quantiles():
    with mp.workdps(DIGITS):
        for x in (-5.0, -0.1, 0.0, 1.0, 8.0, 30.0):
            tail = oracle_tail(mp.mpf(x))
            assert relative_error(normal_tail(x), tail) < 1e-13
            assert relative_error(mills_ratio(x), tail / mp.npdf(x)) < 1e-13
            assert float(log_normal_tail_quantile(float(mp.log(tail)))) == pytest.approx(x, rel=1e-12, abs=1e-12)
        for probability in (1e-300, 1e-100, 1e-10, 0.01, 0.49):
            assert relative_error(normal_tail_quantile(probability), oracle_quantile(probability)) < 1e-14


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian_delta(-1.0, 0.0),
        lambda: gaussian_delta(math.nan, 0.0),
        lambda: gaussian_delta(1.0, math.inf),
        lambda: gaussian_epsilon(1.0, 0.0),
        lambda: gaussian_epsilon(1.0, math.nan),
        lambda: gaussian_mu(-1.0, 0.1),
        lambda: gaussian_mu(1.0, 1.0),
        lambda: gaussian_mu(True, 0.1),
        lambda: gaussian_tradeoff(1.0, 1.5),
        lambda: gaussian_tradeoff(-1.0, 0.5),
    ],
)
def test_values_outside_the_domains_raise(call):
    with pytest.raises(InputError):
        call()


def true_epsilon(mu, delta):
    """The root of delta_mu(eps) = delta on `DIGITS` digits, by bisection."""
    if oracle_delta(mu, 0) <= delta:
        return mp.mpf(0)
    low, high = mp.mpf(0), mp.mpf(1)
    while oracle_delta(mu, high) > delta:
        high *= 2
    for _ in range(180):
        middle = (low + high) / 2
        low, high = (middle, high) if oracle_delta(mu, middle) > delta else (low, middle)
    return (low + high) / 2


def test_epsilon_bounds_hold_where_epsilon_is_next_to_zero():
    """Just below delta_mu(0) one rounding of delta moves epsilon by any factor: the charge has to be made to delta."""
    rng = random.Random(12)
    with mp.workdps(DIGITS):
        cases = [(1.0, 0.38292492254764326), (0.002953077566212935, 0.0011781070703889695)]
        for _ in range(60):
            mu = 10 ** rng.uniform(-4, 1)
            top = float(gaussian_delta(mu, 0.0))
            cases.append((mu, min(top * (1.0 - 10 ** rng.uniform(-15.5, -1)), 1.0 - 1e-16)))
        for mu, delta in cases:
            lower, upper = gaussian_epsilon_bounds(mu, delta)
            truth = true_epsilon(mp.mpf(mu), mp.mpf(delta))
            assert lower <= truth <= upper, (mu, delta)
            # The width is what a change of delta by four parts in 1e12 means, and no more than twice that.
            slope = mp.exp(truth) * oracle_tail(truth / mp.mpf(mu) + mp.mpf(mu) / 2)
            assert upper - lower <= 10 * GAUSSIAN_RELATIVE_ERROR * delta / slope + 1e-14 * truth


def test_epsilon_bounds_cover_an_uncertain_mu():
    """With mu known to 1e-6 the bounds hold for both ends."""
    lower, upper = gaussian_epsilon_bounds(2.0, 1e-9, 1e-6)
    with mp.workdps(DIGITS):
        ends = [true_epsilon(mp.mpf(2) * (1 + sign * mp.mpf("1e-6")), mp.mpf(1e-9)) for sign in (-1, 1)]
    assert lower <= ends[0] < ends[1] <= upper
