"""Proofs about many sizes at once: they dominate what the mechanism really does, in both orders."""

from __future__ import annotations

import pytest
from oracles import division

from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.division.hidden_membership import HiddenMembershipPair

EPSILONS = (-1.0, 0.0, 0.1, 0.7, 2.0, 4.0)


def ordered(pmf: PrivacyLossPmf, order: str) -> PrivacyLossPmf:
    return pmf if order == "PQ" else pmf.reverse()


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
