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


def all_that_shows(size: int, sign: float, epsilon: float) -> float:
    """delta of two batches of two out of `size` records, two of them the unit's, others zero: every deal."""

    def density(gradient: float) -> Floats:
        found = np.zeros((len(AXIS), len(AXIS)))
        orders = itertools.permutations(range(size))
        deals = Counter(tuple(sum(record < 2 for record in order[i : i + 2]) for i in (0, 2)) for order in orders)
        for counts, ways in deals.items():
            first, second = (np.exp(-0.5 * (AXIS - gradient * count) ** 2) for count in counts)
            found += np.outer(first, second) * ways / math.factorial(size)
        return np.asarray(found * STEP**2 / (2 * math.pi))

    present, absent = density(1.0), density(sign)
    return max(
        float(np.sum(np.maximum(first - math.exp(epsilon) * second, 0.0)))
        for first, second in ((present, absent), (absent, present))
    )


@pytest.mark.slow
@pytest.mark.parametrize(("adjacency", "sign", "mu"), [("zero-out", 0.0, math.sqrt(2)), ("substitute", -1.0, 2.0**1.5)])
def test_two_records_in_two_batches_show_their_sum(adjacency: str, sign: float, mu: float) -> None:
    """N 4, B 2, sigma 1: at least N(2/sqrt(2), 1), at most the likelihood ratio of all deals (.446 at epsilon .5)."""
    run = unit_run(sampler="shuffle", dataset_size=4, batch_size=2, epochs=1, adjacency=adjacency)
    for epsilon in (0.0, 0.5, 1.5):
        bracket = cp.measure(run).delta(epsilon)
        assert 0.999 * gaussian(mu, epsilon) <= bracket.lower <= all_that_shows(4, sign, epsilon) + ERROR
        assert all_that_shows(4, sign, epsilon) <= bracket.upper + ERROR


@pytest.mark.slow
def test_records_of_a_remainder_are_not_counted() -> None:
    """N 5, B 2: one record is dropped, of the unit's in two of five orders; the lower bound knows that."""
    run = unit_run(sampler="shuffle", dataset_size=5, batch_size=2, epochs=1, adjacency="zero-out")
    z, mu = np.arange(-9.0, 11.0, 1e-3), 1 / math.sqrt(2)
    one, two, none = (np.exp(-0.5 * (z - j * mu) ** 2) * 1e-3 / math.sqrt(2 * math.pi) for j in (1, 2, 0))
    for epsilon in (0.0, 0.5):
        mixed = float(np.sum(np.maximum(0.4 * one + 0.6 * two - math.exp(epsilon) * none, 0.0)))
        found = cp.measure(run).delta(epsilon).lower
        assert 0.999 * mixed <= found <= all_that_shows(5, 0.0, epsilon) + ERROR


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
