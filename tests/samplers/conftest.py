"""The goodness-of-fit test by which sampler laws are accepted or rejected."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

import pytest
from scipy.special import gammaincc

# Each acceptance raises a false alarm with this probability; each rejection must be this certain.
SIGNIFICANCE = 1e-6


def chi_square_p(observed: Iterable[Hashable], law: Mapping[Hashable, float]) -> float:
    """p-value of Pearson's chi-square test of independent observations against a discrete law.

    An observation the law forbids gives 0. Cells must be well filled for the asymptotics to hold.
    """
    assert abs(sum(law.values()) - 1) < 1e-12
    values = list(observed)
    counts = dict.fromkeys(law, 0)
    for value in values:
        if law.get(value, 0.0) == 0.0:
            return 0.0
        counts[value] += 1
    cells = [(counts[cell], len(values) * p) for cell, p in law.items() if p > 0]
    assert min(expected for _, expected in cells) >= 10, "too few observations for the chi-square law"
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    return float(gammaincc((len(cells) - 1) / 2, statistic / 2)) if len(cells) > 1 else 1.0


@pytest.fixture
def fits() -> Callable[[Iterable[Hashable], Mapping[Hashable, float]], bool]:
    """True when the observations do not contradict the law at level SIGNIFICANCE."""
    return lambda observed, law: chi_square_p(observed, law) > SIGNIFICANCE
