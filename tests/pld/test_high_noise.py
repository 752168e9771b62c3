"""Very many steps that tell next to nothing: roundings grow with sqrt(T), and are charged so.

Oracles: the contour integral in mpmath, binomial laws with exact masses, and masses that were moved on purpose.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from oracles import contour, pairs

from calipers.bracket import Side
from calipers.errors import InputError
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.pld.composition import lattice, tails
from calipers.pld.composition.convolve import LatticePlan, compose_lower
from calipers.pld.composition.lattice import HighNoiseError, score_pmf
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
    """q = 1e-6, sigma = 10, T = 1e6: delta at either jaw of epsilon, by a line integral; 2e-3 apart at most."""
    bounds = Product([(poisson_gaussian(1e-6, 10.0), 10**6)]).epsilon(1e-5)
    assert 0.0 < bounds.upper - bounds.lower <= 2e-3 * bounds.upper
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
    assert bounds.lower < truth < bounds.upper <= 1.002 * bounds.lower


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
    return replace(pmf, whole=True)


def scored_tests(pmf: PrivacyLossPmf, tilt: float) -> LowerTail:
    plan = LatticePlan(RISE / 7.0, RISE / 7.0, tilt, math.log(1e-12), high_noise=True)
    factors = [(pmf, TIMES)]
    return lower_tail(*compose_lower(factors, plan), plan.step, tilt, ErrorTerms.of(factors, tilt, plan.step))


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


def test_moved_masses_are_charged_and_not_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the blur the test above would fail; the charge of every single mass would be 20 times as much."""
    pmf = two_outcomes(2e-10)
    error_terms = ErrorTerms.of([(pmf, TIMES)], 300.0, RISE / 7.0)
    assert 2.0 * 2e-10 * math.sqrt(TIMES) <= error_terms.blur <= 2.5 * 2e-10 * math.sqrt(TIMES)
    assert error_terms.log_mass <= ErrorTerms.of([(pmf, TIMES)], 300.0).log_mass / 20.0
    monkeypatch.setattr(tails.ErrorTerms, "blurred", lambda self, sums: np.zeros_like(sums))
    with pytest.raises(AssertionError):
        test_what_moved_masses_show_is_not_more_than_the_truth(2e-10, 1.0)


def test_who_is_not_faint_or_not_whole_pays_for_every_mass() -> None:
    """Large tilts, laws with mass left out, UPPER laws."""
    pmf = two_outcomes()
    assert HighNoiseError.of(pmf, RISE / 7.0, 300.0) is not None
    assert HighNoiseError.of(pmf, RISE / 7.0, 0.26 / RISE) is None
    assert HighNoiseError.of(replace(pmf, whole=False), RISE / 7.0, 300.0) is None
    assert ErrorTerms.of([(replace(pmf, whole=False), 9)], 2.0, 1e-5) == ErrorTerms.of([(pmf, 9)], 2.0)
    upper = poisson_gaussian(1e-6, 10.0).upper_for(0.1, -40.0, None)
    assert not upper.whole


def test_a_whole_law_has_all_its_mass() -> None:
    """Half of it is refused; cells of a Poisson step are whole, and of its reverse."""
    pmf = poisson_gaussian(1e-6, 10.0).lower_for(0.1, -40.0, None)
    assert pmf.whole
    assert pmf.reverse().whole
    with pytest.raises(InputError, match="whole"):
        replace(pmf, log_p=pmf.log_p - 1.0)


def test_norms_of_whole_laws_keep_their_digits() -> None:
    """log of the tilted sum of a million steps, against mpmath: 1e-9 in all where plain sums may lose 1e-7."""
    pmf, step, tilt = poisson_gaussian(1e-6, 10.0).lower_for(0.1, -40.0, 1.3e4), 1e-8, 1.3e4
    sharp = score_pmf(pmf, step, tilt, high_noise=True)
    charge = HighNoiseError.of(pmf, step, tilt)
    assert charge is not None
    scores = np.rint(pmf.log_ratio / step)
    with mp.workdps(40):
        for measure, masses, rate in ((sharp[0], pmf.log_p, tilt - 1.0), (sharp[1], pmf.log_q, tilt)):
            exact = [mp.exp(mp.mpf(float(m))) for m in masses]
            whole = mp.fsum(exact)  # the exact masses sum to 1: what these lack is their rounding
            terms = zip(exact, scores, strict=True)
            total = mp.log(mp.fsum(m / whole * mp.exp(mp.mpf(rate) * mp.mpf(step) * int(s)) for m, s in terms))
            used = measure.log_norm + mp.log(mp.fsum(mp.mpf(float(w)) for w in measure.weights))
            assert abs(used - total) <= charge.log_norm
            assert charge.log_norm < 1e-14 < 0.2 * pmf.rounding


def test_the_threshold_of_faintness_is_small() -> None:
    """The bound e^-1/4 of a tilted sum is what `HighNoiseError` divides by."""
    assert math.exp(lattice._HIGH_NOISE) < 1.3
