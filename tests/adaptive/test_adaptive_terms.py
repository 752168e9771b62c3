"""What each step of the recursion over a menu adds or takes off, against exact sums of a finite pair."""

from __future__ import annotations

import math

import numpy as np
import pytest

import calipers as cp
from calipers.adaptive import bounds
from calipers.adaptive.filter import Odometer
from calipers.adaptive.kernel import UpperKernel, lower_block, trimmed, upper_block
from calipers.bracket import Side
from calipers.pld.core.pmf import PrivacyLossPmf

P = np.array([0.2, 0.3, 0.4])
Q = np.array([0.5, 0.3, 0.2])
INFINITE = 0.1
"""The P-mass where Q vanishes."""
STEP = 0.125


def law(side: Side, error: float) -> PrivacyLossPmf:
    """The pair with masses off by a share to the flattering side, which its mass error covers."""
    if side is Side.UPPER:
        q = Q * (1.0 - error)
        return PrivacyLossPmf(np.log(P / Q), np.log(q * P / Q), np.log(q), side, INFINITE, 0.0, 1.001 * error + 1e-15)
    p, q = P * (1.0 + error), Q * (1.0 - error)
    return PrivacyLossPmf(np.log(p / q), np.log(p), np.log(q), side, 0.0, 0.0, 1.001 * error + 1e-15)


def exact(steps: int, epsilon: float) -> float:
    """D of so many steps, with what is infinite: a product of sums over all outcomes."""
    terms = [1.0 - (1.0 - INFINITE) ** steps]
    for first in range(steps + 1):
        for second in range(steps + 1 - first):
            counts = (first, second, steps - first - second)
            ways = math.comb(steps, first) * math.comb(steps - first, second)
            p, q = (math.prod(float(m) ** n for m, n in zip(masses, counts, strict=True)) for masses in (P, Q))
            terms.append(ways * max(0.0, p - math.exp(epsilon) * q))
    return math.fsum(terms)


def of_upper(low: int, masses: np.ndarray, p_inf: float, epsilon: float) -> float:
    """sum of p (1 - e^(eps - x))+ and what is infinite."""
    x = STEP * np.arange(low, low + len(masses))
    return float(np.sum(masses * np.maximum(-np.expm1(epsilon - x), 0.0))) + p_inf


@pytest.fixture(params=[False, True])
def transforms(request, monkeypatch) -> None:
    """Kernels convolved by plain sums, and by transforms."""
    if request.param:
        monkeypatch.setattr("calipers.adaptive.kernel.MOST_PRODUCTS", 0.0)


@pytest.mark.usefixtures("transforms")
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 9, 64])
@pytest.mark.parametrize(("error", "least"), [(0.0, 0.0), (1e-3, 0.0), (0.0, 0.05)])
def test_upper_kernels_stay_above(steps: int, error: float, least: float) -> None:
    """Masses too small by what they may be, tails cut at either end, all that is infinite: at every epsilon no less."""
    found = upper_block([(law(Side.UPPER, error), steps)], STEP, least)
    for epsilon in (-0.4, 0.0, 0.1, 0.5, 1.2, 3.0):
        value = of_upper(found.low, found.masses, found.p_inf, epsilon)
        assert exact(steps, epsilon) <= value * (1.0 + 1e-12)
        twice = steps * INFINITE - (1.0 - (1.0 - INFINITE) ** steps)  # infinite in two steps, counted in both
        assert value <= exact(steps, epsilon) + twice + 0.02 * min(steps, 3) + 2.0 * least * steps + 4.0 * error * steps


def test_a_tail_that_is_cut_from_an_upper_kernel_counts_as_infinite() -> None:
    """What is cut above is infinite, what is cut below moves to the lowest point kept: no mass of P is lost."""
    found = trimmed(UpperKernel(0, np.array([1e-4, 0.5, 0.4998, 1e-4]), 0.0, 0), 1e-3)
    assert (found.low, len(found.masses)) == (1, 2)
    assert found.p_inf >= 1e-4
    assert found.masses[0] >= 0.5 + 1e-4


@pytest.mark.usefixtures("transforms")
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 9, 64])
@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_lower_kernels_stay_below(steps: int, error: float) -> None:
    """P-masses too large and Q-masses too small by what they may be: power - k alpha of every test is no more."""
    found = lower_block([(law(Side.LOWER, error), steps)], STEP, 0.0)
    powers, alphas = (np.cumsum(each[::-1]) for each in (found.p, found.q))
    for epsilon in (0.0, 0.1, 0.5, 1.2):
        shown = max(0.0, float(np.max(powers - math.exp(epsilon) * alphas)))
        finite = exact(steps, epsilon) - (1.0 - (1.0 - INFINITE) ** steps)
        assert shown <= finite * (1.0 + 1e-12) + 1e-15
        assert shown >= finite - 0.05 * steps


def test_profiles_are_read_on_chords() -> None:
    """A convex profile between two nodes: the chord in e^epsilon, never below it, and its inverse."""
    nodes = np.array([0.0, 1.0, 2.0])
    values = np.array([0.5, 0.2, 0.05])
    for epsilon, a, b in ((0.3, 0, 1), (1.7, 1, 2)):
        share = (math.exp(epsilon) - math.exp(nodes[a])) / (math.exp(nodes[b]) - math.exp(nodes[a]))
        chord = float(values[a] + share * (values[b] - values[a]))
        assert chord <= bounds._at(nodes, values, epsilon) <= chord * (1.0 + 1e-8)
        assert epsilon <= bounds._crossing(nodes, values, chord) * (1.0 + 1e-12)
        assert bounds._crossing(nodes, values, chord) <= epsilon * (1.0 + 1e-6)
    assert bounds._at(nodes, values, 5.0) == 0.05
    assert bounds._crossing(nodes, values, 0.01) == math.inf


def test_readings_of_an_odometer_share_delta_and_wait_until_what_is_spent_fits() -> None:
    """Two readings: after each the Gaussian of all steps has at most half of delta at it, and one step more does not
    change the reading before its budget is used up."""
    delta = 1e-2
    step = cp.Run(sampler="deterministic", dataset_size=100, batch_size=100, epochs=1, noise_multiplier=5.0)
    odometer = Odometer({"step": step}, [0.8, 1.6], delta)
    (cost,) = odometer.costs
    for epsilon, budget in zip(odometer.epsilons, odometer.budgets, strict=True):
        steps = budget // cost
        mu = math.sqrt(steps) / 5.0
        shown = 0.5 * math.erfc((epsilon / mu - mu / 2) / math.sqrt(2))
        shown -= math.exp(epsilon) * 0.5 * math.erfc((epsilon / mu + mu / 2) / math.sqrt(2))
        assert steps > 1
        assert shown <= delta / 2
    last = odometer.budgets[0] // cost
    assert odometer.spend("step", last) == 0.8
    assert odometer.spend("step", 1) == 1.6
