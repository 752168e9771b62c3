"""Poisson runs of large datasets, over the grid of `drivers.rare_grid`: epsilon to two parts in a thousand.

Known corners, by rule (`drivers.rare_grid.widest`): deltas below 1e-12, and epsilons below 1e-4.
"""

from __future__ import annotations

import multiprocessing
import random
from typing import Any

import pytest
from drivers.many import alone
from drivers.rare_grid import WIDEST, asked, settings, why_bad, widest

needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="measures its own time in a forked process"
)


def test_the_grid() -> None:
    """1,680 settings, the regime of language models among them; two phases where there are two steps."""
    listed = settings()
    assert len(listed) == 1680
    few = [each for each in listed if each["sample_rate"] <= 1e-4 and each["steps"] * each["sample_rate"] <= 10.0]
    assert len(few) > 600
    assert len(settings(phases=True)) == 1470


def test_a_wide_answer_is_bad() -> None:
    """So are crossed jaws, a slow answer, and none."""
    fine: dict[str, Any] = {"outcome": "answered", "delta": 1e-5, "epsilon": [1.0 - WIDEST / 2, 1.0], "seconds": 0.5}
    assert why_bad(fine) == ""
    assert why_bad(fine | {"epsilon": [0.99, 1.0]}) == "wide"
    assert why_bad(fine | {"epsilon": [0.997, 1.0]}) == "wide"
    assert why_bad(fine | {"epsilon": [0.997, 1.0], "delta": 1e-15}) == ""
    assert why_bad(fine | {"epsilon": [0.995, 1.0], "delta": 1e-15}) == "wide"
    assert why_bad(fine | {"epsilon": [5.7e-6, 5.8e-6]}) == ""
    assert why_bad(fine | {"epsilon": [1.1, 1.0]}) == "crossed"
    assert why_bad(fine | {"seconds": 2.0}) == "slow"
    assert why_bad(fine | {"outcome": "killed"}) == "killed"


PIECES = 30
"""Settings of one test; all of the grid has its turn, piece by piece."""


@needs_fork
@pytest.mark.parametrize(
    ("phases", "first"),
    [
        pytest.param(phases, first, marks=() if first == 0 and not phases else pytest.mark.heavy)
        for phases in (False, True)
        for first in range(0, len(settings(phases)), PIECES)
    ],
)
def test_epsilon_is_narrow_over_the_grid(phases: bool, first: int) -> None:
    """As narrow as `widest` says; seconds, which depend on what else the machine does, are the driver's to judge."""
    listed = settings(phases)
    random.Random(0).shuffle(listed)
    for each in listed[first : first + (PIECES if first else 6)]:
        found = alone(asked, each)
        assert found["outcome"] == "answered", (each, found)
        lower, upper = found["epsilon"]
        assert lower <= upper, (each, found)
        assert upper - lower <= widest(each["delta"], upper), (each, found)
