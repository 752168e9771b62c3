"""Renyi conversions, implied curves and attack risks against enumeration and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.bracket import Side
from calipers.curves import (
    TradeoffCurve,
    adp_tradeoff,
    advantage,
    bayes_error,
    delta_from_rdp,
    epsilon_from_rdp,
    gaussian_curve,
    optimal_delta_from_rdp,
    rdp_of_curve,
    rdp_of_gdp,
    rdp_tradeoff,
    separation,
    tpr,
    zcdp_rho,
    zcdp_tradeoff,
)
from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon, gaussian_power

ORDERS = 1.0 + np.geomspace(1e-2, 1e3, 200)


def coin_divergence(x, y, order):
    """Renyi divergence of two coins, by definition, in 40 digits."""
    with mp.workdps(40):
        x, y, order = mp.mpf(x), mp.mpf(y), mp.mpf(order)
        if order == 1:
            return x * mp.log(x / y) + (1 - x) * mp.log((1 - x) / (1 - y))
        return mp.log(x**order * y ** (1 - order) + (1 - x) ** order * (1 - y) ** (1 - order)) / (order - 1)


def implied_beta(alpha, order, bound):
    """The smallest beta with both coin divergences within the bound, by bisection in 40 digits (an inner point)."""
    with mp.workdps(40):
        low, high = mp.mpf(10) ** -38, 1 - mp.mpf(alpha)
        for _ in range(110):
            beta = (low + high) / 2
            worst = max(coin_divergence(1 - beta, alpha, order), coin_divergence(alpha, 1 - beta, order))
            low, high = (low, beta) if worst <= bound else (beta, high)
        return high


@pytest.mark.parametrize("order", [0.5, 0.8, 1.0, 1.0001, 2.0, 10.0])
@pytest.mark.parametrize("bound", [1e-4, 0.3, 3.0])
def test_the_rdp_curve_lies_below_the_implied_one_and_close(order, bound):
    curve = rdp_tradeoff(order, bound)
    for alpha in (1e-9, 1e-3, 0.03, 0.3, 0.7):
        truth = implied_beta(alpha, order, bound)
        assert mp.mpf(float(curve(alpha))) <= truth
        assert float(truth) - float(curve(alpha)) < 1e-3
        # 200 lines per order; relative closeness also where beta is small.
        assert float(curve(alpha)) > 0.9 * float(truth) - 1e-12


@given(
    st.floats(0.001, 0.999),
    st.floats(0.001, 0.999),
    st.sampled_from([0.5, 0.7, 1.0, 1.5, 3.0, 20.0]),
)
def test_every_mechanism_with_the_divergence_lies_above_its_rdp_curve(x, y, order):
    """Two coins are a mechanism; give the conversion their own divergence and it must contain them."""
    bound = max(float(coin_divergence(x, y, order)), float(coin_divergence(y, x, order))) * (1 + 1e-12) + 1e-15
    curve = rdp_tradeoff(order, bound, 64)
    truth = TradeoffCurve.from_tests([min(y, 1 - y)], [x if y <= 0.5 else 1 - x], side=Side.LOWER)
    for k in (1.0, 1.3, 2.0, 7.0, 100.0):
        assert curve.delta(math.log(k)) >= truth.delta(math.log(k))


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_the_zcdp_curve_lies_below_the_gaussian_one(mu):
    """The Gaussian mechanism is (mu^2/2)-zCDP, so its curve is above; and every single order is below the union."""
    rho = rdp_of_gdp(mu, 1.0)
    curve = zcdp_tradeoff(rho)
    assert curve.is_below(gaussian_curve(mu, Side.LOWER))
    for delta in (1e-3, 1e-6, 1e-10):
        assert gaussian_epsilon(mu, delta) < curve.epsilon(delta) < epsilon_from_rdp(ORDERS, rho * ORDERS, delta) * 1.01


def test_several_orders_imply_the_maximum_not_the_minimum():
    """All orders hold at once, so the joint curve is at or above each single one."""
    pairs = [(2.0, 1.0), (10.0, 5.0)]
    joint = rdp_tradeoff(*zip(*pairs, strict=True))
    singles = [rdp_tradeoff(*pair) for pair in pairs]
    grid = np.array([1e-6, 1e-3, 0.05, 0.3, 0.9])
    largest = np.max([single(grid) for single in singles], axis=0)
    assert np.all(joint(grid) >= largest * (1 - 1e-12))
    assert np.any(joint(grid) > np.min([single(grid) for single in singles], axis=0) + 0.1)
    assert joint.is_below(gaussian_curve(1.0, Side.LOWER))


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_rdp_conversions_bound_the_gaussian_from_above(mu):
    bounds = [rdp_of_gdp(mu, t) for t in ORDERS]
    for delta in (1e-2, 1e-5, 1e-12, 1e-100):
        eps = epsilon_from_rdp(ORDERS, bounds, delta)
        assert eps >= gaussian_epsilon(mu, delta)
        assert delta_from_rdp(ORDERS, bounds, eps) >= gaussian_delta(mu, eps)
        assert float(delta_from_rdp(ORDERS, bounds, eps)) == pytest.approx(delta, rel=1e-9)


def test_the_closed_conversion_by_hand():
    """Order 2, bound 1, eps 3: e^-2 (1/2)^2 = e^-2/4."""
    assert float(delta_from_rdp(2.0, 1.0, 3.0)) == pytest.approx(math.exp(-2.0) / 4.0, rel=1e-11)
    assert epsilon_from_rdp(2.0, 1.0, math.exp(-2.0) / 4.0) == pytest.approx(3.0, rel=1e-11)


@pytest.mark.parametrize(
    ("order", "bound", "eps"), [(2.0, 0.1, 0.5), (10.0, 0.5, 1.0), (1.5, 0.2, 1.0), (1.0, 0.5, 1.0)]
)
def test_the_optimal_conversion_is_the_best_pair_of_coins(order, bound, eps):
    """sup of P - e^eps Q over coins within the bound, on a grid, from below; the certified value from above."""
    best = 0.0
    for alpha in np.geomspace(1e-6, 0.5, 120):
        beta = implied_beta_float(alpha, order, bound)
        best = max(best, 1.0 - beta - math.exp(eps) * alpha)
    value = optimal_delta_from_rdp(order, bound, eps)
    assert best <= value < best * 1.01
    if order > 1.0:
        assert value <= float(delta_from_rdp(order, bound, eps))


def implied_beta_float(alpha, order, bound):
    """As `implied_beta`, in floats: an inner point, so still a lower bound of the best pair."""

    def divergence(x, y):
        if order == 1.0:
            return x * math.log(x / y) + (1 - x) * math.log((1 - x) / (1 - y))
        return math.log(x**order * y ** (1 - order) + (1 - x) ** order * (1 - y) ** (1 - order)) / (order - 1)

    low, high = 1e-14, 1.0 - alpha
    for _ in range(60):
        beta = 0.5 * (low + high)
        inner = max(divergence(1 - beta, alpha), divergence(alpha, 1 - beta)) <= bound * (1 - 1e-9)
        low, high = (low, beta) if inner else (beta, high)
    return high


@pytest.mark.parametrize("order", [0.5, 1.0, 1.00001, 2.0, 30.0])
@pytest.mark.parametrize("eps", [1e-5, 1.0, 8.0])
def test_the_divergence_of_randomized_response_is_bracketed(order, eps):
    with mp.workdps(40):
        heads = 1 / (1 + mp.exp(-mp.mpf(eps)))
        truth = coin_divergence(heads, 1 - heads, order)
    p = [1.0 / (1.0 + math.exp(-eps)), 1.0 / (1.0 + math.exp(eps))]
    low, high = (
        rdp_of_curve(TradeoffCurve.from_atoms(p, p[::-1], side=side), order) for side in (Side.LOWER, Side.UPPER)
    )
    assert low <= truth <= high
    assert high - low < 1e-9


def test_the_divergences_of_a_gaussian_come_back():
    lower = gaussian_curve(1.0, Side.LOWER)
    for order in (0.5, 1.0, 2.0, 10.0):
        truth = rdp_of_gdp(1.0, order)
        assert truth * (1 - 2e-4) < rdp_of_curve(lower, order) <= truth
    assert rdp_of_curve(gaussian_curve(1.0, Side.UPPER), 0.5) >= rdp_of_gdp(1.0, 0.5)
    assert rdp_of_curve(adp_tradeoff(1.0, 1e-9), 2.0) == math.inf


def test_rho_is_the_largest_rdp_per_order():
    """Equation (25) on three orders, by hand; for the Gaussian it is mu^2/2 at every order."""
    assert zcdp_rho([2.0, 4.0, 8.0], [1.0, 3.0, 4.0]) == 0.75
    assert zcdp_rho(ORDERS, [rdp_of_gdp(2.0, t) for t in ORDERS]) == pytest.approx(rdp_of_gdp(2.0, 1.0), rel=1e-14)


def test_risks_of_randomized_response_by_hand():
    """p = 3/4: advantage 1/2; TPR 3 alpha up to 1/4; Bayes error 1/4 at prior 1/2 and alpha-free prior at 1/10."""
    for side in (Side.UPPER, Side.LOWER):
        curve = TradeoffCurve.from_atoms([0.75, 0.25], [0.25, 0.75], side=side)
        assert advantage(curve) == pytest.approx(0.5, rel=1e-14)
        assert separation(curve) == pytest.approx(0.5 / math.sqrt(2.0), rel=1e-14)
        assert tpr(curve, 1e-30) == pytest.approx(3e-30, rel=1e-13)
        assert bayes_error(curve, [0.5, 0.1, 0.9]).tolist() == pytest.approx([0.25, 0.1, 0.1], rel=1e-14)


@pytest.mark.parametrize("mu", [1e-3, 1.0, 5.0])
def test_risks_of_the_gaussian_are_bracketed_without_tolerance(mu):
    below, above = gaussian_curve(mu, Side.UPPER), gaussian_curve(mu, Side.LOWER)
    with mp.workdps(30):
        total_variation = mp.erf(mp.mpf(mu) / (2 * mp.sqrt(2)))
        assert advantage(above) <= total_variation <= advantage(below)
        assert separation(above) <= total_variation / mp.sqrt(2) <= separation(below)
        error = (1 - total_variation) / 2
        assert float(bayes_error(below, 0.5)) <= error <= float(bayes_error(above, 0.5))
    for fpr in (1e-150, 1e-6, 0.1):
        assert tpr(above, fpr) <= gaussian_power(mu, fpr) <= tpr(below, fpr)


def exact_coordinates(curve):
    """The stored breakpoints as fractions: the smaller of a coordinate and its complement is the exact one."""
    alphas = [Fraction(a) if a <= 0.5 else 1 - Fraction(c) for a, c in zip(curve.alpha, curve.alpha_c, strict=True)]
    betas = [Fraction(b) if b <= 0.5 else 1 - Fraction(c) for b, c in zip(curve.beta, curve.beta_c, strict=True)]
    return list(zip(alphas, betas, strict=True))


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=6), st.floats(0.01, 0.99), st.booleans())
def test_risks_are_rounded_to_the_side_of_the_curve(weights, prior, tilt):
    """Against rational arithmetic on the stored breakpoints, without tolerance."""
    p = np.array(weights) / math.fsum(weights)
    q = p[::-1] if tilt else np.full(p.size, 1.0 / p.size)
    for side in (Side.UPPER, Side.LOWER):
        curve = TradeoffCurve.from_atoms(p, q, side=side)
        points = exact_coordinates(curve)
        advantages = max(1 - a - b for a, b in points)
        errors = min(Fraction(prior) * a + (1 - Fraction(prior)) * b for a, b in points)
        if side is Side.UPPER:
            assert Fraction(advantage(curve)) >= advantages
            assert Fraction(float(bayes_error(curve, prior))) <= errors
        else:
            assert Fraction(advantage(curve)) <= max(advantages, 0)
            assert Fraction(float(bayes_error(curve, prior))) >= errors


def test_separation_is_the_distance_from_perfect_privacy():
    """The Euclidean distance of the vertex (1/4, 1/4) from the line alpha + beta = 1 is 0.5/sqrt 2."""
    curve = TradeoffCurve.from_atoms([0.75, 0.25], [0.25, 0.75], side=Side.UPPER)
    t = np.linspace(0.0, 1.0, 100001)
    assert separation(curve) == pytest.approx(np.min(np.hypot(t - 0.25, 1.0 - t - 0.25)), rel=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: delta_from_rdp([1.0], [0.1], 1.0),
        lambda: delta_from_rdp([2.0], [-0.1], 1.0),
        lambda: delta_from_rdp([2.0], [0.1], -1.0),
        lambda: delta_from_rdp([2.0, 3.0], [0.1], 1.0),
        lambda: epsilon_from_rdp([2.0], [math.nan], 0.1),
        lambda: epsilon_from_rdp([2.0], [0.1], 0.0),
        lambda: rdp_tradeoff(0.4, 1.0),
        lambda: rdp_tradeoff(2.0, math.inf),
        lambda: zcdp_tradeoff(0.0),
        lambda: adp_tradeoff(-1.0),
        lambda: adp_tradeoff(1.0, 1.5),
        lambda: rdp_of_curve(TradeoffCurve.perfect_privacy(), 0.0),
        lambda: bayes_error(TradeoffCurve.perfect_privacy(), 1.5),
        lambda: tpr(TradeoffCurve.perfect_privacy(), math.nan),
    ],
)
def test_bad_renyi_or_risk_input_raises(call):
    with pytest.raises(InputError):
        call()
