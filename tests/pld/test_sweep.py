"""Whole curves of T Gaussians are G_mu with mu = sqrt(T)/sigma, known in closed form at every alpha."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from mpmath import mp

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import InputError
from calipers.mechanisms.gaussian import gaussian, poisson_gaussian
from calipers.numerics.normal import normal_tail
from calipers.pld.composition.product import Product
from calipers.pld.composition.sweep import curve_of_tests, sweep
from calipers.pld.composition.tails import LowerTail

ALPHAS = [*(10.0**-k for k in range(9, 0, -1)), *np.linspace(0.02, 0.98, 49).tolist(), 0.999, 1.0 - 1e-6]
# (shift of one step, steps): the composed mu is shift * sqrt(steps).
CASES = [(0.5, 1), (0.25, 16), (0.01, 10_000), (1.0, 9)]


@functools.cache
def swept(shift: float, steps: int) -> dict[Side, TradeoffCurve]:
    return sweep(Product([(gaussian(shift), steps)]))


def true_curve(mu: mp.mpf, alpha: float) -> mp.mpf:
    """G_mu(alpha) = Phi(z - mu) with 1 - Phi(z) = alpha; z by Newton steps on 40 digits."""
    with mp.workdps(40):
        target, z = mp.mpf(alpha), mp.mpf(0)
        if alpha < 0.1:
            z = mp.sqrt(-2 * mp.log(target)) - 1
        for _ in range(60):
            step = (mp.ncdf(-z) - target) / mp.npdf(z)
            z += step
            if abs(step) < mp.mpf(10) ** -30:
                break
        assert abs(mp.ncdf(-z) / target - 1) < mp.mpf(10) ** -25
        return mp.ncdf(z - mu)


@pytest.mark.parametrize(("shift", "steps"), CASES)
def test_the_curves_bracket_the_composed_gaussian(shift: float, steps: int) -> None:
    """The guarantee lies at or below G_mu and the attack at or above, at every alpha, without tolerance."""
    curves, mu = swept(shift, steps), mp.mpf(shift) * mp.sqrt(steps)
    for alpha in ALPHAS:
        truth = true_curve(mu, alpha)
        assert curves[Side.UPPER](alpha) <= truth <= curves[Side.LOWER](alpha), alpha


@pytest.mark.parametrize(("shift", "steps"), CASES)
def test_the_curves_are_close(shift: float, steps: int) -> None:
    """Between the two lies less than a five hundredth of the power, down to false positive rates of 1e-9."""
    curves = swept(shift, steps)
    for alpha in ALPHAS[:-2]:
        guarantee, attack = float(curves[Side.UPPER](alpha)), float(curves[Side.LOWER](alpha))
        assert attack - guarantee <= 5e-3 * (1.0 - guarantee), alpha


def both_ways(shift: float, steps: int) -> dict[Side, TradeoffCurve]:
    """A pair whose directions differ: the Poisson-subsampled Gaussian."""
    return sweep(Product([(poisson_gaussian(0.05, 1.0 / shift, "add-remove"), steps)]))


@pytest.mark.parametrize("curves", [swept(0.25, 16), both_ways(1.0, 50)], ids=["gaussian", "poisson"])
def test_the_guarantee_lies_below_the_attack_everywhere(curves: dict[Side, TradeoffCurve]) -> None:
    """At all breakpoints of either curve, and therefore between them, UPPER <= LOWER."""
    upper, lower = curves[Side.UPPER], curves[Side.LOWER]
    assert upper.side is Side.UPPER
    assert lower.side is Side.LOWER
    places = np.concatenate([upper.alpha, lower.alpha])
    assert np.all(upper(places) <= lower(places))
    assert upper.is_below(lower)


@pytest.mark.parametrize("curves", [swept(0.25, 16), both_ways(1.0, 50)], ids=["gaussian", "poisson"])
@pytest.mark.parametrize("side", list(Side))
def test_the_curves_are_symmetric(curves: dict[Side, TradeoffCurve], side: Side) -> None:
    """Adding and removing a record are one question: (alpha, beta) is on the curve exactly when (beta, alpha) is."""
    curve = curves[side]
    alpha = np.linspace(1e-6, 1.0 - 1e-6, 501)
    np.testing.assert_allclose(curve.inverse()(alpha), curve(alpha), rtol=1e-9, atol=1e-13)


def test_the_depth_that_was_asked_for_is_resolved() -> None:
    """Asked for delta = 1e-40, the profile of the curve holds at delta near 1e-24: where a plain FFT sees noise."""
    curves = sweep(Product([(gaussian(0.25), 16)]), smallest_delta=1e-40)
    eps = 10.5
    with mp.workdps(60):
        truth = mp.ncdf(mp.mpf("0.5") - eps) - mp.exp(mp.mpf(eps)) * mp.ncdf(-mp.mpf("0.5") - eps)
    assert 1e-32 < truth < 1e-20
    low, high = float(curves[Side.LOWER].delta(eps)), float(curves[Side.UPPER].delta(eps))
    assert low <= truth <= high
    assert high - low <= 0.1 * high


@pytest.mark.parametrize("smallest", [0.0, 1.0, -1e-9, math.nan])
def test_the_depth_is_a_probability(smallest: float) -> None:
    with pytest.raises(InputError, match="smallest_delta"):
        sweep(Product([(gaussian(1.0), 1)]), smallest_delta=smallest)


@pytest.mark.parametrize("mu", [70.0, 300.0])
def test_a_guarantee_holds_where_its_errors_are_next_to_nothing(mu: float) -> None:
    """Of the test with equal errors each is P(N > mu/2): 1e-268 in the first case, and no double in the second."""
    upper, error = sweep(Product([(gaussian(0.1 * mu), 100)]))[Side.UPPER], float(normal_tail(0.5 * mu))
    assert upper(error) <= error


def test_bounds_above_one_are_no_rates() -> None:
    """A bound on a false positive rate may be astronomical: such a test is none, and nothing is said about it."""
    tail = LowerTail(np.array([0.0, 1.0]), np.array([-0.1, -1.0]), np.array([800.0, -3.0]))
    with np.errstate(over="raise"):
        curve = curve_of_tests([tail], [tail])
    assert float(curve.rates(math.exp(-3.0))[1]) == pytest.approx(math.exp(-1.0), rel=1e-9)
