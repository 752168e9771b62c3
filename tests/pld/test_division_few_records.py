"""Proofs about few records or many sizes at once: they dominate what the mechanism really does, in both orders."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import division

from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.division.hidden_membership import HiddenMembershipPair
from calipers.pld.division.size_and_sum import SizeAndSumPair

EPSILONS = (-1.0, 0.0, 0.1, 0.7, 2.0, 4.0)


def ordered(pmf: PrivacyLossPmf, order: str) -> PrivacyLossPmf:
    return pmf if order == "PQ" else pmf.reverse()


@pytest.mark.parametrize("seed", [*range(8), pytest.param(8, marks=pytest.mark.slow), 9, 10, 11])
def test_full_batches_compared_by_their_noise_dominate(seed: int) -> None:
    """Division by the realized size of up to five records: all gradients zero, opposite, or random; never below."""
    rng = np.random.default_rng(seed)
    others, dimension = int(rng.integers(1, 5)), 2 if seed == 8 else 1
    rate, sigma = float(rng.uniform(0.2, 0.97)), float(rng.uniform(0.4, 4.0))
    gradients, extra = division.random_gradients(rng, others, dimension), division.random_gradients(rng, 1, dimension)
    if seed % 3 == 0:
        gradients, extra = division.on_a_line(-1.0, others, dimension)
    elif seed % 3 == 1:
        gradients, extra = np.zeros((others, dimension)), np.zeros((1, dimension))
    joined, absent = division.realized(gradients, extra, rate, sigma)
    pmf = SizeAndSumPair(sigma, rate, others, dimension).upper(0.05, -40.0)
    for eps in EPSILONS:
        for order in division.ORDERS:
            exact = division.profile(joined, absent, eps, order)
            assert ordered(pmf, order).delta(eps) >= exact - division.PLANE_ERROR, (eps, order)


@pytest.mark.parametrize(
    ("others", "rate", "dimension"),
    [(2, 0.5, 10), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((4, 0.7, 100), (4, 0.1, 3)))],
)
def test_noise_in_many_coordinates(others: int, rate: float, dimension: int) -> None:
    """Gradients on a line in up to 100 coordinates, opposite or zero: the proof stays above the integral."""
    pmf = SizeAndSumPair(2.0, rate, others, dimension).upper(0.05, -40.0)
    for direction in (-1.0, 0.0):
        gradients, extra = division.on_a_line(direction, others, dimension)
        joined, absent = division.realized(gradients, extra, rate, 2.0)
        for eps in (0.0, 0.5, 1.5):
            for order in division.ORDERS:
                exact = division.profile_on_a_line(joined, absent, dimension, eps, order)
                assert ordered(pmf, order).delta(eps) >= exact - division.PLANE_ERROR


def test_nothing_lies_at_infinity_but_what_noise_says() -> None:
    """q = 0.9, four others, three coordinates: 0.59 at infinity when sizes are told, next to nothing otherwise."""
    told, compared = (SizeAndSumPair(2.0, 0.9, 4, n).upper(0.05, -40.0) for n in (None, 3))
    assert abs(told.p_inf - 0.9**5) < 1e-6
    assert compared.p_inf < 1e-12
    for pmf in (told, compared):
        assert abs(np.exp(pmf.log_p).sum() + pmf.p_inf - 1.0) < 1e-6
        assert abs(np.exp(pmf.log_q).sum() + pmf.q_zero - 1.0) < 1e-6


@pytest.mark.parametrize(("first", "last", "rate", "sigma"), [(2, 5, 0.4, 1.0), (3, 4, 0.9, 0.5), (1, 3, 0.1, 3.0)])
def test_one_proof_covers_a_range_of_sizes(first: int, last: int, rate: float, sigma: float) -> None:
    """Divisors first .. last, as many others as the divisor: above the integral for each, whatever the direction."""
    pmf = HiddenMembershipPair(sigma, rate, last, first, largest_divisor=last).upper(0.05, -40.0)
    for others in range(first, last + 1):
        for direction in (-1.0, 0.0, 1.0):
            gradients, extra = division.on_a_line(direction, others, 1)
            joined, absent = division.divided(gradients, extra, rate, sigma, others)
            for eps in EPSILONS:
                for order in division.ORDERS:
                    exact = division.profile(joined, absent, eps, order)
                    assert ordered(pmf, order).delta(eps) >= exact - 1e-12, (others, direction, eps, order)


@pytest.mark.parametrize(("first", "last"), [(4, 9), (20, 22)])
def test_a_cover_is_never_below_what_it_covers(first: int, last: int) -> None:
    """delta of the cover against the pair of every divisor in it, by the same law of one size."""
    cover = HiddenMembershipPair(1.5, 0.3, last, first, largest_divisor=last).upper(0.03, -60.0)
    for divisor in range(first, last + 1):
        one = HiddenMembershipPair(1.5, 0.3, divisor, divisor).upper(0.03, -60.0)
        for eps in (0.0, 0.3, 1.0, 3.0):
            for order in division.ORDERS:
                # The cover is discretized with its own cells: a thousandth is what that may differ by.
                assert ordered(cover, order).delta(eps) >= ordered(one, order).delta(eps) * (1.0 - 2e-3)
