"""Closed forms for datasets that the length of the noise tells apart: tests are tests, moments are bounds.

Exact values: chi-square integrals in mpmath (`oracles.division.scale_delta`), contour integrals of isotropic pairs, and
integration over the lengths of divided noise.
"""

from __future__ import annotations

import math

import pytest
from oracles import contour, division

from calipers.pld.division.length_tests import (
    Rounds,
    delta_shown,
    deviations,
    epsilon_by_moments,
    epsilon_shown,
    scale_tests,
)


@pytest.mark.parametrize(("degrees", "divisor"), [(1, 1), (10, 3), (400, 5), (100_000, 20)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_a_length_shows_no_more_than_the_best_test(degrees: int, divisor: int, delta: float) -> None:
    """At the epsilon shown the exact delta is at least the one asked for; half as far again it is not."""
    shown, way = epsilon_shown(list(scale_tests(degrees, divisor, delta)), delta)
    order = "QP" if way else "PQ"
    assert division.scale_delta(degrees, divisor, shown, order) >= delta
    if shown > 0.5:
        assert max(division.scale_delta(degrees, divisor, 1.5 * shown, order) for order in division.ORDERS) < delta


@pytest.mark.parametrize(("degrees", "divisor"), [(4, 2), (400, 5)])
def test_total_variation_of_lengths(degrees: int, divisor: int) -> None:
    """power - alpha is at most the exact total variation, and at least three quarters of it."""
    shown, _ = delta_shown(list(scale_tests(degrees, divisor, 1e-3)), 0.0)
    exact = float(division.scale_delta(degrees, divisor, 0.0, "PQ"))
    assert 0.75 * exact <= shown <= exact


def test_huge_dimensions_cost_nothing() -> None:
    """10^13 coordinates, K = 4: an epsilon of the order of d/2 (1/s^2 - 1 - log 1/s^2), from below and above."""
    degrees, divisor = 10**13, 4
    growth = (2.0 * divisor + 1.0) / divisor**2
    order = 0.5 * degrees * (growth - math.log1p(growth))
    low, _ = epsilon_shown(list(scale_tests(degrees, divisor, 1e-5)), 1e-5)
    high = epsilon_by_moments([Rounds(1, degrees, 1.0, divisor)], 1e-5)
    assert 0.9 * order <= low <= high <= 1.1 * order


@pytest.mark.parametrize(("rounds", "dimension", "divisor", "mean"), [(20, 20, 9, 0.3), (200, 50, 30, 0.1)])
def test_one_moment_bounds_isotropic_gaussians(rounds: int, dimension: int, divisor: int, mean: float) -> None:
    """At the epsilon of the best moment the exact delta of the worse order is at most 1e-5; at half of it it is not."""
    pair = division.isotropic(dimension, divisor, mean)
    bound = epsilon_by_moments([Rounds(rounds, dimension, mean, divisor)], 1e-5)
    assert contour.delta(pair, rounds, bound, "QP") <= 1e-5
    assert contour.delta(pair, rounds, 0.5 * bound, "QP") > 1e-5


def test_membership_that_is_told_with_probability_q_mixes_moments() -> None:
    """A plain Poisson round: log(1 - q + q e^(t (t-1)/(2 sigma^2)))."""
    found = Rounds(3, 1, 0.5, probability=0.2).log_moment(2.0)
    assert found == pytest.approx(3.0 * math.log(0.8 + 0.2 * math.exp(0.25)), rel=1e-9)


def test_deviations_are_of_the_length() -> None:
    """log |x|^2 of d coordinates has deviation sqrt(2/d); over K and K + 1 it differs by 2 log(1 + 1/K)."""
    assert deviations(200, 9) == pytest.approx(10.0 * 2.0 * math.log(10.0 / 9.0))
