"""Measurements of Poisson and fixed batches, held against oracles that share no code with the package.

The truth is a contour integral, an integral in mpmath or a closed form; bounds are compared with it without
tolerance, and their width separately.
"""

from __future__ import annotations

import functools
import itertools
import json
from math import log
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from mpmath import mp
from oracles import contour, enumeration, pairs

from calipers.bracket import Bracket, Kind, Side
from calipers.measure import Measurement, measure
from calipers.run import Run

REFERENCE: list[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[1] / "oracles" / "reference.json").read_text(encoding="utf-8")
)["entries"]
KNOWN = [row for row in REFERENCE if row["epsilon"] is not None]

# (sample_rate, noise_multiplier, steps): mild, rare and strong, broad, and a single step.
SETTINGS = [(0.01, 1.0, 1000), (3e-3, 0.7, 3000), (16384 / 50000, 9.4, 2000), (0.2, 1.5, 1)]


def poisson(rate: float, noise: float, steps: int, **more: Any) -> Run:
    return Run(sample_rate=rate, noise_multiplier=noise, steps=steps, **more)


@functools.cache
def measured(rate: float, noise: float, steps: int) -> Measurement:
    return measure(poisson(rate, noise, steps))


@functools.cache
def true_delta(rate: float, noise: float, steps: int, eps: float, way: Literal["PQ", "QP", "max"] = "max") -> float:
    if steps == 1:
        ways = ("PQ", "QP") if way == "max" else (way,)
        return float(max(enumeration.poisson_one_step(rate, noise, eps, one) for one in ways))
    return contour.delta(pairs.poisson_gaussian(rate, noise), steps, eps, way)


def overlap(first: Bracket, second: Bracket) -> bool:
    return first.lower <= second.upper and second.lower <= first.upper


@pytest.mark.parametrize("row", KNOWN[:9], ids=lambda row: f"{row['sample_rate']:.4g}-{row['delta']:g}")
def test_the_headline_table_lies_inside_narrow_brackets(row: dict[str, Any]) -> None:
    """Epsilon of the nine headline settings, down to delta = 1e-30, is inside a bracket a thousandth wide."""
    found = measured(row["sample_rate"], row["noise_multiplier"], row["steps"]).epsilon(row["delta"])
    assert found.lower <= row["epsilon"] <= found.upper
    assert found.relative_width <= 1e-3


def test_the_table_lies_inside() -> None:
    """Every second settled setting of the rest of the reference table."""
    assert len(KNOWN) > 100
    for row in KNOWN[9::2]:
        found = measure(poisson(row["sample_rate"], row["noise_multiplier"], row["steps"])).epsilon(row["delta"])
        assert found.lower <= row["epsilon"] <= found.upper, row


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("eps", [0.0, 1.0, 2.5])
def test_delta_contains_the_contour_integral(setting: tuple[float, float, int], eps: float) -> None:
    """delta(epsilon) is the larger direction of the pair, and the bracket holds it."""
    found, truth = measured(*setting).delta(eps), true_delta(*setting, eps)
    assert found.lower <= truth <= found.upper
    assert found.relative_width <= 2e-3


def test_leaving_a_place_empty_is_the_same_pair() -> None:
    """Zero-out has the Poisson pair of add-remove: the same truth lies inside."""
    found = measure(poisson(0.01, 1.0, 1000, adjacency="zero-out"))
    row = KNOWN[0]
    assert row["epsilon"] in found.epsilon(row["delta"])
    assert true_delta(0.01, 1.0, 1000, 0.5) in found.delta(0.5)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.0, 1000), (0.1, 2.0, 50)])
def test_replacing_a_record(rate: float, noise: float, steps: int) -> None:
    """Substitution is the symmetric pair of opposite gradients, and costs more than removal."""
    found = measure(poisson(rate, noise, steps, adjacency="substitute"))
    pair = pairs.poisson_substitute(rate, noise)
    epsilon, delta = found.epsilon(1e-5), found.delta(0.7)
    assert epsilon.lower <= contour.epsilon(pair, steps, 1e-5, "PQ") <= epsilon.upper
    assert delta.lower <= contour.delta(pair, steps, 0.7) <= delta.upper
    assert epsilon.relative_width <= 1e-3
    assert epsilon.lower > measured(rate, noise, steps).epsilon(1e-5).upper


@pytest.mark.parametrize(
    ("run", "mu"),
    [
        (Run(dataset_size=1000, batch_size=10, epochs=4, noise_multiplier=2.0, sampler="deterministic"), "1"),
        (Run(sample_rate=1.0, steps=9, noise_multiplier=4.0), "0.75"),
        (
            Run(dataset_size=8, batch_size=2, epochs=1, noise_multiplier=8.0, sampler="deterministic").replace(
                adjacency="substitute"
            ),
            "0.25",
        ),
    ],
)
def test_known_times_are_one_gaussian(run: Run, mu: str) -> None:
    """Fixed batches and full sampling are N(0, 1) against N(mu, 1): sqrt(E)/sigma, doubled for substitution."""
    found = measure(run)
    for eps in (0.0, 0.4, 3.0):
        truth = enumeration.gaussian(mp.mpf(mu), eps)
        assert found.delta(eps).lower <= truth <= found.delta(eps).upper
        assert found.delta(eps).relative_width < 1e-9
    epsilon = found.epsilon(1e-6)
    assert enumeration.gaussian(mp.mpf(mu), epsilon.lower) >= mp.mpf(1e-6) >= enumeration.gaussian(mu, epsilon.upper)
    for order in (1.5, 2.0, 16.0):
        assert found.rdp(order).lower <= order * mp.mpf(mu) ** 2 / 2 <= found.rdp(order).upper
        assert found.rdp(order).relative_width < 1e-9


def test_phases_that_continue_are_one_run() -> None:
    """Twice 500 steps are 1000 steps: the truth of the one lies inside the bracket of the other."""
    halves = measure([poisson(0.01, 1.0, 500)] * 2)
    assert KNOWN[0]["epsilon"] in halves.epsilon(1e-5)
    assert overlap(halves.epsilon(1e-5), measured(0.01, 1.0, 1000).epsilon(1e-5))
    assert overlap(halves.advantage(), measured(0.01, 1.0, 1000).advantage())


def test_phases_of_different_noise() -> None:
    """Phases with different noise and rate compose; the oracle multiplies their moments."""
    found = measure([poisson(0.01, 1.0, 500), poisson(0.02, 1.5, 300), poisson(1.0, 6.0, 4)])
    mixed = pairs.product(
        (pairs.poisson_gaussian(0.01, 1.0), 500), (pairs.poisson_gaussian(0.02, 1.5), 300), (pairs.gaussian(6.0), 4)
    )
    epsilon, delta = found.epsilon(1e-5), found.delta(1.0)
    assert epsilon.lower <= contour.epsilon(mixed, 1, 1e-5) <= epsilon.upper
    assert delta.lower <= contour.delta(mixed, 1, 1.0, "max") <= delta.upper
    assert epsilon.relative_width <= 1e-3


def test_a_narrower_bracket_can_be_asked_for() -> None:
    """A tolerance of 1e-5 is met and still holds the truth."""
    found = measure(poisson(0.01, 1.0, 1000), tolerance=1e-5).epsilon(1e-5)
    assert found.lower <= KNOWN[0]["epsilon"] <= found.upper
    assert found.relative_width <= 1e-5


def test_both_jaws_say_what_licenses_them() -> None:
    """Below stands a test that an attacker can run, above a numerical or closed-form proof; the claim is the upper."""
    found = measured(0.01, 1.0, 1000)
    assert found.closes
    assert found.epsilon(1e-5).lower_evidence.kind is Kind.TEST
    assert found.epsilon(1e-5).upper_evidence.kind is Kind.NUMERICAL
    assert found.claim.epsilon(1e-5) >= KNOWN[0]["epsilon"]
    assert found.claim.delta(1.0) >= true_delta(0.01, 1.0, 1000, 1.0)


# Gaussian summaries


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("delta0", [1e-10, 1e-5])
def test_mu_of_a_gaussian_run_is_mu(mu: float, delta0: float) -> None:
    """A Gaussian is mu-GDP; a failure probability delta0 buys no more than a little of it."""
    found = measure(Run(sample_rate=1.0, steps=1, noise_multiplier=1 / mu)).gdp(delta0)
    assert found.mu.lower <= mu <= found.mu.upper
    assert found.mu.upper <= mu * (1 + 1e-9)
    assert found.mu.lower >= mu * (1 - 1e-3)
    assert found.regret <= 1e-4  # the curve's breakpoints, not the mechanism


def test_mu_and_regret_of_the_large_batch_setting() -> None:
    """sigma 9.4, q 16384/50000, T 2000 is 1.57-GDP, and saying so overstates by about a thousandth."""
    found = measured(16384 / 50000, 9.4, 2000).gdp()
    assert found.delta0 == 1e-10
    assert 1.56 <= found.mu.lower <= found.mu.upper <= 1.575
    assert 5e-4 <= found.regret <= 2e-3


@pytest.mark.parametrize(
    ("setting", "delta0", "touching"), [((0.01, 1.0, 1000), 1e-10, 3.15), ((16384 / 50000, 9.4, 2000), 1e-6, 6.19)]
)
def test_mu_is_what_the_true_profile_demands(setting: tuple[float, float, int], delta0: float, touching: float) -> None:
    """At mu.upper the true profile stays below delta0 + (1 - delta0) delta_mu; at mu.lower it exceeds it somewhere."""
    found = measured(*setting).gdp(delta0).mu

    def excess(mu: float, eps: float) -> mp.mpf:
        allowed = mp.mpf(delta0) + (1 - mp.mpf(delta0)) * enumeration.gaussian(mu, eps)
        return mp.mpf(true_delta(*setting, eps)) - allowed

    assert excess(found.lower, touching) > 0
    for factor in (0.0, 0.5, 0.95, 1.0, 1.05, 1.3):
        assert excess(found.upper, factor * touching) <= 0
    assert found.relative_width < 2e-3


def test_a_larger_failure_probability_needs_no_larger_mu() -> None:
    """mu(delta0) decreases in delta0."""
    found = [measured(0.01, 1.0, 1000).gdp(delta0).mu for delta0 in (1e-14, 1e-10, 1e-6, 1e-4)]
    for deep, shallow in itertools.pairwise(found):
        assert shallow.lower <= deep.upper
    assert found[-1].upper < found[0].lower


# Operational readings


@pytest.mark.parametrize("setting", SETTINGS)
def test_advantage_has_two_routes(setting: tuple[float, float, int]) -> None:
    """delta(0), the largest 1 - alpha - beta of the curves, and the contour integral agree; separation is its root."""
    found = measured(*setting)
    advantage, truth = found.advantage(), true_delta(*setting, 0.0)
    assert advantage.lower <= truth <= advantage.upper
    curves = [found.curve(side) for side in (Side.LOWER, Side.UPPER)]
    low, high = (float(np.max(curve.beta_c - curve.alpha)) for curve in curves)
    assert low <= truth <= high
    assert low <= advantage.upper
    assert advantage.lower <= high
    assert high - low < 2e-3 * truth
    assert found.separation().lower <= mp.mpf(truth) / mp.sqrt(2) <= found.separation().upper


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("fpr", [1e-6, 1e-3, 0.3])
def test_tpr_against_the_conjugate_of_the_true_profile(setting: tuple[float, float, int], fpr: float) -> None:
    """Every (eps, delta(eps)) caps the true positive rate; the lower jaw obeys the cap, the upper jaw is close to it.

    The eps at which to ask the oracle is where the computed profile caps most; a poor choice could only make the
    second half fail.
    """
    found = measured(*setting)
    rate, missed = found.tpr(fpr), found.tradeoff(fpr)

    def caps(eps: Any, delta: Any) -> Any:
        return np.minimum(delta + np.exp(eps) * fpr, 1.0 - np.exp(-eps) * (1.0 - delta - fpr))

    grid = np.linspace(0.0, 12.0, 4001)
    best = float(grid[np.argmin(caps(grid, found.curve(Side.UPPER).delta(grid)))])
    cap = float(caps(best, true_delta(*setting, best)))
    assert fpr < rate.lower <= cap
    assert abs(rate.upper - cap) <= 2e-3 * cap
    assert rate.lower >= (1.0 - 5e-3) * cap
    assert missed.lower <= missed.upper
    assert missed.lower <= 1.0 - rate.lower
    assert missed.upper >= 1.0 - rate.upper


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("prior", [0.1, 0.5, 0.7])
def test_bayes_error_is_the_profile_at_the_prior_odds(setting: tuple[float, float, int], prior: float) -> None:
    """With odds e^eps >= 1 between the hypotheses, the least error is min(prior, 1 - prior) (1 - delta(eps)).

    `prior` is that of absence, so the order is present against absent when absence is the likelier one.
    """
    rarer = min(prior, 1.0 - prior)
    way: Literal["PQ", "QP"] = "PQ" if prior >= 0.5 else "QP"
    truth = mp.mpf(rarer) * (1 - mp.mpf(true_delta(*setting, abs(log(prior / (1.0 - prior))), way)))
    found = measured(*setting).bayes_error(prior)
    assert found.lower <= truth <= found.upper
    assert found.width < 2e-3 * rarer


# Renyi divergences


def renyi_by_quadrature(rate: float, noise: float, order: float) -> mp.mpf:
    """The larger direction of one step, by integrating (P/Q)^order Q and (Q/P)^order P."""
    q, s = mp.mpf(rate), mp.mpf(noise)

    def log_ratio(x: mp.mpf) -> mp.mpf:
        return mp.log(1 - q + q * mp.exp((2 * x - 1) / (2 * s * s)))

    values = []
    for power in (mp.mpf(order), 1 - mp.mpf(order)):
        cuts = [-30 * s, -5 * s, 0, 1, power * 1 if power > 1 else 2, 5 * s + abs(power), 30 * s + 2 * abs(power)]
        moment = mp.quad(lambda x, p=power: mp.exp(p * log_ratio(x)) * mp.npdf(x, 0, s), sorted(cuts))
        values.append(mp.log(moment) / (order - 1))
    return max(values)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("order", [1.5, 4.0, 16.0])
def test_renyi_contains_the_integral(setting: tuple[float, float, int], order: float) -> None:
    """Renyi divergences add over steps; the bracket holds the larger direction."""
    rate, noise, steps = setting
    truth = steps * renyi_by_quadrature(rate, noise, order)
    found = measured(*setting).rdp(order)
    assert found.lower <= truth <= found.upper
    assert found.relative_width <= 1e-2


@pytest.mark.parametrize("setting", SETTINGS)
def test_renyi_of_order_two_is_closed_form(setting: tuple[float, float, int]) -> None:
    """Order 2 is T log(1 + q^2 (e^(1/sigma^2) - 1)): removal is the larger direction there."""
    rate, noise, steps = setting
    one = mp.log(1 + mp.mpf(rate) ** 2 * mp.expm1(1 / mp.mpf(noise) ** 2))
    assert mp.almosteq(one, renyi_by_quadrature(rate, noise, 2.0), 1e-10)
    assert measured(*setting).rdp(2.0).lower <= steps * one <= measured(*setting).rdp(2.0).upper
