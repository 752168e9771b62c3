"""Poisson against deterministic batches: both parts of Theorem 4.2, made explicit."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from calipers.errors import ConditionError, InputError
from calipers.theorems.poisson_halfspace import (
    delta_at_smaller_epsilon,
    halfspace_mass,
    poisson_better_below,
    poisson_halfspace_best,
    poisson_halfspace_delta,
    poisson_halfspace_log_delta,
    poisson_total_variation_upper,
    poisson_worse_beyond,
)
from calipers.theorems.samplers_gap import deterministic_delta

SETTINGS = [(0.3, 10), (0.5, 2), (1.0, 30), (3.0, 4)]


def exact_halfspace(epsilon, sigma, rounds, threshold):
    """P(sum w > C) - e^eps Q(sum w > C) by the binomial sum at 60 digits."""
    with mp.workdps(60):
        spread = mp.mpf(sigma) * mp.sqrt(rounds)
        rate = mp.mpf(1) / rounds
        hit = mp.fsum(
            mp.binomial(rounds, k) * rate**k * (1 - rate) ** (rounds - k) * mp.ncdf((k - mp.mpf(threshold)) / spread)
            for k in range(rounds + 1)
        )
        return hit - mp.exp(epsilon) * mp.ncdf(-mp.mpf(threshold) / spread)


def poisson_delta_two_rounds(epsilon, sigma):
    """D_{e^eps}(A^2 || B^2) by the trapezoidal rule on the density, T = 2."""
    x = np.linspace(-12 * sigma, 12 * sigma + 1, 3001)
    ratio = 0.5 + 0.5 * np.exp((2 * x - 1) / (2 * sigma**2))
    null = np.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) * (x[1] - x[0])
    return float(np.sum(np.maximum(np.outer(ratio, ratio) - math.exp(epsilon), 0.0) * np.outer(null, null)))


@pytest.mark.parametrize(("sigma", "rounds"), SETTINGS)
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 6.0])
def test_the_best_halfspace_is_a_halfspace_and_beats_the_closed_form(sigma, rounds, epsilon):
    found = poisson_halfspace_best(epsilon, sigma, rounds)
    closed = poisson_halfspace_delta(epsilon, sigma, rounds)
    if math.isfinite(found.threshold):
        exact = exact_halfspace(epsilon, sigma, rounds, found.threshold)
        assert found.delta <= exact
        assert found.delta >= exact * (1 - mp.mpf("1e-6"))
    assert found.delta >= closed or closed < 1e-290


def test_the_closed_form_is_below_the_value_of_its_own_event():
    """At the paper's threshold the event gives at least what the closed form claims for it."""
    for sigma, rounds in SETTINGS:
        for epsilon in (0.0, 2.0, 10.0):
            threshold = (epsilon + math.log(2) + rounds * math.log(rounds)) * sigma**2 + rounds / 2
            assert poisson_halfspace_delta(epsilon, sigma, rounds) <= exact_halfspace(epsilon, sigma, rounds, threshold)


@pytest.mark.parametrize("sigma", [0.4, 0.8, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_no_halfspace_exceeds_the_true_divergence(sigma, epsilon):
    """T = 2: the two-dimensional integral (accurate to 1e-6) is above the halfspace and below Proposition C.2."""
    truth = poisson_delta_two_rounds(epsilon, sigma)
    assert poisson_halfspace_best(epsilon, sigma, 2).delta <= truth + 1e-6
    assert truth <= poisson_total_variation_upper(sigma, 2) + 1e-6


def test_part_a_poisson_is_better_below():
    """Below epsilon_0 the integral for Poisson is under delta_D."""
    for sigma in (0.4, 0.8, 2.0):
        edge = poisson_better_below(sigma, 2)
        assert edge > 0.0
        for epsilon in (0.0, 0.5 * edge, 0.99 * edge):
            assert poisson_delta_two_rounds(epsilon, sigma) < deterministic_delta(epsilon, sigma)
        assert poisson_total_variation_upper(sigma, 2) < deterministic_delta(0.0, sigma)


@pytest.mark.parametrize(("sigma", "rounds"), [(0.3, 10), (1.0, 1000), (0.2, 10**6), (20.0, 100)])
def test_part_b_poisson_is_worse_beyond(sigma, rounds):
    """Beyond epsilon_1 the closed form exceeds Phi(-eps sigma + 1/(2 sigma)) >= delta_D; 1 % below it does not."""
    edge = poisson_worse_beyond(sigma, rounds)
    with mp.workdps(30):
        for factor, above in ((1.0, True), (1.5, True), (10.0, True), (0.99, False)):
            epsilon = mp.mpf(edge) * factor
            deterministic = mp.log(mp.ncdf(-epsilon * sigma + mp.mpf(1) / (2 * mp.mpf(sigma))))
            assert (poisson_halfspace_log_delta(float(epsilon), sigma, rounds) > deterministic) is above


def test_the_example_of_the_paper_crosses():
    """sigma = 0.3, T = 10 (Figure 2): Poisson is worse at epsilon = 20 by the halfspace alone."""
    assert poisson_halfspace_best(20.0, 0.3, 10).delta > 5 * deterministic_delta(20.0, 0.3)
    assert poisson_total_variation_upper(0.3, 10) < deterministic_delta(0.0, 0.3)


def test_log_closed_form_at_50_digits():
    with mp.workdps(50):
        sigma, rounds, epsilon = mp.mpf("0.7"), 50, mp.mpf(3)
        root = mp.sqrt(rounds)
        value = mp.ncdf(
            -epsilon * sigma / root - (rounds * mp.log(rounds) + mp.log(2)) * sigma / root - root / (2 * sigma)
        )
        assert poisson_halfspace_log_delta(3.0, 0.7, 50) == pytest.approx(float(mp.log(value / 2)), rel=1e-13)


def test_one_round_is_refused():
    """The theorem needs T > 1: with one round Poisson and deterministic batches coincide."""
    with pytest.raises(InputError, match="rounds"):
        poisson_halfspace_delta(1.0, 1.0, 1)


def test_the_mass_of_a_halfspace_in_three_dimensions():
    """Proposition C.1 against simulation of the Gaussian itself; the halfspace on the other side is refuted."""
    mean, normal, offset, sigma = np.array([0.3, -1.0, 0.5]), np.array([2.0, 1.0, -2.0]), 0.4, 0.7
    runs = 200_000
    draws = mean + sigma * np.random.default_rng(7).standard_normal((runs, 3))
    share = float(np.mean(draws @ normal >= offset))
    value = halfspace_mass(float(mean @ normal) / 3.0, offset / 3.0, sigma)
    assert abs(share - value) < 3.0 / math.sqrt(runs)
    assert abs(share - (1.0 - value)) > 0.1


@pytest.mark.parametrize(("epsilon", "smaller"), [(0.5, 0.4), (1.0, 1.0), (2.0, 1.9), (9.0, 0.0), (0.3, 0.0)])
def test_delta_falls_no_faster_than_the_odds_grow(epsilon, smaller):
    """Proposition C.3 for Gaussians of every noise; the value is delta + e^epsilon - e^smaller up to rounding."""
    for sigma in (0.2, 1.0, 5.0):
        known = deterministic_delta(epsilon, sigma)
        assert deterministic_delta(smaller, sigma) <= delta_at_smaller_epsilon(known, epsilon, smaller)
    if epsilon <= 0.5:
        exact = 0.1 + math.exp(epsilon) - math.exp(smaller)
        assert exact <= delta_at_smaller_epsilon(0.1, epsilon, smaller) <= exact * (1.0 + 1e-13)
    with pytest.raises(ConditionError, match="smaller_epsilon <= epsilon"):
        delta_at_smaller_epsilon(0.1, 0.5, 0.6)
