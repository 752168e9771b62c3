"""An answer is the best of what epsilon, delta and the curve prove, and never 0 where something leaks."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import pytest

from calipers.measure import measure
from calipers.measure.bounds import Bounds
from calipers.measure.composed import Composition, PairAttack, PairProof
from calipers.measure.measurement import Measurement
from calipers.pld.composition.direction import BoundsWithTest
from calipers.run import Run

RUN = Run(sample_rate=0.05, steps=100, noise_multiplier=1.5)


class Vague(Composition):
    """A product that says next to nothing at some places, as a computation that has run out of digits does."""

    def epsilon(self, delta: float, tolerance: float) -> BoundsWithTest:
        """Nothing at 1e-6."""
        found = super().epsilon(delta, tolerance)
        return found if delta != 1e-6 else BoundsWithTest(0.0, 50.0, 1.0, False)

    def delta(self, epsilon: float, tolerance: float) -> BoundsWithTest:
        """Nothing at 2."""
        found = super().delta(epsilon, tolerance)
        return found if epsilon != 2.0 else BoundsWithTest(0.0, 1.0, 1.0, False)


def vague() -> tuple[Measurement, Measurement]:
    sharp = measure(RUN)
    above, below = sharp.evaluation.upper, sharp.evaluation.lower
    assert isinstance(above, PairProof)
    assert isinstance(below, PairAttack)
    composed = Vague(above.composed.product)
    blunt = Bounds(replace(above, composed=composed), replace(below, composed=composed), closes=True)
    return sharp, replace(sharp, evaluation=blunt, _answers={}, _missed=[])


def test_the_curve_steps_in() -> None:
    """Where the direct computation fails, the curve's epsilon and delta are the answer, and hold the sharp ones."""
    sharp, blunt = vague()
    for exact, found in ((sharp.epsilon(1e-6), blunt.epsilon(1e-6)), (sharp.delta(2.0), blunt.delta(2.0))):
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper
        assert found.upper <= 1.01 * exact.upper
        assert found.lower >= 0.99 * exact.lower


@pytest.mark.slow
def test_delta_falls_in_the_deepest_tails() -> None:
    """q = 0.01, 1000 steps: at epsilon = 100 the bound was 2.2e-264, while 80 proves 1.2e-280."""
    found = measure(Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0))
    assert found.delta(100.0).upper < 1e-290
    assert found.delta(150.0).upper <= found.delta(100.0).upper


@pytest.mark.parametrize("epsilon", [30.0, 40.0, 300.0])
def test_a_gaussian_always_leaks_something(epsilon: float) -> None:
    """delta of 10 releases at sigma = 4 is below every double, and positive: the upper bound is not 0."""
    found = measure(Run(sample_rate=1.0, steps=10, noise_multiplier=4.0)).delta(epsilon)
    with mpmath.workdps(400):
        mu = mpmath.sqrt(10) / 4
        truth = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        assert found.lower <= truth <= found.upper
    assert found.upper <= 1.1e-300
