"""Random shuffled runs of every kind: no bracket crosses, none lies above fixed batches, nothing is raised."""

from __future__ import annotations

import pytest
from oracles.random_shuffled import asked


@pytest.mark.parametrize(
    ("draws", "seed"), [(2, 5), *(pytest.param(1, seed, marks=pytest.mark.heavy) for seed in range(6, 36))]
)
def test_random_shuffled_runs_do_not_cross(draws: int, seed: int) -> None:
    """Lower <= upper <= fixed batches, without tolerance between the bounds; nothing is raised."""
    assert [seen for seen in asked(range(draws), 4, seed) if seen["wrong"] is not None] == []
