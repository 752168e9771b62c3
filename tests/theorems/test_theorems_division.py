"""Guarantees for a divided sum: against simulated mechanisms, closed forms and published-setting values."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import ConditionError, InputError
from calipers.theorems import division_pairs
from calipers.theorems.division_ceilings import batch_ceiling, expected_ceiling
from calipers.theorems.division_guarantees import (
    audited_delta,
    audited_epsilon,
    batch_delta,
    batch_pair_fnr,
    expected_delta,
    expected_pair_fnr,
    floor_delta,
    floor_divisors,
    floor_fnr,
    floor_pair_fnr,
    private_fnr,
)
from calipers.theorems.division_pairs import scale_fnr, shifted_scale_fnr

ALPHAS = (0.02, 0.3, 0.7)


def oracle_line_fnr(alpha, shift, scale):
    """T(N(0,1), N(m, s^2)) in 40 digits: an interval around m/(1 - s^2) of probability alpha under N(0,1)."""
    m, s = mp.mpf(shift), mp.mpf(scale)
    z = m / (1 - s * s)

    def hit(h):
        return mp.ncdf(z + h) - mp.ncdf(z - h)

    low, high = mp.mpf(0), z + 40
    for _ in range(130):
        middle = (low + high) / 2
        low, high = (middle, high) if hit(middle) < alpha else (low, middle)
    return mp.ncdf((z - low - m) / s) + mp.ncdf(-(z + low - m) / s)


@pytest.mark.parametrize("scale", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("shift", [0.0, 0.05, 1.0, 3.0])
def test_the_one_dimensional_curve_is_exact_and_on_the_claimed_side(scale, shift):
    """Theorem 3.4's curve, from below and within 1e-10."""
    with mp.workdps(40):
        for alpha in (1e-5, *ALPHAS):
            truth = oracle_line_fnr(alpha, shift, scale)
            value = shifted_scale_fnr(alpha, shift, scale)
            assert value <= truth
            assert value >= truth - mp.mpf(10) ** -10


@given(st.floats(0.001, 0.999), st.floats(0.0, 4.0), st.floats(0.0, 1.0), st.floats(0.05, 0.999))
def test_a_larger_shift_or_a_smaller_scale_lowers_the_curve(alpha, shift, share, scale):
    """Theorems 3.4 and 3.5 as statements about two curves."""
    assert shifted_scale_fnr(alpha, shift, scale) <= shifted_scale_fnr(alpha, share * shift, scale) + 3e-11
    wider = scale + share * (1.0 - scale) * 0.999
    assert scale_fnr(alpha, scale) <= scale_fnr(alpha, wider)
    assert scale_fnr(alpha, scale) == pytest.approx(shifted_scale_fnr(alpha, 0.0, scale), abs=1e-9)


def simulate(kind, alignment, present, rng, trials=60_000):
    """log-likelihood ratios of D' against D given batch and bit, from outputs of the mechanism itself.

    Three records besides the new one, three coordinates, q = 0.6, sigma = 1.5; the densities are those of the
    mechanism's definition, nothing rotated or rescaled.
    """
    size, rate, sigma, dimension = 3, 0.6, 1.5, 3
    new = np.array([2.0, -1.0, 2.0]) / 3.0
    k = rng.binomial(size, rate, trials)
    bit = rng.random(trials) < rate
    total = alignment * k[:, None] * new
    joined = total + bit[:, None] * new
    if kind == "expected":
        divisor, other = np.full(trials, size * rate), np.full(trials, (size + 1) * rate)
    elif kind == "floor":
        divisor, other = np.full(trials, 1.0), np.full(trials, 2.0)
    else:
        divisor, other = np.maximum(k, 1.0), np.maximum(k + bit, 1.0)
    noise = sigma * rng.standard_normal((trials, dimension))
    output = (joined + noise) / other[:, None] if present else (total + noise) / divisor[:, None]

    def log_density(mean, scale):
        return -dimension * np.log(scale) - np.square(output - mean).sum(axis=1) / (2.0 * scale**2)

    return log_density(joined / other[:, None], sigma / other) - log_density(total / divisor[:, None], sigma / divisor)


@pytest.mark.parametrize("kind", ["expected", "floor", "batch"])
@pytest.mark.parametrize("alignment", [-1.0, 0.4])
def test_the_guarantee_is_the_best_test_of_the_transparent_mechanism(kind, alignment):
    """Simulated error rates of the likelihood ratio test lie on the curve; no test lies below it."""
    rng = np.random.default_rng(5)
    absent, present = (simulate(kind, alignment, present, rng) for present in (False, True))
    curve = {"expected": expected_pair_fnr, "floor": floor_pair_fnr, "batch": batch_pair_fnr}[kind]
    for tau in (-0.4, 0.05, 0.7):
        alpha, beta = float((absent > tau).mean()), float((present <= tau).mean())
        value = curve(alpha, 3, 3, 0.6, 1.5, alignment)
        error = 5.0 * (1.0 + math.exp(tau)) * 0.5 / math.sqrt(absent.size)
        assert abs(value - beta) < error, (tau, alpha, beta, value)


def test_settings_of_the_paper():
    """Values found by convolving the scale law with one-dimensional laws, another route than balls."""
    assert expected_delta(0.171063, 26010, 59999, 0.005, 10.0) == pytest.approx(1e-5, rel=3e-5)
    assert batch_delta(0.0, 100, 4, 0.7, 10.0) == pytest.approx(0.662136, abs=1e-6)


def test_full_batches_make_both_divisions_the_same_mechanism():
    """At q = 1 the batch is the dataset: Theorems 3.6 and 3.7 reveal the same pair with different shifts allowed."""
    for alpha in ALPHAS:
        same = expected_pair_fnr(alpha, 40, 5, 1.0, 4.0, -0.3)
        assert same == pytest.approx(batch_pair_fnr(alpha, 40, 5, 1.0, 4.0, -0.3), abs=1e-9)
        assert same == pytest.approx(floor_pair_fnr(alpha, 40, 5, 1.0, 4.0, -0.3), abs=1e-9)


@pytest.mark.parametrize("size", [3, 40])
def test_guarantees_lie_below_their_ceilings_and_opposed_gradients_are_worst(size):
    for alpha in ALPHAS:
        worst = expected_pair_fnr(alpha, 60, size, 0.6, 5.0, -1.0)
        assert worst <= expected_pair_fnr(alpha, 60, size, 0.6, 5.0, 0.5)
        assert expected_pair_fnr(alpha, 60, size, 0.6, 5.0, 0.5) <= expected_ceiling(alpha, 60, size, 1)
        assert batch_pair_fnr(alpha, 60, size, 0.6, 5.0, -1.0) <= batch_pair_fnr(alpha, 60, size, 0.6, 5.0, 0.5) + 1e-9
        assert batch_pair_fnr(alpha, 60, size, 0.6, 5.0, 0.5) <= batch_ceiling(alpha, 60, size, 0.6)


def test_profile_and_curve_are_conjugate():
    """1 - delta(eps) - e^eps alpha touches the curve from below, in both orders."""
    run = (30, 5, 0.5, 6.0)
    for epsilon in (0.0, 0.3):
        delta = expected_delta(epsilon, *run)
        alphas = np.linspace(0.04, 0.96, 12)
        values = np.array([expected_pair_fnr(float(alpha), *run, -1.0) for alpha in alphas])
        assert np.all(values >= 1.0 - delta - math.exp(epsilon) * alphas - 1e-10)
        assert np.all(alphas >= 1.0 - delta - math.exp(epsilon) * values - 1e-10)
        gap = min((values + math.exp(epsilon) * alphas).min(), (alphas + math.exp(epsilon) * values).min())
        assert gap - (1.0 - delta) < 0.02


def test_equal_floors_give_the_guarantee_of_the_undivided_sum():
    """N = 8, q = 0.25: floor(2) = floor(2.25) = 2."""
    with mp.workdps(30):
        for alpha in ALPHAS:
            quantile = mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(alpha))
            truth = mp.mpf("0.25") * mp.ncdf(quantile - mp.mpf(1) / 3) + mp.mpf("0.75") * (1 - mp.mpf(alpha))
            value = floor_fnr(alpha, 500, 8, 0.25, 3.0)
            assert truth - mp.mpf(10) ** -10 < value <= truth
    epsilon, alphas = 0.2, np.linspace(1e-4, 1.0 - 1e-4, 4001)
    curve = np.array([floor_fnr(float(alpha), 500, 8, 0.25, 3.0) for alpha in alphas])
    lowest = float((curve + math.exp(epsilon) * alphas).min())
    assert floor_delta(epsilon, 500, 8, 0.25, 3.0) == pytest.approx(1.0 - lowest, abs=1e-6)


def test_unequal_floors_give_equation_17():
    """N = 7, q = 0.25: floor(1.75) = 1, floor(2) = 2; the sum of N = 1 opposed records is not enough to mimic it."""
    assert floor_divisors(7, 0.25) == (1, 2)
    assert floor_fnr(0.1, 50, 7, 0.25, 3.0) == floor_pair_fnr(0.1, 50, 7, 0.25, 3.0, -1.0)
    assert floor_delta(0.1, 50, 7, 0.25, 3.0) > floor_delta(0.1, 50, 8, 0.25, 3.0)


def test_conditions_on_the_floor_are_refused():
    with pytest.raises(ConditionError, match=r"wang-thm-a\.3"):
        floor_pair_fnr(0.1, 50, 8, 0.25, 3.0, 0.0)
    with pytest.raises(ConditionError, match="divided by 0"):
        floor_fnr(0.1, 50, 3, 0.25, 3.0)
    with pytest.raises(InputError, match="alignment"):
        expected_pair_fnr(0.1, 50, 3, 0.25, 3.0, 1.5)


def test_ends_of_the_curve():
    assert expected_pair_fnr(0.0, 50, 3, 0.5, 3.0, -1.0) == pytest.approx(1.0)
    assert expected_pair_fnr(1.0, 50, 3, 0.5, 3.0, -1.0) == 0.0
    assert shifted_scale_fnr(1.0, 1.0, 0.5) == 0.0
    assert scale_fnr(0.0, 0.5) == pytest.approx(1.0)


@given(st.floats(0.0, 1.0), st.floats(0.0, 5.0), st.floats(0.0, 0.5))
def test_the_curve_of_epsilon_and_delta_is_the_lowest_that_obeys_both_inequalities(alpha, epsilon, delta):
    """Equation (1), and Equations (2) and (3) as its inverses."""
    beta = private_fnr(alpha, epsilon, delta)
    exact = max(0.0, 1.0 - delta - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1.0 - delta - alpha))
    assert beta <= exact <= beta + 1e-12
    if alpha > 1e-6 and beta > 1e-6:
        assert audited_epsilon(alpha, beta, delta) == pytest.approx(epsilon, abs=1e-7)
        assert audited_delta(alpha, beta, epsilon) == pytest.approx(delta, abs=1e-9)


def test_audited_numbers():
    """Equations (2) and (3) by hand: rates 0.1 and 0.2, delta 0.05 and epsilon log 2."""
    assert audited_epsilon(0.1, 0.2, 0.05) == pytest.approx(math.log(0.75 / 0.1), rel=1e-13)
    assert audited_epsilon(0.1, 0.2, 0.05) <= math.log(0.75 / 0.1)
    assert audited_delta(0.1, 0.2, math.log(2.0)) == pytest.approx(0.6, rel=1e-13)
    assert audited_epsilon(0.6, 0.6, 0.0) == 0.0
    assert audited_delta(0.6, 0.6, 0.0) == 0.0


@pytest.mark.parametrize("alignment", [-1.0, 0.5])
def test_a_threshold_found_on_some_sizes_serves_all_of_them(alignment, monkeypatch):
    """A large dataset has 100,000 sizes of a batch: the search looks at some, the curve at the threshold at all."""
    asked = 1e-3, 50, 400, 0.3, 1.5, alignment
    every = expected_pair_fnr(*asked)
    points, bounds = [], division_pairs.log_noncentral_bounds_at
    monkeypatch.setattr(division_pairs, "_MOST_SEARCHED", 60)
    monkeypatch.setattr(
        division_pairs, "log_noncentral_bounds_at", lambda *given: points.append(given[0].size) or bounds(*given)
    )
    assert expected_pair_fnr(*asked) == pytest.approx(every, abs=1e-9)
    assert sum(size > 60 for size in points) == 2  # one tail of each dataset, once
