"""Closed forms for datasets that the length of the noise tells apart: tests are tests.

Exact values: chi-square integrals in mpmath (`oracles.division.scale_delta`).
"""

from __future__ import annotations

import math

import pytest
from oracles import division

from calipers.pld.division.length_tests import delta_shown, deviations, epsilon_shown, scale_tests


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
    """10^13 coordinates, K = 4: an epsilon of the order of d/2 (1/s^2 - 1 - log 1/s^2)."""
    degrees, divisor = 10**13, 4
    growth = (2.0 * divisor + 1.0) / divisor**2
    order = 0.5 * degrees * (growth - math.log1p(growth))
    low, _ = epsilon_shown(list(scale_tests(degrees, divisor, 1e-5)), 1e-5)
    assert 0.9 * order <= low <= 1.1 * order


def test_deviations_are_of_the_length() -> None:
    """log |x|^2 of d coordinates has deviation sqrt(2/d); over K and K + 1 it differs by 2 log(1 + 1/K)."""
    assert deviations(200, 9) == pytest.approx(10.0 * 2.0 * math.log(10.0 / 9.0))
