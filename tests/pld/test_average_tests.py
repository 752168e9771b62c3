"""Tests on the largest observation: the stated error covers the probabilities of the thresholds as they are stored."""

from __future__ import annotations

import random

import numpy as np
from mpmath import mp

from calipers.pld.allocation.average_tests import SMALLEST_PROBABILITY, MaximumTests, maximum_probabilities


def exact_below(sigma: float, rounds: int, threshold: float, shift: float) -> mp.mpf:
    """P(max w < C) with one mean at `shift`, on as many digits as the context has."""
    c, s = mp.mpf(threshold), mp.mpf(sigma)
    return mp.ncdf((c - mp.mpf(shift)) / s) * mp.ncdf(c / s) ** (rounds - 1)


def test_the_stated_error_covers_the_rounding_of_the_arguments() -> None:
    """Random tests; the rounding of (C - shift)/sigma alone moves a tail at depth x by x^2 units of roundoff."""
    rng = random.Random(5)
    with mp.workdps(350):
        for _ in range(250):
            sigma, rounds = 10 ** rng.uniform(-1, 1), int(10 ** rng.uniform(0, 6))
            shift, depth = rng.choice([0.0, 1.0, 2.0]), rng.uniform(-6.0, 30.0)
            threshold = shift + sigma * depth
            hit, miss, error = maximum_probabilities(sigma, rounds, np.array([threshold]), shift)
            truth = exact_below(sigma, rounds, threshold, shift)
            if miss[0] > SMALLEST_PROBABILITY:
                assert abs(mp.mpf(float(miss[0])) / truth - 1) <= error[0]
            if hit[0] > SMALLEST_PROBABILITY:
                assert abs(mp.mpf(float(hit[0])) / (1 - truth) - 1) <= error[0]
            assert error[0] < 1e-10 * (1.0 + abs(float(mp.log(truth))))


def test_families_round_against_the_attack() -> None:
    """True false positive rates are at most what is stored, true powers at least, for every threshold."""
    thresholds = np.linspace(-2.0, 30.0, 97)
    forward, backward = MaximumTests(1.3, 50, 2.0, 1.0).families(thresholds)
    with mp.workdps(350):
        for c, alpha, power in zip(forward.threshold, forward.alpha, forward.power, strict=True):
            assert 1 - exact_below(1.3, 50, float(c), 1.0) <= alpha
            assert 1 - exact_below(1.3, 50, float(c), 2.0) >= power
        for c, alpha, power in zip(backward.threshold, backward.alpha, backward.power, strict=True):
            assert exact_below(1.3, 50, float(c), 2.0) <= alpha
            assert exact_below(1.3, 50, float(c), 1.0) >= power
