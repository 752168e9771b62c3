"""From separation to epsilon, Table 10, and the inequalities of Appendix F."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import ConditionError
from calipers.theorems.separation import (
    dp_separation,
    epsilon_from_separation,
    gdp_separation,
    gdp_separation_lower,
    noise_threshold,
    poisson_limit_mu,
    poisson_limit_separation,
    poisson_separation_lower,
    scaled_noise_mu_lower,
    scaled_noise_separation_lower,
    shuffle_separation_lower,
)

# M: kappa shuffled, epsilon, kappa Poisson, epsilon, to four digits, and as Table 10 prints them.
TABLE_10 = {
    1_000: (0.3156, 0.960, 0.1995, 0.580, "0.316 0.96 0.200 0.58"),
    3_000: (0.3183, 0.970, 0.2012, 0.585, "0.318 0.97 0.201 0.59"),
    10_000: (0.3207, 0.978, 0.2027, 0.590, "0.321 0.98 0.203 0.59"),
    30_000: (0.3225, 0.985, 0.2039, 0.593, "0.322 0.98 0.204 0.59"),
    100_000: (0.3242, 0.991, 0.2049, 0.597, "0.324 0.99 0.205 0.60"),
    300_000: (0.3255, 0.995, 0.2057, 0.599, "0.325 1.00 0.206 0.60"),
    1_000_000: (0.3267, 1.000, 0.2065, 0.602, "0.327 1.00 0.207 0.60"),
    3_000_000: (0.3277, 1.003, 0.2072, 0.604, "0.328 1.00 0.207 0.60"),
    5_000_000: (0.3282, 1.005, 0.2074, 0.604, "0.328 1.01 0.207 0.60"),
}


@pytest.mark.parametrize("rounds", list(TABLE_10))
def test_table_10(rounds):
    shuffled = shuffle_separation_lower(noise_threshold(rounds), rounds)
    poisson = poisson_separation_lower(noise_threshold(rounds), rounds)
    row = (shuffled, epsilon_from_separation(shuffled, 1e-8), poisson, epsilon_from_separation(poisson, 1e-8))
    assert row == pytest.approx(TABLE_10[rounds][:4], abs=6e-4)
    assert f"{row[0]:.3f} {row[1]:.2f} {row[2]:.3f} {row[3]:.2f}" == TABLE_10[rounds][4]


@pytest.mark.parametrize("mu", [1e-6, 0.3, 1.0, 5.0, 20.0])
def test_lemma_e1_is_the_widest_point_of_the_gaussian_curve(mu):
    """max over thresholds of Phi(t) - Phi(t - mu), scanned; the fixed point attains it."""
    with mp.workdps(30):
        scan = max(mp.ncdf(mp.mpf(mu) / 2 + k / 50.0) - mp.ncdf(-mp.mpf(mu) / 2 + k / 50.0) for k in range(-100, 101))
        assert gdp_separation(mu) == pytest.approx(float(scan / mp.sqrt(2)), rel=1e-12)


@given(st.floats(0.0, 8.0), st.floats(0.0, 1.0))
def test_lemma_e2_is_the_widest_point_of_the_dp_curve(epsilon, delta):
    """Scan of max{0, 1 - delta - e^eps a, e^-eps (1 - delta - a)} over 20,001 points and its kink."""
    kink = (1 - delta) / (1 + math.exp(epsilon))
    a = np.append(np.linspace(0, 1, 20001), kink)
    curve = np.maximum(0, np.maximum(1 - delta - math.exp(epsilon) * a, math.exp(-epsilon) * (1 - delta - a)))
    assert dp_separation(epsilon, delta) == pytest.approx(float(np.max(1 - a - curve)) / math.sqrt(2), abs=1e-12)


@given(st.floats(0.0, 0.7), st.floats(0.0, 1.0))
def test_lemma_e3_is_the_smallest_epsilon(separation, delta):
    """At the value (eps, delta)-DP allows the separation; 1e-6 below it does not."""
    epsilon = epsilon_from_separation(separation, delta)
    assert dp_separation(epsilon, delta) >= separation * (1 - 1e-12)
    if epsilon > 1e-3 and delta < 0.99:
        assert dp_separation(epsilon - 1e-6, delta) < separation


def test_lemma_e3_as_printed():
    with mp.workdps(30):
        kappa, delta = mp.mpf("0.3"), mp.mpf("1e-8")
        exact = mp.log((1 + kappa * mp.sqrt(2) - 2 * delta) / (1 - kappa * mp.sqrt(2)))
    assert epsilon_from_separation(0.3, 1e-8) == pytest.approx(float(exact), rel=1e-14)
    assert epsilon_from_separation(0.1, 0.9) == 0.0
    assert dp_separation(800.0, 0.5) == pytest.approx(1 / math.sqrt(2), rel=1e-15)


def test_equation_46_as_printed():
    with mp.workdps(40):
        s = 1 / mp.mpf("0.9")
        inside = mp.exp(s**2) * mp.ncdf(1.5 * s) + 3 * mp.ncdf(-s / 2) - 2
        exact = mp.sqrt(2) * mp.sqrt(mp.mpf(7) / 500) * mp.sqrt(inside)
        assert poisson_limit_mu(500, 7, 0.9) == pytest.approx(float(exact), rel=1e-13)
        separation = (2 * mp.ncdf(exact / 2) - 1) / mp.sqrt(2)
        assert poisson_limit_separation(500, 7, 0.9) == pytest.approx(float(separation), rel=1e-13)


@given(st.floats(0.01, 60.0))
def test_equation_48_is_below_lemma_e1(mu):
    assert gdp_separation_lower(mu) <= gdp_separation(mu)


def test_equation_48_changes_sign_where_the_note_says():
    assert gdp_separation_lower(1.29) < 0 < gdp_separation_lower(1.30)


@given(st.integers(2, 10**10), st.floats(0.1, 2.0))
def test_equations_51_and_52_are_below_what_they_bound(rounds, s):
    """(51) <= (46) and (52) <= (47) at sigma = s/sqrt(ln M), where their conditions hold; refused elsewhere."""
    sigma = s / math.sqrt(math.log(rounds))
    power = rounds ** (1 / s**2) if math.log(rounds) / s**2 < 700 else math.inf
    for function, truth, least in (
        (scaled_noise_mu_lower, poisson_limit_mu, 4.0),
        (scaled_noise_separation_lower, poisson_limit_separation, 8.0),
    ):
        if power < least * (1 - 1e-9):
            with pytest.raises(ConditionError, match="rounds"):
                function(rounds, s)
        elif power > least * (1 + 1e-9) and sigma > 0.04:
            assert function(rounds, s) <= truth(rounds, 1, sigma) * (1 + 1e-12)


def test_equation_52_as_printed():
    with mp.workdps(40):
        rounds, s = 1000, mp.mpf("0.8")
        mu = mp.mpf(rounds) ** (1 / (2 * s**2) - mp.mpf(1) / 2) / mp.sqrt(2)
        exact = 1 / mp.sqrt(2) - 2 / mp.sqrt(mp.pi) * mp.exp(-(mp.mpf(rounds) ** (1 / s**2 - 1)) / 16) / mu
        assert scaled_noise_separation_lower(1000, 0.8) == pytest.approx(float(exact), rel=1e-13)
        root = mp.sqrt((mp.mpf(rounds) ** (1 / s**2) - 4) / rounds)
        assert scaled_noise_mu_lower(1000, 0.8) == pytest.approx(float(root), rel=1e-13)


def test_equation_52_far_out_saturates_from_below():
    """s = 0.05, M = 1e10: mu has 2,000 digits; the bound is 1/sqrt 2 to the last one and not above it."""
    assert scaled_noise_separation_lower(10**10, 0.05) <= 1 / math.sqrt(2)
    assert scaled_noise_separation_lower(10**10, 0.05) == pytest.approx(1 / math.sqrt(2), rel=1e-15)
