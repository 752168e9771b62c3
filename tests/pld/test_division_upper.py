"""Proofs about a divided noisy sum dominate what the mechanism really does, gradient by gradient, in both orders.

The truth is an integral over the outputs of an explicit pair of datasets (`oracles.division`); an upper law must not
lie below it at any epsilon. Where the dominating pair itself has a closed form, the law must also be close to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from oracles import contour, division
from scipy.special import ndtr

from calipers.errors import InputError
from calipers.numerics.binomial import log_binomial
from calipers.pld.composition.product import Product
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.division import hidden_membership, size_and_sum
from calipers.pld.division.folded import WIDEST, half_widths, interval_mass
from calipers.pld.division.hidden_membership import HiddenMembershipPair
from calipers.pld.division.pairs import DividedPair
from calipers.pld.division.scale import scale_pair
from calipers.pld.division.size_and_sum import SizeAndSumPair

EPSILONS = (-1.5, -0.3, 0.0, 0.05, 0.4, 1.0, 2.5)
LINE_ERROR = 1e-12
FEW, MANY = range(9), range(9, 209)


def ordered(pmf: PrivacyLossPmf, order: str) -> PrivacyLossPmf:
    return pmf if order == "PQ" else pmf.reverse()


def both(first: PrivacyLossPmf, second: PrivacyLossPmf, eps: float) -> float:
    """delta of the product of two UPPER laws."""
    p, q = (np.exp(np.add.outer(x, y)) for x, y in ((first.log_p, second.log_p), (first.log_q, second.log_q)))
    at_infinity = 1.0 - (1.0 - first.p_inf) * (1.0 - second.p_inf)
    return float(np.sum(np.maximum(p - math.exp(eps) * q, 0.0))) + at_infinity


def gaussian_line(*parts: tuple[float, float, float]) -> division.Mixture:
    """(weight, mean, deviation) of components in one dimension."""
    weights, means, deviations = (np.array(column) for column in zip(*parts, strict=True))
    return division.Mixture(weights, means[:, None], deviations)


def largest_shifts(size: float, divisor: int, sigma: float) -> tuple[float, float]:
    """|a| and |b| at most: the sum of the batch scaled anew, and that plus the record."""
    return size / ((divisor + 1.0) * sigma), (divisor + size) / ((divisor + 1.0) * sigma)


def of_one_batch(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """HiddenBitPair given that the batch has this size."""
    one = (np.array([float(size)]), np.ones(1), 0.0)
    monkeypatch.setattr(HiddenMembershipPair, "_batch_sizes", lambda _self, _log_tail: one)


BATCHES = [
    (1, 0, 0.5, 1.0),
    (1, 1, 0.3, 2.0),
    (2, 1, 0.9, 0.5),
    (4, 4, 0.05, 1.5),
    (30, 7, 0.2, 0.7),
    (700, 3, 0.005, 10.0),
]


@pytest.mark.parametrize(("divisor", "size", "rate", "sigma"), BATCHES)
def test_given_the_batch_every_pair_of_shifts_is_dominated(
    monkeypatch: pytest.MonkeyPatch, divisor: int, size: int, rate: float, sigma: float
) -> None:
    """N(0,1) against (1-q) N(a, s^2) + q N(b, s^2) for |a| <= m1, |b| <= m2 of either sign: never above the law."""
    of_one_batch(monkeypatch, size)
    pair = HiddenMembershipPair(sigma, rate, max(size, 1), divisor)
    pmf = pair.upper(0.1, -40.0)
    m1, m2 = largest_shifts(size, divisor, sigma)
    share = divisor / (divisor + 1.0)
    absent = gaussian_line((1.0, 0.0, 1.0))
    for first in (-1.0, -0.4, 0.0, 1.0):
        for second in (0.0, 0.5, 1.0):
            joined = gaussian_line((1.0 - rate, first * m1, share), (rate, second * m2, share))
            for eps in EPSILONS[1:6]:
                for order in division.ORDERS:
                    truth = division.profile(joined, absent, eps, order)
                    assert ordered(pmf, order).delta(eps) >= truth - LINE_ERROR, (first, second, eps, order)


@pytest.mark.parametrize(
    ("divisor", "size", "rate", "sigma", "angle"),
    [(1, 1, 0.5, 1.0, 1.0), (3, 2, 0.3, 0.6, 2.4), (2, 2, 0.8, 2.0, math.pi)],
)
def test_shifts_that_are_not_parallel_are_dominated_too(
    monkeypatch: pytest.MonkeyPatch, divisor: int, size: int, rate: float, sigma: float, angle: float
) -> None:
    """In two coordinates, a and b at an angle: the product of the scale law and the law along the line lies above."""
    of_one_batch(monkeypatch, size)
    pair = HiddenMembershipPair(sigma, rate, size, divisor)
    pmf, scale = pair.upper(0.1, -40.0), scale_pair(1, divisor).upper(0.1, -40.0)
    m1, m2 = largest_shifts(size, divisor, sigma)
    share = divisor / (divisor + 1.0)
    means = np.array([[m1, 0.0], [m2 * math.cos(angle), m2 * math.sin(angle)]])
    joined = division.Mixture(np.array([1.0 - rate, rate]), means, np.full(2, share))
    absent = division.Mixture(np.ones(1), np.zeros((1, 2)), np.ones(1))
    for eps in (0.0, 0.5):
        for order in division.ORDERS:
            truth = division.profile(joined, absent, eps, order)
            assert both(ordered(pmf, order), ordered(scale, order), eps) >= truth - division.PLANE_ERROR, (eps, order)


def adversary(seed: int, dimension: int, most: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """(gradients, extra, rate, sigma): random ones, all alike, and the record against all others."""
    rng = np.random.default_rng(seed)
    others = int(rng.integers(1, most + 1))
    gradients, extra = division.random_gradients(rng, others, dimension), division.random_gradients(rng, 1, dimension)
    if seed % 3 == 0:
        gradients = np.tile(gradients[:1], (others, 1))
    if seed % 3 == 1:
        extra = -gradients[:1]
    return (
        gradients,
        extra,
        float(rng.choice([0.05, 0.3, 0.5, 0.7, 0.95, 0.999])),
        float(10.0 ** rng.uniform(-0.6, 1.2)),
    )


def check_divided(seed: int, dimension: int, epsilons: tuple[float, ...]) -> None:
    gradients, extra, rate, sigma = adversary(seed, dimension, 5 if dimension == 1 else 3)
    others = len(gradients)
    divisor = int(np.random.default_rng(seed).choice([others, 1, 2, others + 3]))
    joined, absent = division.divided(gradients, extra, rate, sigma, divisor)
    pmf = HiddenMembershipPair(sigma, rate, others, divisor).upper(0.1, -40.0)
    scale = scale_pair(1, divisor).upper(0.1, -40.0)
    for eps in epsilons:
        for order in division.ORDERS:
            truth = division.profile(joined, absent, eps, order)
            if dimension == 1:
                assert ordered(pmf, order).delta(eps) >= truth - LINE_ERROR, (eps, order)
            else:
                assert both(ordered(pmf, order), ordered(scale, order), eps) >= truth - division.PLANE_ERROR, (
                    eps,
                    order,
                )


def check_realized(seed: int, dimension: int, epsilons: tuple[float, ...]) -> None:
    gradients, extra, rate, sigma = adversary(seed, dimension, 4 if dimension == 1 else 2)
    others = len(gradients)
    joined, absent = division.realized(gradients, extra, rate, sigma)
    pmf = SizeAndSumPair(sigma, rate, others).upper(0.1, -40.0)
    error = LINE_ERROR if dimension == 1 else division.PLANE_ERROR
    for eps in epsilons:
        for order in division.ORDERS:
            truth = division.profile(joined, absent, eps, order)
            assert ordered(pmf, order).delta(eps) >= truth - error, (eps, order)


@pytest.mark.parametrize("seed", FEW)
def test_divisors_that_move_are_dominated_for_random_gradients(seed: int) -> None:
    """The batch is hidden, 1 to 5 other records, one coordinate: all 2^(N+1) batches integrated."""
    check_divided(seed, 1, EPSILONS)


@pytest.mark.parametrize("seed", range(2))
def test_divisors_that_move_are_dominated_in_the_plane(seed: int) -> None:
    """Two coordinates, gradients in all directions."""
    check_divided(seed, 2, (0.2,))


@pytest.mark.parametrize("seed", FEW)
def test_the_realized_size_is_dominated_for_random_gradients(seed: int) -> None:
    """Size and sum revealed, and the batch revealed: both lie above the quotient; an empty batch is divided by 1."""
    check_realized(seed, 1, EPSILONS)


@pytest.mark.parametrize("seed", range(2))
def test_the_realized_size_is_dominated_in_the_plane(seed: int) -> None:
    """Two coordinates."""
    check_realized(seed, 2, (0.2,))


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_many_random_gradients_are_dominated(seed: int) -> None:
    """The same on two hundred more datasets."""
    check_divided(seed, 1, EPSILONS)
    check_realized(seed, 1, EPSILONS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_many_random_gradients_are_dominated_in_the_plane(seed: int) -> None:
    """The same in two coordinates."""
    check_divided(seed, 2, (0.0, 0.5))
    check_realized(seed, 2, (0.0, 0.5))


def powers(mean: float, share: float, alphas: np.ndarray) -> np.ndarray:
    """Power of the best test of N(mean, share^2) against N(0, 1): chords between tests, which are tests themselves."""
    center = mean / (1.0 - share * share)
    left = np.concatenate((np.linspace(-12.0, 9.0 + mean, 25_000), [center]))
    left = np.unique(left[left <= center])
    right = 2.0 * center - left
    size = np.where(left > 0.0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))
    power = ndtr((right - mean) / share) - ndtr((left - mean) / share)
    return np.interp(alphas, size[::-1], power[::-1])


def hidden_bit_delta(m1: float, m2: float, share: float, rate: float, eps: float, order: str) -> float:
    """delta of the pair with trade-off function (1-q) T(N(0,1), N(m1, s^2)) + q T(N(0,1), N(m2, s^2))."""
    alphas = ndtr(np.linspace(-9.0, 9.0, 8_001))
    power = (1.0 - rate) * powers(m1, share, alphas) + rate * powers(m2, share, alphas)
    gain = power - math.exp(eps) * alphas if order == "PQ" else (1.0 - alphas) - math.exp(eps) * (1.0 - power)
    return max(0.0, float(gain.max()))


@pytest.mark.parametrize(("divisor", "size", "rate", "sigma"), BATCHES)
def test_the_law_is_close_to_the_trade_off_function_it_stands_for(
    monkeypatch: pytest.MonkeyPatch, divisor: int, size: int, rate: float, sigma: float
) -> None:
    """h_k computed from its tests: not above the law, and within half a percent of it."""
    of_one_batch(monkeypatch, size)
    pair = HiddenMembershipPair(sigma, rate, max(size, 1), divisor)
    pmf = pair.upper(0.05, -40.0)
    m1, m2 = largest_shifts(size, divisor, sigma)
    for eps in (0.0, 0.02, 0.4):
        for order in division.ORDERS:
            truth = hidden_bit_delta(m1, m2, divisor / (divisor + 1.0), rate, eps, order)
            found = ordered(pmf, order).delta(eps)
            assert truth - 1e-9 <= found <= 1.005 * truth + 2e-6, (eps, order)


@pytest.mark.parametrize(
    ("others", "divisor", "rate", "sigma"), [(4, 4, 0.3, 1.0), (5, 1, 0.9, 2.0), (3, 3, 1.0, 1.0), (5, 40, 0.5, 0.5)]
)
def test_revealing_the_membership_is_never_better(others: int, divisor: int, rate: float, sigma: float) -> None:
    """The published guarantee, each branch with its own test, integrated exactly: at least as large, in both orders."""
    pair = HiddenMembershipPair(sigma, rate, others, divisor)
    pmf = pair.upper(0.05, -40.0)
    share = divisor / (divisor + 1.0)
    sizes = np.arange(others + 1.0)
    weights = np.exp(log_binomial(sizes, others, rate))
    absent = gaussian_line((1.0, 0.0, 1.0))
    for eps in (-0.4, 0.0, 0.3, 1.2):
        for order in division.ORDERS:
            revealed = 0.0
            for weight, (m1, m2) in zip(weights, (largest_shifts(k, divisor, sigma) for k in sizes), strict=True):
                for chance, mean in ((1.0 - rate, m1), (rate, m2)):
                    if weight * chance > 0.0:
                        revealed += (
                            weight * chance * division.profile(gaussian_line((1.0, mean, share)), absent, eps, order)
                        )
            assert ordered(pmf, order).delta(eps) <= revealed * (1.0 + 2e-3) + 1e-7, (eps, order)


@pytest.mark.parametrize("kept", [2, 100])
def test_rounding_batch_sizes_up_is_safe(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """All sizes of a batch, each with its own trade-off function: never above the law with few sizes kept."""
    others, divisor, rate, sigma = 12, 12, 0.4, 0.8
    monkeypatch.setattr(hidden_membership, "_MOST_BATCH_SIZES", kept)
    pair = HiddenMembershipPair(sigma, rate, others, divisor)
    pmf = pair.upper(0.1, -40.0)
    sizes = np.arange(others + 1.0)
    weights = np.exp(log_binomial(sizes, others, rate))
    for eps in (0.0, 0.6):
        for order in division.ORDERS:
            truth = sum(
                weight * hidden_bit_delta(m1, m2, divisor / (divisor + 1.0), rate, eps, order)
                for weight, (m1, m2) in zip(weights, (largest_shifts(k, divisor, sigma) for k in sizes), strict=True)
            )
            found = ordered(pmf, order).delta(eps)
            assert found >= truth - 1e-9, (eps, order)
            if kept == 100:
                assert found <= 1.005 * truth


@pytest.mark.parametrize(("others", "rate"), [(999, 0.7), (59_999, 0.005), (140_199, 0.005), (3000, 0.01)])
def test_kept_batch_sizes_carry_all_probability_and_only_move_up(others: int, rate: float) -> None:
    """At every size the rounded batch is at least as likely to be larger, and what is left out is charged."""
    pair = HiddenMembershipPair(1.0, rate, others, others)
    sizes, weights, outside = pair._batch_sizes(-40.0)
    assert len(sizes) <= 100
    every = np.exp(log_binomial(np.arange(others + 1.0), others, rate))
    above = np.cumsum(every[::-1])[::-1]
    for k, weight in zip(sizes, np.cumsum(weights[::-1])[::-1], strict=True):
        assert weight >= above[int(k)] - outside - 1e-11 * weight
    assert abs(math.fsum(weights) - 1.0) <= outside + 1e-11


def size_and_sum_delta(others: int, rate: float, sigma: float, eps: float, order: str) -> float:
    """Closed form: given the size, L = (1-q)(1 + r Y) with Y lognormal, so delta is a sum of calls or puts on Y."""
    k = np.arange(others + 1.0)
    weights = np.exp(log_binomial(k, others, rate))
    odds, mu, kappa = k / (others - k + 1.0), 2.0 / sigma, math.exp(eps)
    excess = (kappa if order == "PQ" else 1.0 / kappa) / (1.0 - rate) - 1.0  # L > kappa where odds Y > excess
    strike = excess / odds[1:]
    y = np.log(np.where(strike > 0.0, strike, 1.0)) / mu
    low, high = ndtr(-y - 0.5 * mu), ndtr(-y + 0.5 * mu)
    if order == "PQ":
        call = np.where(strike > 0.0, high - strike * low, 1.0 - strike)
        given = np.append(max(0.0, -excess), odds[1:] * call)
        return float(np.sum(weights * (1.0 - rate) * given)) + rate ** (others + 1)
    put = np.where(strike > 0.0, strike * ndtr(y + 0.5 * mu) - ndtr(y - 0.5 * mu), 0.0)
    given = np.append(max(0.0, excess), odds[1:] * put)
    return float(np.sum(weights * kappa * (1.0 - rate) * given))


@pytest.mark.parametrize(
    ("others", "rate", "sigma"), [(1, 0.5, 1.0), (4, 0.7, 10.0), (30, 0.1, 0.5), (999, 0.7, 10.0), (3000, 0.01, 2.0)]
)
@pytest.mark.parametrize("most", [12, 160])
def test_size_and_sum_has_a_closed_form(
    monkeypatch: pytest.MonkeyPatch, others: int, rate: float, sigma: float, most: int
) -> None:
    """The law lies above the sum over all sizes, also when sizes are put on few values; and close to it."""
    monkeypatch.setattr(size_and_sum, "_MOST_ODDS", most)
    pmf = SizeAndSumPair(sigma, rate, others).upper(0.05, -40.0)
    for eps in (-0.2, 0.0, 0.05, 0.5, 2.0):
        for order in division.ORDERS:
            truth = size_and_sum_delta(others, rate, sigma, eps, order)
            found = ordered(pmf, order).delta(eps)
            assert found >= truth - 1e-12, (eps, order)
            if most == 160 and truth > 1e-6:
                assert found <= 1.01 * truth + 1e-12, (eps, order)


@pytest.mark.parametrize("log_tail", [-2.0, -4.0, -8.0])
def test_what_tails_leave_out_is_charged(log_tail: float) -> None:
    """Laws that stop after two to four deviations and few batch sizes still lie above the truth, in both orders."""
    others, rate, sigma = 4, 0.4, 1.0
    gradients, extra = division.on_a_line(-1.0, others, 1)
    cases = [
        (HiddenMembershipPair(sigma, rate, others, others), division.divided(gradients, extra, rate, sigma, others)),
        (SizeAndSumPair(sigma, rate, others), division.realized(gradients, extra, rate, sigma)),
    ]
    for pair, (joined, absent) in cases:
        pmf = pair.upper(0.1, log_tail)
        for eps in (-1.0, 0.0, 0.5, 1.5, 3.0):
            for order in division.ORDERS:
                assert ordered(pmf, order).delta(eps) >= division.profile(joined, absent, eps, order), (
                    pair,
                    eps,
                    order,
                )
        assert math.fsum(np.exp(pmf.log_p)) + pmf.p_inf >= 1.0 - 1e-9
        assert math.fsum(np.exp(pmf.log_q)) + pmf.q_zero >= 1.0 - 1e-9


def test_shallow_tails_of_one_batch_lie_above_the_trade_off_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing else is given away, what lies beyond the last cell decides: it is counted under both datasets."""
    of_one_batch(monkeypatch, 2)
    pmf = HiddenMembershipPair(1.0, 1.0, 2, 3).upper(0.05, -2.0)
    assert math.fsum(np.exp(pmf.log_p)) + pmf.p_inf >= 1.0 - 1e-9
    assert math.fsum(np.exp(pmf.log_q)) + pmf.q_zero >= 1.0 - 1e-9
    joined, absent = gaussian_line((1.0, largest_shifts(2, 3, 1.0)[1], 0.75)), gaussian_line((1.0, 0.0, 1.0))
    for eps in (-2.0, 0.0, 0.5, 1.0, 1.3, 2.0):
        for order in division.ORDERS:
            assert ordered(pmf, order).delta(eps) >= division.profile(joined, absent, eps, order), (eps, order)


SOURCES: list[Callable[[], object]] = [
    lambda: HiddenMembershipPair(1.0, 0.5, 10, 10),
    lambda: HiddenMembershipPair(0.1, 0.5, 10, 10),
    lambda: HiddenMembershipPair(0.03, 0.9, 5, 5),
    lambda: HiddenMembershipPair(10.0, 0.005, 59_999, 59_999),
    lambda: SizeAndSumPair(0.05, 0.5, 10),
    lambda: SizeAndSumPair(10.0, 0.7, 999),
]


@pytest.mark.parametrize(
    ("index", "log_tail"), [*((i, -40.0) for i in range(len(SOURCES))), (1, -250.0), (2, -250.0), (5, -250.0)]
)
def test_upper_laws_lose_no_mass(index: int, log_tail: float) -> None:
    """Atoms and charges together have at least mass 1 under both datasets, with little noise and deep tails too."""
    pmf = SOURCES[index]().upper(0.2, log_tail)  # type: ignore[attr-defined]
    blur = 4.0 * pmf.rounding + pmf.shift_error + 1e-12
    assert math.fsum(np.exp(pmf.log_p)) + pmf.p_inf >= 1.0 - blur
    assert math.fsum(np.exp(pmf.log_q)) + pmf.q_zero >= 1.0 - blur


@pytest.mark.parametrize("eps", [300.0, 640.0, 655.0, 700.0])
def test_far_tails_keep_the_mass_of_the_other_dataset(eps: float) -> None:
    """Where Q is beyond 38 deviations and no float holds it, P is not: delta of 1e-40 to 1e-100 in closed form."""
    rate, sigma, others = 0.1, 0.1, 300
    pmf = SizeAndSumPair(sigma, rate, others).upper(0.1, -250.0)
    with mp.workdps(40):
        mu, truth = mp.mpf(2) / mp.mpf(sigma), mp.mpf(0)
        for k in range(1, others + 1):
            b = mp.binomial(others, k) * mp.mpf(rate) ** k * (1 - mp.mpf(rate)) ** (others - k)
            r = mp.mpf(k) / (others - k + 1)
            strike = (mp.exp(eps) / (1 - mp.mpf(rate)) - 1) / r
            y = mp.log(strike) / mu
            truth += b * (1 - mp.mpf(rate)) * r * (mp.ncdf(mu / 2 - y) - strike * mp.ncdf(-mu / 2 - y))
        assert pmf.delta(eps) >= truth
        assert pmf.delta(eps) <= 1.2 * truth + mp.mpf(10) ** -105


@pytest.mark.parametrize("width", [1e-9, 0.01, 0.1, 0.25, WIDEST])
def test_the_mass_of_an_interval_has_relative_accuracy(width: float) -> None:
    """Phi(low + width) - Phi(low) up to 37 deviations out: 5e-13 relative, rounding of the exponent included."""
    low = np.array([-37.0, -30.0, -20.0, -12.0, -5.0, -0.1, 0.0, 3.0, 9.0, 14.0, 18.0, 25.0, 33.0, 36.5])
    found = interval_mass(low, np.full_like(low, width))
    with mp.workdps(60):
        for x, mass in zip(low.tolist(), found.tolist(), strict=True):
            # The tail on the side away from zero, so that mpmath does not subtract from 1 either.
            near, far = (mp.mpf(x), mp.mpf(x) + mp.mpf(width)) if x >= 0 else (-mp.mpf(x) - mp.mpf(width), -mp.mpf(x))
            truth = mp.ncdf(-near) - mp.ncdf(-far)
            assert abs(mass / truth - 1) <= 5e-13, x


@pytest.mark.parametrize("center", [0.0, 1e-3, 0.4, 2.0, 9.0, 25.0])
def test_half_widths_solve_for_the_size_of_a_test(center: float) -> None:
    """P(|X - center| <= w) is Phi(-x): checked in mpmath on the smaller of the size and its complement."""
    x = np.array([-9.0, -5.0, -1.0, -1e-6, 0.0, 0.5, 3.0, 8.0, 20.0])
    with mp.workdps(220):
        for point, w in zip(x.tolist(), half_widths(np.array([center]), x).tolist(), strict=True):
            if point >= 0:
                found = mp.ncdf(mp.mpf(w) - center) - mp.ncdf(-mp.mpf(w) - center)
                target = mp.ncdf(-point)
            else:
                found = mp.ncdf(mp.mpf(center) - w) + mp.ncdf(-mp.mpf(center) - w)
                target = mp.ncdf(point)
            # An error of 1e-13 in w, times the slope of the logarithm of the size.
            slope = 1.0 + w * (abs(center) + w + 1.0)
            assert abs(found / target - 1) <= 2e-13 * slope, point


@pytest.mark.parametrize(
    ("others", "sigma", "dimension", "steps", "eps"),
    [(3, 2.0, 1, 1, 0.5), (3, 2.0, 1, 2, 0.5), (9, 5.0, 4, 5, 0.3), (999, 10.0, 100, 200, 1.0)],
)
def test_at_rate_one_rounds_compose_to_the_isotropic_pair(
    others: int, sigma: float, dimension: int, steps: int, eps: float
) -> None:
    """q = 1: one isotropic pair per round, whose T-fold product is a contour integral; both bounds meet it."""
    mean = 2.0 * others / ((others + 1.0) * sigma)
    pair = division.isotropic(dimension, others, mean)
    truth = max(contour.delta(pair, steps, eps, order) for order in division.ORDERS)
    factors: list[tuple[object, int]] = [(DividedPair(sigma, 1.0, others, others, -1.0), steps)]
    if dimension > 1:
        factors.append((scale_pair(steps * (dimension - 1), others), 1))
    bounds = Product(factors).delta(eps, 1e-3)  # type: ignore[arg-type]
    assert bounds.lower <= truth * (1 + 1e-7)
    assert truth * (1 - 1e-7) <= bounds.upper
    assert bounds.upper - bounds.lower <= 3e-3 * truth


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1])
def test_realized_proofs_need_a_rate_between_zero_and_one(rate: float) -> None:
    """At rate 1 the size is the dataset's, which is another statement."""
    with pytest.raises(InputError, match="rate"):
        SizeAndSumPair(1.0, rate, 5)
