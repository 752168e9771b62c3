"""Masses of steps that are off by all that their laws allow: products with rare large steps stay bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from calipers.bracket import Side
from calipers.pld.composition.direction import Direction
from calipers.pld.composition.large_steps import LargeSteps
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import TwoSidedPair

SMALL, LARGE, STEPS = 2.0**-16, 2.0**-24, 5
FARTHEST = 2.0**-50
P = np.array([0.5 + 2.0**-8, 0.5 - 2.0**-8 - 6 * SMALL - 30 * LARGE - SMALL, 6 * SMALL, 30 * LARGE, SMALL])
Q = np.array([0.5, 0.5 - SMALL - LARGE - FARTHEST, SMALL, LARGE, FARTHEST])
"""Two coins and three jumps, of log 6, log 30 and one beyond all epsilons that are asked for."""
EPSILONS = (0.0, 0.02, 0.5, 1.7, 3.0, 8.0)


@dataclass(frozen=True)
class Wrong(TwoSidedPair):
    """The same finite pair with masses off by `error`, and said to be: LOWER P-masses upward, Q-masses by `sign`."""

    error: float
    sign: float = -1.0
    symmetric: bool = False

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        del resolution, log_tail
        return self._law(Side.UPPER, 1.0 - self.error, 1.0 - self.error)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        del resolution, log_tail
        return self._law(Side.LOWER, 1.0 + self.error, 1.0 + self.sign * self.error)

    def _law(self, side: Side, p: float, q: float) -> PrivacyLossPmf:
        order = np.argsort(P / Q)
        # A P-mass that is too large by a share, for the jumps and the coins alike.
        log_p, log_q = np.log(P[order] * p), np.log(Q[order] * q)
        pmf = PrivacyLossPmf(log_p - log_q, log_p, log_q, side)
        return replace(pmf, mass_error=self.error * 1.001 + pmf.mass_error)


def outcomes() -> Iterator[tuple[float, float]]:
    """P-mass and Q-mass of all counts of outcomes of five steps."""
    for counts in itertools.product(range(STEPS + 1), repeat=4):
        rest = STEPS - sum(counts)
        if rest >= 0:
            every = (*counts, rest)
            ways = math.factorial(STEPS) / math.prod(math.factorial(n) for n in every)
            yield ways * float(np.prod(P**every)), ways * float(np.prod(Q**every))


def truth(epsilon: float) -> float:
    return math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in outcomes())


def apart(error: float, epsilon: float, sign: float = -1.0) -> LargeSteps:
    found = LargeSteps(Direction.of([(Wrong(error, sign), STEPS)])[0], math.log(truth(epsilon)), -60.0, 1e-3)
    assert found.useful
    return found


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bounds_hold_whatever_the_masses_are_off_by(epsilon: float, sign: float) -> None:
    """P-masses too large by 1e-4 and Q-masses too small, or large, in LOWER, all too small in UPPER: still bounds."""
    found = apart(1e-4, epsilon, sign).delta(epsilon)
    assert found.lower <= truth(epsilon) <= found.upper
    assert found.upper <= 1.1 * truth(epsilon) + 4e-3
    assert found.lower >= 0.9 * truth(epsilon) - 4e-3


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rates_of_tests_are_those_of_a_test_that_exists(epsilon: float) -> None:
    """power - k alpha of the rates that are reported is no more than the divergence, at any k."""
    tests = apart(1e-4, epsilon).tests(epsilon, np.array([epsilon]))
    powers, alphas = np.exp(tests.log_power), np.exp(tests.log_alpha)
    for k in (0.0, 0.5 * epsilon, epsilon):
        assert float(powers[0] - math.exp(k) * alphas[0]) <= truth(k)


def test_steps_that_are_left_out_are_counted_as_infinite() -> None:
    """At epsilon 8 the farthest jump decides, rarer than what is asked about: UPPER counts it, no test rejects."""
    direction = Direction.of([(Wrong(0.0), STEPS)])[0]
    whole, without = (LargeSteps(direction, log_delta, -60.0, 1e-3) for log_delta in (math.log(truth(8.0)), 3.0))
    assert max(pmf.reach for pmf, _ in without.pmfs[Side.UPPER]) < 8.0 < max(p.reach for p, _ in whole.pmfs[Side.UPPER])
    for epsilon in EPSILONS:
        found = without.delta(epsilon)
        assert found.lower <= truth(epsilon) <= found.upper
    assert without.delta(8.0).lower < 1e-12 < whole.delta(8.0).lower
