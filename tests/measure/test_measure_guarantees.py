"""Stated guarantees and mechanisms on the same page as runs: every quantity, in the right direction."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import calipers as cp
from calipers.errors import InputError, UnsupportedError
from calipers.mechanisms import (
    Concentrated,
    DiscreteGaussian,
    approximate_dp,
    compose,
    gaussian,
    laplace,
    poisson_gaussian,
    randomized_response,
)
from calipers.mechanisms.concentrated import coins_hold
from calipers.reports.answers import Questions, answer
from calipers.reports.records import measurement_record

MECHANISMS = [
    approximate_dp(3.0, 1e-5),
    randomized_response(1.0),
    laplace(1.0),
    gaussian(1.0),
    DiscreteGaussian(3.0),
    poisson_gaussian(0.1, 1.0, "substitute"),
    Concentrated(0.5),
    compose((approximate_dp(0.1, 1e-6), 20)),
    compose(gaussian(1.0), (laplace(3.0), 5)),
    compose(Concentrated(0.1), laplace(1.0)),
    cp.Guarantee(epsilon=8, delta=1e-5),
    cp.Guarantee(epsilon=1),
    cp.Guarantee(mu=1.2),
    cp.Guarantee(rho=0.5),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: cp.measure(m).stated.words)  # type: ignore[union-attr]
def test_every_mechanism_answers_every_question(mechanism: object) -> None:
    """All quantities of a report exist, in order, and its JSON has the keys of a run's."""
    measured = cp.measure(mechanism)  # type: ignore[arg-type]
    answers = answer(measured, Questions(deltas=(1e-2, 1e-5), epsilons=(0.5,), fprs=(0.1, 1e-3)))
    assert all(reading.bracket.lower <= reading.bracket.upper for reading in answers.readings)
    run = answer(cp.measure(cp.Run(sample_rate=0.1, steps=3, noise_multiplier=2.0)), Questions())
    assert set(measurement_record(answers)) == set(measurement_record(run))
    for rate in (0.01, 0.5):
        assert measured.tradeoff(rate).lower <= measured.tradeoff(rate).upper


def approximate_delta(epsilon: float, delta: float, at: float) -> mpmath.mpf:
    """The profile of randomized response with a mass delta in the clear, from its four outcomes."""
    with mpmath.workdps(50):
        k, odds = mpmath.exp(at), mpmath.exp(epsilon)
        true, wrong = (1 - mpmath.mpf(delta)) * odds / (1 + odds), (1 - mpmath.mpf(delta)) / (1 + odds)
        gained = true - k * wrong if at < epsilon else mpmath.mpf(0)
        return mpmath.mpf(delta) + gained


@pytest.mark.parametrize(("epsilon", "delta"), [(8.0, 1e-5), (0.3, 1e-3), (1.0, 0.0), (0.0, 0.1), (40.0, 1e-9)])
def test_an_approximate_guarantee_is_its_four_outcomes(epsilon: float, delta: float) -> None:
    """delta at epsilon brackets the enumeration; at its own delta the epsilon is exactly the stated one."""
    measured = cp.measure(cp.Guarantee(epsilon=epsilon, delta=delta))
    for at in (0.0, 0.1, 0.5 * epsilon, 0.99 * epsilon, epsilon, epsilon + 1.0):
        bracket, truth = measured.delta(at), approximate_delta(epsilon, delta, at)
        assert bracket.lower <= truth <= bracket.upper
        assert bracket.width <= 1e-12
    if delta:
        assert (measured.epsilon(delta).lower, measured.epsilon(delta).upper) == (epsilon, epsilon)
        assert measured.epsilon(0.999 * delta).lower == math.inf
        assert measured.gdp(1e-12).mu.upper == math.inf


@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 0.3, 0.7])
def test_rates_of_an_approximate_guarantee_are_its_three_lines(delta: float) -> None:
    """The largest rate is min(1, e^epsilon fpr + delta, 1 - e^-epsilon (1 - delta - fpr))."""
    for epsilon in (0.1, 1.0, 2.0, 2.5, 5.0, 30.0):
        measured = cp.measure(cp.Guarantee(epsilon=epsilon, delta=delta))
        for fpr in (0.0, 1e-12, 1e-5, 1e-4, 1e-3, 0.1, 0.5, 0.8):
            with mpmath.workdps(50):
                odds, left = mpmath.exp(epsilon), 1 - mpmath.mpf(delta) - mpmath.mpf(fpr)
                truth = min(mpmath.mpf(1), odds * fpr + mpmath.mpf(delta), 1 - max(left, 0) / odds)
            bracket = measured.tpr(fpr)
            assert bracket.lower <= truth <= bracket.upper
            assert bracket.width <= 1e-13


def test_a_lone_pair_and_its_guarantee_agree_with_a_product() -> None:
    """Twice (epsilon, delta) is not (2 epsilon, 2 delta): the product is strictly below, and above one of them."""
    one, two = cp.measure(approximate_dp(1.0, 1e-6)), cp.measure(compose((approximate_dp(1.0, 1e-6), 2)))
    assert one.epsilon(1e-3).upper < two.epsilon(1e-3).lower
    assert two.epsilon(1e-3).upper < 2.0
    assert cp.measure([approximate_dp(1.0, 1e-6)] * 2).epsilon(1e-3) == two.epsilon(1e-3)


@pytest.mark.parametrize("rho", [1e-3, 0.05, 0.5, 3.65, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_zcdp_is_above_its_gaussian_and_closes_with_coins(rho: float, delta: float) -> None:
    """Gaussian < coins <= proof <= the usual conversion rho + 2 sqrt(rho log(1/delta)); the gap is below 2 %."""
    bracket = cp.measure(cp.Guarantee(rho=rho)).epsilon(delta)
    assert cp.measure(cp.Guarantee(mu=math.sqrt(2.0 * rho))).epsilon(delta).upper < bracket.lower * (1 + 1e-9) + 1e-12
    assert bracket.upper <= rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
    assert bracket.lower >= 0.98 * bracket.upper


def test_coins_are_zcdp_at_orders_nobody_listed() -> None:
    """A coin that passes has D_t <= rho t, in both directions, at random orders in 50 digits; a bolder one fails."""
    rho, rng = 0.5, np.random.default_rng(7)
    alpha = np.array([1e-6, 1e-4, 0.01, 0.2])
    edge = np.array([cp.measure(cp.Guarantee(rho=rho)).tpr(a).lower for a in alpha])
    power = alpha + 0.98 * (edge - alpha)
    assert coins_hold(rho, alpha, power, 1.0 - power).all()
    assert not coins_hold(rho, alpha, np.minimum(1.2 * edge, 0.999), 1.0 - np.minimum(1.2 * edge, 0.999)).any()
    with mpmath.workdps(50):
        for a, p in zip(map(mpmath.mpf, alpha), map(mpmath.mpf, power), strict=True):
            for t in 1 + np.exp(rng.uniform(-9, 8, 60)):
                for x, y in ((p, a), (a, p)):
                    moment = x**t * y ** (1 - t) + (1 - x) ** t * (1 - y) ** (1 - t)
                    assert mpmath.log(moment) / (t - 1) <= rho * t


def test_zcdp_guarantees_add_up() -> None:
    """Two rho-zCDP guarantees are one of 2 rho, not the product of their curves."""
    both, one = cp.measure([Concentrated(0.2), Concentrated(0.3)]), cp.measure(Concentrated(0.5))
    assert both.epsilon(1e-5) == one.epsilon(1e-5)
    with_noise = cp.measure([Concentrated(0.25), gaussian(0.5), Concentrated(0.25)])
    assert one.epsilon(1e-5).upper < with_noise.epsilon(1e-5).upper
    assert not with_noise.closes


@pytest.mark.parametrize(("epsilon", "delta", "times"), [(0.1, 1e-6, 20), (0.7, 1e-4, 7), (1.5, 0.0, 3)])
def test_releases_with_one_guarantee_compose_as_well_as_any_can(epsilon: float, delta: float, times: int) -> None:
    """Kairouz, Oh and Viswanath (2015), Theorem 3.3: delta at (k - 2 i) epsilon."""
    measured = cp.measure(cp.Guarantee(epsilon=epsilon, delta=delta, times=times))
    for i in range(times // 2 + 1):
        parts = (
            math.comb(times, few) * (math.exp((times - few) * epsilon) - math.exp((times - 2 * i + few) * epsilon))
            for few in range(i)
        )
        inner = math.fsum(parts) / (1.0 + math.exp(epsilon)) ** times
        truth = 1.0 - (1.0 - delta) ** times * (1.0 - inner)
        found = measured.delta((times - 2 * i) * epsilon)
        assert found.lower <= truth * (1.0 + 1e-9) + 1e-15
        assert truth <= found.upper * (1.0 + 1e-9) + 1e-15
        assert found.upper <= truth * 1.001 + 1e-12
    assert cp.measure(cp.Guarantee(mu=0.5, times=16)).gdp().mu.upper == pytest.approx(2.0, rel=1e-6)
    assert cp.Guarantee.from_dict({"epsilon": epsilon, "delta": delta, "times": times}).stated.words.startswith(
        f"{times} "
    )


def test_zcdp_of_several_releases_is_stated_as_their_sum() -> None:
    with pytest.raises(InputError, match=r"1\.5-zCDP"):
        cp.Guarantee(rho=0.5, times=3)


def test_gaussians_compose_in_closed_form() -> None:
    """3-4-5: two Gaussians are one, to the last digits."""
    both, one = cp.measure([gaussian(0.3), gaussian(0.4)]).epsilon(1e-6), cp.measure(cp.Guarantee(mu=0.5)).epsilon(1e-6)
    assert both.lower == pytest.approx(one.lower, rel=1e-12)
    assert both.lower <= one.upper
    assert one.lower <= both.upper


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "none of them"),
        ({"epsilon": 1.0, "mu": 1.0}, "epsilon, mu"),
        ({"delta": 1e-5}, "delta"),
        ({"mu": 1.0, "delta": 1e-5}, "delta"),
        ({"epsilon": 0.0}, "constant"),
        ({"epsilon": 1.0, "delta": 1.0}, "everything"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon"),
        ({"rho": float("nan")}, "rho"),
        ({"mu": 1.0, "adjacency": "neighbors"}, "adjacency"),
    ],
)
def test_a_guarantee_that_says_nothing_or_too_much_is_refused(keys: dict[str, object], message: str) -> None:
    """Exactly one form, inside its domain."""
    with pytest.raises(InputError, match=message):
        cp.Guarantee.from_dict(keys)


def test_what_is_neither_run_nor_mechanism_is_refused() -> None:
    """A number, a mixture of runs and mechanisms, a guarantee in a list."""
    run = cp.Run(sample_rate=0.1, steps=3, noise_multiplier=2.0)
    for wrong in (3.0, [gaussian(1.0), run], [cp.Guarantee(mu=1.0), gaussian(1.0)]):
        with pytest.raises((InputError, TypeError)):
            cp.measure(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="dataset_sizes"):
        cp.measure(gaussian(1.0), dataset_sizes=(10, 20))
    with pytest.raises(UnsupportedError, match="infinite"):
        cp.measure(approximate_dp(1.0, 1e-5)).rdp(2.0)
