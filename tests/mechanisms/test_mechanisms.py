"""Mechanisms against closed forms, enumeration and quadrature that share no code with them."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import enumeration

from calipers.bracket import Side
from calipers.errors import InputError
from calipers.mechanisms import (
    DiscreteGaussian,
    approximate_dp,
    compose,
    gaussian,
    laplace,
    poisson_gaussian,
    randomized_response,
)
from calipers.numerics.normal import gaussian_epsilon
from calipers.pld.composition.product import Product
from calipers.pld.composition.renyi import renyi


def check_between(jaws, truth, width=1e-3) -> None:
    """lower <= truth <= upper without tolerance, and the bracket is worth having."""
    assert jaws.lower <= truth <= jaws.upper
    assert jaws.upper - jaws.lower <= width * jaws.upper


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_laplace_equals_its_exact_profile(scale: float, count: int) -> None:
    """delta(eps) of Laplace noise, alone and composed, lies in the bounds; pure epsilon is count/scale."""
    product = compose((laplace(scale), count))
    for share in (0.0, 0.3, 0.7):
        epsilon = share * count / scale
        check_between(product.delta(epsilon), enumeration.laplace(scale, count, epsilon), 2e-3)
    assert product.delta(count / scale * (1 + 1e-9)).upper == 0.0
    assert product.epsilon(1e-12).upper <= count / scale * (1 + 1e-11)  # rounded outward


@pytest.mark.parametrize("count", [1, 7, 100, 1000])
def test_randomized_response_is_exact(count: int) -> None:
    """All ratios lie on one lattice, so nothing is rounded: the bounds agree with exact fractions to 1e-9."""
    truth = Fraction(3, 4)
    product = compose((randomized_response(math.log(3)), count))
    for k in (1, 2, 27):
        exact = float(enumeration.randomized_response(truth, count, Fraction(k)))
        jaws = product.delta(math.log(k))
        assert jaws.lower <= exact * (1 + 1e-12)
        assert jaws.upper >= exact * (1 - 1e-12)
        assert jaws.upper - jaws.lower <= 1e-8 * jaws.upper + 1e-300


def test_an_epsilon_delta_guarantee_composes_like_its_pair() -> None:
    """delta(0) = delta + (1 - delta) tanh(eps/2) for one guarantee; below the leak of several no epsilon helps."""
    epsilon, delta = 0.4, 1e-3
    exact = delta + (1 - delta) * math.tanh(epsilon / 2)
    check_between(compose(approximate_dp(epsilon, delta)).delta(0.0), exact, 1e-9)
    leak = 1 - (1 - delta) ** 5
    product = compose((approximate_dp(epsilon, delta), 5))
    assert product.epsilon(0.9 * leak).lower == math.inf
    assert product.epsilon(1.1 * leak).upper < 5 * epsilon + 1e-9


@pytest.mark.parametrize(("sigma", "count"), [(1.0, 1), (1.0, 3), (4.0, 10)])
def test_discrete_gaussian_equals_enumeration(sigma: float, count: int) -> None:
    """Integer noise, by exact convolution."""
    product = compose((DiscreteGaussian(sigma), count))
    for epsilon in (0.0, 0.5, 2.0):
        exact = enumeration.discrete_gaussian(sigma, count, epsilon)
        jaws = product.delta(epsilon)
        assert jaws.lower <= exact <= jaws.upper
        assert jaws.upper - jaws.lower <= 1e-6 * jaws.upper


def test_topdown_composes_eighty_discrete_gaussians() -> None:
    """The 2020 census release has rho = 3.65, and eighty unequal factors stay within 1e-3."""
    shares = (20, 274, 85, 131, 131, 238, 118, 3)
    factors = [(DiscreteGaussian(1 / math.sqrt(2 * 3.65 * share / 1000 / 10)), 10) for share in shares]
    jaws = compose(*factors).epsilon(1e-5)
    assert jaws.upper - jaws.lower <= 1e-3 * jaws.upper
    exact = enumeration.epsilon(lambda e: enumeration.gaussian(mp.mpf("2.701851"), e), mp.mpf("1e-5"))
    assert abs(jaws.upper - float(exact)) < 0.02


def substitution_profile(u: float, v: float, angle: float, q: float, k: float) -> float:
    """D_k of (1-q) N(0) + q N(u e_1) against (1-q) N(0) + q N(v e_angle) in the plane, by a fine sum."""
    grid = np.linspace(-9, 9, 721)
    x, y = np.meshgrid(grid, grid)
    base = np.exp(-(x * x + y * y) / 2) / (2 * math.pi)
    a = np.exp(u * x - u * u / 2)
    b = np.exp(v * (math.cos(angle) * x + math.sin(angle) * y) - v * v / 2)
    gain = (1 - q) * (1 - k) + q * a - k * q * b
    return float(np.sum(np.maximum(gain, 0) * base) * (grid[1] - grid[0]) ** 2)


@given(st.floats(0.05, 1.0), st.floats(0.0, 1.0), st.floats(0.0, math.pi), st.floats(0.05, 0.95), st.floats(0.0, 1.5))
def test_opposite_gradients_are_the_worst_substitution(u: float, v: float, angle: float, q: float, eps: float) -> None:
    """No two gradients of norm at most 1/sigma leak more than opposite ones of full norm (the claim we prove)."""
    upper = poisson_gaussian(q, 1.0, "substitute").upper(0.02, -40.0).delta(eps)
    assert substitution_profile(u, v, angle, q, math.exp(eps)) <= upper * (1 + 1e-6) + 1e-9


def test_the_substitution_pair_is_attained() -> None:
    """Opposite gradients of full norm reach the law's own lower value."""
    lower = poisson_gaussian(0.3, 1.0, "substitute").lower(0.02, -40.0).delta(0.4)
    assert substitution_profile(1.0, 1.0, math.pi, 0.3, math.exp(0.4)) >= lower * (1 - 1e-6)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out"])
def test_one_poisson_step_in_both_directions(adjacency: str) -> None:
    """The closed form of one step is the larger of its two directions."""
    product = compose(poisson_gaussian(0.2, 0.9, adjacency))
    for epsilon in (0.0, 0.1, 1.0):
        exact = max(enumeration.poisson_one_step(0.2, 0.9, epsilon, direction) for direction in ("PQ", "QP"))
        check_between(product.delta(epsilon), exact)


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_renyi_divergences_against_quadrature(order: float) -> None:
    """E_Q[L^t] of a Poisson step, in both directions, by mpmath; and the Gaussian's t mu^2 / 2."""
    q, sigma = 0.1, 1.2
    jaws = renyi(compose((poisson_gaussian(q, sigma), 10)), order)
    with mp.workdps(30):

        def ratio(z: mp.mpf) -> mp.mpf:
            return 1 - q + q * mp.exp(z / sigma - 1 / (2 * mp.mpf(sigma) ** 2))

        def moment(power: float) -> mp.mpf:
            span = [-12, -4, 0, 4, 8, 16, 30]
            return mp.quad(lambda z: mp.npdf(z) * ratio(z) ** power, span)

        exact = 10 * max(mp.log(moment(order)), mp.log(moment(1 - order))) / (order - 1)
    check_between(jaws, exact)
    check_between(renyi(compose((gaussian(0.5), 4)), order), order * 4 * 0.25 / 2)


@pytest.mark.parametrize(
    "build",
    [
        lambda: gaussian(0.0),
        lambda: gaussian(math.nan),
        lambda: laplace(-1.0),
        lambda: randomized_response(math.inf),
        lambda: approximate_dp(1.0, 1.5),
        lambda: DiscreteGaussian(0.0),
        lambda: DiscreteGaussian(1.0, sensitivity=0),
        lambda: poisson_gaussian(1.5, 1.0),
        lambda: poisson_gaussian(0.1, 1.0, "swap"),
        lambda: compose((gaussian(1.0), 0)),
        lambda: compose(),
    ],
)
def test_values_outside_the_domain_are_refused(build) -> None:
    """Every refusal is an InputError."""
    with pytest.raises(InputError):
        build()


@pytest.mark.parametrize("side", list(Side))
def test_many_atoms_are_taken_together_on_the_safe_side(side: Side) -> None:
    """sigma = 5000: cells of atoms against the sum over all of them, at the tolerance of the cells."""
    sigma, shift = 5000.0, 3
    k = np.arange(-60_000, 60_001, dtype=np.float64)
    q = np.exp(-0.5 * np.square(k / sigma))
    p = np.exp(-0.5 * np.square((k - shift) / sigma))
    pair = DiscreteGaussian(sigma, shift)
    pmf = (pair.upper if side is Side.UPPER else pair.lower)(0.05, -40.0)
    assert pmf.size < 1000
    for epsilon in (0.0, 5e-4, 1.5e-3):
        truth = math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0)) / math.fsum(q)
        found = pmf.delta(epsilon)
        assert (found >= truth * (1.0 - 1e-12)) if side is Side.UPPER else (found <= truth * (1.0 + 1e-12))
        assert found == pytest.approx(truth, rel=4e-3)  # cells of 0.05 deviations, three deviations out


@pytest.mark.parametrize(("sigma", "sensitivity"), [(2500.0, 1), (3000.5, 700), (2001.0, 9000)])
def test_cells_of_a_wide_discrete_gaussian_hold_the_sums_of_their_atoms(sigma: float, sensitivity: int) -> None:
    """LOWER: both masses of every tenth cell, atom by atom. UPPER: total mass and mean of what is split, likewise."""
    source = DiscreteGaussian(sigma, sensitivity)
    norm = math.fsum(math.exp(-0.5 * (k / sigma) ** 2) for k in range(-round(12 * sigma), round(12 * sigma) + 1))
    log_tail, width = -200.0, math.floor(0.25 * sigma)
    reach = math.ceil(sigma * math.sqrt(404.0)) + 2
    pmf = source.lower(0.25, log_tail)
    first = [i * width - reach for i in range(pmf.size)]
    for cell in range(0, pmf.size, 10):
        atoms = range(first[cell], first[cell] + width)
        for log_mass, mean in ((pmf.log_q[cell], 0), (pmf.log_p[cell], sensitivity)):
            top = max(-0.5 * ((k - mean) / sigma) ** 2 for k in (atoms[0], atoms[-1], mean) if k in atoms)
            total = math.fsum(math.exp(-0.5 * ((k - mean) / sigma) ** 2 - top) for k in atoms)
            assert log_mass == pytest.approx(top + math.log(total / norm), abs=1e-13 + 1e-15 * abs(top))
    pmf = source.upper(0.25, log_tail)
    assert math.fsum(np.exp(pmf.log_q)) == pytest.approx(1.0, abs=1e-13)
    assert math.fsum(np.exp(pmf.log_p)) == pytest.approx(1.0, abs=1e-13)


def test_a_wide_discrete_gaussian_composes_quickly() -> None:
    """sigma = 1e5 ten times, which took 1.3 GB: Gaussian up to 1/sigma^2, and the bracket is within the tolerance."""
    found = Product([(DiscreteGaussian(1e5), 10)]).epsilon(1e-5)
    truth = gaussian_epsilon(math.sqrt(10.0) / 1e5, 1e-5)
    assert found.lower <= truth <= found.upper <= 1.001 * found.lower
