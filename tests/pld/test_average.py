"""One record in one of M rounds: jaws around exact values, and the ladder that computes them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from calipers.bracket import Side
from calipers.errors import CertificationError, InputError
from calipers.measure import measure
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon
from calipers.pld.allocation import average
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.allocation.lattice_segment import LatticeSegment, coarsened
from calipers.pld.allocation.multi_resolution import ResolutionPlan, multiplied, placed
from calipers.pld.composition.product import Product
from calipers.pld.composition.sweep import sweep
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.run import Run


def bounds(
    pair: AllocationPair, epsilon: float, reverse: bool = False, resolution: float = 0.05
) -> tuple[float, float]:
    """Lower and upper delta of one epoch, from the two laws alone."""
    lower, upper = pair.lower(resolution, -50.0), pair.upper(resolution, -50.0)
    if reverse:
        lower, upper = lower.reverse(), upper.reverse()
    return lower.delta(epsilon), upper.delta(epsilon)


def two_rounds(sigma: float, epsilon: float, reverse: bool) -> float:
    """E[((Y1 + Y2)/2 - k)+], or E[(1 - k (Y1 + Y2)/2)+]: Black-Scholes inside, the trapezoidal rule outside.

    The integrand is smooth and falls off like a normal density, so 40,001 points on [-14, 14 + 1/sigma] leave an
    error far below 1e-12.
    """
    v, k = 1.0 / sigma, math.exp(epsilon)
    z = np.linspace(-14.0, 14.0 + v, 40_001)
    first = np.exp(v * z - 0.5 * v * v)
    strike = 2.0 * (1.0 / k if reverse else k) - first
    safe = np.maximum(strike, 1e-300)
    d = -np.log(safe) / v
    call = ndtr(d + 0.5 * v) - safe * ndtr(d - 0.5 * v)
    put = safe * ndtr(-d + 0.5 * v) - ndtr(-d - 0.5 * v)
    inner = np.where(strike > 0, put, 0.0) if reverse else np.where(strike > 0, call, 1.0 - strike)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return float(np.sum(inner * density) * (z[1] - z[0])) * 0.5 * (k if reverse else 1.0)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
def test_one_round_is_the_gaussian_mechanism(sigma: float, epsilon: float) -> None:
    """With M = 1 the bounds hold the closed form of one Gaussian between them."""
    exact = float(gaussian_delta(1.0 / sigma, epsilon))
    lower, upper = bounds(AllocationPair(sigma, 1), epsilon)
    assert lower <= exact <= upper


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("reverse", [False, True])
def test_two_rounds_against_quadrature(sigma: float, reverse: bool) -> None:
    """With M = 2 the bounds hold the integral between them, in both directions, and close to 1% where delta > 1e-9."""
    for epsilon in (0.0, 0.2, 1.0, 3.0):
        exact = two_rounds(sigma, epsilon, reverse)
        if exact < 1e-9:  # the oracle has absolute accuracy only
            continue
        lower, upper = bounds(AllocationPair(sigma, 2), epsilon, reverse, 0.025)
        assert lower <= exact <= upper
        assert upper - lower <= 1e-2 * exact


def test_many_rounds_against_simulation() -> None:
    """M = 50, sigma = 0.7: the bounds agree with a million simulated epochs within five standard errors."""
    rng = np.random.default_rng(7)
    v = 1.0 / 0.7
    ratio = np.concatenate(
        [np.exp(v * rng.standard_normal((20_000, 50)) - 0.5 * v * v).mean(axis=1) for _ in range(50)]
    )
    pair = AllocationPair(0.7, 50)
    for epsilon in (0.0, 0.3, 0.8):
        for reverse in (False, True):
            k = math.exp(epsilon)
            gains = np.maximum(1.0 - k * ratio, 0.0) if reverse else np.maximum(ratio - k, 0.0)
            mean, error = gains.mean(), 5.0 * gains.std() / math.sqrt(len(gains))
            lower, upper = bounds(pair, epsilon, reverse)
            assert lower <= mean + error
            assert upper >= mean - error
            assert upper - lower <= 1e-2 * upper


def test_published_scale_of_one_epoch() -> None:
    """M = 10,000, sigma = 1: delta(0) and delta(0.05); at M = 2,735 total variation is just below 0.01."""
    product = Product([(AllocationPair(1.0, 10_000), 1)])
    at_zero, at_005 = product.delta(0.0, 1e-4), product.delta(0.05, 3e-3)
    assert 0.0052276 <= at_zero.lower <= at_zero.upper <= 0.0052286
    assert 2.88e-7 <= at_005.lower <= at_005.upper <= 2.90e-7
    variation = Product([(AllocationPair(1.0, 2_735), 1)]).delta(0.0, 1e-3)
    assert 0.00998 <= variation.lower <= variation.upper <= 0.01000


@pytest.mark.parametrize(("sigma", "rounds"), [(1.0, 10_000), (0.5, 100_000), (4.0, 300), (0.2, 200), (1.0, 10**9)])
def test_brackets_close(sigma: float, rounds: int) -> None:
    """epsilon(delta) closes to 1% from delta = 1e-3 of the total variation down to 1e-9 by default."""
    product = Product([(AllocationPair(sigma, rounds), 1)])
    for delta in (1e-6, 1e-9):
        found = product.epsilon(delta, 1e-2)
        assert 0.0 < found.upper - found.lower <= 1e-2 * found.upper


def test_many_rounds_approach_the_normal_law() -> None:
    """M = 1e10, sigma = 20: L is nearly normal: delta(0) = 2 Phi(mu/2) - 1 with mu^2 = (e^(1/s^2) - 1)/M."""
    mu = math.sqrt(math.expm1(1.0 / 400.0) / 1e10)
    lower, upper = bounds(AllocationPair(20.0, 10**10), 0.0)
    exact = math.erf(mu / math.sqrt(8.0))
    assert lower <= exact * (1.0 + 1e-5)
    assert upper >= exact * (1.0 - 1e-5)
    assert upper - lower <= 2e-3 * upper


def test_epochs_approach_gaussian_privacy() -> None:
    """400 epochs of M = 40,000, sigma = 1 are nearly Gaussian with mu = sqrt(E (e - 1)/M); the third moment adds 2%."""
    mu = math.sqrt(400 * math.expm1(1.0) / 40_000)
    found = Product([(AllocationPair(1.0, 40_000), 400)]).epsilon(1e-5, 5e-3)
    limit = gaussian_epsilon(mu, 1e-5)
    assert found.upper - found.lower <= 5e-3 * found.upper
    assert limit < found.upper < 1.03 * limit


def test_one_epoch_product_is_the_law_itself() -> None:
    """A product with one factor says what the law of that factor says."""
    pair = AllocationPair(1.0, 500)
    found = Product([(pair, 1)]).delta(0.1, 1e-3)
    lower, upper = (max(bounds(pair, 0.1, r)[i] for r in (False, True)) for i in (0, 1))
    assert found.lower <= upper
    assert lower <= found.upper


@settings(max_examples=12)
@given(
    sigma=st.floats(0.25, 15.0),
    rounds=st.integers(2, 5_000),
    epsilon=st.floats(0.0, 2.0),
    resolution=st.floats(0.05, 0.25),
    reverse=st.booleans(),
)
def test_jaws_never_cross(sigma: float, rounds: int, epsilon: float, resolution: float, reverse: bool) -> None:
    """Any lower bound is at most any upper bound, whatever the two resolutions."""
    pair = AllocationPair(sigma, rounds)
    coarse = bounds(pair, epsilon, reverse, resolution)
    fine = bounds(pair, epsilon, reverse, 0.08)
    assert max(coarse[0], fine[0]) <= min(coarse[1], fine[1])


def test_far_tails_keep_their_digits() -> None:
    """M = 2, sigma = 2: at epsilon = 4, where delta is near 1e-17, the jaws still close to 2% around mpmath's value."""
    sigma, k = 2.0, mpmath.e**4
    v = mpmath.mpf(1) / sigma

    def inner(z: mpmath.mpf) -> mpmath.mpf:
        first = mpmath.e ** (v * z - v * v / 2)
        strike = 2 * k - first
        if strike <= 0:
            return (1 - strike) * mpmath.npdf(z)
        d = -mpmath.log(strike) / v
        return (mpmath.ncdf(d + v / 2) - strike * mpmath.ncdf(d - v / 2)) * mpmath.npdf(z)

    with mpmath.workdps(30):
        kink = (mpmath.log(2 * k) + v * v / 2) / v
        exact = float(mpmath.quad(inner, [-12, -2, 2, 5, 7, 8, kink, kink + 3, 16]) / 2)
    pmf = AllocationPair(sigma, 2)
    lower, upper = pmf.lower(0.05, -80.0).delta(4.0), pmf.upper(0.05, -80.0).delta(4.0)
    assert exact < 1e-14
    assert lower <= exact <= upper
    assert upper - lower <= 2e-2 * upper


@pytest.mark.parametrize("side", [Side.LOWER, Side.UPPER])
def test_leaving_records_out_mixes_with_noise(side: Side) -> None:
    """D_k of 1 - r + r L is r D_k' of L at k' = (k - 1 + r)/r: the same number by another way."""
    r, epsilon = 0.6, 0.2
    pairs = AllocationPair(0.8, 40), AllocationPair(0.8, 40, r)
    whole, partial = ((pair.upper if side is Side.UPPER else pair.lower)() for pair in pairs)
    other = r * whole.delta(math.log((math.exp(epsilon) - 1.0 + r) / r))
    assert partial.delta(epsilon) == pytest.approx(other, rel=1e-9)
    assert partial.delta(epsilon) < whole.delta(epsilon)


def test_heavy_tails_leave_both_directions_finite() -> None:
    """sigma = 0.2: neither direction runs into mass that had to be moved to 0 or to infinity."""
    for rounds in (2, 30, 10_000):
        upper = AllocationPair(0.2, rounds).upper(0.25, -40.0)
        assert upper.p_inf < 1e-16
        assert upper.q_zero < 1e-16


@pytest.mark.parametrize(
    ("sigma", "rounds", "participation"),
    [(0.0, 10, 1.0), (math.nan, 10, 1.0), (1.0, 0, 1.0), (1.0, 2.5, 1.0), (1.0, 10, 0.0), (True, 10, 1.0)],
)
def test_bad_input(sigma: float, rounds: int, participation: float) -> None:
    """Values outside their domains are refused when the pair is built."""
    with pytest.raises(InputError):
        AllocationPair(sigma, rounds, participation)


def test_bad_resolution() -> None:
    """A resolution outside (0, 1] is refused."""
    with pytest.raises(InputError):
        AllocationPair(1.0, 10).upper(0.0)


# The ladder


def test_coarsening_keeps_mass_and_mean() -> None:
    """Moving up a rung keeps mass and mean of every row exactly (masses are dyadic), wherever the strip starts."""
    for low in (-7, -6, 0, 5):
        for length in (1, 2, 4, 5):
            rows = np.array([[1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 0.0, 5.0, 0.0, 7.0]])[:, :length]
            strip = coarsened(LatticeSegment(low, rows))
            places, finer = np.arange(strip.low, strip.low + strip.rows.shape[1]), np.arange(low, low + length)
            assert np.array_equal(strip.rows.sum(axis=1), rows.sum(axis=1))
            assert np.array_equal(2 * (strip.rows @ places), rows @ finer)
            # One row by itself is moved by another route.
            for alone, row in zip(
                (coarsened(LatticeSegment(low, rows[i : i + 1])) for i in (0, 1)), strip.rows, strict=True
            ):
                assert alone.low == strip.low
                assert np.array_equal(alone.rows[0], row)


def test_terms_may_be_placed_in_any_order() -> None:
    """What stands on a rung left and right of the center, or comes twice, is put together."""
    plan = ResolutionPlan(step=1.0, grain=0.5, center=0.0, lowest=0, log_loss=-700.0)
    values, masses = np.array([40.0, -3.0, 2.5, -41.0, 0.0, 9.0, 2.5]), np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    found, rows = placed(values, masses[None], plan, 0.0, 1.0).flat()
    order = np.argsort(values, kind="stable")
    again, same = placed(values[order], masses[None, order], plan, 0.0, 1.0).flat()
    assert np.array_equal(found, again)
    assert np.array_equal(rows, same)
    assert rows.sum() == masses.sum()
    assert float(rows[0] @ found) == float(masses @ values)


def _one(values: list[float], base: list[float], marked: list[float], plan: ResolutionPlan, blocks: float):  # type: ignore[no-untyped-def]
    return placed(np.array(values), np.array([base, marked]), plan, 0.0, blocks)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_sums_on_a_fixed_lattice_are_exact(count: int) -> None:
    """Without any move, rows are the convolution power, and the same with one marked factor."""
    plan = ResolutionPlan(step=1.0, grain=1e-4, center=0.0, lowest=0, log_loss=-700.0)
    base, marked = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])
    ladder = multiplied(_one([0.0, 1.0, 2.0], list(base), list(marked), plan, count), count, [plan] * 5)
    power = np.array([1.0])
    for _ in range(count - 1):
        power = np.convolve(power, base)
    values, rows = ladder.flat()
    assert np.array_equal(values, np.arange(2 * count + 1))
    assert np.allclose(rows[0], np.convolve(power, base), rtol=1e-13, atol=0.0)
    assert np.allclose(rows[1], np.convolve(power, marked), rtol=1e-13, atol=0.0)


def test_moving_up_only_spreads() -> None:
    """On a coarse ladder the sum keeps its mean, and every call is at least that of the exact sum."""
    exact_plan = ResolutionPlan(1.0, 1e-4, 0.0, 0, -700.0)
    coarse = [ResolutionPlan(1.0, 0.5, 0.0, e, -700.0) for e in (0, 1, 2, 2)]
    values, base = [0.0, 1.0, 5.0], [0.6, 0.3, 0.1]
    exact, exact_rows = multiplied(_one(values, base, base, exact_plan, 9.0), 9, [exact_plan] * 4).flat()
    rough, rough_rows = multiplied(_one(values, base, base, coarse[0], 9.0), 9, coarse).flat()
    assert len(rough) < len(exact)
    assert rough_rows[0] @ rough == pytest.approx(exact_rows[0] @ exact, rel=1e-13)
    for strike in np.linspace(0.0, 40.0, 81):
        call = exact_rows[0] @ np.maximum(exact - strike, 0.0)
        assert rough_rows[0] @ np.maximum(rough - strike, 0.0) >= call * (1.0 - 1e-12)


def test_what_is_trimmed_is_accounted_for() -> None:
    """Kept and lost mass add up to 1, and so do kept and lost first moments, with a generous loss allowed."""
    plan = ResolutionPlan(1.0, 1e-4, 0.0, 0, math.log(1e-4))
    ladder = multiplied(_one([0.0, 1.0, 9.0], [0.8, 0.19, 0.01], [0.4, 0.3, 0.3], plan, 32.0), 32, [plan] * 6)
    values, rows = ladder.flat()
    mean = 0.19 + 0.09
    assert 0.0 < 1.0 - rows[0].sum() <= ladder.lost
    assert ladder.lost <= 1e-3
    assert mean - rows[0] @ values / 32 <= ladder.lost_moment * max(mean, 1.0)


def test_law_sides_are_what_they_say() -> None:
    """UPPER atoms satisfy p = e^x q; both laws hold all mass but what is charged."""
    pair = AllocationPair(0.6, 300)
    upper: PrivacyLossPmf = pair.upper()
    assert np.array_equal(upper.log_p, upper.log_q + upper.log_ratio)
    lower = pair.lower()
    for pmf in (upper, lower):
        assert np.exp(pmf.log_q).sum() == pytest.approx(1.0, abs=1e-9)
        assert np.exp(pmf.log_p).sum() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rounds", "log_tail"), [(2, -1.0), (5, -2.0), (20, -2.0)])
def test_mass_beyond_a_shallow_tail_counts_as_infinite(rounds: int, log_tail: float, reverse: bool) -> None:
    """Cut where a share of a hundredth lies beyond, the law still dominates; without that mass it would not."""
    pair = AllocationPair(0.6, rounds)
    cut, deep = pair.upper(0.02, log_tail), pair.lower(0.02, -60.0)
    lossy = replace(cut, p_inf=0.0, q_zero=0.0)
    if reverse:
        cut, deep, lossy = cut.reverse(), deep.reverse(), lossy.reverse()
    for epsilon in (0.0, 1.0, 3.0, 5.0):
        assert cut.delta(epsilon) >= deep.delta(epsilon)
    if not reverse:
        assert lossy.delta(1.0) < deep.delta(1.0), "the cut is deep enough to hide a missing charge"


def test_questions_about_an_epoch_share_its_law() -> None:
    """With little noise epsilon, delta and the curve of one epoch are read off one pilot and one fine law."""
    product = Product([(AllocationPair(0.231, 77), 1)])
    before = average._allocation.cache_info().misses
    product.epsilon(1e-5, 1e-3)
    product.delta(0.0, 1e-3)
    sweep(product, 1e-12, 1e-3)
    assert average._allocation.cache_info().misses - before <= 2


@pytest.mark.parametrize("ends", [(-3000.0, 3000.0), (0.5, 3000.0), (-7.0, 40.0), (90.0, 110.0)])
@pytest.mark.parametrize("center", [0.0, 100.0])
def test_places_of_a_ladder_are_as_dense_as_its_rungs(center: float, ends: tuple[float, float]) -> None:
    """Between two neighbors lies no place of the rung on which a term there is split, and both are such places."""
    plan = ResolutionPlan(0.03, 1.0 / 24.0, center, 1, -40.0)
    points = average.lattice_points(plan, *ends)
    assert ends[0] < points[0]
    assert points[-1] < ends[1]
    for left, right in itertools.pairwise(points):
        distance = abs(0.5 * (left + right) - center)
        rung = plan.lowest
        while plan.radius(rung) < distance:
            rung += 1
        unit = math.ldexp(plan.step, rung)
        assert right - left <= unit * (1.0 + 1e-9)
        assert math.remainder(left, math.ldexp(plan.step, plan.lowest)) == pytest.approx(0.0, abs=1e-9)


def test_ratios_beyond_double_precision_are_refused_in_a_sentence() -> None:
    """Little noise and a tiny probability: the quotient of two ratios of one round overflowed."""
    run = Run(sampler="random-allocation", steps=10, participations=1, noise_multiplier=0.1)
    with pytest.raises(CertificationError, match="too far apart for double precision"):
        measure(run).delta(709.9)
