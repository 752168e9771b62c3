"""Truncated batches with all others at an angle to the record: the law against sums over a plane."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import calipers as cp
from calipers.pld.subsampling.oblique import ObliqueAttack
from calipers.pld.subsampling.truncation import Truncation

Floats = NDArray[np.float64]
OTHERS, RATE, LARGEST, SHIFT, ANGLE, STEP = 12, 0.35, 4, 1.2, math.radians(105), 0.06
X = np.arange(-9.0, SHIFT * (LARGEST + 1) + 9.0, STEP)
Y = np.arange(-9.0, SHIFT + 9.0, STEP)


def densities(instead: int | None) -> tuple[Floats, Floats]:
    """Of the noisy sum without and with the record, record by record: who joins, who is dropped."""
    absent, present = np.zeros((2, len(X), len(Y)))

    def add(into: Floats, weight: float, along: float, across: float) -> None:
        into += weight * np.outer(np.exp(-0.5 * (X - SHIFT * along) ** 2), np.exp(-0.5 * (Y - SHIFT * across) ** 2))

    for m in range(OTHERS + 1):
        chance = math.comb(OTHERS, m) * RATE**m * (1 - RATE) ** (OTHERS - m)
        used = min(m, LARGEST)
        kept = RATE * min(1.0, LARGEST / (m + 1))
        left = min(m, LARGEST - 1)  # others beside the record
        if instead is None:
            add(absent, chance, used, 0.0)
        else:
            add(absent, chance * (1 - kept), used, 0.0)
            add(absent, chance * kept, left + instead * math.cos(ANGLE), instead * math.sin(ANGLE))
        add(present, chance * (1 - kept), used, 0.0)
        add(present, chance * kept, left + math.cos(ANGLE), math.sin(ANGLE))
    return absent * STEP**2 / (2 * math.pi), present * STEP**2 / (2 * math.pi)


@pytest.mark.parametrize(("adjacency", "instead"), [("add-remove", None), ("zero-out", 0), ("substitute", -1)])
def test_the_law_shows_nearly_all_of_the_plane_and_no_more(adjacency: str, instead: int | None) -> None:
    """Twelve others, batches of four: delta of the law at most that of the densities, and at least 98 % of it."""
    cut = Truncation(OTHERS, RATE, LARGEST)
    pmf = ObliqueAttack(cut, SHIFT, adjacency, ANGLE).lower(0.05, -40.0)
    absent, present = densities(instead)
    assert float(absent.sum()) == pytest.approx(1.0, abs=1e-9)
    for epsilon in (0.0, 0.4, 1.0):
        for shown, first, second in ((pmf, present, absent), (pmf.reverse(), absent, present)):
            exact = float(np.sum(np.maximum(first - math.exp(epsilon) * second, 0.0)))
            # The sum over the plane errs by less than 1e-6.
            assert 0.98 * exact - 1e-6 <= shown.delta(epsilon) <= exact + 1e-6
            assert exact > 1e-4 or shown is not pmf


def test_sums_far_below_a_full_batch_are_one_outcome() -> None:
    """Batches of 30 in many deviations: masses are probabilities, and little is lost against finer cells."""
    cut = Truncation(80, 0.4, 30)
    attack = ObliqueAttack(cut, 2.0, "add-remove", ANGLE)
    rough, fine = attack.lower(0.2, -40.0), attack.lower(0.05, -40.0)
    for pmf in (rough, fine):
        assert 1.0 - 1e-6 < float(np.exp(pmf.log_p).sum()) <= 1.0 + 1e-9
        assert 1.0 - 1e-6 < float(np.exp(pmf.log_q).sum()) <= 1.0 + 1e-9
    assert 0.97 * fine.delta(0.3) <= rough.delta(0.3) <= fine.delta(0.3) * (1.0 + 1e-3)


@pytest.mark.slow
def test_common_truncation_shows_more_than_the_record_alone() -> None:
    """N 1000, q .05, at most 45, sigma .7: delta(1) of one step is at least .0023, where the record alone has .0005."""
    run = cp.Run(
        sampler="truncated-poisson", dataset_size=1000, sample_rate=0.05, max_batch_size=45, steps=1,
        noise_multiplier=0.7,
    )  # fmt: skip
    bracket = cp.measure(run).delta(1.0)
    assert 0.0023 <= bracket.lower <= bracket.upper
    # Where others are not seen, nothing but the record's own gradient shows.
    assert cp.measure(run.replace(view="isolated")).delta(1.0).lower < 0.001
