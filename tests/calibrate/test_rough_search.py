"""Hints of a search: rough bounds of shuffled batches, and where a curve through a few measurements crosses."""

from __future__ import annotations

import math

import pytest

from calipers.calibrate import solve
from calipers.calibrate.estimate import crossed
from calipers.measure import measure
from calipers.run import Run

SHUFFLED = Run(dataset_size=40, batch_size=1, epochs=2, noise_multiplier=1.5, sampler="shuffle", adjacency="zero-out")


@pytest.mark.slow
def test_a_rough_bound_is_a_wider_bound() -> None:
    """It lies above the usual one, by a share that a search can do with."""
    upper = measure(SHUFFLED).evaluation.upper
    usual, rough = (bound.delta(0.0, 1e-3).value for bound in (upper, upper.rough))
    assert usual < rough < 1.2 * usual


def test_bounds_that_close_are_their_own_rough_ones() -> None:
    """Nothing is gained where proof and attack are of one pair."""
    upper = measure(Run(sample_rate=0.1, steps=10, noise_multiplier=1.0)).evaluation.upper
    assert upper.rough is upper


@pytest.mark.slow
def test_what_is_found_by_rough_hints_is_measured_in_full() -> None:
    """The usual bound meets the target at the noise found, and does not at one that is smaller by the tolerance."""
    found = solve(SHUFFLED, advantage=0.2, tolerance=1e-3)
    at = found.noise_multiplier

    def advantage(noise: float) -> float:
        return measure(SHUFFLED.replace(noise_multiplier=noise)).advantage().upper

    assert advantage(at) <= 0.2 < advantage(at * (1.0 - 1.1e-3))
    assert found.achieved.upper == pytest.approx(advantage(at), rel=1e-12)


def test_three_points_of_a_parabola_tell_where_it_crosses() -> None:
    """The line through the nearest two errs by the bend; with a third one root and slope are exact."""

    def excess(x: float) -> float:
        return (x - 0.3) * (x - 4.0)  # falls at 0.3, with slope -3.7

    seen = [(x, excess(x)) for x in (0.5, 0.1, 0.25)]
    crossing, slope = crossed(seen, bent=True)
    assert crossing == pytest.approx(0.3, abs=1e-4)
    assert slope == pytest.approx(-3.7, abs=1e-3)
    assert abs(crossed(seen, bent=False)[0] - 0.3) > 1e-3
    assert crossed([(0.0, 1.0), (1.0, 2.0)], bent=True)[1] == -math.inf


@pytest.mark.slow
def test_slow_measurements_end_near_the_least_noise() -> None:
    """Three fine ones (five before) find noise that meets the target, and a thousandth less does not."""
    found = solve(SHUFFLED, mu=0.8)
    assert found.achieved.upper <= 0.8
    less = SHUFFLED.replace(noise_multiplier=0.999 * found.noise_multiplier)
    assert measure(less, tolerance=1e-3).gdp(1e-10).mu.upper > 0.8
    assert found.measurements <= 8
