"""Composition in one stage and in blocks: windows hold what they say, and blocks are laws of the same steps."""

from __future__ import annotations

import bisect
import functools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.finite_laws import law_of
from scipy.special import gammaln

from calipers.bracket import Side
from calipers.errors import CertificationError
from calipers.pld.composition import convolve, factors
from calipers.pld.composition.convolve import LatticePlan, block_size, compose_lower, compose_upper
from calipers.pld.composition.factors import Factor, window_of
from calipers.pld.composition.lattice import LatticeMeasure, Window, split_pmf
from calipers.pld.composition.tails import ErrorTerms, LowerTail, UpperTail, lower_tail, upper_tail
from calipers.pld.core.pmf import PrivacyLossPmf


def measure(masses: dict[int, float]) -> LatticeMeasure:
    places = np.array(sorted(masses))
    weights = np.array([masses[int(i)] for i in places])
    return LatticeMeasure(places, weights / weights.sum(), 0.0)


def sum_law(one: LatticeMeasure, count: int) -> tuple[int, np.ndarray]:
    """First position and masses of a sum, by plain repeated convolution of positive numbers."""
    low = int(one.positions.min())
    dense = np.zeros(int(one.positions.max()) - low + 1)
    np.add.at(dense, one.positions - low, one.weights)
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, dense)
    return count * low, total


STEPPERS = {
    "bell": measure({i: math.exp(-0.5 * (i / 3.0) ** 2) for i in range(-12, 13)}),
    "skew": measure({-1: 0.9, 4: 0.09, 17: 0.01}),
    "rare": measure({-1: 0.5, 1: 0.5, 60: 1e-9, -50: 1e-8}),
    "one point": measure({7: 1.0}),
}


@pytest.mark.parametrize("name", list(STEPPERS))
@pytest.mark.parametrize("count", [1, 30, 100])
@pytest.mark.parametrize("escape", [0.1, 1e-4, 1e-10])
def test_a_sum_leaves_its_window_as_rarely_as_stated(name: str, count: int, escape: float) -> None:
    """P(S > high + m) <= e^(log_escape - rate m) for every m, and below likewise, up to the loose mass."""
    one = STEPPERS[name]
    window = window_of([Factor.plain(one, count)], math.log(escape))
    low, masses = sum_law(one, count)
    at = low + np.arange(len(masses))
    for m in (0, 1, 5, 40, 300):
        above, below = float(masses[at > window.high + m].sum()), float(masses[at < window.low - m].sum())
        assert above <= math.exp(window.log_escape - window.rate_above * m) + window.loose
        assert below <= math.exp(window.log_escape - window.rate_below * m) + window.loose
    assert window.loose <= escape * math.exp(-5.9)


@pytest.mark.parametrize("name", ["bell", "skew"])
def test_a_window_is_not_much_wider_than_needed(name: str) -> None:
    """A mass of 1e-10 stays within 9 deviations of the mean; the bound costs little more than the tail itself."""
    one = STEPPERS[name]
    mean, variance = one.moments()
    window = window_of([Factor.plain(one, 1000)], math.log(1e-10))
    assert window.high <= 1000 * mean + 9.0 * math.sqrt(1000 * variance)
    assert window.low >= 1000 * mean - 9.0 * math.sqrt(1000 * variance)


def test_rare_far_steps_are_left_out_and_charged() -> None:
    """Steps that no window can hold do not widen it: their mass, times their number, is `loose`."""
    window = window_of([Factor.plain(STEPPERS["rare"], 30)], math.log(1e-3))
    assert window.high < 50
    assert 30 * 1.1e-8 * 0.999 <= window.loose <= 30 * 1.1e-8 * 1.001
    plan = convolve.LatticePlan(1.0, 1.0, 1.0, math.log(1e-3))
    composed = convolve._convolve([Factor.plain(STEPPERS["rare"], 30)], window, plan)
    assert composed.escape >= window.loose


def test_jumps_too_rare_for_a_float_are_no_jumps():
    """A sum whose jumps have lost all their mass to underflow lives where the sum without them does."""
    one = STEPPERS["rare"]
    lost = LatticeMeasure(np.array([400, 900]), np.zeros(2), 0.0)
    plain = Factor.plain(one, 30)
    jumping = Factor((one, one), lost, 30, plain.log_norm, plain.mean, plain.variance)
    assert window_of([jumping], math.log(1e-6)) == window_of([plain], math.log(1e-6))


def test_the_moment_bound_includes_the_error_of_the_weights() -> None:
    """log E e^(sX) of a measure known up to a 2-norm error: no measure within that error exceeds it."""
    one = STEPPERS["bell"]
    rates = np.array([0.1, 0.5, 1.0])
    change = np.exp(0.9 * one.positions)
    change *= 1e-3 / np.linalg.norm(change)
    known = LatticeMeasure(one.positions, one.weights, 0.0, error=1e-3)
    truth = LatticeMeasure(one.positions, one.weights + change, 0.0)
    assert np.all(factors._log_mgf(truth, 0.0, rates) <= factors._log_mgf(known, 0.0, rates))
    assert np.all(factors._log_mgf(one, 0.0, rates) < factors._log_mgf(known, 0.0, rates))


def test_joined_windows_serve_both() -> None:
    first, second = Window(-3, 5, -9.0, 0.2, 0.5, 1e-6), Window(-4, 4, -8.0, 0.3, 0.4, 1e-7)
    joined = factors.joined(first, second)
    assert joined == Window(-4, 5, -8.0, 0.2, 0.4, 1e-6)


@given(st.integers(300, 10**7))
def test_block_sizes(count: int) -> None:
    """Near the square root, so both stages are short, and the remainder is a small part of the number of blocks."""
    size = block_size(count)
    root = math.isqrt(count)
    assert 3 * root // 4 <= size <= 4 * root // 3
    assert count % size <= 0.2 * (count // size) + 2


def binary_law(side: Side, q_up: float = 0.3, x_up: float = 0.21) -> PrivacyLossPmf:
    """Two outcomes: log L is x_up with probability q_up under Q, else what makes P sum to 1. Sums are binomial."""
    x = np.array([math.log1p(-q_up * math.exp(x_up)) - math.log1p(-q_up), x_up])
    log_q = np.log([1.0 - q_up, q_up])
    return PrivacyLossPmf(x, log_q + x, log_q, side)


class Binomial:
    """Profile of a composed two-point law, from the binomial distribution."""

    def __init__(self, pmf: PrivacyLossPmf, count: int) -> None:
        with mp.workdps(80):
            x = [mp.mpf(float(v)) for v in pmf.log_ratio]
            q = [mp.exp(mp.mpf(float(v))) for v in pmf.log_q]
            self.ratios = [n * x[1] + (count - n) * x[0] for n in range(count + 1)]
            self.masses = [q[0] ** count]
            for n in range(1, count + 1):
                self.masses.append(self.masses[-1] * (count - n + 1) / n * q[1] / q[0])
            self.q_from, self.p_from = [mp.mpf(0)], [mp.mpf(0)]
            factor = mp.exp(x[1] - x[0])
            ratio = mp.exp(self.ratios[-1])
            for mass in reversed(self.masses):
                self.q_from.append(self.q_from[-1] + mass)
                self.p_from.append(self.p_from[-1] + mass * ratio)
                ratio /= factor

    def delta(self, epsilon: float) -> mp.mpf:
        with mp.workdps(80):
            k = len(self.ratios) - bisect.bisect_right(self.ratios, mp.mpf(epsilon))
            return self.p_from[k] - mp.exp(mp.mpf(epsilon)) * self.q_from[k]


@functools.cache
def composed(q_up: float, x_up: float, count: int) -> Binomial:
    return Binomial(binary_law(Side.UPPER, q_up, x_up), count)


def upper(factors: list[tuple[PrivacyLossPmf, int]], plan: LatticePlan) -> UpperTail:
    return upper_tail(compose_upper(factors, plan), plan.step, plan.tilt, ErrorTerms.of(factors), None)


def lower(factors: list[tuple[PrivacyLossPmf, int]], plan: LatticePlan) -> LowerTail:
    return lower_tail(*compose_lower(factors, plan), plan.step, plan.tilt, ErrorTerms.of(factors))


@pytest.mark.parametrize("count", [400, 1000])
@pytest.mark.parametrize("tilt", [1.0, 2.0, 5.0])
@pytest.mark.parametrize(("step", "fine"), [(0.02, 0.02), (0.02, 0.005), (0.07, 0.011), (0.3, 0.02)])
@pytest.mark.parametrize("escape", [1e-2, 1e-8])
def test_one_stage_and_two_stages_bracket_the_binomial(
    monkeypatch: pytest.MonkeyPatch, count: int, tilt: float, step: float, fine: float, escape: float
) -> None:
    """Blocks, re-splitting, re-scoring, a remainder of single steps: lower <= truth <= upper at every eps."""
    monkeypatch.setattr(convolve, "TWO_STAGE_COUNT", 300)
    plan = LatticePlan(step, fine, tilt, math.log(escape))
    assert plan.in_blocks(count) == (fine < step)
    nodes = upper([(binary_law(Side.UPPER), count)], plan)
    tests = lower([(binary_law(Side.LOWER), count)], plan)
    exact = composed(0.3, 0.21, count)
    for eps in np.linspace(-15.0, 45.0, 25):
        truth = exact.delta(float(eps))
        assert tests.delta(float(eps)) <= truth <= nodes.delta(float(eps)), eps


@pytest.mark.parametrize("q_jump", [1e-5, 6e-5, 6e-4])
@pytest.mark.parametrize("escape", [1e-2, 1e-7])
def test_rare_jumps_are_expanded_and_the_rest_is_charged(
    monkeypatch: pytest.MonkeyPatch, q_jump: float, escape: float
) -> None:
    """Small steps and rare jumps of 2.5: jumps live on the coarse lattice, and whole powers of them are left out."""
    monkeypatch.setattr(convolve, "TWO_STAGE_COUNT", 300)
    monkeypatch.setattr(convolve, "_JUMPS_PER_BLOCK", 0.06)
    count, x_jump = 900, 2.5
    plan = LatticePlan(0.05, 0.004, 1.3, math.log(escape))
    pmfs = {side: binary_law(side, q_jump, x_jump) for side in Side}
    fine = split_pmf(pmfs[Side.UPPER], plan.fine_step, plan.tilt)
    small, jump = convolve.separated(fine, convolve.small_range(fine, block_size(count)))
    assert (jump is not None) == (q_jump < 1e-4), "the rare ones are jumps, the frequent ones are not"
    assert small.weights.sum() > 0.9
    nodes, tests = upper([(pmfs[Side.UPPER], count)], plan), lower([(pmfs[Side.LOWER], count)], plan)
    exact = composed(q_jump, x_jump, count)
    for eps in np.linspace(-9.0, 25.0, 18):
        assert tests.delta(float(eps)) <= exact.delta(float(eps)) <= nodes.delta(float(eps)), eps


def test_jump_counts_that_are_left_out_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """At tilt 1 splitting keeps the mass, so what a composition lacks to 1 is what it left out; `escape` covers it."""
    monkeypatch.setattr(convolve, "TWO_STAGE_COUNT", 300)
    monkeypatch.setattr(convolve, "_JUMPS_PER_BLOCK", 0.06)
    count, pmf = 900, binary_law(Side.UPPER, 1.5e-4, 2.5)
    plan = LatticePlan(0.05, 0.004, 1.0, math.log(0.9))
    one = split_pmf(pmf, plan.fine_step, plan.tilt)
    composed = compose_upper([(pmf, count)], plan)
    lacking = -math.expm1(composed.log_norm - count * one.log_norm)
    assert 1e-7 < lacking <= composed.escape


def three_point_profile(p: np.ndarray, q: np.ndarray, count: int, epsilon: float) -> float:
    """D of `count` steps with three outcomes each, over all multinomial counts (1e-10 relative)."""
    total = 0.0
    for third in range(count + 1):
        first = np.arange(count - third + 1)
        second = count - third - first
        ways = math.lgamma(count + 1) - math.lgamma(third + 1) - gammaln(first + 1) - gammaln(second + 1)
        terms = [ways + first * math.log(m[0]) + second * math.log(m[1]) + third * math.log(m[2]) for m in (p, q)]
        gains = np.exp(terms[0]) - np.exp(terms[1] + epsilon)
        total += float(gains[gains > 0].sum())
    return total


@pytest.mark.parametrize("expected_jumps", [0.04, 0.05, 0.055, 0.06])
def test_p_and_q_are_scored_by_the_same_rule(monkeypatch: pytest.MonkeyPatch, expected_jumps: float) -> None:
    """A test is one function of what is seen. What counts as a jump may not depend on the hypothesis.

    The third outcome is just rare enough to be a jump under P and not quite under Q, and it is placed so that
    rounding it alone or together with the small steps of its block gives different scores.
    """
    monkeypatch.setattr(convolve, "TWO_STAGE_COUNT", 300)
    monkeypatch.setattr(convolve, "_JUMPS_PER_BLOCK", 0.06)
    count = 324
    assert block_size(count) == 18
    p_jump, p_down = expected_jumps / 18, 1 / 6
    p = np.array([p_down, 1 - p_down - p_jump, p_jump])
    q_down, q_jump = p_down * math.exp(0.5), p_jump * math.exp(-7.26)
    q = np.array([q_down, 1 - q_down - q_jump, q_jump])
    tests = lower([(law_of(p, q, Side.LOWER), count)], LatticePlan(5.0, 0.5, 1.0, math.log(1e-9)))
    for eps in (10.0, 25.0, 30.0, 35.0, 45.0):
        assert tests.delta(eps) <= three_point_profile(p, q, count, eps) * (1 + 1e-9), eps


@pytest.mark.parametrize("plan", [LatticePlan(0.05, 0.05, 2.0, -14.0), LatticePlan(0.05, 0.01, 2.0, -14.0)])
def test_different_factors_multiply(monkeypatch: pytest.MonkeyPatch, plan: LatticePlan) -> None:
    """Two kinds of steps, one of them in blocks: the product of the two binomial laws, term by term."""
    monkeypatch.setattr(convolve, "TWO_STAGE_COUNT", 300)
    made = {side: [(binary_law(side), 350), (binary_law(side, 0.4, 0.5), 12)] for side in Side}
    nodes, tests = upper(made[Side.UPPER], plan), lower(made[Side.LOWER], plan)
    first, second = (Binomial(pmf, count) for pmf, count in made[Side.UPPER])
    for eps in (-2.0, 0.0, 3.0, 8.0):
        truth = mp.fsum(
            mass * mp.exp(x) * first.delta(float(eps - x)) for x, mass in zip(second.ratios, second.masses, strict=True)
        )
        assert tests.delta(eps) <= truth * (1 + mp.mpf(1e-14))
        assert truth <= nodes.delta(eps) * (1 + 1e-14)


def test_a_composed_measure_is_normalized() -> None:
    """A tilted product keeps mass 1 up to its own error: nothing is lost without being charged."""
    composed = compose_upper([(binary_law(Side.UPPER), 900)], LatticePlan(0.05, 0.004, 1.3, -20.0))
    slack = composed.error * math.sqrt(len(composed.weights)) + composed.escape + 1e-9
    assert abs(composed.weights.sum() - 1.0) <= slack


def test_a_lattice_whose_weights_are_beyond_all_numbers_has_no_window() -> None:
    """Where a tilt makes them infinite their normalized masses vanish, and with them every moment."""
    nothing = LatticeMeasure(np.array([-1, 0, 1]), np.zeros(3), math.inf)
    jump = LatticeMeasure(np.array([0, 1]), np.array([4e-29, 4e137]), 0.0)
    with pytest.raises(CertificationError, match="too coarse for so large a tilt"):
        window_of([Factor((nothing, nothing), jump, 32, math.inf, 0.0, 0.25)], -60.0)
