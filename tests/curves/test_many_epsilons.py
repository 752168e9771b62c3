"""A profile asked at many points looks at few tests for each, and finds what looking at all of them finds."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve


def curve(side: Side, size: int) -> TradeoffCurve:
    """Random errors, with mass that only one of the two datasets has, as their convex hull."""
    rng = np.random.default_rng(size)
    odds = np.sort(rng.exponential(size=size) ** 6)[::-1]
    q = rng.exponential(size=size) * 10.0 ** -rng.uniform(0, 8, size=size)
    q /= 1.1 * q.sum()
    p = odds * q / (1.05 * (odds * q).sum())
    alpha, power = np.append(0.0, np.cumsum(q)), 0.03 + np.append(0.0, np.cumsum(p))
    return TradeoffCurve.from_tests(alpha, np.minimum(power, 1.0), side=side)


@pytest.mark.parametrize("size", [1, 2, 700])
def test_all_at_once_is_one_by_one(size):
    """In any order, at the segments' own odds, beside them, beyond all of them; to the last digit."""
    found = curve(Side.LOWER, size)
    own = np.log(found.odds[np.isfinite(found.odds) & (found.odds > 0.0)])
    rng = np.random.default_rng(1)
    asked = rng.permutation(
        np.concatenate((own, own * (1 + 1e-15), own - 1e-10, rng.uniform(-40, 40, 300), [0.0, -700.0, 700.0, 720.0]))
    )
    assert found.delta(asked).tolist() == [float(found.delta(one)) for one in asked]
    assert found.delta(asked.reshape(1, -1, 1)).shape == (1, asked.size, 1)
