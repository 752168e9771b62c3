"""Truncated batches that do not reveal whether they are full: every batch enumerated, all gradients below the pair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles import plane
from scipy import stats

from calipers.pld.subsampling.hidden_size import HiddenSize
from calipers.pld.subsampling.truncated import hidden_place_proof, truncated_proof
from calipers.pld.subsampling.truncation import Truncation

Floats = NDArray[np.float64]
ADJACENCIES = ("add-remove", "zero-out", "substitute")
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


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("seed", range(4))
def test_no_gradients_show_more_than_the_pair(seed: int, adjacency: str) -> None:
    """Four others with gradients in a plane, two in a batch: all sums enumerated, both directions, several epsilons."""
    rng = np.random.default_rng(seed)
    rate, largest, shift = 0.4, 2, 0.9
    angles = [0.0, *((math.pi,) * 4 if seed == 0 else rng.uniform(0.5 * math.pi, 1.5 * math.pi, 4))]
    if seed == 3:
        angles = [0.0] * 5  # a record that is zeroed out shows most where it is absent if all others are like it
    record, *others = [shift * np.array([math.cos(angle), math.sin(angle)]) for angle in angles]
    instead = {"add-remove": [], "zero-out": [0.0 * record], "substitute": [-record]}[adjacency]
    absent, present = (density(batches([*others, *some], rate, largest)) for some in (instead, [record]))
    cut = Truncation(4, rate, largest)
    for proof in (hidden_place_proof(cut, shift, adjacency), HiddenSize(cut, shift, adjacency)):
        pmf = proof.upper(0.02, -40.0)
        for epsilon in (-0.3, 0.0, 0.2, 0.5, 1.0):
            for first, second, bound in ((present, absent, pmf), (absent, present, pmf.reverse())):
                shown = float(np.sum(np.maximum(first - math.exp(epsilon) * second, 0.0)))
                assert shown <= bound.delta(epsilon) + 1e-7  # the sum over the plane errs by that


def at_an_angle(cut: Truncation, shift: float, angle: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights and means with and without the record, all others one vector at an angle to it."""
    m = np.arange(cut.others + 1)
    chance = stats.binom.pmf(m, cut.others, cut.rate)
    kept = cut.rate * np.minimum(1.0, cut.largest / (m + 1.0))
    absent, joined_by = np.bincount(np.minimum(m, cut.largest), chance), np.minimum(m, cut.largest - 1)
    alone = np.bincount(np.minimum(m, cut.largest), chance * (1.0 - kept))
    joined = np.bincount(joined_by, chance * kept)
    sums = shift * np.stack((np.arange(len(absent)), np.zeros(len(absent))), axis=1)
    moved = sums[: len(joined)] + shift * np.array([math.cos(angle), math.sin(angle)])
    return np.concatenate((alone, joined)), np.concatenate((sums, moved)), absent, sums


@pytest.mark.slow
@pytest.mark.parametrize(("others", "rate", "largest", "shift"), [(999, 0.05, 45, 1.4), (200, 0.1, 20, 0.8)])
def test_attacks_stay_below_and_the_bound_improves_on_revealing(
    others: int, rate: float, largest: int, shift: float
) -> None:
    """Opposite gradients and those at an angle show less; revealing whether the batch was full proves more delta."""
    cut = Truncation(others, rate, largest)
    proof = hidden_place_proof(cut, shift).upper(0.05, -40.0)
    hiding = HiddenSize(cut, shift).upper(0.05, -40.0)
    revealing = truncated_proof(cut, shift, "add-remove").upper(0.05, -40.0)
    for epsilon in (0.1, 1.0):
        for angle in (math.pi, math.radians(100)):
            shown = at_an_angle(cut, shift, angle)
            first, second = shown[:2], shown[2:]
            for bound in (proof, hiding):
                assert plane.divergence(*first, *second, epsilon, step=0.15) <= bound.delta(epsilon)
                assert plane.divergence(*second, *first, epsilon, step=0.15) <= bound.reverse().delta(epsilon)
    assert proof.delta(1.0) < 0.9 * revealing.delta(1.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_pair_is_the_sum_of_its_parts(adjacency: str) -> None:
    """Three parts by binomial sums, each a sum over the line, both directions; at every epsilon, nothing less."""
    others, rate, largest, shift = 30, 0.2, 6, 1.1
    chances = [math.comb(others, m) * rate**m * (1 - rate) ** (others - m) for m in range(others + 1)]
    full, short = sum(chances[largest:]), chances[largest - 1]
    kept = sum(chance * largest / (m + 1) for m, chance in enumerate(chances) if m >= largest) / full
    z = np.arange(-10.0, 10.0, 0.0005)

    def normal(mean: float) -> Floats:
        return np.asarray(np.exp(-0.5 * (z - mean) ** 2) * 0.0005 / math.sqrt(2.0 * math.pi))

    def pair(record: float, other: float, alone: float) -> tuple[Floats, Floats]:
        """With the record and without it: nobody is there with probability `alone`, and otherwise another one."""
        rest = alone * normal(0.0) + (1 - alone) * normal(other)
        instead = {"add-remove": rest, "zero-out": normal(0.0), "substitute": normal(-record)}[adjacency]
        return (1 - rate) * rest + rate * normal(record), (1 - rate) * rest + rate * instead

    def gained(first: Floats, second: Floats, epsilon: float) -> float:
        return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())

    pmf = hidden_place_proof(Truncation(others, rate, largest), shift, adjacency).upper(0.01, -40.0)
    for epsilon in (-0.15, 0.0, 0.3, 1.2):
        if epsilon < 0.0 and adjacency != "add-remove":
            continue  # the other direction is the one that counts
        for bound, way in ((pmf, 1), (pmf.reverse(), -1)):
            # Without the record nobody stands out; a record that is zeroed out does where all others are like it.
            other = shift if adjacency == "zero-out" and way < 0 else -shift
            record = -shift if adjacency == "substitute" and way < 0 else shift
            parts = [
                (short + full) * kept * gained(*pair(record, other, short / (short + full))[::way], epsilon),
                (1 - full - short * kept) * gained(*pair(record, other, 1.0)[::way], epsilon),
                full * (1 - kept) * max(0.0, 1 - math.exp(epsilon)),
            ]
            assert sum(parts) - 1e-9 <= bound.delta(epsilon) <= 1.001 * sum(parts) + 1e-6
