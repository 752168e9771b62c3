"""A law that connects proven nodes of a profile: above every node, above their chords, never below the last value."""

from __future__ import annotations

import itertools
import math

import pytest

from calipers.pld.core.profile_pmf import pmf_of_profile

FORWARD = [(0.0, 0.3), (0.4, 0.22), (1.0, 0.1), (2.5, 0.004)]
BACKWARD = [(0.0, 0.3), (0.5, 0.15), (1.1, 0.02)]


def chord(nodes, epsilon):
    """What is proven at epsilon: linear in e^epsilon between nodes, constant beyond the last."""
    for (low, at_low), (high, at_high) in itertools.pairwise(nodes):
        if low <= epsilon <= high:
            share = math.expm1(epsilon - low) / math.expm1(high - low)
            return at_low + share * (at_high - at_low)
    return nodes[-1][1]


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.4, 0.7, 1.0, 1.7, 2.5, 5.0, 50.0])
@pytest.mark.parametrize("backward", [None, BACKWARD])
def test_what_is_proven_at_the_nodes_is_what_the_law_says(epsilon, backward):
    """Masses are known up to the law's own error, which compositions charge."""
    pmf = pmf_of_profile(FORWARD, backward)
    assert pmf.delta(epsilon) == pytest.approx(chord(FORWARD, epsilon), rel=1e-12)
    assert pmf.reverse().delta(epsilon) == pytest.approx(chord(backward or FORWARD, epsilon), rel=1e-12)
