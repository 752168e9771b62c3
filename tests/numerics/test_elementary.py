"""Elementary steps: what is in order, and once."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.numerics.elementary import bisect, bisect_ratio, distinct, fewest


@pytest.mark.parametrize("values", [[], [2.0], [1.0, 1.0], [3.0, -0.0, 0.0, 1e-300, 3.0, np.inf, -np.inf, np.inf]])
def test_distinct_values_are_those_of_numpy(values):
    """Empty, single, repeated and infinite ones."""
    given = np.array(values, dtype=np.float64)
    assert distinct(given).tolist() == np.unique(given).tolist()


def test_halving_keeps_its_ends_on_their_sides():
    """The root of a half to the last digit; ends in the other order stay so; no further than asked."""
    low, high = bisect(0.0, 1.0, lambda x: x * x < 0.5, 60)
    assert low * low < 0.5 <= high * high
    assert high == np.nextafter(low, 1.0)
    inside, outside = bisect(1.0, 0.0, lambda x: x > 0.3, 50)
    assert outside <= 0.3 < inside < 0.3 + 1e-12
    low, high = bisect(0.0, 8.0, lambda x: x < 5.3, 60, 1.0)
    assert (low, high) == (5.0, 6.0)
    low, high = bisect(0.0, 8.0, lambda x: x < 1e-3, 60, share=0.25)
    assert low < 1e-3 <= high
    assert 0.125 * high < high - low <= 0.25 * high


def test_halving_of_ratios_crosses_many_magnitudes():
    low, high = bisect_ratio(1e-9, 1e9, lambda x: x < 20.0, 60, 1.02)
    assert low < 20.0 <= high
    assert 1.01 < high / low <= 1.02 * (1.0 + 1e-12)
    most, least = bisect_ratio(1e9, 1e-9, lambda x: x > 20.0, 60, 1.02)
    assert least <= 20.0 < most <= 1.02 * (1.0 + 1e-12) * least


@pytest.mark.parametrize("number", [1, 2, 37, 1024, 10**12 + 1])
def test_the_fewest_that_suffice(number):
    assert fewest(lambda many: many >= number, 0, 1) == number
