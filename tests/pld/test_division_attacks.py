"""Attacks on a divided noisy sum never claim more than the exact divergence of the datasets they name, and little less.

The truth is an integral over the outputs (`oracles.division`): the coordinate along the line, the length of the rest.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from oracles import contour, division, enumeration

from calipers.errors import InputError
from calipers.pld.composition.product import Product
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.division import collinear
from calipers.pld.division.collinear import CollinearPair, Components, cell_masses
from calipers.pld.division.pairs import DividedPair, RealizedPair
from calipers.pld.division.realized import RealizedAttack, log_interval_probabilities
from calipers.pld.division.scale import scale_pair

LINE_ERROR = 1e-12
DIRECTIONS = (-1.0, 0.0, 1.0, 0.3)
EPSILONS = (-0.5, 0.0, 0.05, 0.4, 1.2)


def ordered(pmf: PrivacyLossPmf, order: str) -> PrivacyLossPmf:
    return pmf if order == "PQ" else pmf.reverse()


def both(first: PrivacyLossPmf, second: PrivacyLossPmf, eps: float) -> float:
    """delta of the product of two LOWER laws."""
    p, q = (np.exp(np.add.outer(x, y)) for x, y in ((first.log_p, second.log_p), (first.log_q, second.log_q)))
    return float(np.sum(np.maximum(p - math.exp(eps) * q, 0.0)))


def merged(mixture: division.Mixture) -> division.Mixture:
    """Components that are equal, counted once."""
    keys = np.round(np.column_stack((mixture.means[:, 0], mixture.deviations)), 12)
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    weights = np.bincount(place.ravel(), weights=mixture.weights)
    return division.Mixture(weights, distinct[:, :1], distinct[:, 1])


def divided_truth(
    direction: float, others: int, rate: float, sigma: float, divisor: int
) -> tuple[division.Mixture, division.Mixture]:
    joined, absent = division.divided(*division.on_a_line(direction, others, 1), rate, sigma, divisor)
    return merged(joined), merged(absent)


def realized_truth(
    direction: float, others: int, rate: float, sigma: float
) -> tuple[division.Mixture, division.Mixture]:
    joined, absent = division.realized(*division.on_a_line(direction, others, 1), rate, sigma)
    return merged(joined), merged(absent)


SETTINGS = [
    (1, 1, 0.5, 1.0),
    (2, 5, 0.3, 0.5),
    (3, 3, 0.9, 3.0),
    (4, 4, 0.05, 0.8),
    (5, 2, 0.7, 10.0),
    (5, 5, 1.0, 2.0),
]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("others", "divisor", "rate", "sigma"), SETTINGS)
def test_the_attack_on_moving_divisors_is_exact_on_the_line(
    others: int, divisor: int, rate: float, sigma: float, direction: float
) -> None:
    """One coordinate: at most the integral over all batches, in both orders, and within half a percent of it."""
    joined, absent = divided_truth(direction, others, rate, sigma, divisor)
    pmf = CollinearPair(sigma, rate, others, divisor, direction).lower(0.05, -40.0)
    for eps in EPSILONS:
        for order in division.ORDERS:
            truth = division.profile(joined, absent, eps, order)
            found = ordered(pmf, order).delta(eps)
            assert found <= truth + LINE_ERROR, (eps, order)
            assert found >= 0.995 * truth - 5e-5, (eps, order)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("others", "rate", "sigma"), [(1, 0.5, 1.0), (2, 0.3, 0.5), (3, 0.9, 3.0), (4, 0.05, 0.8), (5, 0.7, 10.0)]
)
def test_the_attack_on_the_realized_size_is_exact_on_the_line(
    others: int, rate: float, sigma: float, direction: float
) -> None:
    """One coordinate: the quotient by the number of records drawn, an empty batch divided by 1."""
    joined, absent = realized_truth(direction, others, rate, sigma)
    pmf = RealizedAttack(sigma, rate, others, 1, direction).lower(0.05, -40.0)
    for eps in EPSILONS:
        for order in division.ORDERS:
            truth = division.profile(joined, absent, eps, order)
            found = ordered(pmf, order).delta(eps)
            assert found <= truth + LINE_ERROR, (eps, order)
            assert found >= 0.99 * truth - 5e-5, (eps, order)


IN_SPACE = [(2, -1.0, 2, 0.5, 1.0), (3, 1.0, 3, 0.7, 2.0), (3, 0.3, 1, 0.3, 0.7), (2, 0.0, 4, 0.9, 5.0)]


def check_in_space(dimension: int, direction: float, others: int, rate: float, sigma: float, eps: float) -> None:
    joined, absent = divided_truth(direction, others, rate, sigma, others)
    line = CollinearPair(sigma, rate, others, others, direction).lower(0.05, -40.0)
    rest = scale_pair(dimension - 1, others).lower(0.05, -40.0)
    sizes = realized_truth(direction, others, rate, sigma)
    quotient = RealizedAttack(sigma, rate, others, dimension, direction).lower(0.05, -40.0)
    for order in division.ORDERS:
        truth = division.profile_on_a_line(joined, absent, dimension, eps, order)
        found = both(ordered(line, order), ordered(rest, order), eps)
        assert 0.98 * truth - 1e-4 <= found <= truth + division.PLANE_ERROR, order
        truth = division.profile_on_a_line(*sizes, dimension, eps, order)
        found = ordered(quotient, order).delta(eps)
        assert 0.98 * truth - 1e-4 <= found <= truth + division.PLANE_ERROR, order


@pytest.mark.parametrize(("dimension", "direction", "others", "rate", "sigma"), IN_SPACE)
def test_attacks_are_exact_in_two_and_three_coordinates(
    dimension: int, direction: float, others: int, rate: float, sigma: float
) -> None:
    """The length of the other coordinates: the scale law for moving divisors, cells of a length for realized sizes."""
    check_in_space(dimension, direction, others, rate, sigma, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "rate", "direction"), [*itertools.product([1, 2, 3, 5], [0.1, 0.5, 0.95], DIRECTIONS)]
)
def test_many_attacks_are_exact_in_space(others: int, rate: float, direction: float) -> None:
    """The same for 48 pairs of datasets in two, three and ten coordinates."""
    for dimension, sigma in ((2, 0.6), (3, 2.0), (10, 5.0)):
        check_in_space(dimension, direction, others, rate, sigma, 0.0)
        check_in_space(dimension, direction, others, rate, sigma, 0.3)


@pytest.mark.parametrize(
    ("others", "sigma", "direction", "order"),
    [(2, 1.0, -1.0, "QP"), (2, 0.5, -1.0, "QP"), (5, 0.3, -1.0, "PQ"), (5, 0.2, 1.0, "QP")],
)
def test_an_attack_sees_datasets_that_hardly_overlap(others: int, sigma: float, direction: float, order: str) -> None:
    """Outputs that are common on one side and rarer than 1e-18 on the other are what an attacker waits for."""
    joined, absent = divided_truth(direction, others, 1.0, sigma, others)
    pmf = ordered(CollinearPair(sigma, 1.0, others, others, direction).lower(0.05, -40.0), order)
    for eps in (0.0, 10.0, 25.0):
        truth = division.profile(joined, absent, eps, order)
        assert pmf.delta(eps) <= truth + LINE_ERROR
        if truth > 1e-6:
            assert pmf.delta(eps) >= 0.95 * truth, eps


@pytest.mark.parametrize(("rate", "sigma"), [(0.3, 0.15), (0.9, 0.2)])
def test_an_attack_on_realized_sizes_sees_datasets_that_hardly_overlap(rate: float, sigma: float) -> None:
    """The same for the realized size, where every batch may give the record away."""
    joined, absent = realized_truth(-1.0, 3, rate, sigma)
    pmf = RealizedAttack(sigma, rate, 3, 1, -1.0).lower(0.05, -120.0)
    for eps in (0.0, 5.0, 15.0, 30.0):
        for order in division.ORDERS:
            truth = division.profile(joined, absent, eps, order)
            found = ordered(pmf, order).delta(eps)
            assert found <= truth + LINE_ERROR
            if truth > 1e-6:
                assert found >= 0.95 * truth, (eps, order)


def log_mixture(x: np.ndarray, log_weights: np.ndarray, means: np.ndarray, deviation: float) -> np.ndarray:
    total = np.full(len(x), -np.inf)
    for log_weight, mean in zip(log_weights, means, strict=True):
        total = np.logaddexp(total, log_weight - 0.5 * ((x - mean) / deviation) ** 2)
    return total - math.log(deviation * math.sqrt(2.0 * math.pi))


@pytest.mark.parametrize(
    ("others", "rate", "sigma", "log_tail"),
    [(10**6, 1e-6, 1.0, -100.0), (1000, 1e-3, 1.0, -60.0), (10**6, 1e-8, 0.25, -100.0)],
)
def test_batches_too_large_to_be_looked_at_do_not_make_an_attack_stronger(
    monkeypatch: pytest.MonkeyPatch, others: int, rate: float, sigma: float, log_tail: float
) -> None:
    """Sizes up to 90 at epsilons of hundreds: where only enormous batches explain an output, they count."""
    monkeypatch.setattr(collinear, "_DEEP", 30.0)  # the fewer sizes are looked at, the more could go wrong
    k = np.arange(91.0)
    log_b = (
        others * math.log1p(-rate)
        + k * math.log(rate / (1.0 - rate))
        + np.array([math.lgamma(others + 1.0) - math.lgamma(j + 1.0) - math.lgamma(others - j + 1.0) for j in k])
    )
    step = 0.004
    x = np.arange(-24.0, 60.0 / sigma, step)
    log_q = log_mixture(x, log_b, k / sigma, 1.0)
    stay = log_mixture(x, log_b + math.log1p(-rate), 0.5 * k / sigma, 0.5)
    log_p = np.logaddexp(stay, log_mixture(x, log_b + math.log(rate), 0.5 * (k + 1.0) / sigma, 0.5))
    pmf = CollinearPair(sigma, rate, others, 1, 1.0).lower(0.05, log_tail).reverse()
    for eps in (100.0, 180.0, 220.0, 250.0, 280.0):
        gain = np.where(log_q > eps + log_p, np.exp(log_q) * -np.expm1(np.minimum(0.0, eps + log_p - log_q)), 0.0)
        assert pmf.delta(eps) <= 1.02 * float(np.sum(gain)) * step, eps


@pytest.mark.parametrize(("steps", "direction"), [(1, 1.0), (2, -1.0), (2, 0.0), (5, -1.0), (5, 1.0)])
def test_rounds_compose_as_a_brute_force_convolution_says(steps: int, direction: float) -> None:
    """The law of the log ratio on a grid of 2e-4, raised to the T-th power: the lower bound is at most that."""
    others, rate, sigma, eps = 3, 0.5, 2.0, 0.3
    joined, absent = divided_truth(direction, others, rate, sigma, others)
    truth = max(convolved(joined, absent, steps, eps, order) for order in division.ORDERS)
    bounds = Product([(DividedPair(sigma, rate, others, others, direction), steps)]).delta(eps, 1e-3)
    assert bounds.lower <= truth * (1 + 1e-4)
    assert bounds.lower >= 0.995 * truth
    assert truth <= bounds.upper


def convolved(p: division.Mixture, q: division.Mixture, steps: int, eps: float, order: str) -> float:
    """delta of T rounds, E_P[1 - e^(eps - log L)]+, a bounded integrand: log ratios rounded to a grid of 2e-4."""
    if order == "QP":
        p, q = q, p
    x = np.linspace(-16.0, 16.0, 80_001)
    densities = [
        np.sum(m.weights * np.exp(-0.5 * ((x[:, None] - m.means[:, 0]) / m.deviations) ** 2) / m.deviations, axis=1)
        for m in (p, q)
    ]
    width = (x[1] - x[0]) / math.sqrt(2.0 * math.pi)
    kept = (densities[0] > 1e-25) & (densities[1] > 1e-25)
    loss = np.log(densities[0][kept]) - np.log(densities[1][kept])
    step = 2e-4
    place = np.round(loss / step).astype(int)
    low, size = int(place.min()), int(np.ptp(place)) + 1
    pmf = np.bincount(place - low, weights=densities[0][kept] * width, minlength=size)
    total, length = pmf, steps * (size - 1) + 1
    if steps > 1:
        total = np.fft.irfft(np.fft.rfft(pmf, length) ** steps, length)
    losses = (steps * low + np.arange(length)) * step
    return float(np.sum(total * -np.expm1(np.minimum(0.0, eps - losses))))


@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_realized_rounds_against_a_simulation(direction: float) -> None:
    """Two rounds in three coordinates, 100,000 draws of the exact likelihood ratio: inside the jaws by 5 deviations."""
    others, rate, sigma, eps, dimension, steps, draws = 3, 0.5, 3.0, 0.1, 3, 2, 100_000
    joined, absent = realized_truth(direction, others, rate, sigma)
    rng = np.random.default_rng(11)
    bounds = Product([(RealizedPair(sigma, rate, others, dimension, direction), steps)]).delta(eps, 1e-3)
    found = []
    for first, second in ((joined, absent), (absent, joined)):
        total = np.zeros(draws)
        for _ in range(steps):
            chosen = rng.choice(len(first.weights), size=draws, p=first.weights / first.weights.sum())
            x = first.means[chosen, 0] + first.deviations[chosen] * rng.normal(size=draws)
            length = (first.deviations[chosen, None] * rng.normal(size=(draws, dimension - 1))) ** 2
            square = length.sum(axis=1)
            total += log_density(first, x, square, dimension) - log_density(second, x, square, dimension)
        gain = np.maximum(0.0, -np.expm1(eps - total))
        found.append((float(gain.mean()), float(gain.std()) / math.sqrt(draws)))
    estimate, error = max(found)
    assert bounds.lower <= estimate + 5.0 * error
    assert bounds.lower >= 0.99 * estimate - 5.0 * error
    assert bounds.upper >= estimate - 5.0 * error


def log_density(m: division.Mixture, x: np.ndarray, square: np.ndarray, dimension: int) -> np.ndarray:
    parts = -0.5 * ((x[:, None] - m.means[:, 0]) ** 2 + square[:, None]) / m.deviations**2
    return np.logaddexp.reduce(parts + np.log(m.weights) - dimension * np.log(m.deviations), axis=1)


def test_without_other_gradients_and_with_a_large_divisor_the_attack_is_the_subsampled_gaussian() -> None:
    """v = 0 and K = 10^9: the law of Poisson subsampling in closed form."""
    pmf = CollinearPair(1.3, 0.2, 10**9, 10**9, 0.0).lower(0.05, -60.0)
    for eps in (0.0, 0.1, 0.5):
        for order in division.ORDERS:
            truth = float(enumeration.poisson_one_step(0.2, 1.3, eps, order))
            assert 0.995 * truth <= ordered(pmf, order).delta(eps) <= truth * (1 + 1e-7)


def test_at_rate_one_the_anti_parallel_attack_is_one_isotropic_pair() -> None:
    """q = 1, v = -1: N(m, s^2) against N(0, 1) with m = 2N/((N+1) sigma), the largest shift there is."""
    pmf = CollinearPair(4.0, 1.0, 20, 20, -1.0).lower(0.05, -60.0)
    pair = division.isotropic(1, 20, 40.0 / (21.0 * 4.0))
    for eps in (0.0, 0.3):
        for order in division.ORDERS:
            truth = contour.delta(pair, 1, eps, order)
            assert 0.995 * truth <= ordered(pmf, order).delta(eps) <= truth * (1 + 1e-9)


def test_cells_have_the_mass_of_the_mixture() -> None:
    """Probabilities of cells against differences of the normal distribution function; all of them sum to one."""
    mixture = Components(np.array([0.2, 0.5, 0.3]), np.array([-1.0, 0.0, 2.5]), 0.8)
    masses = cell_masses(mixture, -14.0, 0.1, 300, 12.0)
    line = division.Mixture(mixture.weights, mixture.means[:, None], np.full(3, 0.8))
    nothing = division.Mixture(np.ones(1), np.array([[0.0]]), np.ones(1))
    assert abs(math.fsum(masses) - 1.0) <= 1e-13
    # Mass of the first 140 cells: everything left of 0.
    below = sum(
        w * 0.5 * math.erfc(m / 0.8 / math.sqrt(2.0)) for w, m in zip(mixture.weights, mixture.means, strict=True)
    )
    assert abs(math.fsum(masses[:140]) - below) <= 1e-14
    assert division.profile(line, nothing, 0.0) > 0.0


@pytest.mark.parametrize("shape", [0.5, 1.0, 13.0, 13_004.5, 1e8])
def test_lengths_have_the_probabilities_of_a_gamma_variable(shape: float) -> None:
    """Intervals of log(G/shape), outer ones included, against mpmath."""
    spread = 1.0 / math.sqrt(shape)
    edges = spread * np.array([-6.0, -3.0, -0.5, -0.2, 0.1, 0.4, 2.0, 5.0])
    found = np.exp(log_interval_probabilities(shape, edges[:, None])[:, 0])
    with mp.workdps(40):
        points = [mp.mpf(shape) * mp.exp(mp.mpf(float(edge))) for edge in edges]
        lows = [division.lower_gamma(mp.mpf(shape), x) for x in points]
        highs = [division.upper_gamma(mp.mpf(shape), x) for x in points]
        truths = [lows[0]]
        for j in range(len(points) - 1):
            truths.append(lows[j + 1] - lows[j] if edges[j + 1] <= 0 else highs[j] - highs[j + 1])
        truths.append(highs[-1])
        for mass, truth in zip(found.tolist(), truths, strict=True):
            assert abs(mass / truth - 1) <= 1e-11


@pytest.mark.parametrize("direction", [-1.1, 1.0 + 1e-9, math.nan, True])
def test_gradients_are_clipped(direction: float) -> None:
    """|v| <= 1: no attack with longer gradients than the mechanism admits."""
    with pytest.raises(InputError, match="direction"):
        CollinearPair(1.0, 0.5, 5, 5, direction)
    with pytest.raises(InputError, match="direction"):
        RealizedAttack(1.0, 0.5, 5, 2, direction)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1])
def test_the_attack_on_realized_sizes_needs_a_rate_between_zero_and_one(rate: float) -> None:
    """At rate 1 the size is the dataset's: refused in words, as by the proofs."""
    with pytest.raises(InputError, match="rate"):
        RealizedAttack(1.0, rate, 5, 2).lower()
