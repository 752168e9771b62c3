"""The dynamic program by quadrature reproduces what is known without it."""

from __future__ import annotations

import math

import pytest
from scipy.special import ndtr

from oracles.shuffled_quadrature import divergence_by_quadrature


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("sigma", "epsilon"), [(0.6, 9.0), (7.0, 0.7)])
def test_one_batch_is_the_gaussian_mechanism(sigma: float, epsilon: float, reverse: bool) -> None:
    """Shift 1/sigma, divergences of 1e-7 and of 1e-8: small ones have all their digits."""
    mu = 1.0 / sigma
    exact = float(ndtr(0.5 * mu - epsilon / mu) - math.exp(epsilon) * ndtr(-0.5 * mu - epsilon / mu))
    assert divergence_by_quadrature(sigma, 1, epsilon, 1.0, reverse, 2.0, 4) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("sigma", "epsilon", "share", "density", "exact", "within"),
    [
        (0.6065574593880979, 9.250271929548271, 4 / 5, 2.0, 1.65343574455e-7, 1e-6),
        pytest.param(7.895878066025245, 0.4785468714980045, 6 / 7, 8.0, 1.58570247358e-9, 3e-5, marks=pytest.mark.slow),
        pytest.param(
            2.889348970814327, 0.7819268747513322, 184 / 196, 8.0, 5.2155442995e-4, 1e-6, marks=pytest.mark.slow
        ),
    ],
)
def test_two_batches(sigma: float, epsilon: float, share: float, density: float, exact: float, within: float) -> None:
    """`exact`: the closed form of V_1, integrated with thirty digits between the corners, by mpmath."""
    found = divergence_by_quadrature(sigma, 2, epsilon, share, density=density, rule=4)
    assert found == pytest.approx(exact, rel=within)
