"""Units whose records have equal gradients: the sum of an epoch against all deals, enumerated."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

import calipers as cp

Floats = NDArray[np.float64]
STEP = 0.05
AXIS, ERROR = np.arange(-10.0, 10.0, STEP), 1e-4
"""The plane, and what a sum over its points may err by."""


def unit_run(**said: Any) -> cp.Run:
    return cp.Run(**({"noise_multiplier": 1.0, "unit": "user", "records_per_unit": 2} | said))


def gaussian(mu: float, epsilon: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def all_that_shows(size: int, sign: float, others: float, epsilon: float) -> float:
    """delta of two batches of two out of `size` records, two of them the unit's: every deal. With gradients of all
    others a batch that holds k of the unit's records sums to `others` (2 - k) and theirs."""

    def density(gradient: float) -> Floats:
        found = np.zeros((len(AXIS), len(AXIS)))
        orders = itertools.permutations(range(size))
        deals = Counter(tuple(sum(record < 2 for record in order[i : i + 2]) for i in (0, 2)) for order in orders)
        for counts, ways in deals.items():
            sums = (gradient * count + others * (2 - count) for count in counts)
            first, second = (np.exp(-0.5 * (AXIS - mean) ** 2) for mean in sums)
            found += np.outer(first, second) * ways / math.factorial(size)
        return np.asarray(found * STEP**2 / (2 * math.pi))

    present, absent = density(1.0), density(sign)
    return max(
        float(np.sum(np.maximum(first - math.exp(epsilon) * second, 0.0)))
        for first, second in ((present, absent), (absent, present))
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 5])
@pytest.mark.parametrize(("adjacency", "sign"), [("zero-out", 0.0), ("substitute", -1.0)])
def test_two_records_in_two_batches_show_their_likelihood_ratio(adjacency: str, sign: float, size: int) -> None:
    """Batches of two, sigma 1: N 4 zeroed out .442 at epsilon .5, where their sum shows .400; N 5 drops a record."""
    run = unit_run(sampler="shuffle", dataset_size=size, batch_size=2, epochs=1, adjacency=adjacency)
    for epsilon in (0.0, 0.5, 1.5):
        bracket = cp.measure(run).delta(epsilon)
        exact = max(all_that_shows(size, sign, others, epsilon) for others in (0.0, -1.0))
        assert 0.999 * exact <= bracket.lower <= exact + ERROR
        assert exact <= bracket.upper + ERROR


def test_two_records_show_more_than_their_sum() -> None:
    """The corner of the test above at epsilon .5: .4418 of the plane, where the sum shows .4000."""
    run = unit_run(sampler="shuffle", dataset_size=4, batch_size=2, epochs=1, adjacency="zero-out")
    assert 0.44175 < cp.measure(run).delta(0.5).lower < 0.4419


@pytest.mark.parametrize("noise", [0.25, 0.12])
def test_units_can_be_measured_with_little_noise(noise: float) -> None:
    run = unit_run(
        sampler="shuffle", dataset_size=40, batch_size=9, epochs=1, adjacency="zero-out", noise_multiplier=noise
    )
    bracket = cp.measure(run).delta(1.0)
    assert 0.9 < bracket.lower <= bracket.upper


def test_whoever_sees_no_others_weighs_the_unit_alone() -> None:
    """In the isolated view all other gradients may as well be zero."""
    run = unit_run(sampler="shuffle", dataset_size=4, batch_size=2, epochs=1, adjacency="zero-out", view="isolated")
    exact = all_that_shows(4, 0.0, 0.0, 0.5)
    assert 0.999 * exact <= cp.measure(run).delta(0.5).lower <= exact + ERROR


def test_one_order_for_all_epochs_shows_its_sums_with_less_noise() -> None:
    """Four epochs in one order at sigma 2 are one epoch at sigma 1."""
    one = unit_run(sampler="shuffle", dataset_size=5, batch_size=2, epochs=1, adjacency="zero-out")
    kept = {"reshuffle": "once", "epochs": 4, "noise_multiplier": 2.0}
    four = unit_run(sampler="shuffle", dataset_size=5, batch_size=2, adjacency="zero-out", **kept)
    assert cp.measure(four).delta(0.5).lower == pytest.approx(cp.measure(one).delta(0.5).lower, rel=1e-9)


@pytest.mark.slow
def test_many_records_are_weighed_by_their_sum() -> None:
    """Of a hundred records the sum of an epoch is all that is scored: N(100/sqrt(20), 1) at sigma 30."""
    said = {"dataset_size": 2001, "batch_size": 100, "epochs": 1, "noise_multiplier": 30.0, "records_per_unit": 100}
    run = unit_run(sampler="shuffle", adjacency="zero-out", **said)
    assert cp.measure(run).delta(0.1).lower > 0.9 * gaussian(99.9 / 30.0 / math.sqrt(20), 0.1)


@pytest.mark.parametrize(
    ("said", "mu"),
    [
        ({"steps": 8, "records_per_unit": 3}, 3 / math.sqrt(4) * math.sqrt(2)),
        ({"steps": 8, "records_per_unit": 3, "reshuffle": "once"}, 3 * 2 / math.sqrt(8)),
        ({"steps": 4, "records_per_unit": 3, "adjacency": "substitute"}, 2 * 3 / math.sqrt(4)),
    ],
)
def test_bins_show_the_sum_of_their_epochs(said: dict[str, Any], mu: float) -> None:
    """Four bins: three records move the sum of an epoch by 3, replaced by 6, at noise 2."""
    run = unit_run(sampler="balls-and-bins", dataset_size=40, batch_size=10, **said)
    assert run.steps_per_epoch == 4
    bracket = cp.measure(run).delta(0.5)
    assert 0.998 * gaussian(mu, 0.5) <= bracket.lower <= bracket.upper


def test_an_epoch_that_ends_early_uses_fewer() -> None:
    """Two of four bins came: each of two records is in one of them with probability 1/2."""
    run = unit_run(sampler="balls-and-bins", dataset_size=40, batch_size=10, steps=2)
    z, mu = np.arange(-9.0, 11.0, 1e-3), 1 / math.sqrt(2)
    none, one, two = (np.exp(-0.5 * (z - j * mu) ** 2) * 1e-3 / math.sqrt(2 * math.pi) for j in range(3))
    shown = float(np.sum(np.maximum(none / 4 + one / 2 + two / 4 - none, 0.0)))
    bracket = cp.measure(run).delta(0.0)
    assert 0.998 * shown <= bracket.lower <= bracket.upper
