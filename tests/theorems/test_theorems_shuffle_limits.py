"""Edgeworth map and Gaussian limits of random allocation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.fft
from scipy.special import gammainc, ndtr, ndtri

from calipers.errors import ConditionError
from calipers.theorems.lognormal_ratio import noisy_sgd_mu, symmetrized_noisy_sgd_mu
from calipers.theorems.shuffle_limits import (
    EdgeworthMap,
    edgeworth_point,
    gdp_coefficients,
    ratio_edgeworth_map,
    shuffle_epochs_mu,
    shuffle_limit,
    shuffle_separation_limit,
    shuffle_separation_upper,
)


def ratio_sum_cdf(sigma, rounds, step, length):
    """Points (standardized) and CDF of the mean of lognormal ratios, by FFT of a rounded ratio."""
    edges = (np.arange(length + 1) - 0.5) * step
    with np.errstate(divide="ignore"):
        masses = np.diff(ndtr(sigma * np.log(np.maximum(edges, 0.0)) + 1 / (2 * sigma)))
    drift = float(np.sum(masses * np.arange(length) * step)) - 1.0
    power = scipy.fft.irfft(scipy.fft.rfft(masses) ** rounds, length)
    start = round(rounds / step) - length // 2
    upper_edges = (start + np.arange(length) + 0.5) * step - rounds * drift
    cdf = np.cumsum(power[(start + np.arange(length)) % length])
    return (upper_edges - rounds) / math.sqrt(rounds * math.expm1(sigma**-2)), cdf


def of_moments(n: int, variance: float, third: float, fourth: float) -> EdgeworthMap:
    """Theorem 5.1 for n terms of any law with these central moments."""
    return EdgeworthMap(
        third / (6.0 * variance**1.5 * math.sqrt(n)), (fourth - 3.0 * variance**2) / (24.0 * variance**2 * n)
    )


def test_edgeworth_error_is_smaller_than_one_over_n():
    """Exponential terms, whose sums are exactly Gamma: n sup |F_n - Phi(p_n)| falls, and like 1/sqrt(n)."""
    scaled = []
    for n in (100, 1600, 25600):
        cubic = of_moments(n, 1.0, 2.0, 9.0)
        points = np.linspace(-2.0, 2.0, 41)
        exact = gammainc(n, n + points * math.sqrt(n))
        scaled.append(n * max(abs(float(ndtr(cubic(float(x)))) - f) for x, f in zip(points, exact, strict=True)))
        assert scaled[-1] < 0.05 * n * float(np.max(np.abs(ndtr(points) - exact)))
    assert scaled[1] < 0.35 * scaled[0]
    assert scaled[2] < 0.35 * scaled[1]


def test_edgeworth_map_of_the_likelihood_ratio():
    """sigma = 1.5, n = 3000: Phi(p_n) is 30 times closer to the law by FFT than Phi is."""
    points, cdf = ratio_sum_cdf(1.5, 3000, 0.005, 2**18)
    chosen = np.flatnonzero(np.abs(points) < 2.0)[::500]
    cubic = ratio_edgeworth_map(1.5, 3000)
    refined = max(abs(float(ndtr(cubic(float(points[i])))) - cdf[i]) for i in chosen)
    plain = float(np.max(np.abs(ndtr(points[chosen]) - cdf[chosen])))
    assert refined < plain / 30
    assert edgeworth_point(1.5, 3000, 0.7) == cubic(0.7)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 20.0])
def test_the_two_ways_to_the_coefficients_agree(sigma):
    """From raw moments e^(k(k-1)/(2 sigma^2)) and from the factored form."""
    w = math.expm1(sigma**-2)
    x = 1 + w
    third, fourth = x**3 - 3 * x + 2, x**6 - 4 * x**3 + 6 * x - 3
    by_moments = of_moments(1000, w, third, fourth)
    factored = ratio_edgeworth_map(sigma, 1000)
    assert factored.c == pytest.approx(by_moments.c, rel=1e-7)
    assert factored.d == pytest.approx(by_moments.d, rel=1e-3 if sigma > 10 else 1e-9)


def test_a_map_that_folds_back_is_refused():
    with pytest.raises(ConditionError, match="increasing"):
        edgeworth_point(0.5, 100, 2.0)


def test_slope_is_the_derivative():
    cubic = ratio_edgeworth_map(1.0, 10**4)
    for x in (-1.5, 0.0, 0.8):
        assert cubic.slope(x) == pytest.approx((cubic(x + 1e-6) - cubic(x - 1e-6)) / 2e-6, rel=1e-8)


def test_the_ratio_of_coefficients():
    """Falls from sqrt 2 to 1; midway at sigma = 1.668 (Figure 2)."""
    ratios = [gdp_coefficients(sigma).ratio for sigma in (0.1, 0.3, 0.7, 1.0, 1.668, 3.0, 20.0, 1e4)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] == pytest.approx(math.sqrt(2.0), rel=1e-6)
    assert ratios[4] == pytest.approx((1 + math.sqrt(2.0)) / 2, abs=2e-5)
    assert 1.0 < ratios[-1] < 1.0001


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_shuffling_and_the_poisson_pair_have_the_same_limit(sigma):
    """With E = c^2 M and q = 1/M, q sqrt(T) = c: the gap to Corollary 5.4 is its symmetrizing alone."""
    rounds, epochs = 10**4, 9 * 10**4
    c = math.sqrt(epochs / rounds)
    assert shuffle_epochs_mu(sigma, c) == pytest.approx(noisy_sgd_mu(1 / rounds, rounds * epochs, sigma), rel=1e-12)
    ours = gdp_coefficients(sigma)
    assert c * ours.shuffle == pytest.approx(shuffle_epochs_mu(sigma, c), rel=1e-14)
    dong = symmetrized_noisy_sgd_mu(1 / rounds, rounds * epochs, sigma)
    assert c * ours.symmetrized_poisson == pytest.approx(dong, rel=1e-12)


def test_one_epoch_tends_to_its_gaussian():
    """sigma = 1: f at a = 1/2 by FFT approaches G_mu(1/2) at a rate above 1/M."""
    gaps = []
    for rounds in (500, 8000):
        points, cdf = ratio_sum_cdf(1.0, rounds, 0.01, 2**19)
        ratio = 1 + points * math.sqrt(math.expm1(1.0) / rounds)
        masses = np.diff(cdf, prepend=0.0)
        upper = np.searchsorted(cdf, 0.5)
        missed = float(np.sum((ratio * masses)[: upper + 1]))
        fpr = 1 - float(cdf[upper])
        # mu that G_mu would need to have this error pair.
        fitted = float(ndtri(1 - fpr) - ndtri(missed))
        gaps.append(abs(fitted / shuffle_limit(1.0, rounds).mu - 1))
    assert gaps[1] < 0.4 * gaps[0]
    assert gaps[1] < 0.05


def test_corollary_5_3_orders():
    """Four times the epochs: the limit doubles, the proven bound quadruples (both in their linear range)."""
    limit = [shuffle_separation_limit(1.0, 10**10, epochs) for epochs in (100, 400)]
    proven = [shuffle_separation_upper(1.0, 10**10, epochs) for epochs in (100, 400)]
    assert limit[1] / limit[0] == pytest.approx(2.0, rel=1e-3)
    assert proven[1] / proven[0] == pytest.approx(4.0, rel=0.02)
    assert limit[0] < proven[0]
    with pytest.raises(ConditionError):
        shuffle_separation_upper(1.0, 1000, 1)


def test_zero_growth_is_perfect_privacy_and_the_excess_is_as_printed():
    assert shuffle_epochs_mu(1.0, 0.0) == 0.0
    limit = shuffle_limit(1.0, 1001)
    assert limit.mu == pytest.approx(math.sqrt((math.e - 1) / 1000), rel=1e-14)
    assert limit.upper_side_excess == pytest.approx(math.e**2 / math.sqrt(8 * math.pi * math.e) / 1000, rel=1e-14)
