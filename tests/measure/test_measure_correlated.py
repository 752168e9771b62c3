"""Runs with correlated noise: closed forms, products and refusals."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import calipers as cp
from calipers.errors import InputError, UnsupportedError
from calipers.measure import CorrelatedNoise
from calipers.measure.correlated import correlated_of, load_matrix
from calipers.mechanisms import NoiseMatrix, Patterns, compose, poisson_gaussian

IDENTITY = NoiseMatrix.of_toeplitz([1.0], 300)
BANDED = 1.0 / np.sqrt(np.arange(1, 5))


def test_identity_is_dp_sgd() -> None:
    """Independent noise: one group is Poisson sampling, known times are fixed batches."""
    cyclic = cp.measure(CorrelatedNoise(IDENTITY, 1.0, Patterns(1), sample_rate=0.02)).epsilon(1e-5)
    plain = cp.measure(cp.Run(sample_rate=0.02, steps=300, noise_multiplier=1.0)).epsilon(1e-5)
    assert cyclic.lower <= plain.upper
    assert plain.lower <= cyclic.upper
    assert cyclic.relative_width < 1e-3
    known = cp.measure(CorrelatedNoise(IDENTITY, 4.0, Patterns(100))).epsilon(1e-5)
    fixed = cp.measure(cp.Guarantee(mu=math.sqrt(3.0) / 4.0)).epsilon(1e-5)
    assert known.lower <= fixed.upper
    assert fixed.lower <= known.upper


def test_groups_take_turns() -> None:
    """b groups: ceil(T/b) Poisson rounds at the noise of one column; the last, shorter columns count less."""
    length = float(np.linalg.norm(BANDED))
    run = CorrelatedNoise(NoiseMatrix.of_toeplitz(BANDED, 400), 2.0, Patterns(4), sample_rate=0.1)
    found = cp.measure(run).epsilon(1e-5)
    rounds = cp.measure(compose((poisson_gaussian(0.1, 2.0 / length), 100))).epsilon(1e-5)
    assert found.lower <= rounds.upper
    assert rounds.lower <= found.upper * (1.0 + 1e-9)
    fewer = cp.measure(compose((poisson_gaussian(0.1, 2.0 / length), 99))).epsilon(1e-5)
    assert fewer.upper < found.lower
    assert cp.measure(run).closes


def test_many_different_columns_stay_a_bracket() -> None:
    """24 columns of different lengths: rounded up above and down below; no group exceeds the upper bound."""
    rng = np.random.default_rng(2)
    dense = np.tril(rng.uniform(0.5, 1.0, (24, 24))) * (np.tri(24) - np.tri(24, k=-2))
    run = CorrelatedNoise(NoiseMatrix.of(dense), 3.0, Patterns(2), sample_rate=0.2)
    found = cp.measure(run, tolerance=1e-2).epsilon(1e-5)
    norms = np.linalg.norm(dense, axis=0)
    for group in (0,):
        exact = cp.measure(
            compose(*[poisson_gaussian(0.2, 3.0 / float(n)) for n in norms[group::2]]), tolerance=0.05
        ).epsilon(1e-5)
        assert exact.lower <= found.upper
    assert 0.92 * found.upper <= found.lower <= found.upper


def test_substitution_doubles_what_is_moved() -> None:
    """Known times: twice the shift."""
    one, two = (
        CorrelatedNoise(IDENTITY, s, Patterns(50), adjacency=a) for s, a in ((2, "zero-out"), (4, "substitute"))
    )
    assert cp.measure(one).epsilon(1e-5).upper == pytest.approx(cp.measure(two).epsilon(1e-5).upper, rel=1e-12)


def test_bands_beyond_the_groups_are_refused() -> None:
    """Three groups, four bands: what a record adds still shows at its next turn."""
    matrix = NoiseMatrix.of_toeplitz(BANDED, 40)
    with pytest.raises(UnsupportedError, match="4 bands and there are 3 groups"):
        cp.measure(CorrelatedNoise(matrix, 1.0, Patterns(3), sample_rate=0.1))
    with pytest.raises(InputError, match="leave the rest out"):
        CorrelatedNoise(matrix, 1.0, Patterns(4, 2), sample_rate=0.1)


def test_files(tmp_path: Path) -> None:
    """One column is Toeplitz, several are dense, whatever the format; mistakes are named."""
    np.save(tmp_path / "c.npy", BANDED)
    np.savetxt(tmp_path / "c.csv", np.tril(np.ones((5, 5))), delimiter=",")
    keys = {"noise_matrix": str(tmp_path / "c.npy"), "steps": 50, "noise_multiplier": 2.0, "min_separation": 5}
    assert correlated_of(keys).matrix.bands() == 4
    assert load_matrix(str(tmp_path / "c.csv")).steps == 5
    (tmp_path / "bad.txt").write_text("three")
    for wrong, message in (
        (keys | {"noise_matrix": str(tmp_path / "none.npy")}, "Cannot read"),
        (keys | {"noise_matrix": str(tmp_path / "bad.txt")}, "no matrix"),
        (keys | {"noise_matrix": str(tmp_path / "c.csv")}, "5 columns"),
        (keys | {"epochs": 3}, "epochs"),
        ({key: keys[key] for key in keys if key != "min_separation"}, "min_separation"),
        ({key: keys[key] for key in keys if key != "noise_multiplier"}, "noise_multiplier"),
        ({"noise_matrix": "tree", "noise_multiplier": 1.0, "min_separation": 1}, "needs steps"),
    ):
        with pytest.raises(InputError, match=message):
            correlated_of(wrong)
