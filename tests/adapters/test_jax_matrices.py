"""Noise matrices of the installed JAX-Privacy, read and measured beside its own sensitivities."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from calipers.adapters.jax_matrices import noise_matrix_of
from calipers.errors import InputError
from calipers.mechanisms import Patterns

pytest.importorskip("jax_privacy", reason="JAX-Privacy comes with the extra of that name")
pytestmark = [pytest.mark.jax_privacy, pytest.mark.filterwarnings("ignore")]


def test_banded_and_buffered_matrices_have_the_librarys_sensitivity() -> None:
    """Column-normalized bands, and a BLT; the library computes in single precision."""
    from jax_privacy.matrix_factorization import banded, buffered_toeplitz, sensitivity, toeplitz

    strategy = banded.ColumnNormalizedBanded.default(40, 4)
    matrix = noise_matrix_of(strategy)
    assert (matrix.steps, matrix.bands()) == (40, 4)
    theirs = sensitivity.get_sensitivity_banded(strategy.materialize(), min_sep=4, max_participations=5)
    assert matrix.sensitivity(Patterns(4, 5)).upper == pytest.approx(theirs, rel=1e-5)

    blt = buffered_toeplitz.BufferedToeplitz(buf_decay=np.array([0.9, 0.5]), output_scale=np.array([0.3, 0.1]))
    coefficients = noise_matrix_of(blt, 50)
    assert coefficients.toeplitz is not None
    of_them = toeplitz.minsep_sensitivity_squared
    length = {"n": 50} if "n" in inspect.signature(of_them).parameters else {}
    squared = of_them(coefficients.toeplitz, min_sep=10, max_participations=3, **length)
    assert coefficients.sensitivity(Patterns(10, 3)).upper == pytest.approx(math.sqrt(float(squared)), rel=1e-4)
    with pytest.raises(InputError, match="add steps"):
        noise_matrix_of(blt)


def test_a_noising_matrix_is_inverted() -> None:
    """C^-1 as the privatizer takes it gives C back."""
    encoder = np.tril(np.random.default_rng(0).uniform(0.5, 1.0, (8, 8)))
    found = noise_matrix_of(np.linalg.inv(encoder) * np.tri(8), noising=True)
    assert found.dense == pytest.approx(encoder, rel=1e-9)
