"""Group privacy: the search for the best breakpoint against all of them, and curves against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.measure import units
from calipers.measure.units import grouped_curve


@pytest.mark.parametrize("size", [1, 2, 5, 37, 400])
@pytest.mark.parametrize("count", [1, 3, 26, 150])
def test_the_largest_gain_is_that_of_all_breakpoints(size: int, count: int) -> None:
    """Every breakpoint against every odds, for concave curves with few and with many breakpoints, and for a line."""
    rng = np.random.default_rng(size + count)
    alpha = np.sort(rng.random(size))
    odds = np.sort(np.exp(rng.uniform(0.0, 8.0, count)))
    for reached in (np.sqrt(alpha), np.minimum(1.0, 20.0 * alpha), alpha, 1.0 - (1.0 - alpha) ** 9):
        expected = np.max(reached[:, None] - odds * alpha[:, None], axis=0)
        assert np.array_equal(units._largest(reached, alpha, odds), expected)


def test_a_single_best_breakpoint_is_not_passed_over() -> None:
    """Where all odds have their best at one breakpoint, and where it is the last one of its range."""
    alpha, reached = np.array([0.0, 0.1, 1.0]), np.array([0.0, 0.9, 1.0])
    odds = np.linspace(1.0, 8.9, 40)
    assert np.array_equal(units._largest(reached, alpha, odds), 0.9 - 0.1 * odds)


@pytest.mark.parametrize("records", [2, 3, 5, 8])
def test_chains_of_gaussians_are_one_gaussian_with_all_shifts(records: int) -> None:
    """1 - f composed with itself: N(mu, 1) and g records give N(g mu, 1), never less, and less than 1 % more."""
    mu = 0.4
    alpha = ndtr(np.linspace(-8.0, 8.0, 3001))
    power = ndtr(ndtri(alpha) + mu)
    curve = TradeoffCurve.from_profile(
        np.linspace(0.0, 4.0, 600), _gaussian(mu, np.linspace(0.0, 4.0, 600)), side=Side.UPPER, symmetric=True
    )
    assert np.all(power >= alpha)
    found = grouped_curve(curve, records)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        exact = float(_gaussian(records * mu, np.array([epsilon]))[0])
        assert exact <= float(found.delta(epsilon)) <= 1.01 * exact + 1e-6


def _gaussian(mu: float, epsilon: np.ndarray) -> np.ndarray:
    return np.asarray(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def test_group_privacy_of_a_pure_guarantee_is_the_known_sum() -> None:
    """(eps, 0) for one record is (g eps, 0) for g; delta costs delta (e^(g eps) - 1)/(e^eps - 1)."""
    for epsilon, delta in ((0.2, 0.0), (0.2, 1e-4)):
        curve = TradeoffCurve.from_profile(np.array([epsilon]), np.array([delta]), side=Side.UPPER, symmetric=True)
        for records in (2, 3, 6):
            found = float(grouped_curve(curve, records).delta(records * epsilon))
            whole = delta * math.expm1(records * epsilon) / math.expm1(epsilon)
            assert whole * (1 - 1e-9) <= found <= whole * (1 + 1e-6) + 1e-9
