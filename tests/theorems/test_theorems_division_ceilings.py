"""Ceilings above the guarantees: closed forms, mpmath integrals and the published settings."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calipers.errors import ConditionError
from calipers.theorems.division_ceilings import (
    batch_ceiling,
    batch_ceiling_limit,
    batch_ceiling_of_rounds,
    collapse_dimension,
    expected_ceiling,
    floor_ceiling_of_rounds,
)
from calipers.theorems.division_limits import (
    batch_gaussian_ceiling,
    expected_gaussian_ceiling,
    floor_gaussian_ceiling_of_rounds,
    scale_functionals,
    symmetric_composition,
)

GRID = (0.001, 0.01, 0.1, 0.25, 0.5)
OPEN = st.floats(1e-6, 1.0 - 1e-6)


@given(OPEN, st.integers(1, 10**6))
def test_three_coordinates_have_a_power_as_ceiling(alpha, size):
    """Two coordinates without signal: F(t) = 1 - e^(-t/2), so f_bar = (1 - alpha)^((1 + 1/N)^2); bound from above."""
    with mp.workdps(40):
        truth = (1 - mp.mpf(alpha)) ** ((1 + mp.mpf(1) / size) ** 2)
        value = expected_ceiling(alpha, 3, size, 1)
        assert truth <= value <= truth * (1 + mp.mpf(10) ** -10)


@pytest.mark.parametrize("steps", [2, 7])
def test_rounds_multiply_the_degrees(steps):
    """T rounds of three coordinates: 2T degrees, a Poisson sum; solved and evaluated in mpmath."""
    size, alpha = 4, 0.07
    with mp.workdps(40):

        def tail(x):
            return mp.exp(-x) * mp.fsum(x**i / mp.factorial(i) for i in range(steps))

        x = mp.findroot(lambda x: 1 - tail(x) - mp.mpf(alpha), mp.mpf(steps) / 2)
        truth = tail(x * mp.mpf(25) / 16)
        value = expected_ceiling(alpha, 3, size, steps)
        assert truth <= value <= truth * (1 + mp.mpf(10) ** -10)
        # floor(0.5 * 9) = 4 and floor(0.5 * 10) = 5: the same divisors.
        assert floor_ceiling_of_rounds(alpha, 3, 9, 0.5, steps) == value


def test_published_settings():
    """Section 5.4 and Appendix A.4, exact where the paper draws the limit theorem."""
    small = [expected_ceiling(alpha, 26010, 999, 1) for alpha in GRID]
    large = [expected_ceiling(alpha, 1485217, 59999, 1) for alpha in GRID]
    assert small == pytest.approx([0.997909, 0.98212, 0.854091, 0.672446, 0.409721], abs=1e-6)
    assert large == pytest.approx([0.998899, 0.989209, 0.894868, 0.740786, 0.488542], abs=1e-6)
    assert floor_ceiling_of_rounds(0.1, 26010, 140199, 0.005, 200) == pytest.approx(0.000443787, rel=2e-6)
    assert floor_gaussian_ceiling_of_rounds(0.1, 26010, 140199, 0.005, 200).upper == pytest.approx(0.0618, abs=1e-4)


def test_a_simulated_norm_test_attains_the_ceiling():
    rng = np.random.default_rng(3)
    size, dimension, trials = 6, 9, 100_000
    norms = np.square(rng.standard_normal((trials, dimension - 1))).sum(axis=1)
    threshold = 5.0
    alpha = float((norms < threshold).mean())
    beta = float((norms >= threshold * (1.0 + 1.0 / size) ** 2).mean())
    assert abs(expected_ceiling(alpha, dimension, size, 1) - beta) < 5.0 * 2.0 * 0.5 / math.sqrt(trials)


@settings(max_examples=15)
@given(OPEN, st.integers(1, 400), st.integers(1, 300), st.floats(0.01, 1.0), st.integers(0, 50), st.floats(0.0, 1.0))
def test_ceilings_are_monotone(alpha, dimension, size, rate, more, share):
    """Lemmas 3.14, 3.15 and 3.16, up to the outward rounding."""
    slack = 1.0 + 1e-10
    assert expected_ceiling(alpha, dimension, size, 1) <= expected_ceiling(alpha, dimension, size + more, 1) * slack
    assert expected_ceiling(alpha, dimension + more, size, 1) <= expected_ceiling(alpha, dimension, size, 1) * slack
    value = batch_ceiling(alpha, dimension, size, rate)
    assert batch_ceiling(alpha, dimension + more, size, rate) <= value * slack
    assert batch_ceiling(alpha, dimension, size, rate + share * (1.0 - rate)) <= value * slack
    assert batch_ceiling_limit(alpha, size, rate) <= value <= 1.0 - alpha + 1e-12


def test_the_batch_ceiling_is_the_stated_mixture_and_tends_to_its_limit():
    alpha, size, rate = 0.2, 3, 0.4
    share = rate - rate * (1.0 - rate) ** size
    mixed = share * 0.8 ** ((4.0 / 3.0) ** 2) + (1.0 - share) * 0.8
    assert batch_ceiling(alpha, 3, size, rate) == pytest.approx(mixed, rel=1e-12)
    assert batch_ceiling(alpha, 10**6, size, rate) == pytest.approx((1.0 - share) * 0.8, rel=1e-9)
    assert batch_ceiling_limit(alpha, size, rate) <= (1.0 - share) * 0.8


def test_one_coordinate_hides_the_scale():
    """Without a coordinate free of signal there is nothing to test: ID."""
    assert expected_ceiling(0.3, 1, 5, 1) == 0.7
    assert batch_ceiling(0.3, 1, 5, 0.5) == pytest.approx(0.7)


@pytest.mark.parametrize(("alpha", "beta", "size"), [(0.1, 0.5, 999), (0.3, 0.01, 7), (0.2, 0.9, 5)])
def test_the_collapse_dimension_is_the_first_below_the_rate(alpha, beta, size):
    found = collapse_dimension(alpha, beta, size)
    assert expected_ceiling(alpha, found, size, 1) <= beta
    assert found == 1 or expected_ceiling(alpha, found - 1, size, 1) > beta


def test_a_dataset_too_large_to_collapse_is_refused():
    with pytest.raises(ConditionError, match="stays above"):
        collapse_dimension(0.1, 0.5, 10**10)


def test_any_round_rejecting_is_a_test_of_the_composition():
    """Two rounds of three coordinates, simulated: the composed curve lies below the value at its own fpr."""
    alpha, size, rate = 0.15, 2, 0.7
    level = 1.0 - math.sqrt(1.0 - alpha)
    expected = batch_ceiling(level, 3, size, rate) ** 2
    assert batch_ceiling_of_rounds(alpha, 3, size, rate, 2) == pytest.approx(expected, rel=1e-12)
    rng = np.random.default_rng(9)
    trials = 200_000
    share = rate - rate * (1.0 - rate) ** size
    draws = np.square(rng.standard_normal((trials, 2, 2))).sum(axis=2)
    scaled = np.where(rng.random((trials, 2)) < share, draws * (2.0 / 3.0) ** 2, draws)

    def ratio(norms):
        return np.log1p(share * np.expm1(2.0 * math.log(1.5) - norms * 0.625)).sum(axis=1)

    threshold = np.quantile(ratio(draws), 1.0 - alpha)
    best = float((ratio(scaled) <= threshold).mean())
    assert best <= batch_ceiling_of_rounds(alpha, 3, size, rate, 2) + 5.0 * 0.5 / math.sqrt(trials)
    assert batch_ceiling_of_rounds(alpha, 3, size, rate, 1) == pytest.approx(batch_ceiling(alpha, 3, size, rate))


def oracle_functionals(divisor):
    """kl, kappa2, kappa3 of max(f, f^-1) by integrating over alpha, the branch chosen by comparing the two curves."""
    s = mp.mpf(divisor) / (divisor + 1)

    def t_of(x):
        return mp.sqrt(2) * mp.erfinv(x)

    def curve(x):
        return mp.erfc(t_of(x) / s / mp.sqrt(2))

    def inverse(x):
        return mp.erf(s * mp.erfinv(1 - x))

    def log_slope(x):
        forward = -mp.log(s) - (1 - s * s) / (2 * s * s) * t_of(x) ** 2
        if curve(x) >= inverse(x):
            return forward
        point = inverse(x)
        return -(-mp.log(s) - (1 - s * s) / (2 * s * s) * t_of(point) ** 2)

    cross = mp.findroot(lambda x: curve(x) - x, 0.45)
    for x in np.linspace(0.01, 0.99, 49):
        assert (curve(mp.mpf(x)) >= inverse(mp.mpf(x))) == (x <= cross)
    kl = -mp.quad(log_slope, [0, cross, 1])
    kappa2 = mp.quad(lambda x: log_slope(x) ** 2, [0, cross, 1])
    kappa3 = mp.quad(lambda x: abs(log_slope(x) + kl) ** 3, [0, cross / 2, cross, (1 + cross) / 2, 1])
    return kl, kappa2, kappa3


@pytest.mark.parametrize("divisor", [1, 700])
def test_functionals_agree_with_integrals_over_alpha(divisor):
    with mp.workdps(15):
        truth = oracle_functionals(divisor)
    found = scale_functionals(divisor)
    assert [found.kl, found.kappa2, found.kappa3] == pytest.approx([float(v) for v in truth], rel=1e-6)


@pytest.mark.parametrize(("dimension", "size"), [(1001, 4), (26010, 999), (1485217, 59999)])
def test_the_limit_theorem_lies_above_the_exact_ceiling(dimension, size):
    """Theorem 3.13 and Corollary B.2 hold and are not tight."""
    for alpha in (0.1, 0.4):
        assert expected_ceiling(alpha, dimension, size, 1) <= expected_gaussian_ceiling(alpha, dimension, size, 1).upper
        rounds = expected_gaussian_ceiling(alpha, dimension, size, 20)
        assert expected_ceiling(alpha, dimension, size, 20) <= rounds.upper
        assert batch_ceiling(alpha, dimension, size, 0.7) <= batch_gaussian_ceiling(alpha, dimension, size, 0.7)


def test_the_limit_theorem_is_vacuous_below_about_three_coordinates_per_record():
    """At n - 1 = 3 K it allows more than 1 - alpha at every alpha, at 3.6 K less somewhere."""
    size = 5000
    levels = np.linspace(0.05, 0.95, 91)

    def gap(dimension):
        return min(expected_gaussian_ceiling(a, dimension, size, 1).upper - (1.0 - a) for a in levels)

    assert gap(3 * size + 1) > 0.0
    assert gap(int(3.6 * size) + 1) < 0.0
    assert min(expected_gaussian_ceiling(a, 26010, 59999, 1).upper - (1.0 - a) for a in levels) > 0.0


def test_the_limit_theorem_holds_for_gaussian_curves():
    """The log-slopes of G_m are normal: kl = m^2/2, kappa2 = m^2 + m^4/4, kappa3 = m^3 sqrt(8/pi), and mu is exact."""
    m, copies = 0.05, 4000
    found = symmetric_composition(0.3, copies, m**2 / 2, m**2 + m**4 / 4, m**3 * math.sqrt(8.0 / math.pi))
    assert found.mu == pytest.approx(m * math.sqrt(copies), rel=1e-12)
    assert found.gamma == pytest.approx(0.56 * math.sqrt(8.0 / math.pi) / math.sqrt(copies), rel=1e-12)
    with mp.workdps(30):
        truth = float(mp.ncdf(mp.sqrt(2) * mp.erfinv(mp.mpf("0.4")) - m * mp.sqrt(copies)))
    assert found.lower <= truth <= found.upper


def test_conditions_of_the_limit_theorem_are_refused():
    with pytest.raises(ConditionError, match="gamma"):
        expected_gaussian_ceiling(0.001, 26010, 999, 1)
    with pytest.raises(ConditionError, match="at least 2"):
        expected_gaussian_ceiling(0.1, 1, 999, 1)
    with pytest.raises(ConditionError, match="kappa2 must exceed"):
        symmetric_composition(0.1, 10, 1.0, 0.5, 1.0)
    with pytest.raises(ConditionError, match="must exceed floor"):
        floor_ceiling_of_rounds(0.1, 50, 8, 0.25, 1)
    with pytest.raises(ConditionError, match="at most"):
        expected_ceiling(0.1, 10**12, 10, 10**6)
