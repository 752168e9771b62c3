"""Gaussian limits, against integrals done by another route."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from calipers.errors import ConditionError
from calipers.theorems.lognormal_ratio import (
    gdp_of_pure_dp,
    noisy_sgd_mu,
    positive_part_variance,
    symmetrized_noisy_sgd_mu,
)


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 2.0, 20.0, 1e4])
def test_positive_part_variance_is_the_integral(sigma):
    """E[(L-1)_+^2] over the standard normal density, by quadrature at 40 digits."""
    with mp.workdps(40):
        u = mp.mpf(1) / mp.mpf(sigma)

        def integrand(x):
            return mp.expm1(u * x - u * u / 2) ** 2 * mp.npdf(x)

        exact = mp.quad(integrand, [u / 2 + k for k in (0, 0.5, 1, 2, 3, 5, 8, 12)] + [2 * u + 12, 2 * u + 25])
        assert positive_part_variance(sigma) == pytest.approx(float(exact), rel=1e-15 * max(sigma, 1) * 50)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 3.0])
def test_clt_mu_is_the_limiting_spread_of_the_privacy_loss(sigma):
    """T Var(ln(1 - q + qL)) -> mu^2 when q sqrt(T) = c is fixed; the error is of order q."""
    errors = []
    for steps in (10**6, 10**8):
        rate = 0.5 / math.sqrt(steps)

        def loss(x, rate=rate):
            return mp.log1p(rate * mp.expm1(x / sigma - 1 / (2 * mp.mpf(sigma) ** 2)))

        nodes = [-12, -6, -3, 0, 3, 6, 12]
        mean = mp.quad(lambda x: loss(x) * mp.npdf(x), nodes)
        second = mp.quad(lambda x: loss(x) ** 2 * mp.npdf(x), nodes)
        spread = mp.sqrt(steps * (second - mean**2))
        errors.append(abs(noisy_sgd_mu(rate, steps, sigma) / float(spread) - 1.0))
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < 2e-3


@pytest.mark.parametrize("sigma", [0.2, 0.6, 1.0, 5.0, 20.0])
def test_symmetrizing_costs_between_1_and_sqrt_2(sigma):
    ratio = symmetrized_noisy_sgd_mu(1e-3, 10**6, sigma) / noisy_sgd_mu(1e-3, 10**6, sigma)
    assert 1.0 < ratio < math.sqrt(2.0)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.5, 0.999999, 1.0, 3.0, 30.0, 700.0])
def test_pure_dp_is_gdp_with_all_digits(epsilon):
    """mu = -2 Phi^-1(1/(e^eps+1)) at 400 digits, from small to large epsilon."""
    with mp.workdps(400):
        level = 1 / (mp.exp(mp.mpf(epsilon)) + 1)
        root = mp.findroot(lambda x: mp.log(mp.ncdf(x)) - mp.log(level), -gdp_of_pure_dp(epsilon) / 2)
        assert gdp_of_pure_dp(epsilon) == pytest.approx(float(-2 * root), rel=1e-13)


def test_pure_dp_of_zero_is_perfect_privacy():
    assert gdp_of_pure_dp(0.0) == 0.0


def test_noise_too_small_for_doubles_is_refused():
    with pytest.raises(ConditionError, match="representable"):
        noisy_sgd_mu(0.01, 100, 0.03)
