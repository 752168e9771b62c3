"""Separation of shuffled and Poisson epochs: identities at many digits, integrals and draws for the directions."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import ConditionError, InputError
from calipers.theorems.separation import (
    max_test_separation,
    max_test_tradeoff,
    noise_threshold,
    poisson_separation_from_shuffle,
    poisson_separation_lower,
    poisson_tradeoff_upper,
    shuffle_separation_lower,
    shuffle_separation_lower_corrected,
    tractable_point,
)


def two_round_curves(sigma):
    """Ratio and null mass on a grid of the plane, M = 2: shuffled and Poisson (q = 1/2) ratios."""
    x = np.linspace(-9.0, 9.0 + 1 / sigma, 801)
    null = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    ratio = np.exp(x / sigma - 1 / (2 * sigma**2))
    mass = np.outer(null, null)
    shuffled = 0.5 * (ratio[:, None] + ratio[None, :])
    poisson = np.outer(0.5 + 0.5 * ratio, 0.5 + 0.5 * ratio)
    return mass, shuffled, poisson


def best_miss(mass, ratio, fpr):
    """The trade-off curve at fpr by Neyman-Pearson on the grid (accurate to the largest cell, below 1e-4)."""
    order = np.argsort(-ratio, axis=None)
    tail = np.cumsum(mass.ravel()[order])
    power = np.cumsum((mass * ratio).ravel()[order])
    return 1.0 - float(np.interp(fpr, tail, power))


@pytest.mark.parametrize(
    ("fpr", "sigma", "rounds"),
    [(0.3, 0.5, 1), (0.99, 0.4, 2), (1e-12, 0.2, 10**10), (0.05, 0.25, 10**6), (0.5, 20.0, 7), (1 - 1e-9, 1.0, 3)],
)
def test_equation_17_at_60_digits(fpr, sigma, rounds):
    with mp.workdps(60):
        below = (1 - mp.mpf(fpr)) ** (mp.mpf(1) / rounds)
        h = mp.sqrt(2) * mp.erfinv(2 * below - 1)
        exact = mp.ncdf(h - 1 / mp.mpf(sigma)) * (1 - mp.mpf(fpr)) ** (mp.mpf(rounds - 1) / rounds)
        assert max_test_tradeoff(fpr, sigma, rounds) == pytest.approx(float(exact), rel=1e-10)


def test_equation_17_ends():
    assert max_test_tradeoff(0.0, 1.0, 10) == 1.0
    assert max_test_tradeoff(1.0, 1.0, 10) == 0.0


def test_equation_17_by_simulation():
    """4e5 draws, M = 20: the max test's error pair lies on f_sub within 5 standard errors."""
    rng = np.random.default_rng(2)
    sigma, rounds, draws, h = 0.6, 20, 4 * 10**5, 2.4
    quiet = rng.standard_normal((draws, rounds)).max(axis=1)
    shifted = rng.standard_normal((draws, rounds))
    shifted[:, 0] += 1 / sigma
    fpr = float(np.mean(quiet > h))
    miss = float(np.mean(shifted.max(axis=1) < h))
    slope = (max_test_tradeoff(fpr + 1e-4, sigma, rounds) - max_test_tradeoff(fpr - 1e-4, sigma, rounds)) / 2e-4
    error = math.sqrt((miss * (1 - miss) + slope**2 * fpr * (1 - fpr)) / draws)
    assert abs(max_test_tradeoff(fpr, sigma, rounds) - miss) < 5 * error


@pytest.mark.parametrize("sigma", [0.3, 0.8, 2.0])
def test_two_rounds_lie_below_equation_17_and_lemma_6_4(sigma):
    """M = 2 by integration: f_shuf <= f_sub, f_pois <= the mixture, and both separations are above their bounds."""
    mass, shuffled, poisson = two_round_curves(sigma)
    for fpr in (0.02, 0.1, 0.3, 0.7):
        true_shuffle = best_miss(mass, shuffled, fpr)
        assert true_shuffle <= max_test_tradeoff(fpr, sigma, 2) + 2e-4
        mixture = poisson_tradeoff_upper(fpr, min(true_shuffle, 1 - fpr), 0.5, 2)
        assert best_miss(mass, poisson, fpr) <= mixture + 2e-4
    apart = float(np.sum(mass * np.maximum(shuffled - 1, 0))) / math.sqrt(2)
    assert apart >= max_test_separation(sigma, 2) - 1e-6
    assert max_test_separation(sigma, 2) > 0.9 * apart
    poisson_apart = float(np.sum(mass * np.maximum(poisson - 1, 0))) / math.sqrt(2)
    assert poisson_apart >= poisson_separation_from_shuffle(min(apart, 0.7071), 2) - 1e-6


@given(st.floats(0.2, 20.0), st.integers(1, 10**10))
def test_max_test_separation_is_the_best_of_equation_17(sigma, rounds):
    """No point of f_sub is further from the line than the value found, up to the search's 1e-6."""
    best = max_test_separation(sigma, rounds)
    for fpr in (1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.8):
        assert (1 - fpr - max_test_tradeoff(fpr, sigma, rounds)) / math.sqrt(2) <= best * (1 + 1e-6) + 1e-15


@pytest.mark.parametrize("rounds", [*range(2, 60), 100, 1000, 10**4, 10**6, 10**8, 10**10])
def test_theorem_6_1_holds_as_stated(rounds):
    """At the largest admitted sigma the point of Lemma 6.2, at 40 digits, is beyond the bound without its factor."""
    sigma = noise_threshold(rounds)
    with mp.workdps(40):
        below = mp.ncdf(mp.sqrt(2 * mp.log(rounds))) ** rounds
        x = (below - below ** (mp.mpf(rounds - 1) / rounds) / 2) / mp.sqrt(2)
        assert 1 - below <= 1 / mp.sqrt(4 * mp.pi * mp.log(rounds))
        assert x >= shuffle_separation_lower(sigma, rounds)
        point = tractable_point(sigma, rounds)
        assert point.separation == pytest.approx(float(x), rel=1e-12)
        assert point.fpr == pytest.approx(float(1 - below), rel=1e-11)
    assert point.fnr == pytest.approx(max_test_tradeoff(point.fpr, sigma, rounds), rel=1e-11)
    assert shuffle_separation_lower_corrected(sigma, rounds) < shuffle_separation_lower(sigma, rounds)
    assert point.separation <= max_test_separation(sigma, rounds) * (1 + 1e-9)


@given(st.integers(2, 10**10), st.floats(0.01, 1.0))
def test_less_noise_only_separates_more(rounds, fraction):
    """The bound is constant in sigma; the point it comes from moves out as sigma falls."""
    sigma = noise_threshold(rounds)
    assert tractable_point(fraction * sigma, rounds).separation >= shuffle_separation_lower(fraction * sigma, rounds)


def test_noise_thresholds_quoted_in_the_paper():
    """ImageNet 0.24, LAION-5B 0.17, and the sigma columns of Tables 1 and 2 (N = 50,000 and 120,000)."""
    assert round(noise_threshold(5000), 2) == 0.24
    assert round(noise_threshold(23 * 10**6), 2) == 0.17
    cifar = {128: 0.29, 256: 0.31, 512: 0.33, 1024: 0.36, 2048: 0.40, 4096: 0.45}
    assert {batch: round(noise_threshold(50_000 // batch), 2) for batch in cifar} == cifar
    news = {128: 0.27, 256: 0.29, 512: 0.30, 1024: 0.32}
    assert {batch: round(noise_threshold(120_000 // batch), 2) for batch in news} == news


def test_theorem_6_3_is_below_the_exact_transfer():
    """(1 - 1/M)^M < 1/e, so the constant 1 - 1/e is safe."""
    for rounds in (2, 10, 1000, 10**10):
        sigma = noise_threshold(rounds)
        exact = poisson_separation_from_shuffle(shuffle_separation_lower(sigma, rounds), rounds)
        assert poisson_separation_lower(sigma, rounds) <= exact


def test_lemma_6_4_is_the_mixture():
    with mp.workdps(30):
        p = (1 - mp.mpf("0.001")) ** 1000
        exact = p * mp.mpf("0.9") + (1 - p) * mp.mpf("0.4")
    assert poisson_tradeoff_upper(0.1, 0.4, 0.001, 1000) == pytest.approx(float(exact), rel=1e-14)


def test_conditions_are_refused():
    threshold = noise_threshold(1000)
    for function in (shuffle_separation_lower, shuffle_separation_lower_corrected, poisson_separation_lower):
        assert function(threshold, 1000) > 0
        with pytest.raises(ConditionError, match="noise_multiplier <="):
            function(threshold * (1 + 1e-9), 1000)
        with pytest.raises(InputError, match="rounds"):
            function(0.1, 1)
    with pytest.raises(ConditionError, match="at most 1 - fpr"):
        poisson_tradeoff_upper(0.5, 0.6, 0.1, 10)
    with pytest.raises(InputError, match="separation"):
        poisson_separation_from_shuffle(0.75, 10)
