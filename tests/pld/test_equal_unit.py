"""Units whose records have equal gradients, weighed batch by batch: against every allocation, on the plane."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.pld.subsampling.equal_unit import EqualUnit

Floats = NDArray[np.float64]
STEP = 0.04
AXIS = np.arange(-9.0, 13.0, STEP)


def allocations(attack: EqualUnit) -> dict[tuple[int, ...], float]:
    """How many of the unit's records each seen batch holds, and how likely that is: everything is listed."""
    seen = range(attack.batches)
    if attack.places is None:  # every record falls into a bin; those that are not seen count as one
        each = [(1.0 - attack.unseen) / attack.batches] * attack.batches + [attack.unseen]
        throws = itertools.product(range(attack.batches + 1), repeat=attack.records)
        found: Counter[tuple[int, ...]] = Counter()
        for throw in throws:
            found[tuple(throw.count(b) for b in seen)] += math.prod(each[b] for b in throw)  # type: ignore[assignment]
        return dict(found)
    size = attack.batches * attack.places + int(attack.unseen)
    chosen = list(itertools.combinations(range(size), attack.records))
    counts = Counter(tuple(sum(place // attack.places == b for place in some) for b in seen) for some in chosen)
    return {held: ways / len(chosen) for held, ways in counts.items()}


def exact(attack: EqualUnit, epsilon: float) -> tuple[float, float]:
    """delta of two batches in both orders, from densities on the plane."""

    def density(moved: float) -> Floats:
        total = np.zeros((len(AXIS), len(AXIS)))
        for (first, second), chance in allocations(attack).items():
            bells = [np.exp(-0.5 * (AXIS - moved * held) ** 2) for held in (first, second)]
            total += chance * np.outer(*bells)
        return total * STEP**2 / (2.0 * math.pi)

    p, q = density(attack.present), density(attack.absent)
    k = math.exp(epsilon)
    return float(np.maximum(p - k * q, 0.0).sum()), float(np.maximum(q - k * p, 0.0).sum())


def shown(attack: EqualUnit, epsilon: float) -> tuple[float, float]:
    """delta of the outcomes in both orders."""
    pmf, k = attack.lower(), math.exp(epsilon)
    p, q = np.exp(pmf.log_p), np.exp(pmf.log_q)
    return float(np.maximum(p - k * q, 0.0).sum()), float(np.maximum(q - k * p, 0.0).sum())


@pytest.mark.parametrize(
    "attack",
    [
        EqualUnit(2, 2, 2, 0, 1.0, 0.0),
        EqualUnit(2, 2, 2, 0, 2.0, 1.0),
        EqualUnit(2, 2, 2, 1, 2.0, 0.0),
        EqualUnit(3, 2, 2, 3, 1.0, -1.0),
        EqualUnit(2, 2, None, 0.0, 1.0, 0.0),
        EqualUnit(3, 2, None, 0.4, 1.0, 0.0),
    ],
)
def test_two_batches_are_weighed_by_their_exact_likelihood_ratio(attack: EqualUnit) -> None:
    for epsilon in (0.0, 0.5, 2.0):
        for ours, true in zip(shown(attack, epsilon), exact(attack, epsilon), strict=True):
            assert 0.998 * true <= ours <= true * (1.0 + 1e-6)


def test_one_batch_shows_how_many_it_holds() -> None:
    """Of two records in a random order of five, a batch of two."""
    attack, k = EqualUnit(2, 1, 2, 3, 1.0, 0.0), math.exp(0.5)
    z, width = np.linspace(-9.0, 13.0, 220_001, retstep=True)
    bells = [np.exp(-0.5 * (z - j) ** 2) * width / math.sqrt(2.0 * math.pi) for j in range(3)]
    present = 0.3 * bells[0] + 0.6 * bells[1] + 0.1 * bells[2]
    true = float(np.maximum(present - k * bells[0], 0.0).sum())
    assert 0.998 * true <= shown(attack, 0.5)[0] <= true * (1.0 + 1e-6)


def sampled(attack: EqualUnit, epsilon: float, count: int) -> tuple[float, float]:
    """delta, and its deviation, from draws of the release and the exact likelihood ratio over all allocations."""
    rng, listed = np.random.default_rng(7), allocations(attack)
    held, chances = np.array(list(listed), dtype=np.float64), np.array(list(listed.values()))
    drawn = held[rng.choice(len(held), size=count, p=chances)]
    seen = attack.present * drawn + rng.standard_normal(drawn.shape)
    p, q = (
        np.exp(seen @ (moved * held).T - 0.5 * np.sum(np.square(moved * held), axis=1)) @ chances
        for moved in (attack.present, attack.absent)
    )
    values = np.maximum(1.0 - math.exp(epsilon) * q / p, 0.0)
    return float(values.mean()), float(values.std()) / math.sqrt(count)


@pytest.mark.parametrize(
    ("attack", "reached"),
    [
        (EqualUnit(2, 5, 2, 1, 1.0, 0.0), 0.98),
        (EqualUnit(2, 5, 2, 1, 2.0, 1.0), 0.95),
        (EqualUnit(3, 4, None, 0.3, 1.0, -1.0), 0.98),
    ],
)
def test_scores_of_several_batches_nearly_reach_the_likelihood_ratio(attack: EqualUnit, reached: float) -> None:
    true, deviation = sampled(attack, 0.5, 40_000)
    assert reached * (true - 4.0 * deviation) <= shown(attack, 0.5)[0] <= true + 4.0 * deviation


@pytest.mark.parametrize(
    "attack",
    [EqualUnit(2, 7, 2, 1, 2.0, 1.0), EqualUnit(4, 33, None, 0.2, 0.7, 0.0), EqualUnit(3, 40, None, 0.3, 0.1, -0.1)],
)
def test_the_outcomes_of_a_tree_have_probability_one(attack: EqualUnit) -> None:
    pmf = attack.lower(0.05, -40.0)
    for logs in (pmf.log_p, pmf.log_q):
        assert abs(math.fsum(np.exp(logs)) - 1.0) <= pmf.mass_error + 1e-13
    assert pmf.mass_error < 1e-9


def test_rounded_ends_of_cells_are_charged() -> None:
    """At 20 deviations an end errs by half a unit in the last place of 33, and a mass by 40 times that."""
    near, far = (EqualUnit(1, 2, 1, 0, shift, 0.0).lower().mass_error for shift in (1.0, 20.0))
    assert far > 1e-12 + 40.0 * 33.0 * 2.0**-53
    assert near < far
