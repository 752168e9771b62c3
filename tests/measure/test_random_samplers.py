"""Random runs of every sampler, unit and noise (`oracles.random_runs`, which many processes can share)."""

from __future__ import annotations

import pytest
from oracles.random_runs import NAMES, answered


@pytest.mark.parametrize("name", NAMES)
def test_a_few_random_runs_are_right(name: str) -> None:
    """Jaws in order, answers that agree, nothing raised."""
    assert [seen for seen in answered(name, 1, range(2)) if seen["wrong"] is not None] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 500, 10))
@pytest.mark.parametrize("name", NAMES)
def test_five_hundred_random_runs_are_right(name: str, first: int) -> None:
    """The same of many, ten at a time."""
    assert [seen for seen in answered(name, 2, range(first, first + 10)) if seen["wrong"] is not None] == []
