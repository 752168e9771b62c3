"""Truncated batches that do not reveal whether they are full: every batch enumerated, all gradients below the pair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.pld.subsampling.hidden_place import hidden_place_proof
from calipers.pld.subsampling.hidden_size import HiddenSize
from calipers.pld.subsampling.oblique import ObliqueAttack
from calipers.pld.subsampling.truncated import TruncatedAttack, truncated_proof
from calipers.pld.subsampling.truncation import Truncation

Floats = NDArray[np.float64]
STEP = 0.08
AXIS = np.arange(-8.0, 8.0, STEP)
PLANE = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"))


def density(sums: dict[tuple[float, ...], float]) -> Floats:
    """Of noisy sums in a plane."""
    found = np.zeros(PLANE.shape[1:])
    for (a, b), weight in sums.items():
        found += weight * np.exp(-0.5 * ((PLANE[0] - a) ** 2 + (PLANE[1] - b) ** 2))
    return np.asarray(found * STEP**2 / (2.0 * math.pi))


def batches(gradients: list[Floats], rate: float, largest: int) -> dict[tuple[float, ...], float]:
    """Probabilities of all sums: who joins, and which of them are kept, one by one."""
    found: dict[tuple[float, ...], float] = {}
    people = range(len(gradients))
    for size in range(len(gradients) + 1):
        for joined in itertools.combinations(people, size):
            chance = rate**size * (1 - rate) ** (len(gradients) - size)
            kept = list(itertools.combinations(joined, min(size, largest)))
            for batch in kept:
                key = tuple(np.round(sum((gradients[i] for i in batch), np.zeros(2)), 12))
                found[key] = found.get(key, 0.0) + chance / len(kept)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_gradients_show_more_than_the_pair(seed: int) -> None:
    """Four others with gradients in a plane, two in a batch: all sums enumerated, both directions, several epsilons."""
    rng = np.random.default_rng(seed)
    rate, largest, shift = 0.4, 2, 0.9
    angles = [0.0, *((math.pi,) * 4 if seed == 0 else rng.uniform(0.5 * math.pi, 1.5 * math.pi, 4))]
    record, *others = [shift * np.array([math.cos(angle), math.sin(angle)]) for angle in angles]
    absent, present = (density(batches(some, rate, largest)) for some in (others, [*others, record]))
    cut = Truncation(4, rate, largest)
    for proof in (hidden_place_proof(cut, shift), HiddenSize(cut, shift)):
        pmf = proof.upper(0.02, -40.0)
        for epsilon in (-0.3, 0.0, 0.2, 0.5, 1.0):
            for first, second, bound in ((present, absent, pmf), (absent, present, pmf.reverse())):
                shown = float(np.sum(np.maximum(first - math.exp(epsilon) * second, 0.0)))
                assert shown <= bound.delta(epsilon) + 1e-7  # the sum over the plane errs by that


@pytest.mark.parametrize(("others", "rate", "largest", "shift"), [(999, 0.05, 45, 1.4), (200, 0.1, 20, 0.8)])
def test_attacks_stay_below_and_the_bound_improves_on_revealing(
    others: int, rate: float, largest: int, shift: float
) -> None:
    """Opposite gradients and those at an angle show less; revealing whether the batch was full proves more delta."""
    cut = Truncation(others, rate, largest)
    proof = hidden_place_proof(cut, shift).upper(0.05, -40.0)
    revealing = truncated_proof(cut, shift, "add-remove").upper(0.05, -40.0)
    against = TruncatedAttack(cut, shift, -1, None)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        for attack in (against, ObliqueAttack(against, math.radians(100))):
            shown = attack.lower(0.05, -40.0)
            assert shown.delta(epsilon) <= proof.delta(epsilon)
            assert shown.reverse().delta(epsilon) <= proof.reverse().delta(epsilon)
    assert proof.delta(1.0) < 0.9 * revealing.delta(1.0)


def test_the_pair_is_the_sum_of_its_parts() -> None:
    """Five parts by binomial sums, each with its closed form or a sum over the line; at every epsilon, nothing less."""
    others, rate, largest, shift = 30, 0.2, 6, 1.1
    chances = [math.comb(others, m) * rate**m * (1 - rate) ** (others - m) for m in range(others + 1)]
    full, short = sum(chances[largest:]), chances[largest - 1]
    kept = sum(chance * largest / (m + 1) for m, chance in enumerate(chances) if m >= largest) / full
    z = np.arange(-10.0, 10.0, 0.0005)

    def normal(mean: float) -> Floats:
        return np.asarray(np.exp(-0.5 * (z - mean) ** 2) * 0.0005 / math.sqrt(2.0 * math.pi))

    pmf = hidden_place_proof(Truncation(others, rate, largest), shift).upper(0.01, -40.0)
    one, two = normal(0.0), (short * normal(0.0) + full * normal(-shift)) / (short + full)
    for epsilon in (-0.15, 0.0, 0.3, 1.2):
        odds = math.exp(epsilon)
        parts = [
            (short + full) * kept * np.maximum((1 - rate) * two + rate * normal(shift) - odds * two, 0.0).sum(),
            (1 - full - short * kept) * np.maximum((1 - rate) * one + rate * normal(shift) - odds * one, 0.0).sum(),
            full * (1 - kept) * max(0.0, 1 - odds),
        ]
        assert sum(parts) - 1e-9 <= pmf.delta(epsilon) <= 1.001 * sum(parts) + 1e-6
