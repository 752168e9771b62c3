"""Elementary steps: what is in order, and once."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.numerics.elementary import distinct


@pytest.mark.parametrize("values", [[], [2.0], [1.0, 1.0], [3.0, -0.0, 0.0, 1e-300, 3.0, np.inf, -np.inf, np.inf]])
def test_distinct_values_are_those_of_numpy(values):
    """Empty, single, repeated and infinite ones."""
    given = np.array(values, dtype=np.float64)
    assert distinct(given).tolist() == np.unique(given).tolist()
