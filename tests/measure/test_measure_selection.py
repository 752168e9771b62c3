"""The best of a random number of runs: the lemma, the test, simulations and the published bound."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import calipers as cp
from calipers.errors import InputError
from calipers.measure import Selection
from calipers.mechanisms.selection import Trials

LAWS = [("geometric", None), ("logarithmic", None), ("poisson", None), ("negative-binomial", -0.5)]


@pytest.mark.parametrize(("kind", "shape"), LAWS)
@pytest.mark.parametrize("mean", [1.5, 10.0])
def test_generating_functions_are_those_of_the_laws(kind: str, shape: float | None, mean: float) -> None:
    """Mean and f(x) from the probabilities of K, summed in mpmath."""
    trials = Trials.of(kind, mean, shape)
    with mpmath.workdps(40):
        if kind == "poisson":
            weights = [mpmath.exp(-mean) * mpmath.mpf(mean) ** k / mpmath.factorial(k) for k in range(400)]
        else:
            k = np.arange(1.0, 20_000.0)
            steps = (1.0 - trials.gamma) * (k + trials.shape) / (k + 1.0)
            unscaled = np.append(0.0, np.cumprod(np.append(1.0, steps)))
            weights = list(unscaled[unscaled > 1e-30 * unscaled.max()] / unscaled.sum())
            weights.insert(0, 0.0)
        assert float(mpmath.fsum(k * w for k, w in enumerate(weights))) == pytest.approx(mean, rel=1e-8)
        for x in (0.0, 0.3, 0.97):
            exact = float(mpmath.fsum(w * mpmath.mpf(x) ** k for k, w in enumerate(weights)))
            assert 1.0 - float(trials.missed(np.array([1.0 - x]))[0]) == pytest.approx(exact, rel=1e-8, abs=1e-12)


def exact_delta(mu: float, trials: Trials, epsilon: float) -> float:
    """delta of selecting by the likelihood ratio among Gaussians: the integral of (p f'(F) - e^eps q f'(G))+."""
    z = np.linspace(-9.0, 12.0, 40_001)
    cdf = np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2.0)))
    under_p, under_q = (1.0 - trials.missed(1.0 - one) for one in (cdf(z - mu), cdf(z)))
    gain = np.diff(under_p) - math.exp(epsilon) * np.diff(under_q)
    return float(np.sum(np.maximum(gain, 0.0)))


@pytest.mark.parametrize(("kind", "shape"), LAWS)
@pytest.mark.parametrize("mean", [2.0, 20.0])
def test_lower_jaw_is_the_likelihood_ordered_test_and_upper_jaw_is_above_it(
    kind: str, shape: float | None, mean: float
) -> None:
    """Quadrature of the ordered test on a Gaussian lies in the bracket, and the lower bound nearly attains it."""
    measured = cp.measure(Selection(cp.Guarantee(mu=0.5), mean, kind, shape))
    for epsilon in (0.2, 1.0):
        truth = exact_delta(0.5, Trials.of(kind, mean, shape), epsilon)
        bracket = measured.delta(epsilon)
        assert 0.97 * truth <= bracket.lower
        assert truth <= bracket.upper
    assert measured.epsilon(1e-5).upper > cp.measure(cp.Guarantee(mu=0.5)).epsilon(1e-5).upper


def turned_delta(mu: float, trials: Trials, epsilon: float) -> float:
    """delta when outcomes of small ratio come first: the integral over all outcomes, for the best place to turn at."""
    z = np.linspace(-7.0, 9.0, 4001)
    cdf = np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2.0)))
    p, q = np.diff(cdf(z - mu)), np.diff(cdf(z))
    best = 0.0
    for turn in range(0, 4000, 10):
        order = np.r_[np.arange(turn, 4000), np.arange(turn)]  # from the lowest score to the highest
        sums = [np.append(0.0, np.minimum(np.cumsum(one[order]), 1.0)) for one in (p, q)]
        shown = [np.diff(1.0 - trials.missed(1.0 - one)) for one in sums]
        best = max(best, float(np.sum(np.maximum(shown[0] - math.exp(epsilon) * shown[1], 0.0))))
    return best


@pytest.mark.parametrize(("kind", "shape"), LAWS)
def test_turned_orders_show_more_and_what_is_shown_is_there(kind: str, shape: float | None) -> None:
    """The lower bound is about what the best turned order really leaks, or more, and far above the plain order."""
    trials, epsilon = Trials.of(kind, 10.0, shape), 2.0
    bracket = cp.measure(Selection(cp.Guarantee(mu=0.5), 10.0, kind, shape)).delta(epsilon)
    found = turned_delta(0.5, trials, epsilon)
    assert 0.98 * found <= bracket.lower
    assert found <= bracket.upper
    assert bracket.lower > 1.5 * exact_delta(0.5, trials, epsilon)


def test_pure_guarantees_pay_the_published_factor() -> None:
    """epsilon-DP trials: geometric 3 epsilon, logarithmic 2 epsilon at delta = 0, as Papernot and Steinke have it."""
    for kind, factor in (("geometric", 3.0), ("logarithmic", 2.0)):
        measured = cp.measure(Selection(cp.Guarantee(epsilon=0.4), 20.0, kind))
        assert measured.delta(factor * 0.4 * (1.0 + 1e-9)).upper == 0.0
        assert measured.epsilon(1e-9).upper <= factor * 0.4 * (1.0 + 1e-9)
        assert measured.epsilon(1e-6).lower > 0.4


def test_one_trial_is_one_run() -> None:
    """Mean 1 of a law that never gives 0 changes nothing; a law nobody has is refused."""
    run = cp.Run(sample_rate=0.02, steps=100, noise_multiplier=1.0)
    one, alone = cp.measure(Selection(run, 1.0)), cp.measure(run)
    assert one.epsilon(1e-5).upper >= alone.epsilon(1e-5).lower
    assert one.epsilon(1e-5).upper == pytest.approx(alone.epsilon(1e-5).upper, rel=1e-3)
    for wrong in (
        (0.5, "geometric", None),
        (5.0, "uniform", None),
        (5.0, "negative-binomial", None),
        (5.0, "poisson", 2.0),
    ):
        with pytest.raises(InputError):
            Selection(run, *wrong)


def test_every_trial_takes_its_share_of_delta() -> None:
    """Ten trials that each show everything with probability 1e-6 do so together with 1e-5, when the best is one."""
    measured = cp.measure(Selection(cp.Guarantee(epsilon=1.0, delta=1e-6), 10.0, "geometric"))
    assert measured.epsilon(5e-6).upper == math.inf
    assert math.isfinite(measured.epsilon(2e-5).upper)


@pytest.mark.parametrize("kind", ["geometric", "poisson"])
@pytest.mark.parametrize("mu", [32.0, 45.0])
def test_rates_below_the_range_of_doubles_are_no_proof_of_certainty(kind: str, mu: float) -> None:
    """An attack shows at most what the lemma allows the best of all Gaussians, and no double shows more than e^710."""
    bracket = cp.measure(Selection(cp.Guarantee(mu=mu), 100.0, kind)).epsilon(1e-5)
    with mpmath.workdps(30):
        # One trial at delta / 100 (Mills' ratio bounds the tail), shifted by the lemma with D(0) <= 1, or by its power.
        tail = mpmath.sqrt(2 * mpmath.log(100 / mpmath.mpf("1e-5")))
        most = float(mu * mu / 2 + mu * tail)
    shift = 100.0 if kind == "poisson" else 2.0 * math.log(101.0)
    assert bracket.lower <= min(most + shift, 710.0)
    assert bracket.lower > 0.4 * min(most, 690.0)
