"""Tree aggregation without its matrix, against all patterns one by one and against the matrix."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from calipers.mechanisms import Patterns, TreeNoise


def squared(steps: int, pattern: tuple[int, ...]) -> int:
    """The sum over complete nodes of the square of how many of the pattern they hold, node by node."""
    total, length = 0, 1
    while length <= steps:
        for start in range(0, steps - length + 1, length):
            total += sum(start <= place < start + length for place in pattern) ** 2
        length *= 2
    return total


@pytest.mark.parametrize(("steps", "separation", "most"), [(14, 3, 5), (16, 5, 4), (21, 6, 4), (13, 1, 13), (24, 7, 2)])
def test_every_pattern_lies_between_the_ends(steps: int, separation: int, most: int) -> None:
    """No pattern shows more than the upper end, and the one that is named shows the lower end."""
    found = TreeNoise(steps).sensitivity(Patterns(separation, most))
    best = max(
        squared(steps, pattern)
        for count in range(1, most + 1)
        for pattern in itertools.combinations(range(steps), count)
        if all(b - a >= separation for a, b in itertools.pairwise(pattern))
    )
    assert found.lower**2 <= best * (1.0 + 1e-12)
    assert best <= found.upper**2
    assert squared(steps, found.pattern) == pytest.approx(found.lower**2, rel=1e-9)
    assert best <= 1.05 * found.lower**2


@pytest.mark.parametrize(
    ("steps", "separation", "most"), [(200, 13, None), (255, 32, None), (300, 7, 20), (129, 40, 2)]
)
def test_the_tree_is_never_wider_than_its_matrix(steps: int, separation: int, most: int | None) -> None:
    """The bound of every row's best pattern on C'C is the other way to it."""
    patterns, tree = Patterns(separation, most), TreeNoise(steps)
    found, dense = tree.sensitivity(patterns), tree.materialized().sensitivity(patterns)
    assert found.upper <= dense.upper * (1.0 + 1e-12)
    assert dense.lower <= found.upper
    assert np.allclose(tree.column_norms(), tree.materialized().column_norms())
    assert tree.bands() == tree.materialized().bands()


def test_a_hundred_thousand_steps_are_few() -> None:
    """The bracket of the sensitivity is within one percent, and no matrix is made."""
    for patterns in (Patterns(5000), Patterns(100, 20), Patterns(1), Patterns(300)):
        found = TreeNoise(100_000).sensitivity(patterns)
        assert found.lower <= found.upper <= 1.01 * found.lower
