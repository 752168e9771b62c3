"""Truncated batches that may be two records short: every term of the bound evaluated anew on the line."""

from __future__ import annotations

import cmath
import itertools
import math

import numpy as np
import pytest

import calipers as cp
from calipers.pld.subsampling.hidden_size import HiddenSize
from calipers.pld.subsampling.truncated import hidden_place_proof, truncated_proof
from calipers.pld.subsampling.truncation import Truncation

STEP = 0.02
Z = np.arange(-9.0, 9.0, STEP)


def bell(mean: float) -> np.ndarray:
    return np.asarray(np.exp(-0.5 * (Z - mean) ** 2) * STEP / math.sqrt(2.0 * math.pi))


def gained(above: np.ndarray, *below: np.ndarray) -> float:
    return float(np.maximum(above - sum(below), 0.0).sum())


def by_hand(others: int, rate: float, largest: int, r: float, epsilon: float, adjacency: str) -> float:
    """The theorem as it is written: all m one by one, angles on a grid, the best of six shares.

    k times what the other dataset has in the record's place is taken away: nothing, a zero or the opposite.
    """
    chances = [math.comb(others, m) * rate**m * (1.0 - rate) ** (others - m) for m in range(others + 1)]
    full = math.fsum(chances[largest:])
    s = math.fsum(w * largest / (m + 1) for m, w in enumerate(chances) if m >= largest) / full
    one, two, k = chances[largest - 1], chances[largest - 2], math.exp(epsilon)
    a, kept = rate * (one + s * full), rate * s
    # Without the record a batch is as if it had not joined: P - k Q has 1 - q - k there, and else (1 - q)(1 - k).
    room, filled = (
        (k - 1 + rate, k - 1 + kept) if adjacency == "add-remove" else ((k - 1) * (1 - rate), (k - 1) * (1 - kept))
    )
    place = {"add-remove": None, "zero-out": 0.0, "substitute": -r}[adjacency]
    ghost = 0.0 * bell(0.0) if place is None else k * bell(place)
    rest = sum(gained(w * rate * bell(r), w * room * bell(0.0), w * rate * ghost) for w in chances[: largest - 2])
    cosines, found = np.cos(np.linspace(0.0, math.pi, 9)), []
    for share in (0.0, 0.3, 0.5, 0.7, 0.85, 0.95):
        f = np.array(
            [
                [
                    gained(
                        a * bell(r),
                        a * ghost,
                        room * one * bell(0.0),
                        share * room * two * bell(r - r * math.sqrt(max(0.0, 2 + 2 * c))),
                        filled * full * bell(r - r * math.sqrt(max(0.0, 2 - 2 * d))),
                    )
                    for d in cosines
                ]
                for c in cosines
            ]
        )
        own = gained(rate * two * bell(r), (1 - share) * room * two * bell(0.0), two * rate * ghost)
        found.append(float(np.max(f + f.T)) / 2.0 + own + rest)
    return min(found)


@pytest.mark.parametrize(
    ("others", "rate", "largest", "shift"), [(30, 0.2, 6, 1.1), (99, 0.05, 4, 1.4), (20, 0.3, 2, 0.6)]
)
@pytest.mark.parametrize(
    ("epsilon", "adjacency"), [(0.05, "add-remove"), (0.6, "add-remove"), (0.3, "zero-out"), (0.3, "substitute")]
)
def test_the_bound_is_that_of_the_theorem(
    others: int, rate: float, largest: int, shift: float, epsilon: float, adjacency: str
) -> None:
    """A tenth more, since cells of angles are coarse; the sum over the line errs by less than 1e-6."""
    ours = float(HiddenSize(Truncation(others, rate, largest), shift, adjacency).forward(np.array([epsilon]))[0])
    true = by_hand(others, rate, largest, shift, epsilon, adjacency)
    assert true - 1e-6 <= ours <= 1.1 * true


def in_the_plane(record: complex, others: list[complex], instead: complex | None, epsilon: float) -> float:
    """D of one step, three others, two in a batch, q .4, sigma .7: every batch one by one, on a grid of the plane."""
    rate, step = 0.4, 0.16
    axis = np.arange(-7.0, 7.0, step)
    total = np.zeros((len(axis), len(axis)))
    for sign, some in (
        (1.0, [*others, record]),
        (-math.exp(epsilon), others if instead is None else [*others, instead]),
    ):
        for size in range(len(some) + 1):
            for joined in itertools.combinations(some, size):
                batches = list(itertools.combinations(joined, min(2, size)))
                for batch in batches:
                    at = sum(batch, 0.0 + 0.0j) / 0.7
                    weight = sign * rate**size * (1.0 - rate) ** (len(some) - size) / len(batches)
                    total += weight * np.outer(
                        np.exp(-0.5 * (axis - at.real) ** 2), np.exp(-0.5 * (axis - at.imag) ** 2)
                    )
    return float(np.maximum(total, 0.0).sum()) * step**2 / (2.0 * math.pi)


@pytest.mark.parametrize(
    ("adjacency", "instead"), [("add-remove", None), ("zero-out", 0.0 + 0.0j), ("substitute", -1.0 + 0.0j)]
)
def test_of_all_others_that_were_tried_those_that_are_alike_show_most(adjacency: str, instead: complex | None) -> None:
    """Half of them opposite, at angles of their own, or shorter: less than the best common angle, which is below."""
    rng = np.random.default_rng(5)
    alike = max(in_the_plane(1.0, [cmath.rect(1.0, math.radians(a))] * 3, instead, 0.5) for a in range(90, 181, 6))
    apart = [[1.0, -1.0, -1.0], [cmath.rect(1.0, 2.0), cmath.rect(1.0, -2.0), -1.0], [-0.8, -0.8, -0.8]]
    apart += [[cmath.rect(1.0, a) for a in rng.uniform(0.5 * math.pi, 1.5 * math.pi, 3)] for _ in range(8)]
    assert max(in_the_plane(1.0, [complex(g) for g in others], instead, 0.5) for others in apart) < alike
    cut = Truncation(3, 0.4, 2)
    assert alike < HiddenSize(cut, 1 / 0.7, adjacency).upper().delta(0.5)


@pytest.mark.slow
def test_common_truncation_is_proven_to_show_less() -> None:
    """N 1000, q .05, at most 45, sigma .7: delta(1) at most .0062, and more where it is revealed."""
    cut = Truncation(999, 0.05, 45)
    proof, before = (each.upper(0.05, -40.0) for each in (HiddenSize(cut, 1 / 0.7), hidden_place_proof(cut, 1 / 0.7)))
    assert 0.00239 < proof.delta(1.0) < 0.00618 < 0.0104 < before.delta(1.0) < 0.01052


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adjacency", "least", "most", "revealing"),
    [("zero-out", 0.00049, 0.0045, 0.008), ("substitute", 0.00056, 0.0065, 0.014)],
)
def test_a_record_that_keeps_its_place_shows_less_too(
    adjacency: str, least: float, most: float, revealing: float
) -> None:
    """The same run: revealing whether a batch is full proves nearly twice as much delta, or more than twice."""
    cut = Truncation(999, 0.05, 45)
    assert truncated_proof(cut, 1 / 0.7, adjacency).upper(0.05, -40.0).delta(1.0) > revealing
    run = cp.Run(
        sampler="truncated-poisson", dataset_size=1000, sample_rate=0.05, max_batch_size=45, steps=1,
        noise_multiplier=0.7, adjacency=adjacency,
    )  # fmt: skip
    bracket = cp.measure(run).delta(1.0)
    assert least < bracket.lower <= bracket.upper < most + 0.00001
