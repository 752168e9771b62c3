"""Grids that end, and rows convolved: against enumerations and plain convolutions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from calipers.pld.allocation.lattice_segment import LatticeSegment, convolved, folded
from calipers.pld.allocation.multi_resolution import MultiResolutionSum, ResolutionPlan, multiplied, placed
from calipers.pld.allocation.worst_case_sum import divergence
from calipers.pld.allocation.worst_case_term import opposite

VALUES, MASSES = np.array([-3.0, 0.0, 1.0, 9.0]), np.array([0.2, 0.4, 0.3, 0.1])
PLAN = ResolutionPlan(1.0, 1e-3, 0.0, 0, -80.0)


@lru_cache
def enumerated(terms: int, threshold: float) -> float:
    """E[(X_1 + ... + X_n - threshold)+] over all outcomes."""
    outcomes = itertools.product(range(len(VALUES)), repeat=terms)
    return math.fsum(max(VALUES[list(o)].sum() - threshold, 0.0) * float(np.prod(MASSES[list(o)])) for o in outcomes)


def ended(terms: int, ends: tuple[float, float]) -> MultiResolutionSum:
    """The sum on integers, folded at the ends on its way."""
    plans = [replace(PLAN, ends=ends)] * 4
    return multiplied(placed(VALUES, MASSES[None], plans[0], 1e-15, float(terms)), terms, plans)


def call(total: MultiResolutionSum, threshold: float) -> float:
    """What is proven of the call."""
    values, (masses,) = total.flat()
    return float(np.maximum(values - threshold, 0.0) @ masses) + total.above


@pytest.mark.parametrize("terms", [2, 5, 6])
@pytest.mark.parametrize("ends", [(-20.0, 60.0), (-6.0, 60.0), (-20.0, 10.0), (-4.0, 12.5), (-3.5, 9.0)])
@pytest.mark.parametrize("threshold", [-2.0, 3.0, 8.0])
def test_what_ends_take_is_charged(terms, ends, threshold):
    """Never below the truth, which it is where nothing lies beyond, and near it where what lies beyond is enough."""
    total, truth = ended(terms, ends), enumerated(terms, threshold)
    values = total.flat()[0]
    assert values.min() >= ends[0]
    assert values.max() <= ends[1]
    assert call(total, threshold) >= truth * (1.0 - 1e-12)
    if ends == (-20.0, 60.0):
        assert call(total, threshold) == pytest.approx(truth, rel=1e-5)
    assert call(total, threshold) <= truth + terms * (9.0 * 0.1 + 3.0 * 0.2)


def test_an_upper_end_that_is_always_enough_costs_nothing():
    """A sum of six loses at most fifteen with five terms: above 23 it passes 8 whatever comes; charges are exact."""
    assert call(ended(6, (-20.0, 23.0)), 8.0) == pytest.approx(enumerated(6, 8.0), rel=1e-5)


@pytest.mark.parametrize("low", [-30, -9, -2, 0, 7, 40])
@pytest.mark.parametrize("unit", [0.5, 2.0, 50.0])
def test_folding_moves_masses_to_the_ends(low, unit):
    """Places are clipped one by one; what that takes from the mean at the top is said, for the first row alone."""
    rows = np.random.default_rng(3).random((2, 12))
    ends = (-7.0, 11.0)
    strip, above, most = folded(LatticeSegment(low, rows), unit, ends)
    first, last = math.ceil(ends[0] / unit), math.floor(ends[1] / unit)
    before = np.arange(low, low + 12)
    after = np.clip(before, first, last)
    expected = {p: rows[:, after == p].sum(axis=1) for p in range(after.min(), after.max() + 1)}
    assert strip.low == after.min()
    np.testing.assert_allclose(strip.rows.T, [expected[p] for p in sorted(expected)], rtol=1e-14)
    np.testing.assert_allclose(above, rows[0] @ (unit * np.maximum(before - last, 0)), rtol=1e-14)
    assert most + 1 >= max(np.count_nonzero(after == first), np.count_nonzero(after == last))


@pytest.mark.parametrize(("n", "m"), [(1, 5), (7, 30), (20, 20), (131, 140), (300, 17)])
def test_rows_are_convolved_and_small_numbers_keep_their_digits(n, m):
    """As by the definition, each entry by an exact sum."""
    rng = np.random.default_rng(n)
    many, one = (np.exp(-200.0 * rng.random(shape)) for shape in ((3, n), m))
    expected = [
        [math.fsum(row[i] * one[at - i] for i in range(n) if 0 <= at - i < m) for at in range(n + m - 1)]
        for row in many
    ]
    np.testing.assert_allclose(convolved(many, one), expected, rtol=1e-13)


def test_two_rounds_at_little_noise():
    """Epsilons from 0 to 6, against a grid of both noises."""
    grid = np.linspace(-13.0, 13.0, 2001)
    density = np.exp(-0.5 * grid**2) / math.sqrt(2.0 * math.pi) * (grid[1] - grid[0])
    sigma = 0.5
    for epsilon in (0.0, 0.7, 2.0, 4.0, 6.0):
        value = divergence(opposite(sigma, epsilon), 2, 1.0, 0.05, -40.0)[1]
        term = np.exp(grid / sigma - 0.5 / sigma**2) - math.exp(epsilon - 0.5 / sigma**2) * np.exp(-grid / sigma)
        truth = 0.5 * float(density @ np.maximum(np.add.outer(term, term), 0.0) @ density)
        assert truth * (1.0 - 1e-4) <= value < truth * 1.01
