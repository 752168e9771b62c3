"""Very many steps that tell next to nothing: the rounding of every mass is charged.

Oracles: the contour integral in mpmath, binomial laws with exact masses, and masses that were moved on purpose.
"""

from __future__ import annotations

import functools
import math

import mpmath as mp
import numpy as np
import pytest
from oracles import contour, pairs

from calipers.bracket import Side
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.pld.composition.convolve import LatticePlan, compose_lower
from calipers.pld.composition.product import Product
from calipers.pld.composition.tails import ErrorTerms, LowerTail, lower_tail
from calipers.pld.core.pmf import PrivacyLossPmf


@functools.cache
def faint_delta(epsilon: float, steps: int, theta: float, top: float, nodes: int, spacing: float) -> mp.mpf:
    """D of Poisson steps with q = 1e-6 and sigma = 10, from the line Re z = theta up to height `top`."""
    with mp.workdps(30):
        q, sigma, step = mp.mpf(1e-6), mp.mpf(10), mp.mpf(spacing)
        places = [-13 + step * i for i in range(int(27 / step) + 1)]
        weights = [step * mp.npdf(x) for x in places]
        losses = [mp.log1p(q * mp.expm1(x / sigma - 1 / (2 * sigma**2))) for x in places]
        total = mp.mpf(0)
        for node in range(nodes + 1):
            z = mp.mpc(theta, mp.mpf(top) * node / nodes)
            moment = mp.fsum(weight * mp.exp(z * loss) for weight, loss in zip(weights, losses, strict=True))
            value = (moment**steps * mp.exp(-(z - 1) * epsilon) / (z * (z - 1))).real
            total += value / 2 if node == 0 else value
        return total * mp.mpf(top) / nodes / mp.pi


def test_a_million_faint_steps_lie_in_a_narrow_bracket() -> None:
    """q = 1e-6, sigma = 10, T = 1e6: delta at either bound of epsilon, by a line integral; 3e-3 apart at most."""
    bounds = Product([(poisson_gaussian(1e-6, 10.0), 10**6)]).epsilon(1e-5)
    assert 0.0 < bounds.upper - bounds.lower <= 3e-3 * bounds.upper
    line = {"steps": 10**6, "theta": 14_000.0, "top": 9e4, "nodes": 60, "spacing": 0.5}
    assert faint_delta(bounds.upper, **line) <= 1e-5 <= faint_delta(bounds.lower, **line)
    finer = faint_delta(bounds.lower, **(line | {"nodes": 90, "spacing": 0.4}))
    assert abs(finer / faint_delta(bounds.lower, **line) - 1) < 1e-9


@pytest.mark.parametrize(
    ("steps", "delta", "truth"),
    [(10**6, 1e-5, 9.060647220789e-05), (10**5, 1e-5, 5.703574245104e-06)],
)
def test_epsilon_of_faint_steps(steps: int, delta: float, truth: float) -> None:
    """Values of the contour integral (`test_values_of_the_contour_integral`)."""
    bounds = Product([(poisson_gaussian(1e-6, 10.0), steps)]).epsilon(delta)
    assert bounds.lower < truth < bounds.upper <= 1.003 * bounds.lower


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "truth"), [(10**6, 9.060647220789e-05), (10**5, 5.703574245104e-06)])
def test_values_of_the_contour_integral(steps: int, truth: float) -> None:
    """The pinned ones, once more."""
    assert contour.epsilon(pairs.poisson_gaussian(1e-6, 10.0), steps, 1e-5) == pytest.approx(truth, rel=1e-9)


UP, RISE, TIMES = 0.3, 1e-4, 6400


def two_outcomes(moved: float = 0.0) -> PrivacyLossPmf:
    """L is e^RISE with Q-mass UP; the stored masses err by a share `moved`, up and down."""
    q = np.array([1.0 - UP, UP])
    p = np.array([1.0 - UP * math.exp(RISE), UP * math.exp(RISE)])
    wrong = np.array([1.0 - moved, 1.0 + moved])
    ratio = np.log(p / q)
    pmf = PrivacyLossPmf(ratio, np.log(p * wrong), np.log(q * wrong), Side.LOWER, mass_error=1.01 * abs(moved) + 4e-15)
    sums = [float(np.exp(masses).sum()) for masses in (pmf.log_p, pmf.log_q)]
    assert max(abs(total - 1.0) for total in sums) <= abs(moved) + 1e-15
    return pmf


def scored_tests(pmf: PrivacyLossPmf, tilt: float) -> LowerTail:
    plan = LatticePlan(RISE / 7.0, RISE / 7.0, tilt, math.log(1e-12))
    factors = [(pmf, TIMES)]
    return lower_tail(*compose_lower(factors, plan), plan.step, tilt, ErrorTerms.of(factors, tilt))


@functools.cache
def tail_masses() -> tuple[list[mp.mpf], list[mp.mpf]]:
    """P and Q of more than n of the TIMES outcomes being up, n = 0 .. TIMES, summed exactly enough."""
    found = []
    with mp.workdps(30):
        for up in (mp.mpf(UP) * mp.exp(mp.mpf(RISE)), mp.mpf(UP)):
            log_mass = TIMES * mp.log1p(-up)
            mass, masses = mp.exp(log_mass), []
            for n in range(TIMES + 1):
                masses.append(mass)
                mass *= (TIMES - n) / mp.mpf(n + 1) * up / (1 - up)
            after, total = [], mp.mpf(0)
            for mass in reversed(masses):
                after.append(total)
                total += mass
            assert abs(total - 1) < 1e-20
            found.append(after[::-1])
    return found[0], found[1]


@pytest.mark.parametrize("moved", [0.0, 2e-10, -2e-10])
@pytest.mark.parametrize("tilt", [1.0, 60.0, 600.0])
def test_what_moved_masses_show_is_not_more_than_the_truth(moved: float, tilt: float) -> None:
    """Masses wrong by 2e-10 all the same way for 6400 steps: no test claims a better power or false positive rate.

    The scores of the two outcomes lie 7 and -3 apart in units of the lattice (RISE/7 each), so the threshold says how
    many were up.
    """
    tests = scored_tests(two_outcomes(moved), tilt)
    p_after, q_after = tail_masses()
    step = RISE / 7.0
    high, low = 7, round(math.log1p(-UP * math.expm1(RISE) / (1.0 - UP)) / step)
    checked = 0
    for threshold, log_power, log_alpha in zip(tests.thresholds, tests.log_power, tests.log_alpha, strict=True):
        # More than `threshold`: n high + (TIMES - n) low > threshold / step.
        n = math.floor((round(threshold / step) - TIMES * low) / (high - low))
        if 0 <= n <= TIMES and log_power > -30.0:
            assert mp.exp(mp.mpf(log_power)) <= p_after[n]
            assert mp.exp(mp.mpf(log_alpha)) >= q_after[n]
            checked += 1
    assert checked > 100
