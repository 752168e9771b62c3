"""PLDs of steps with hardly any noise: all their mass is there."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.pld.core.drawn_shift import Shifts, drawn_shift


def test_a_wide_law_holds_all_mass_and_shows_no_more_than_there_is():
    """Two lengths far apart: what is shown at an epsilon beyond the first is the chance of the second."""
    pair = drawn_shift(Shifts.of([0.0, 300.0, 600.0], [0.25, 0.5, 0.25]))
    pmf = pair.lower(0.2, -60.0)
    for masses in (pmf.log_p, pmf.log_q):
        assert float(np.exp(masses).sum()) == pytest.approx(1.0, rel=1e-9)
    assert pmf.delta(0.5 * 300.0**2 + 20.0 * 300.0) == pytest.approx(0.25, abs=1e-9)
    assert pmf.delta(0.5 * 300.0**2 - 20.0 * 300.0) == pytest.approx(0.75, abs=1e-9)
