"""Truncated batches that may be two records short: every term of the bound evaluated anew on the line."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.pld.subsampling.hidden_place import hidden_place_proof
from calipers.pld.subsampling.hidden_size import HiddenSize
from calipers.pld.subsampling.oblique import ObliqueAttack
from calipers.pld.subsampling.truncated import TruncatedAttack
from calipers.pld.subsampling.truncation import Truncation

STEP = 0.02
Z = np.arange(-9.0, 9.0, STEP)


def bell(mean: float) -> np.ndarray:
    return np.asarray(np.exp(-0.5 * (Z - mean) ** 2) * STEP / math.sqrt(2.0 * math.pi))


def gained(above: np.ndarray, *below: np.ndarray) -> float:
    return float(np.maximum(above - sum(below), 0.0).sum())


def by_hand(others: int, rate: float, largest: int, r: float, epsilon: float) -> float:
    """The theorem as it is written: all m one by one, angles on a grid, the best of six shares."""
    chances = [math.comb(others, m) * rate**m * (1.0 - rate) ** (others - m) for m in range(others + 1)]
    full = math.fsum(chances[largest:])
    s = math.fsum(w * largest / (m + 1) for m, w in enumerate(chances) if m >= largest) / full
    one, two, k = chances[largest - 1], chances[largest - 2], math.exp(epsilon)
    rest = sum(gained(w * rate * bell(r), w * (k - 1 + rate) * bell(0.0)) for w in chances[: largest - 2])
    cosines, found = np.cos(np.linspace(0.0, math.pi, 9)), []
    for share in (0.0, 0.3, 0.5, 0.7, 0.85, 0.95):
        f = np.array(
            [
                [
                    gained(
                        rate * (one + s * full) * bell(0.0),
                        (k - 1 + rate) * one * bell(-r),
                        share * (k - 1 + rate) * two * bell(-r * math.sqrt(max(0.0, 2 + 2 * c))),
                        (k - 1 + rate * s) * full * bell(-r * math.sqrt(max(0.0, 2 - 2 * d))),
                    )
                    for d in cosines
                ]
                for c in cosines
            ]
        )
        own = gained(rate * two * bell(r), (1 - share) * (k - 1 + rate) * two * bell(0.0))
        found.append(float(np.max(f + f.T)) / 2.0 + own + rest)
    return min(found)


@pytest.mark.parametrize(
    ("others", "rate", "largest", "shift"), [(30, 0.2, 6, 1.1), (99, 0.05, 4, 1.4), (20, 0.3, 2, 0.6)]
)
@pytest.mark.parametrize("epsilon", [0.05, 0.6])
def test_the_bound_is_that_of_the_theorem(others: int, rate: float, largest: int, shift: float, epsilon: float) -> None:
    """A tenth more, since cells of angles are coarse; the sum over the line errs by less than 1e-6."""
    ours = float(HiddenSize(Truncation(others, rate, largest), shift).forward(np.array([epsilon]))[0])
    true = by_hand(others, rate, largest, shift, epsilon)
    assert true - 1e-6 <= ours <= 1.1 * true


@pytest.mark.slow
def test_common_truncation_is_proven_to_show_less() -> None:
    """N 1000, q .05, at most 45, sigma .7: delta(1) at most .0062, and at least what others at an angle show, .0024."""
    cut = Truncation(999, 0.05, 45)
    proof, before = (each.upper(0.05, -40.0) for each in (HiddenSize(cut, 1 / 0.7), hidden_place_proof(cut, 1 / 0.7)))
    assert 0.00239 < proof.delta(1.0) < 0.00618 < 0.0104 < before.delta(1.0) < 0.01052
    shown = ObliqueAttack(TruncatedAttack(cut, 1 / 0.7, -1, None), math.radians(110)).lower(0.05, -40.0)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        assert shown.delta(epsilon) <= proof.delta(epsilon)
        assert shown.reverse().delta(epsilon) <= proof.reverse().delta(epsilon)
