"""The order that ranks both extremes first: all orders of a few outcomes, quadrature of one for Gaussians."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

import calipers as cp
from calipers.curves.points import Points
from calipers.measure import Selection
from calipers.measure.selection_order import best_order
from calipers.mechanisms.selection import Trials

Floats = NDArray[np.float64]
LAWS = [("geometric", 10.0), ("logarithmic", 30.0), ("poisson", 4.0)]
P = np.array([0.30, 0.25, 0.20, 0.15, 0.06, 0.04])
Q = np.array([0.10, 0.15, 0.20, 0.25, 0.17, 0.13])
"""Six outcomes by falling likelihood ratio."""


def generating(kind: str, mean: float) -> Callable[[Floats], Floats]:
    """f(x) = E[x^K] in closed form."""
    if kind == "poisson":
        return lambda x: np.exp(mean * (x - 1.0))
    if kind == "geometric":
        return lambda x: x / mean / (1.0 - (1.0 - 1.0 / mean) * x)
    gamma = Trials.of(kind, mean).gamma
    return lambda x: np.log(1.0 - (1.0 - gamma) * x) / math.log(gamma)


def released(order: tuple[int, ...], masses: Floats, f: Callable[[Floats], Floats]) -> Floats:
    """The chance that each outcome is released, if outcomes rank in this order: f(1 - above) - f(1 - above - own)."""
    above = np.concatenate(([0.0], np.cumsum(masses[list(order)])))
    none = f(np.maximum(1.0 - above, 0.0))
    return np.asarray(none[:-1] - none[1:])


def ratio_tests(p: Floats, q: Floats) -> Points:
    """The likelihood ratio tests of finitely many outcomes."""
    power, alpha = (np.concatenate(([0.0], np.cumsum(one))) for one in (p, q))
    power[-1] = alpha[-1] = 1.0
    beta, alpha_c = (np.append(np.cumsum(one[::-1])[::-1], 0.0) for one in (p, q))
    return Points(alpha, beta, alpha_c, power)


@pytest.mark.parametrize(("kind", "mean"), LAWS)
def test_no_order_of_six_outcomes_shows_more(kind: str, mean: float) -> None:
    """All 720 orders, each with the best set of outcomes to claim: what is found is one of them, and none is better."""
    f, trials = generating(kind, mean), Trials.of(kind, mean)
    epsilons = (0.0, 0.5, 1.5)
    best = dict.fromkeys(epsilons, 0.0)
    for order in itertools.permutations(range(6)):
        right, wrong = released(order, P, f), released(order, Q, f)
        for epsilon in epsilons:
            best[epsilon] = max(best[epsilon], float(np.sum(np.maximum(right - math.exp(epsilon) * wrong, 0.0))))
    for epsilon in epsilons:
        found = best_order(ratio_tests(P, Q), trials, epsilon)
        assert best[epsilon] * (1.0 - 1e-6) <= found.delta(epsilon) <= best[epsilon] + 1e-9
        assert found.epsilon(found.delta(epsilon)) == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mean"), LAWS)
def test_ranking_both_extremes_of_a_gaussian_first_is_attained(kind: str, mean: float) -> None:
    """Outcomes by their distance from the best center, by quadrature: the lower bound shows no less."""
    mu, trials = 0.3, Trials.of(kind, mean)
    measured = cp.measure(Selection(cp.Guarantee(mu=mu), mean, kind))
    z = np.linspace(-7.0, 8.0, 1501)
    middle, p, q = (z[1:] + z[:-1]) / 2, np.diff(ndtr(z - mu)), np.diff(ndtr(z))
    for epsilon in (0.1, 0.4):
        best = 0.0
        for center in np.linspace(-0.5, 1.0, 16):
            order = np.argsort(-np.abs(middle - center))
            sums = [trials.missed(np.minimum(np.append(0.0, np.cumsum(one[order])), 1.0)) for one in (p, q)]
            gain = np.diff(sums[0]) - math.exp(epsilon) * np.diff(sums[1])
            best = max(best, float(np.sum(np.maximum(gain, 0.0))))
        bracket = measured.delta(epsilon)
        assert 0.998 * best <= bracket.lower <= bracket.upper


def test_geometric_selection_shows_what_is_known_to_be_shown() -> None:
    """Mean 10, mu 0.3, epsilon 0.2: with both extremes first delta is 0.1719, by other scores 0.1383."""
    measured = cp.measure(Selection(cp.Guarantee(mu=0.3), 10.0, "geometric"))
    bracket = measured.delta(0.2)
    assert 0.1719 < 0.174 <= bracket.lower <= 0.18
    assert measured.epsilon(bracket.lower).lower == pytest.approx(0.2, abs=1e-3)
