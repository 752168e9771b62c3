"""Units dealt into batches: bounds on how often their records meet, against all deals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from scipy.special import ndtr

from calipers.measure import measure
from calipers.pld.core.allocated_unit import AllocatedUnit
from calipers.run import Run


def deals(unit: AllocatedUnit) -> Iterator[list[int]]:
    """How many of the unit's records every batch gets, over all equally likely deals."""
    if unit.batch_size is None:
        for bins in product(range(unit.places), repeat=unit.records):
            yield [bins.count(one) for one in range(unit.places)]
        return
    batches = unit.places // unit.batch_size
    for chosen in combinations(range(unit.places), unit.records):
        yield [sum(place // unit.batch_size == one for place in chosen) for one in range(batches)]


CASES = [
    AllocatedUnit(3, 0.7, 10, 3),
    AllocatedUnit(4, 0.4, 12, 2),
    AllocatedUnit(5, 0.3, 11, 4),
    AllocatedUnit(4, 1.0, 9, 1),
    AllocatedUnit(6, 0.2, 8, 8),
    AllocatedUnit(4, 0.5, 6),
    AllocatedUnit(5, 0.3, 3),
    AllocatedUnit(2, 0.5, 5),
    AllocatedUnit(2, 0.7, 9, 3),
]


@pytest.mark.parametrize("unit", CASES, ids=str)
def test_moments_and_chances_are_above_those_of_all_deals(unit: AllocatedUnit) -> None:
    """E[exp(a S); no batch gets more than J], P(some batch gets more), and the largest S, by counting."""
    counted = [(max(deal), sum(j * j for j in deal)) for deal in deals(unit)]
    assert unit.full**2 == pytest.approx(max(s for _, s in counted), rel=1e-12)
    assert unit.most == max(most for most, _ in counted)
    orders = np.array([1.1, 2.0, 5.0])
    a = 0.5 * orders * (orders - 1.0) * unit.shift**2
    for crowd in range(1, unit.most + 1):
        exact = sum(np.exp(a * s) for most, s in counted if most <= crowd) / len(counted)
        assert np.all(exact <= np.exp(unit.log_moments(orders, crowd)))
    for rare in (1e-6, 0.01, 0.1, 0.5):  # what is called rare is so
        crowd, beyond = unit.crowd(rare)
        assert sum(most > crowd for most, _ in counted) / len(counted) <= beyond <= rare


def test_records_that_hardly_meet_cost_hardly_more_than_apart() -> None:
    """With room for everybody the moment is that of g records apart, and crowds are rare."""
    unit = AllocatedUnit(20, 1.0, 10**7, 5)
    orders = np.array([1.5, 2.0, 3.0])
    apart = 0.5 * orders * (orders - 1.0) * 20
    assert np.all(unit.log_moments(orders, 2) <= apart * 1.01)
    assert unit.crowd(1e-6)[0] == 2


def gaussian(mu: float, epsilon: float) -> float:
    """delta of one Gaussian release."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(("size", "batch", "records"), [(30, 30, 30), (7, 1, 7), (40, 40, 12)])
@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
@pytest.mark.parametrize("reshuffle", ["every-epoch", "once"])
def test_where_the_deal_hides_nothing_the_proof_is_the_truth(
    size: int, batch: int, records: int, adjacency: str, reshuffle: str
) -> None:
    """One batch of everybody, or batches of one of which all are the unit's: exactly one Gaussian."""
    run = Run(
        sampler="shuffle", dataset_size=size, batch_size=batch, epochs=3, noise_multiplier=9.0, adjacency=adjacency,
        reshuffle=reshuffle, unit="user", records_per_unit=records,
    )  # fmt: skip
    each = math.sqrt(records) if batch == 1 else float(records)
    mu = (2.0 if adjacency == "substitute" else 1.0) * each * math.sqrt(3.0) / 9.0
    found = measure(run).delta(0.5).upper
    assert gaussian(mu, 0.5) * (1.0 - 1e-12) <= found <= gaussian(mu, 0.5) * (1.0 + 1e-6)


@pytest.mark.parametrize("sampler", ["shuffle", "balls-and-bins"])
def test_two_full_batches_show_more_than_one(sampler: str) -> None:
    """Twelve of twelve replaced in batches of six: an attack told the deal shows sqrt(2) 6, and is covered."""
    run = Run(
        sampler=sampler, dataset_size=12, batch_size=6, epochs=2, noise_multiplier=30.0, adjacency="substitute",
        unit="user", records_per_unit=12,
    )  # fmt: skip
    # Shuffled, both batches are full of the unit in every epoch: that is the truth.
    mu = 2.0 * math.sqrt(2 * 6.0**2) * math.sqrt(2.0) / 30.0
    assert measure(run).delta(0.5).upper >= gaussian(mu, 0.5)
