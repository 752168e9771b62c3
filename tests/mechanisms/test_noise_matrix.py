"""The sensitivity of a noise matrix, beside an enumeration of all patterns of participation."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from calipers.errors import InputError, UnsupportedError
from calipers.mechanisms import TreeNoise
from calipers.mechanisms.noise_matrix import NoiseMatrix, Patterns, best_pattern, best_values
from calipers.numerics.types import FloatArray


def enumerated(matrix: FloatArray, patterns: Patterns) -> tuple[float, float]:
    """(attained, allowed): over all patterns, the best signs of one direction, and the sum of |<c_i, c_j>|."""
    attained = allowed = 0.0
    steps = matrix.shape[1]
    for size in range(1, patterns.most(steps) + 1):
        for pattern in itertools.combinations(range(steps), size):
            gaps = np.diff(pattern)
            if np.any(gaps < patterns.min_separation) or (patterns.fixed and np.any(gaps != patterns.min_separation)):
                continue
            columns = matrix[:, pattern]
            allowed = max(allowed, math.sqrt(float(np.abs(columns.T @ columns).sum())))
            for signs in itertools.product((1.0, -1.0), repeat=size - 1):
                attained = max(attained, float(np.linalg.norm(columns @ np.array((1.0, *signs)))))
    return attained, allowed


def random_matrix(rng: np.random.Generator, kind: str, steps: int, separation: int) -> NoiseMatrix:
    """One of the kinds of matrices that people use."""
    if kind == "falling":
        return NoiseMatrix.of_toeplitz(np.sort(rng.uniform(size=steps))[::-1] + 0.01, steps)
    if kind == "toeplitz":
        return NoiseMatrix.of_toeplitz(np.append(1.0, rng.normal(size=steps - 1)), steps)
    if kind == "tree":
        return TreeNoise(steps)
    dense = rng.uniform(0.05, 1.0, (steps, steps)) if kind == "positive" else rng.normal(size=(steps, steps))
    dense = np.tril(dense) * (1.0 if kind != "banded" else np.tri(steps) - np.tri(steps, k=-separation))
    return NoiseMatrix.of(dense + 0.1 * np.eye(steps))


KINDS = ("falling", "toeplitz", "tree", "positive", "banded", "signed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fixed", [False, True])
def test_sensitivity_brackets_the_enumeration(kind: str, fixed: bool) -> None:
    """attained in [lower, upper], allowed <= upper where the proof is |C'C|; exact for the kinds that promise it."""
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(12):
        steps = int(rng.integers(1, 9))
        separation, most = int(rng.integers(1, steps + 1)), int(rng.integers(1, 5))
        patterns = Patterns(separation, most, fixed)
        matrix = random_matrix(rng, kind, steps, separation)
        found = matrix.sensitivity(patterns)
        dense = matrix.materialized().dense
        assert dense is not None
        attained, _ = enumerated(dense, patterns)
        assert found.lower <= attained * (1.0 + 1e-14)
        assert attained <= found.upper
        if kind in ("falling", "banded") or (fixed and kind in ("tree", "positive")):
            assert found.exact
        played = dense[:, list(found.pattern)]
        assert np.all(np.diff(found.pattern) >= separation)
        assert len(found.pattern) <= most
        # The pattern that is named shows the lower end, with some signs.
        assert found.lower <= math.sqrt(float(np.abs(played.T @ played).sum())) * (1.0 + 1e-12)


def test_a_pattern_too_close_would_show_more() -> None:
    """The separation matters: with one step less between participations the length grows."""
    matrix = NoiseMatrix.of_toeplitz(1.0 / np.sqrt(np.arange(1, 101)), 100)
    apart, close = (matrix.sensitivity(Patterns(b, 4)).upper for b in (25, 24))
    assert matrix.sensitivity(Patterns(24, 4)).lower > apart
    assert close > apart


def test_tree_of_a_power_of_two() -> None:
    """One participation is in log2(T) + 1 nodes; eight steps have fifteen nodes."""
    tree = TreeNoise(8)
    dense = tree.materialized().dense
    assert dense is not None
    assert dense.shape == (15, 8)
    assert tree.sensitivity(Patterns(8, 1)).upper == pytest.approx(2.0, rel=1e-12)


def test_buffered_toeplitz_is_its_recurrence() -> None:
    """1, s1 + s2, s1 d1 + s2 d2, ..."""
    matrix = NoiseMatrix.blt([0.9, 0.5], [0.3, 0.1], 4)
    assert matrix.toeplitz == pytest.approx([1.0, 0.4, 0.27 + 0.05, 0.243 + 0.025])


def test_longest_paths_remember_a_bit_a_step() -> None:
    """20,000 steps, at most 200 participations: a table of floats would hold 32 MB."""
    values = np.random.default_rng(4).uniform(size=20_000)
    tracemalloc.start()
    try:
        value, pattern = best_pattern(values, 7, 200)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(pattern) == 200
    assert float(values[list(pattern)].sum()) == pytest.approx(value, rel=1e-12)
    assert most < 4e6


def test_longest_paths() -> None:
    """Both forms of the dynamic program agree with enumeration, and the pattern adds up to the value."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        values = rng.uniform(size=int(rng.integers(1, 10)))
        separation, count = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        value, pattern = best_pattern(values, separation, count)
        best = max(
            float(values[list(chosen)].sum())
            for size in range(min(count, len(values)) + 1)
            for chosen in itertools.combinations(range(len(values)), size)
            if all(b - a >= separation for a, b in itertools.pairwise(chosen))
        )
        assert value == pytest.approx(best, rel=1e-12)
        assert float(values[list(pattern)].sum()) == pytest.approx(value, rel=1e-12)
        assert best_values(values[None, :], separation, count)[0] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((3, 3)), "lower triangular"),
        (np.ones((4, 3)), "lower triangular"),
        (np.diag([1.0, 0.0, 1.0]), "column of zeros"),
        (np.array([[np.nan]]), "finite"),
        (np.ones(3), "matrix"),
    ],
)
def test_what_no_theorem_covers_is_refused(matrix: FloatArray, message: str) -> None:
    """Not lower triangular, a step that releases nothing, no numbers."""
    with pytest.raises((InputError, UnsupportedError), match=message):
        NoiseMatrix.of(matrix)


def test_growing_coefficients_are_searched_or_refused() -> None:
    """A long Toeplitz matrix whose coefficients grow has no closed form and is too large to search."""
    with pytest.raises(UnsupportedError, match="do not grow"):
        NoiseMatrix.of_toeplitz(np.linspace(1.0, 2.0, 5000), 5000).sensitivity(Patterns(10))
    short = NoiseMatrix.of_toeplitz([1.0, 2.0, 0.5], 6).sensitivity(Patterns(2))
    assert short.lower <= short.upper


@pytest.mark.slow
def test_random_matrices_never_cross() -> None:
    """600 matrices of all kinds: the enumeration lies between the ends."""
    rng = np.random.default_rng(17)
    for trial in range(600):
        steps = int(rng.integers(1, 9))
        patterns = Patterns(int(rng.integers(1, steps + 1)), int(rng.integers(1, 5)), bool(rng.integers(2)))
        matrix = random_matrix(rng, KINDS[trial % len(KINDS)], steps, patterns.min_separation)
        found, dense = matrix.sensitivity(patterns), matrix.materialized().dense
        assert dense is not None
        attained, _ = enumerated(dense, patterns)
        assert found.lower <= attained * (1.0 + 1e-14)
        assert attained <= found.upper
