"""Sums of worst-case terms: against quadrature and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.pld.allocation.profile_scan import ProfileScan
from calipers.pld.allocation.several_rounds import several_rounds_proof, tilts_for
from calipers.pld.allocation.worst_case_sum import divergence, rough_stop_losses
from calipers.pld.allocation.worst_case_term import opposite, zeroed_out
from calipers.pld.composition.one_sided import ProofProduct

GRID = np.linspace(-11.0, 11.0, 1001)
DENSITY = np.exp(-0.5 * GRID**2) / math.sqrt(2.0 * math.pi) * (GRID[1] - GRID[0])


def by_quadrature(sigma: float, epsilon: float, share: float = 1.0) -> float:
    """The divergence of two rounds, over a grid of their noises; the record takes part with probability `share`."""
    k = math.exp(epsilon)
    term = np.exp(GRID / sigma - 0.5 / sigma**2) - k * np.exp(-GRID / sigma - 0.5 / sigma**2)
    mixed = (1.0 - share) * (1.0 - k) + 0.5 * share * np.add.outer(term, term)
    return float(DENSITY @ np.maximum(mixed, 0.0) @ DENSITY)


@pytest.mark.parametrize(("sigma", "first"), [(0.7, 0.0), (0.7, 2.0), (2.0, 0.5)])
def test_two_rounds_are_proven_and_close(sigma, first):
    """Two rounds: at or above a sum over a grid of both noises, and within a percent of it."""
    for epsilon in (first + 0.1 * i for i in range(6)):
        node, value = divergence(opposite(sigma, epsilon), 2, 1.0, 0.05, -40.0)
        truth = by_quadrature(sigma, epsilon)
        assert epsilon <= node < epsilon + 1e-9
        assert truth * (1.0 - 1e-4) <= value < truth * 1.01


def test_a_record_that_may_sit_out_moves_the_threshold():
    """Half of the time nothing is shown: the stop-loss transform of the sum at a threshold of its own."""
    sigma, share = 0.8, 0.5
    for epsilon in (0.2, 0.3, 0.4):
        value = divergence(opposite(sigma, epsilon), 2, share, 0.05, -40.0)[1]
        truth = by_quadrature(sigma, epsilon, share)
        assert truth * (1.0 - 1e-4) <= value < truth * 1.01


def test_what_was_cut_is_looked_at_again():
    """Values fall by e^60; each is resolved below itself, and most of them at the first look."""
    asked: list[float] = []

    def look(epsilon, depth):
        asked.append(epsilon)
        return max(-30.0 * epsilon, depth)  # nothing is seen below the depth

    outward = ProfileScan(look, lambda _, found: found, 0.0, 8.0)
    epsilons = [0.05 * i for i in range(41)]
    found = dict(outward.along(epsilons, -60.0, -math.inf))
    assert all(found[epsilon] == pytest.approx(-30.0 * epsilon) for epsilon in epsilons)
    assert len(asked) < 1.2 * len(epsilons)
    rough = [epsilon for epsilon, _ in outward.along(epsilons, -60.0, -math.inf, far=-5.0)]
    assert len(rough) < 0.8 * len(epsilons)


def test_values_that_rise_ask_for_no_more_than_everything():
    """Where one choice of weights gives way to another, bounds may rise from node to node: depths stay logarithms."""
    depths: list[float] = []

    def look(epsilon, depth):
        depths.append(depth)
        return -20.0 + 60.0 * min(epsilon, 0.3)

    outward = ProfileScan(look, lambda _, found: found, 0.0, 8.0)
    epsilons = [0.1, 0.2, 0.3, 0.4, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [epsilon for epsilon, _ in outward.along(epsilons, -60.0, -math.inf, start=(0.0, -20.0))] == epsilons
    assert max(depths) < -8.0


def test_choices_come_from_sums_that_are_about_right():
    """What the theorems are chosen by is near the certified bound, at every number of rounds."""
    term = zeroed_out(1.2, 0.3, False)
    counts, calls = rough_stop_losses(term, 700, 0.5, -30.0)
    assert counts.tolist() == [2.0**j for j in range(10)]
    for count, call in zip(counts[2:], calls[2:], strict=True):
        assert divergence(term, int(count), 1.0, 0.05, -30.0)[1] == pytest.approx(call, rel=0.05)


def test_long_groups_leave_rounds_out():
    """So long that one round of ten thousand makes no difference; where it does, every round counts."""
    ((long, count),) = several_rounds_proof(1.0, 60_007, 6, "add-remove")
    assert (long.rounds, count) == (10_001, 6)
    short = several_rounds_proof(1.0, 391, 5, "substitute")
    assert [(pair.rounds, count) for pair, count in short] == [(78, 4), (79, 1)]


def test_tilts_are_tried_where_they_differ():
    """With much noise a score log(1 + c Y) is c Y, whatever c is."""
    assert tilts_for(5.0, 100_000, 1000) == (1.0,)
    assert len(tilts_for(0.55, 391, 5)) == 3


def test_a_delta_far_beyond_a_law_is_looked_for_deeper():
    """Five of 4421 at much noise: nothing is left at epsilon 1 but the end of a law, and that of a deep one counts."""
    pair = several_rounds_proof(4.8, 4420, 5, "substitute")
    assert ProofProduct(pair).delta(1.0, 1e-3) < 1e-20
