"""mu, regret and the divergences against their definitions, by brute force."""

from __future__ import annotations

import itertools
import math
import time

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
    bayes_regret,
    delta_divergence,
    gaussian_curve,
    gdp_mu,
    regret,
    symmetric_divergence,
)
from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_tradeoff


@st.composite
def curves(draw):
    """Curves of random finite pairs, some with mass at infinity."""
    count = draw(st.integers(1, 5))

    def masses():
        cuts = sorted(draw(st.lists(st.integers(0, 1024), min_size=count - 1, max_size=count - 1)))
        return [(b - a) / 1024 for a, b in itertools.pairwise([0, *cuts, 1024])]

    return TradeoffCurve.from_atoms(masses(), masses(), side=Side.UPPER)


def extended(curve, x):
    """f on the whole line, by plain linear interpolation of the breakpoints (1 at 0- is never asked)."""
    return np.interp(x, curve.alpha, curve.beta, right=0.0)


def definition_6(f, g):
    """inf{kappa : f(alpha + kappa) - kappa <= g(alpha) for all alpha}, by bisection over a fine grid of alpha."""
    grid = np.unique(np.concatenate((np.linspace(0.0, 1.0, 4001), g.alpha)))
    right = extended(g, grid)
    low, high = 0.0, 1.0
    for _ in range(45):
        kappa = 0.5 * (low + high)
        if np.all(extended(f, grid + kappa) - kappa <= right + 1e-15):
            high = kappa
        else:
            low = kappa
    return high


def equation_24(f, g):
    """sup over a fine grid of eps of (delta_g - delta_f)/(1 + e^eps)."""
    k = np.concatenate(([1e-9], np.geomspace(1e-4, 1e4, 20001)))
    profiles = [np.max((1.0 - c.beta)[None, :] - k[:, None] * c.alpha[None, :], axis=1) for c in (f, g)]
    return max(float(np.max((np.maximum(profiles[1], 0) - np.maximum(profiles[0], 0)) / (1.0 + k))), 0.0)


def equation_28(f, g):
    """max over a grid of priors of the difference of Bayes errors."""
    prior = np.linspace(0.0, 1.0, 20001)[:, None]
    errors = [np.min(prior * c.alpha + (1.0 - prior) * c.beta, axis=1) for c in (f, g)]
    return max(float(np.max(errors[0] - errors[1])), 0.0)


@given(curves(), curves())
def test_three_definitions_of_the_divergence_agree(f, g):
    value = delta_divergence(f, g)
    assert value == pytest.approx(definition_6(f, g), abs=5e-4)
    # Grids can only miss the supremum, so these are one-sided up to rounding.
    for brute in (equation_24(f, g), equation_28(f, g)):
        assert brute - 1e-12 <= value <= brute + 1e-3
    assert bayes_regret(f, g) == pytest.approx(value, abs=1e-13)


@given(curves(), curves())
def test_advantage_moves_by_at_most_twice_the_divergence(f, g):
    """Proposition 4.1, and Lemma D.1 with perfect privacy as the second curve."""
    assert abs(advantage(f) - advantage(g)) <= 2.0 * symmetric_divergence(f, g) + 1e-14
    assert symmetric_divergence(f, TradeoffCurve.perfect_privacy()) == pytest.approx(0.5 * advantage(f), abs=1e-14)


@given(curves(), curves(), curves())
def test_the_symmetric_divergence_obeys_the_triangle_inequality(f, g, h):
    assert symmetric_divergence(f, h) <= symmetric_divergence(f, g) + symmetric_divergence(g, h) + 1e-13


@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0, 30.0])
def test_pure_dp_has_the_mu_of_proposition_6_1(eps):
    with mp.workdps(40):
        probability = 1 / (mp.exp(mp.mpf(eps)) + 1)
        truth = -2 * mp.sqrt(2) * mp.erfinv(2 * probability - 1)
        value = gdp_mu(adp_tradeoff(eps), delta0=0.0)
        assert truth <= value <= truth * (1 + mp.mpf("1e-11"))


def test_the_regret_of_randomized_response_is_the_printed_one():
    """Section 6 of Gomez et al. states 0.058 for eps = 1."""
    attack = TradeoffCurve.from_atoms(
        [math.e / (1 + math.e), 1 / (1 + math.e)], [1 / (1 + math.e), math.e / (1 + math.e)], side=Side.LOWER
    )
    assert round(regret(attack, gdp_mu(adp_tradeoff(1.0), 0.0)), 3) == 0.058


def test_a_failure_probability_leaves_no_finite_mu():
    """Proposition 6.2; with delta0 at least the failure probability there is one again."""
    curve = adp_tradeoff(1.0, 1e-5)
    assert gdp_mu(curve, delta0=0.0) == math.inf
    assert gdp_mu(curve, delta0=0.99e-5) == math.inf
    assert gdp_mu(curve, delta0=1e-5) == pytest.approx(gdp_mu(adp_tradeoff(1.0), 0.0), rel=1e-11)


def test_a_curve_that_reaches_zero_early_has_no_finite_mu():
    """The mirrored failure: Q has mass where P has none."""
    assert gdp_mu(TradeoffCurve.from_atoms([1.0], [0.9], q_zero=0.1, side=Side.UPPER), 0.0) == math.inf


@pytest.mark.parametrize("mu", [0.05, 1.0, 6.0])
def test_mu_of_a_gaussian_curve_is_bracketed(mu):
    assert gdp_mu(gaussian_curve(mu, Side.LOWER), 0.0) <= mu
    assert gdp_mu(gaussian_curve(mu, Side.LOWER), 0.0) > mu * (1 - 1e-8)
    upper = gdp_mu(gaussian_curve(mu, Side.UPPER), 1e-10)
    assert mu * (1 - 1e-6) < upper < mu * (1 + 1e-3)


@given(curves(), st.sampled_from([0.01, 0.2, 0.6]))
def test_the_returned_mu_is_valid_and_the_smallest(curve, delta0):
    """f lies above (1 - delta0) G_mu(alpha/(1 - delta0)) for it and not for a smaller one."""
    mu = gdp_mu(curve, delta0)
    kept = 1.0 - delta0
    if mu == math.inf:
        assert curve.beta_c[0] > delta0 or curve.alpha_c[-1] > delta0
        return
    grid = np.linspace(0.0, kept, 2001)
    assert np.all(extended(curve, grid) >= kept * gaussian_tradeoff(mu, np.minimum(grid / kept, 1.0)) - 1e-12)
    if mu > 1e-6:
        smaller = kept * gaussian_tradeoff(0.999 * mu, np.minimum(curve.alpha / kept, 1.0))
        assert np.any(curve.beta < np.where(curve.alpha < kept, smaller, 0.0))


@pytest.mark.parametrize(("mu", "claimed", "delta0"), [(1.0, 1.2, 0.0), (0.3, 0.31, 0.001), (3.0, 3.5, 0.01)])
def test_regret_is_bracketed_by_the_two_sides(mu, claimed, delta0):
    """The regret of the exact Gaussian, on a dense grid of Equation (24), lies between the two curves' values."""
    eps = np.linspace(-40.0, 40.0, 80001)
    excess = delta0 + (1 - delta0) * gaussian_delta(claimed, eps) - gaussian_delta(mu, eps)
    truth = float(np.max(excess / (1.0 + np.exp(eps))))
    low, high = (regret(gaussian_curve(mu, side), claimed, delta0) for side in (Side.UPPER, Side.LOWER))
    assert low <= truth * (1 + 1e-7)
    assert high >= truth
    assert high - low < 1e-4


def test_regret_sees_both_directions():
    """An attack that only works on one side of the diagonal: the other side alone would claim a smaller regret."""
    curve = TradeoffCurve.from_atoms([0.5, 0.5], [0.01, 0.99], side=Side.LOWER)
    assert regret(curve, 2.0) == pytest.approx(regret(curve.inverse(), 2.0), rel=1e-12)
    k = np.geomspace(1e-6, 1e6, 200001)
    profile = np.max(curve.beta_c[None, :] - k[:, None] * curve.alpha[None, :], axis=1)
    ratios = (gaussian_delta(2.0, np.log(k)) - profile) / (1.0 + k)
    assert regret(curve, 2.0) >= np.max(ratios)
    assert regret(curve, 2.0) == pytest.approx(np.max(ratios), abs=1e-5)


def test_a_valid_report_of_itself_has_almost_no_regret():
    assert 0.0 <= regret(gaussian_curve(1.0, Side.LOWER), 1.0) < 1e-4
    assert regret(gaussian_curve(1.0, Side.UPPER), 1.0) == 0.0


def test_summary_of_two_thousand_breakpoints_is_fast():
    """mu and regret together take a few milliseconds; the limit leaves room for a busy machine."""
    upper, lower = gaussian_curve(1.0, Side.UPPER, 1000), gaussian_curve(1.0, Side.LOWER, 1000)
    assert lower.alpha.size > 1900
    times = []
    for _ in range(15):
        start = time.perf_counter()
        regret(lower, gdp_mu(upper))
        times.append(time.perf_counter() - start)
    assert min(times) < 0.02


@pytest.mark.parametrize(
    "call",
    [
        lambda: gdp_mu(TradeoffCurve.perfect_privacy(), 1.0),
        lambda: gdp_mu(TradeoffCurve.perfect_privacy(), math.nan),
        lambda: regret(TradeoffCurve.perfect_privacy(Side.LOWER), -1.0),
        lambda: gaussian_curve(0.0, Side.UPPER),
        lambda: gaussian_curve(1.0, Side.UPPER, 0),
    ],
)
def test_bad_summary_input_raises(call):
    with pytest.raises(InputError):
        call()
