"""Deterministic and shuffled batches: published numbers, independent routes, directions."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from calipers.errors import CertificationError
from calipers.theorems.samplers_gap import (
    deterministic_delta,
    deterministic_epsilon,
    shuffle_delta_lower,
    shuffle_delta_upper,
    shuffle_epsilon_lower,
    shuffle_event_value,
)

SETTINGS = [(0.0, 0.5, 2), (0.5, 0.3, 10), (1.0, 0.8, 1000), (4.0, 0.4, 10**4), (0.1, 5.0, 10), (2.0, 20.0, 10**10)]


def exact_event(epsilon, sigma, rounds, threshold):
    """P_S(E_C) - e^eps Q_S(E_C) at 250 digits, as the paper writes it."""
    with mp.workdps(250):
        c, s = mp.mpf(threshold), mp.mpf(sigma)
        quiet = mp.ncdf(c / s) ** (rounds - 1)
        present = 1 - mp.ncdf((c - 2) / s) * quiet
        zeroed = 1 - mp.ncdf((c - 1) / s) * quiet
        return present - mp.exp(epsilon) * zeroed


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.0, 1.0), (4.0, 0.4), (12.0, 0.5), (1.0, 20.0), (30.0, 0.2)])
def test_proposition_3_1_at_50_digits(epsilon, sigma):
    with mp.workdps(50):
        e, s = mp.mpf(epsilon), mp.mpf(sigma)
        exact = mp.ncdf(-s * e + 1 / (2 * s)) - mp.exp(e) * mp.ncdf(-s * e - 1 / (2 * s))
        assert deterministic_delta(epsilon, sigma) == pytest.approx(float(exact), rel=1e-12)


def test_published_epsilons():
    """Figures 1, 4 and 5 and their text: the numbers the paper's formulas give."""
    assert deterministic_epsilon(1e-6, 0.5) == pytest.approx(10.99715, abs=1e-5)
    assert deterministic_epsilon(1e-5, 0.7) == pytest.approx(6.65249, abs=1e-5)
    assert shuffle_epsilon_lower(1e-6, 0.5, 10**4) == pytest.approx(10.99478, abs=2e-5)
    assert shuffle_epsilon_lower(1e-6, 1.3, 10**4) == pytest.approx(0.26236, abs=1e-5)
    assert shuffle_epsilon_lower(1e-6, 0.4, 10**5) == pytest.approx(14.4506, abs=2e-4)
    assert shuffle_epsilon_lower(1e-6, 1.3, 10**5) == pytest.approx(0.029776, abs=2e-6)
    assert shuffle_epsilon_lower(1e-5, 0.7, 1000) == pytest.approx(6.5286, abs=1e-4)
    assert shuffle_epsilon_lower(1e-5, 1.3, 1000) == pytest.approx(0.83343, abs=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "sigma", "rounds", "published"),
    [
        (4.0, 0.4, 10**4, 0.22605),
        (12.0, 0.4, 10**4, 7.473e-5),
        (1.0, 0.8, 1000, 0.017944),
        (4.0, 0.8, 1000, 1.5956e-4),
        (4.0, 1.0, 1000, 4.380e-7),
    ],
)
def test_published_deltas_are_reached_by_the_grid_and_not_missed_by_the_search(epsilon, sigma, rounds, published):
    """The paper's grid (steps of 0.01) at 60 digits gives the published value; the search is at most 0.03 % above."""
    found = shuffle_delta_lower(epsilon, sigma, rounds)
    nearest = round(found.threshold, 2)
    grid = max(float(exact_event(epsilon, sigma, rounds, nearest + k / 100)) for k in (-1, 0, 1))
    assert grid == pytest.approx(published, rel=2e-4)
    assert grid * (1 - 1e-11) <= found.delta <= grid * 1.0003


def test_the_published_value_that_the_formula_does_not_give():
    """sigma = 1, T = 1000, epsilon = 1: the paper prints 0.004; no threshold gives more than a quarter of it."""
    grid = [float(exact_event(1.0, 1.0, 1000, k / 100)) for k in range(0, 1000, 2)]
    assert max(grid) < 0.001
    assert shuffle_delta_lower(1.0, 1.0, 1000).delta == pytest.approx(0.000998744, rel=1e-5)


@pytest.mark.parametrize(("epsilon", "sigma", "rounds"), SETTINGS)
def test_the_bound_is_below_its_event_and_the_event_below_deterministic(epsilon, sigma, rounds):
    """lower <= exact value of the event <= delta_D <= upper, each without tolerance."""
    for bound in (
        shuffle_delta_lower(epsilon, sigma, rounds),
        shuffle_delta_lower(epsilon, sigma, rounds, zeroed=True),
    ):
        assert bound.delta >= 0.0
        assert bound.delta <= shuffle_delta_upper(epsilon, sigma, rounds)
    found = shuffle_delta_lower(epsilon, sigma, rounds)
    if math.isfinite(found.threshold):
        exact = exact_event(epsilon, sigma, rounds, found.threshold)
        assert found.delta <= exact
        assert found.delta >= exact * (1 - mp.mpf("1e-6"))
        assert shuffle_event_value(epsilon, sigma, rounds, found.threshold) == found.delta


@pytest.mark.parametrize("threshold", [-3.0, 0.0, 1.0, 2.5, 8.0])
def test_every_event_is_rounded_down(threshold):
    for epsilon, sigma, rounds in SETTINGS:
        assert shuffle_event_value(epsilon, sigma, rounds, threshold) <= exact_event(epsilon, sigma, rounds, threshold)


def test_the_pair_itself_by_simulation():
    """1e6 draws of both mixtures, T = 5: the event's value is their difference within 5 standard errors."""
    rng = np.random.default_rng(1)
    sigma, rounds, draws, epsilon, threshold = 0.9, 5, 10**6, 0.3, 2.2
    hits = []
    for shift in (2.0, 1.0):
        noise = sigma * rng.standard_normal((draws, rounds))
        noise[np.arange(draws), rng.integers(rounds, size=draws)] += shift
        hits.append(np.mean(noise.max(axis=1) >= threshold))
    estimate = hits[0] - math.exp(epsilon) * hits[1]
    error = math.sqrt((hits[0] * (1 - hits[0]) + math.exp(2 * epsilon) * hits[1] * (1 - hits[1])) / draws)
    assert abs(shuffle_event_value(epsilon, sigma, rounds, threshold) - estimate) < 5 * error


def test_the_other_direction_is_the_complement():
    """Q(not E) - e^eps P(not E) at 60 digits; it wins for few batches and much noise, ties at epsilon = 0."""
    found = shuffle_delta_lower(0.1, 5.0, 10, zeroed=True)
    with mp.workdps(60):
        c = mp.mpf(found.threshold)
        quiet = mp.ncdf(c / 5) ** 9
        exact = quiet * (mp.ncdf((c - 1) / 5) - mp.exp(mp.mpf(0.1)) * mp.ncdf((c - 2) / 5))
    assert found.delta <= exact
    assert found.delta == pytest.approx(float(exact), rel=1e-10)
    assert found.delta > 1.4 * shuffle_delta_lower(0.1, 5.0, 10).delta
    tie = shuffle_delta_lower(0.0, 2.0, 100, zeroed=True).delta
    assert tie == pytest.approx(shuffle_delta_lower(0.0, 2.0, 100).delta, rel=1e-9)


def test_epsilon_inverts_delta_from_below():
    epsilon = shuffle_epsilon_lower(1e-5, 0.7, 1000)
    assert exact_event(epsilon, 0.7, 1000, shuffle_delta_lower(epsilon, 0.7, 1000).threshold) >= mp.mpf("1e-5")
    assert shuffle_delta_lower(epsilon + 1e-6, 0.7, 1000).delta < 1e-5
    assert shuffle_epsilon_lower(0.9, 2.0, 1000) == 0.0


def test_hopeless_attacks_prove_nothing():
    """Far in the tail, where doubles end, the answer is the empty event and not a rounding error."""
    assert shuffle_delta_lower(800.0, 20.0, 10**10).delta == 0.0
    assert shuffle_delta_lower(5000.0, 1.0, 1000).delta == 0.0
    assert shuffle_delta_upper(5000.0, 1.0, 1000) > 0.0
    with pytest.raises(CertificationError, match="1e-290"):
        shuffle_event_value(1.0, 0.2, 10, 20.0)
