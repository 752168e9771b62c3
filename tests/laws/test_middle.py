"""Where two datasets are told apart but for tiny errors, 1 - delta and mu keep their digits.

Oracles: Gaussian releases in closed form, randomized response by binomial sums, both in mpmath with 60 digits.
"""

from __future__ import annotations

import functools
import math

import mpmath
import numpy as np
import pytest

from calipers.bracket import Side
from calipers.curves.gdp import gaussian_curve, gdp_mu
from calipers.laws.composed.middle import delta_near_one, kept_nodes, middle_saddles, middle_tests
from calipers.laws.composed.product import Product
from calipers.laws.composed.sweep import sweep
from calipers.measure import measure
from calipers.mechanisms.classic import randomized_response
from calipers.mechanisms.gaussian import gaussian
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_kept
from calipers.run import Run

TAIL, ETA = -60.0, 0.03


def kept_of_gaussian(mu: float, epsilon: float) -> mpmath.mpf:
    """1 - delta_mu(epsilon) = Phi(e/mu - mu/2) + e^e Phi(-e/mu - mu/2)."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(epsilon / mu - mu / 2) + mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)


@functools.cache
def responses(epsilon0: float, count: int) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """The outcomes of `count` randomized responses by their probabilities under P and under Q."""
    with mpmath.workdps(60):
        p = mpmath.exp(epsilon0) / (1 + mpmath.exp(epsilon0))
        return [
            (math.comb(count, k) * p**k * (1 - p) ** (count - k), math.comb(count, k) * p ** (count - k) * (1 - p) ** k)
            for k in range(count + 1)
        ]


def kept_of_responses(epsilon0: float, count: int, epsilon: float) -> mpmath.mpf:
    """Sum over outcomes of min(P, e^epsilon Q)."""
    with mpmath.workdps(60):
        odds = mpmath.exp(epsilon)
        return mpmath.fsum(min(p, odds * q) for p, q in responses(epsilon0, count))


def check(product: Product, exact, tightness: float) -> None:
    """Every node is at most the truth, every test's errors are at least those of the best, and neither is far off."""
    direction = product.directions[0]
    saddles = middle_saddles(direction, TAIL)
    assert saddles
    found = kept_nodes(direction, saddles, ETA, TAIL)
    tests = middle_tests(direction, saddles, ETA, TAIL)
    for i in range(0, len(found.epsilon), 17):
        truth = exact(float(found.epsilon[i]))
        assert mpmath.exp(mpmath.mpf(float(found.log_kept[i]))) <= truth
        assert float(found.log_kept[i]) >= float(mpmath.log(truth)) - tightness
    for i in range(0, len(tests.thresholds), 17):
        for epsilon in (0.0, float(tests.thresholds[i])):
            errors = mpmath.exp(float(tests.log_miss[i])) + mpmath.exp(epsilon + float(tests.log_alpha[i]))
            assert errors >= exact(epsilon)
        assert errors <= exact(epsilon) * (1.0 + tightness)


@pytest.mark.parametrize(("sigma", "count"), [(2.0, 400), (1.0, 1600), (3.0, 2000)])
def test_composed_gaussians(sigma: float, count: int) -> None:
    """mu = 10, 40 and 14.9: 1 - delta(0) down to 1e-89."""
    check(Product([(gaussian(1.0 / sigma), count)]), lambda e: kept_of_gaussian(math.sqrt(count) / sigma, e), 0.3)


def test_composed_randomized_responses() -> None:
    """400 responses of epsilon 1: atoms on one lattice, so the bound is exact up to rounding."""
    check(Product([(randomized_response(1.0), 400)]), lambda e: kept_of_responses(1.0, 400, e), 1e-6)


def test_delta_almost_one_from_both_sides() -> None:
    """The bracket of delta holds 1 minus the closed form, which is where its width is."""
    direction = Product([(gaussian(0.5), 600)]).directions[0]
    for epsilon in (0.0, 3.0, 12.0):
        found = delta_near_one(direction, epsilon, ETA, TAIL)
        assert found is not None
        truth = 1 - kept_of_gaussian(math.sqrt(600.0) / 2.0, epsilon)
        assert found.lower <= truth <= found.upper
        assert found.upper - found.lower <= 0.1 * float(1 - truth)
    assert delta_near_one(direction, 70.0, ETA, TAIL) is None


@pytest.mark.parametrize("mu", [50.0, 100.0, 1000.0])
def test_no_attack_is_without_errors(mu: float) -> None:
    """Rates that no float can hold are rounded up: the tests of a huge mu never show more than that mu."""
    assert gdp_mu(gaussian_curve(mu, Side.LOWER), 1e-10) <= mu


@pytest.mark.parametrize("mu", [0.5, 3.0, 12.0, 30.0])
def test_the_gaussian_curve_is_close_at_any_mu(mu: float) -> None:
    """What is kept against mpmath; the curve's own mu from both sides within 1e-3."""
    places = np.linspace(0.0, 0.5 * mu * mu, 9)
    for epsilon, value in zip(places.tolist(), gaussian_kept(mu, places).tolist(), strict=True):
        truth = kept_of_gaussian(mu, epsilon)
        assert abs(value / truth - 1) <= GAUSSIAN_RELATIVE_ERROR
    lower, upper = (gdp_mu(gaussian_curve(mu, side), 1e-10) for side in (Side.LOWER, Side.UPPER))
    assert lower <= upper <= 1.001 * lower
    assert lower <= mu
    assert upper >= 0.9999 * mu  # up to 1e-10 a little less than mu will do


def test_mu_above_ten_is_tight() -> None:
    """Composed Gaussians of mu = 20, and a sampled run whose mu was [17.29, 22.23]: within 1e-3, around the truth."""
    curves = sweep(Product([(gaussian(1.0), 400)]), 1e-12, 1e-3)
    lower, upper = gdp_mu(curves[Side.LOWER], 1e-10), gdp_mu(curves[Side.UPPER], 1e-10)
    assert lower <= 20.0 <= upper
    assert upper <= 1.001 * lower
    found = measure(Run(sample_rate=0.5, steps=1000, noise_multiplier=1.0)).gdp().mu
    assert found.upper <= 1.001 * found.lower
