"""Every error is charged: the profile nodes of a composed law and its tests, against exact convolution.

The laws here sit on the lattice, so splitting and rounding change nothing and only the charges separate
the bounds from the truth. To see the charges work, the window is made so small that a visible share of the mass
leaves it and comes around the circle; a forgotten charge then shows at once.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import enumeration
from oracles.finite_laws import law_of

from calipers.bracket import Side
from calipers.numerics.fourier import weight_norm
from calipers.pld.composition.convolve import LatticePlan, compose_lower, compose_upper
from calipers.pld.composition.lattice import LatticeMeasure
from calipers.pld.composition.tails import (
    ErrorTerms,
    LowerTail,
    UpperTail,
    lower_tail,
    single_lower_tail,
    single_upper_tail,
    upper_tail,
)
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.pair import Pair
from calipers.pld.core.pmf import PrivacyLossPmf

STEP = 2.0**-4
SHAPES = {
    "lopsided": {-3: 0.3, -1: 0.35, 0: 0.2, 2: 0.1, 9: 0.05},
    "two points": {-2: 0.4, 3: 0.6},
    "heavy": {-1: 0.97, 0: 0.02, 14: 0.008, 30: 0.002},
}


def law_on_lattice(shape: dict[int, float], side: Side) -> PrivacyLossPmf:
    x = STEP * np.array(sorted(shape), dtype=float)
    log_q = np.log(np.array([shape[i] for i in sorted(shape)]))
    return PrivacyLossPmf(x, log_q + x, log_q, side)


def exact_power(shape: dict[int, float], count: int) -> tuple[int, list[mp.mpf]]:
    """First position and masses of the sum of `count` terms, by the recurrence for powers of a polynomial.

    f = g^n satisfies f' g = n f g', so k g_0 f_k = sum over j of ((n + 1) j - k) g_j f_(k-j).
    """
    pmf = law_on_lattice(shape, Side.UPPER)
    low = min(shape)
    g = {round(float(x) / STEP) - low: mp.exp(mp.mpf(float(q))) for x, q in zip(pmf.log_ratio, pmf.log_q, strict=True)}
    total = [g[0] ** count]
    for k in range(1, count * max(g) + 1):
        terms = (((count + 1) * j - k) * g[j] * total[k - j] for j in g if 0 < j <= k)
        total.append(mp.fsum(terms) / (k * g[0]))
    assert abs(mp.fsum(total) / mp.fsum(g.values()) ** count - 1) < mp.mpf(10) ** -60, "the recurrence lost its digits"
    return count * low, total


@functools.cache
def exact_sum(name: str, count: int) -> Exact:
    return Exact(SHAPES[name], count)


class Exact:
    """The profile, the power and the level of the count-fold sum, from exact masses."""

    def __init__(self, shape: dict[int, float], count: int) -> None:
        with mp.workdps(400):
            self.low, masses = exact_power(shape, count)
            x = [mp.mpf(STEP) * (self.low + i) for i in range(len(masses))]
            self.q_above = [mp.mpf(0)] * (len(masses) + 1)
            self.p_above = [mp.mpf(0)] * (len(masses) + 1)
            for i in range(len(masses) - 1, -1, -1):
                self.q_above[i] = self.q_above[i + 1] + masses[i]
                self.p_above[i] = self.p_above[i + 1] + masses[i] * mp.exp(x[i])

    def index(self, position: int) -> int:
        return min(max(position - self.low + 1, 0), len(self.q_above) - 1)

    def level(self, position: int) -> mp.mpf:
        return self.q_above[self.index(position)]

    def power(self, position: int) -> mp.mpf:
        return self.p_above[self.index(position)]

    def delta(self, position: int) -> mp.mpf:
        with mp.workdps(60):
            return self.power(position) - mp.exp(mp.mpf(STEP) * position) * self.level(position)


CASES = [
    (name, count, tilt, escape)
    for name in SHAPES
    for count in (2, 25, 200)
    for tilt in (1.0, 1.4, 6.0)
    for escape in (0.2, 1e-3, 1e-9)
]


@pytest.mark.parametrize(("name", "count", "tilt", "escape"), CASES)
def test_upper_nodes_are_above_the_profile(name: str, count: int, tilt: float, escape: float) -> None:
    """D <= delta_i at every node, even when a fifth of the tilted mass may leave the window."""
    pmf = law_on_lattice(SHAPES[name], Side.UPPER)
    plan = LatticePlan(STEP, STEP, tilt, math.log(escape))
    tail = upper_tail(compose_upper([(pmf, count)], plan), STEP, tilt, ErrorTerms.of([(pmf, count)]), None)
    exact = exact_sum(name, count)
    for eps, log_delta in zip(tail.epsilon_nodes, tail.log_delta_nodes, strict=True):
        truth = exact.delta(math.floor(eps / STEP + 0.5))
        assert truth <= mp.exp(mp.mpf(float(log_delta))), eps


@pytest.mark.parametrize(("name", "count", "tilt", "escape"), CASES)
def test_lower_tests_have_their_power_and_their_level(name: str, count: int, tilt: float, escape: float) -> None:
    """Each test {score > t} has at least the stated power under P and at most the stated level under Q."""
    pmf = law_on_lattice(SHAPES[name], Side.LOWER)
    plan = LatticePlan(STEP, STEP, tilt, math.log(escape))
    tail = lower_tail(*compose_lower([(pmf, count)], plan), STEP, tilt, ErrorTerms.of([(pmf, count)]))
    exact = exact_sum(name, count)
    for threshold, log_power, log_alpha in zip(tail.thresholds, tail.log_power, tail.log_alpha, strict=True):
        position = math.floor(threshold / STEP + 0.5)
        assert mp.exp(mp.mpf(float(log_power))) <= exact.power(position), threshold
        assert mp.exp(mp.mpf(float(log_alpha))) >= exact.level(position), threshold


@pytest.mark.parametrize(
    ("name", "count", "tilt"), [("lopsided", 200, 1.4), ("two points", 25, 6.0), ("heavy", 200, 1.4)]
)
def test_a_wide_window_costs_nothing(name: str, count: int, tilt: float) -> None:
    """With an escape of 1e-9 both bounds agree with the truth to six digits around the saddle."""
    plan = LatticePlan(STEP, STEP, tilt, math.log(1e-9))
    upper, lower = law_on_lattice(SHAPES[name], Side.UPPER), law_on_lattice(SHAPES[name], Side.LOWER)
    measure = compose_upper([(upper, count)], plan)
    nodes = upper_tail(measure, STEP, tilt, ErrorTerms.of([(upper, count)]), None)
    tests = lower_tail(*compose_lower([(lower, count)], plan), STEP, tilt, ErrorTerms.of([(lower, count)]))
    exact = exact_sum(name, count)
    center = int(measure.positions[int(np.argmax(measure.weights))])
    for position in range(center - 6, center + 7, 3):
        truth = exact.delta(position)
        assert nodes.delta(position * STEP) <= truth * (1 + 1e-6)
        assert tests.delta(position * STEP) >= truth * (1 - 1e-6)


def test_fourier_errors_are_charged() -> None:
    """Weights off by a known 2-norm, in the direction that flatters most: the bounds hold, because `error` says so."""
    count, tilt = 60, 1.4
    shape = SHAPES["lopsided"]
    exact = exact_sum("lopsided", count)
    plan = LatticePlan(STEP, STEP, tilt, math.log(1e-9))
    upper, lower = law_on_lattice(shape, Side.UPPER), law_on_lattice(shape, Side.LOWER)
    clean = compose_upper([(upper, count)], plan)
    peak = int(np.argmax(clean.weights))
    kernel = np.exp(-(tilt - 1.0) * STEP * np.abs(np.arange(len(clean.weights)) - peak))
    kernel *= 1e-3 / np.linalg.norm(kernel)
    low = replace(clean, weights=clean.weights - kernel, error=clean.error + 1e-3)
    for eps, log_delta in zip(*_nodes(upper_tail(low, STEP, tilt, ErrorTerms.of([(upper, count)]), None)), strict=True):
        assert exact.delta(math.floor(eps / STEP + 0.5)) <= mp.exp(mp.mpf(float(log_delta)))
    under_p, under_q = compose_lower([(lower, count)], plan)
    many_p = replace(under_p, weights=under_p.weights + kernel[: len(under_p.weights)], error=under_p.error + 1e-3)
    few_q = replace(under_q, weights=under_q.weights - kernel[: len(under_q.weights)], error=under_q.error + 1e-3)
    tests = lower_tail(many_p, few_q, STEP, tilt, ErrorTerms.of([(lower, count)]))
    for threshold, log_power, log_alpha in zip(tests.thresholds, tests.log_power, tests.log_alpha, strict=True):
        position = math.floor(threshold / STEP + 0.5)
        assert mp.exp(mp.mpf(float(log_power))) <= exact.power(position)
        assert mp.exp(mp.mpf(float(log_alpha))) >= exact.level(position)


def _nodes(tail: UpperTail) -> tuple[np.ndarray, np.ndarray]:
    return tail.epsilon_nodes, tail.log_delta_nodes


def test_mass_errors_shifts_and_infinities_are_charged_once_per_factor() -> None:
    """A law whose masses may be 1 % off and whose ratios may be off by 0.01, three times over."""
    pmf = replace(law_on_lattice(SHAPES["two points"], Side.UPPER), mass_error=0.01, shift_error=0.01, p_inf=0.1)
    error_terms = ErrorTerms.of([(pmf, 2), (pmf, 1)])
    assert error_terms.log_mass >= 3 * -math.log1p(-0.01)
    assert error_terms.shift == pytest.approx(0.03)
    finite = float(np.exp(pmf.log_p).sum())  # and it may be 1 % more
    assert (
        0.1 * (1 + finite + finite**2)
        <= error_terms.infinite_upper
        <= 0.1 * (1 + 1.011 * finite + (1.011 * finite) ** 2)
    )
    assert error_terms.infinite_lower <= 1 - 0.9**3


def test_mass_at_infinity_of_a_product() -> None:
    """p_inf1 + F1 p_inf2 + F1 F2 p_inf3 for finite masses F: 1 - (1 - p_inf)^3 only where F = 1 - p_inf."""
    given = law_on_lattice(SHAPES["two points"], Side.UPPER)
    log_total = math.log(float(np.exp(given.log_p).sum()))
    plain = replace(given, log_p=given.log_p - log_total, log_q=given.log_q - log_total)
    for finite in (0.9, 0.95, 1.0, 1.02):
        pmf = replace(plain, log_p=plain.log_p + math.log(finite), log_q=plain.log_q + math.log(finite), p_inf=0.1)
        exact = 0.1 * (1 + finite + finite**2)
        for factors in ([(pmf, 3)], [(pmf, 2), (pmf, 1)]):
            found = ErrorTerms.of(factors).infinite_upper
            assert exact <= found <= exact * (1 + 1e-8)
    tiny = replace(plain, p_inf=1e-30)
    assert 1e-25 <= ErrorTerms.of([(tiny, 100_000)]).infinite_upper <= 1e-25 * (1 + 1e-6)


@pytest.mark.parametrize("direction", [-1.0, 1.0])
@pytest.mark.parametrize("count", [1, 40])
def test_a_law_with_wrong_masses_and_ratios_still_dominates(direction: float, count: int) -> None:
    """Truth: q (1 +- e) and log L +- s. An UPPER law that declares e and s stays above it."""
    e, s = 2e-4, 3e-4
    shape = SHAPES["lopsided"]
    exact = exact_sum("lopsided", count)
    wrong_q = math.log1p(-e) if direction > 0 else math.log1p(e)
    clean = law_on_lattice(shape, Side.UPPER)
    x, log_q = clean.log_ratio - direction * s, clean.log_q + wrong_q
    upper = PrivacyLossPmf(x, log_q + x, log_q, Side.UPPER, mass_error=1.01 * e, shift_error=s)
    plan = LatticePlan(STEP / 4, STEP / 4, 1.5, math.log(1e-12))
    if count == 1:
        tail = single_upper_tail(upper)
        assert isinstance(tail, UpperTail)
    else:
        tail = upper_tail(
            compose_upper([(upper, count)], plan), plan.step, plan.tilt, ErrorTerms.of([(upper, count)]), None
        )
    first = math.ceil(float(tail.epsilon_nodes[0]) / STEP)
    for position in range(first, int(count * 9 * 0.9)):
        assert exact.delta(position) <= tail.delta(position * STEP), position


@pytest.mark.parametrize("count", [1, 40])
def test_a_law_with_flattering_masses_is_not_believed(count: int) -> None:
    """Stored P-masses too large and Q-masses too small by a declared share: power and level are still bounds."""
    e = 2e-4
    clean = law_on_lattice(SHAPES["lopsided"], Side.LOWER)
    exact = exact_sum("lopsided", count)
    lower = replace(clean, log_p=clean.log_p + math.log1p(e), log_q=clean.log_q + math.log1p(-e), mass_error=1.01 * e)
    if count == 1:
        tail = single_lower_tail(lower)
        assert isinstance(tail, LowerTail)
    else:
        plan = LatticePlan(STEP, STEP, 1.5, math.log(1e-12))
        tail = lower_tail(*compose_lower([(lower, count)], plan), STEP, 1.5, ErrorTerms.of([(lower, count)]))
    for threshold, log_power, log_alpha in zip(tail.thresholds, tail.log_power, tail.log_alpha, strict=True):
        position = math.floor(threshold / STEP + 0.5)
        assert mp.exp(mp.mpf(float(log_power))) <= exact.power(position), threshold
        assert mp.exp(mp.mpf(float(log_alpha))) >= exact.level(position), threshold


def test_chords_between_nodes() -> None:
    """Between two nodes the bound is linear in k = e^eps, above any convex profile, and eps(delta) is its inverse."""
    mu = 1.3
    nodes = np.linspace(-1.0, 6.0, 15)
    with mp.workdps(30):
        log_delta = np.array([float(mp.log(enumeration.gaussian(mu, float(e)))) for e in nodes]) + 1e-15
    tail = UpperTail(nodes, log_delta)
    for eps in np.linspace(-1.0, 6.0, 101):
        assert enumeration.gaussian(mu, float(eps)) <= tail.delta(float(eps)) * (1 + 1e-14)
    k = 0.5 * (math.exp(nodes[8]) + math.exp(nodes[9]))
    assert tail.delta(math.log(k)) == pytest.approx(0.5 * (math.exp(log_delta[8]) + math.exp(log_delta[9])), rel=1e-12)
    for delta in (0.3, 0.1, 1e-3, 1e-5):
        eps = tail.epsilon(delta)
        assert enumeration.gaussian(mu, eps) <= delta
        assert tail.delta(eps) <= delta * (1 + 1e-12)
        assert tail.delta(eps - 1e-6) > delta or eps == 0.0


def test_outside_the_nodes_nothing_is_promised() -> None:
    """Left of the first node only 1 is known; right of the last its own value; below all of them no epsilon."""
    tail = UpperTail(np.array([0.5, 1.0]), np.log([0.1, 0.01]))
    assert tail.delta(0.4) == 1.0
    assert tail.delta(9.0) == pytest.approx(0.01)
    assert tail.epsilon(0.001) == math.inf
    assert tail.epsilon(0.5) == 0.5, "below the first node the profile is unknown"


def test_lower_tail_reads_the_best_test() -> None:
    """Three tests by hand: power - k level, and the eps at which the best of them still shows delta."""
    power, level = np.array([0.9, 0.5, 0.1]), np.array([0.4, 0.05, 0.001])
    tail = LowerTail(np.array([-1.0, 0.0, 1.0]), np.log(power), np.log(level))
    for eps, best in ((0.0, 0), (1.0, 1), (4.0, 2)):
        value, threshold = tail.best_test(eps)
        assert value == pytest.approx(float(power[best] - math.exp(eps) * level[best]), rel=1e-13)
        assert value <= power[best] - math.exp(eps) * level[best]
        assert threshold == best - 1.0
    assert tail.epsilon(0.09) == pytest.approx(max(np.log((power - 0.09) / level)), rel=1e-13)
    assert tail.epsilon(0.95) == 0.0
    assert tail.delta(9.0) == 0.0
    assert LowerTail(np.array([]), np.array([]), np.array([])).best_test(1.0) == (0.0, math.inf)


def gaussian_law(mu: float, side: Side, log_tail: float) -> PrivacyLossPmf:
    pair = Pair("gaussian", (gaussian_mixture_part([1.0], [mu], [1.0], [0.0]),))
    return (pair.upper if side is Side.UPPER else pair.lower)(0.1, log_tail)


@pytest.mark.parametrize(
    ("mu", "log_tail", "eps"),
    [
        (1.0, -60.0, 0.0),
        (1.0, -60.0, 6.0),
        # Q-masses below the smallest float, where P still has its mass:
        (40.0, -60.0, 600.0),
        (50.0, -60.0, 100.0),
        (50.0, -60.0, 1300.0),
        (10.0, -750.0, 340.0),
    ],
)
def test_one_law_by_itself(mu: float, log_tail: float, eps: float) -> None:
    """One Gaussian needs no convolution; nodes and tests bracket the closed form however small Q's masses are."""
    truth = enumeration.gaussian(mu, eps)
    upper, lower = (
        single_upper_tail(gaussian_law(mu, Side.UPPER, log_tail)),
        single_lower_tail(gaussian_law(mu, Side.LOWER, log_tail)),
    )
    assert lower.delta(eps) <= truth <= upper.delta(eps)
    assert upper.delta(eps) <= 3.0 * lower.delta(eps), "cells of a tenth are coarse where log L grows by 5 per unit"


@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=2, max_size=6),
    st.floats(-2.0, 4.0),
)
def test_single_tail_equals_the_law_it_came_from(weights: list[tuple[int, int]], eps: float) -> None:
    """At every eps chords are above the sum over atoms and the best test below it; 1e-12 apart at the atoms."""
    p, q = (np.array(column, dtype=float) / sum(column) for column in zip(*weights, strict=True))
    upper, lower = single_upper_tail(law_of(p, q, Side.UPPER)), single_lower_tail(law_of(p, q, Side.LOWER))
    for at in (eps, *np.log(p / q)):
        truth = mp.fsum(
            max(mp.mpf(0), mp.mpf(a) - mp.exp(mp.mpf(float(at))) * mp.mpf(b)) for a, b in zip(p, q, strict=True)
        )
        # At an atom the test may reject it or not, and 15 digits cannot tell which is better.
        assert lower.delta(float(at)) <= truth + mp.mpf(1e-15)
        if at >= upper.epsilon_nodes[0]:
            assert truth <= upper.delta(float(at)) + mp.mpf(1e-15)
            assert upper.delta(float(at)) - lower.delta(float(at)) < 1e-12 + (0 if at in np.log(p / q) else 1.0)


def test_returned_mass_is_not_counted_as_power() -> None:
    """All P-mass sits just below the window, so what the circle shows at the top came from below and proves nothing."""
    pmf = PrivacyLossPmf(np.array([-40 * STEP, 0.0]), np.log([1e-3, 0.999]), np.log([1e-3, 0.999]), Side.LOWER)
    plan = LatticePlan(STEP, STEP, 1.0, math.log(0.3))
    under_p, under_q = compose_lower([(pmf, 2)], plan)
    assert len(under_p.weights) < 40, "the window is too small for the atom at -40: it wraps"
    tail = lower_tail(under_p, under_q, STEP, 1.0, ErrorTerms.of([(pmf, 2)]))
    for threshold, log_power in zip(tail.thresholds, tail.log_power, strict=True):
        truth = 0.0 if threshold >= 0 else 0.999**2
        assert math.exp(log_power) <= truth


def test_measures_know_nothing_of_windows_are_charged_in_full() -> None:
    """Without a window `escape` alone is what may be misplaced, at every node."""
    measure = LatticeMeasure(np.arange(4), np.array([0.1, 0.4, 0.4, 0.1]), 0.0, escape=0.05)
    tail = upper_tail(measure, 1.0, 1.0, ErrorTerms(0.0, 0.0, 0.0, 0.0), None)
    assert np.all(np.exp(tail.log_delta_nodes) >= 0.05)


@pytest.mark.parametrize("tilt", [1.0 + 1e-3, 1.5, 15.0, 4000.0])
@pytest.mark.parametrize("step", [1e-5, 1e-2, 3.0])
def test_the_norm_of_the_weights_of_a_divergence(tilt: float, step: float) -> None:
    """At least that of g(y) = e^(-(tilt-1) y) - e^(-tilt y) on the lattice; not much more where that is fine."""
    y = step * np.arange(1.0, 2e6)
    norm = math.sqrt(float(np.sum((np.exp(-(tilt - 1.0) * y) * -np.expm1(-y)) ** 2)))
    found = weight_norm(tilt, step)
    assert norm <= found
    if tilt * step < 0.01 and (tilt - 1.0) * y[-1] > 20.0:
        assert found <= 1.1 * norm


def test_sums_of_the_smallest_numbers_are_charged_for_their_rounding() -> None:
    """Weights of three times the smallest double at the last position, whose decayed sums round to one, or to 0."""
    weights = np.zeros(12)
    weights[-1] = 3.0 * 5e-324
    measure = LatticeMeasure(np.arange(12), weights, 0.0)
    tail = upper_tail(measure, 0.5, 2.0, ErrorTerms(0.0, 0.0, 0.0, 0.0))
    for i, log_delta in enumerate(tail.log_delta_nodes[:-1].tolist()):
        # Mass at y = 0.5 (11 - i) beyond x = i/2, whose P-mass is e^(y + x) and whose tilt is taken out.
        y = mp.mpf(0.5 * (11 - i))
        exact = mp.mpf(float(weights[-1])) * (mp.exp(-y) - mp.exp(-2 * y)) * mp.exp(-mp.mpf(0.5 * i))
        assert mp.log(exact) <= mp.mpf(log_delta) < -650
