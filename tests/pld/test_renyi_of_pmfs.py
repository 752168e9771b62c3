"""Renyi divergences where it is hidden when, or whether, a record shows: closed forms and quadrature as oracles."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from calipers.errors import UnsupportedError
from calipers.measure import measure
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.composition import renyi as renyi_module
from calipers.pld.composition.product import Product
from calipers.pld.composition.renyi import renyi, renyi_above, renyi_below
from calipers.pld.core.pair import Pair
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import DominatingPair
from calipers.pld.division.pairs import DividedPair, ScaleFactor
from calipers.run import Run


def moment_of_bins(sigma: float, rounds: int, order: int) -> mpmath.mpf:
    """E_Q[(mean of M ratios)^t] for whole t: t! M^-t times a coefficient of (sum_k e^(k(k-1)/(2 sigma^2)) x^k/k!)^M."""
    with mpmath.workdps(50):
        term = [
            mpmath.exp(mpmath.mpf(k * (k - 1)) / (2 * mpmath.mpf(sigma) ** 2)) / mpmath.factorial(k)
            for k in range(order + 1)
        ]
        power = [mpmath.mpf(1)] + [mpmath.mpf(0)] * order
        for _ in range(rounds):
            power = [mpmath.fsum(power[i] * term[j - i] for i in range(j + 1)) for j in range(order + 1)]
        return power[order] * mpmath.factorial(order) / mpmath.mpf(rounds) ** order


@pytest.mark.parametrize(("rate", "sigma"), [(1e-8, 0.5), (1e-8, 4.0), (1e-6, 0.5), (1e-4, 1.0)])
@pytest.mark.parametrize("order", [2, 8])
def test_small_rates_of_whole_orders(rate: float, sigma: float, order: int) -> None:
    """Poisson sampling has a binomial sum as its moment; at 1e-8 and sigma 0.5 the bracket was 1.6 percent wide."""
    with mpmath.workdps(60):
        q, variance = mpmath.mpf(rate), mpmath.mpf(sigma) ** 2
        terms = [
            mpmath.binomial(order, k) * q**k * (1 - q) ** (order - k) * mpmath.exp(k * (k - 1) / (2 * variance))
            for k in range(order + 1)
        ]
        truth = mpmath.log(mpmath.fsum(terms)) / (order - 1)
    forward = [(poisson_gaussian(rate, sigma), 1)]
    assert renyi_below(forward, order, [False]) <= truth <= renyi_above(forward, order, [False])
    found = renyi(Product(forward), order)
    assert found.upper >= truth
    assert found.upper <= (1.0 + 3e-4) * found.lower


@pytest.mark.parametrize(("sigma", "rounds"), [(1.0, 10), (0.7, 4), (3.0, 50)])
@pytest.mark.parametrize("order", [2, 3, 6])
def test_bins_of_whole_orders(sigma: float, rounds: int, order: int) -> None:
    """The bracket holds the larger direction, which is at least the closed form, and is within 1e-3 of it."""
    truth = mpmath.log(moment_of_bins(sigma, rounds, order)) / (order - 1)
    forward = [(AllocationPair(sigma, rounds), 1)]
    assert renyi_below(forward, order, [False]) <= truth <= renyi_above(forward, order, [False])
    assert renyi_above(forward, order, [False]) <= 1.001 * float(truth)
    found = renyi(Product(forward), order)
    assert found.lower <= found.upper <= 1.002 * found.lower
    assert truth <= found.upper


def test_the_swapped_pair_of_two_bins_by_quadrature() -> None:
    """E_P[(1/L)^t] over two rounds, on a grid that resolves a smooth integrand to all digits needed."""
    sigma, order = 1.0, 3.5
    x = np.linspace(-14.0, 14.0, 2801)
    one = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi) * (x[1] - x[0])
    ratio = np.exp(x / sigma - 0.5 / sigma**2)
    mean = 0.5 * (ratio[:, None] + ratio[None, :])
    truth = math.log(float(np.sum(one[:, None] * one[None, :] * mean ** (1.0 - order)))) / (order - 1.0)
    factors = [(AllocationPair(sigma, 2), 1)]
    assert renyi_below(factors, order, [True]) <= truth * (1.0 + 1e-10)
    assert truth * (1.0 - 1e-10) <= renyi_above(factors, order, [True]) <= 1.001 * truth


@pytest.mark.parametrize("reverse", [False, True])
def test_the_scale_of_the_noise_in_closed_form(reverse: bool) -> None:
    """d coordinates over K or K + 1: the moment by one integral over the chi-square density."""
    degrees, divisor, order = 50, 20, 1.8
    squared = (mpmath.mpf(divisor) / (divisor + 1)) ** 2  # P: s^2 times the chi-square of Q
    exponent = 1 - order if reverse else order

    def integrand(y: mpmath.mpf) -> mpmath.mpf:
        log_ratio = -mpmath.mpf(degrees) / 2 * mpmath.log(squared) - y / 2 * (1 / squared - 1)
        density = (mpmath.mpf(degrees) / 2 - 1) * mpmath.log(y) - y / 2
        return mpmath.exp(density + exponent * log_ratio)

    with mpmath.workdps(30):
        scale = mpmath.mpf(2) ** (mpmath.mpf(degrees) / 2) * mpmath.gamma(mpmath.mpf(degrees) / 2)
        truth = mpmath.log(mpmath.quad(integrand, [0, 20, 40, 60, 100, 300]) / scale) / (order - 1)
    factors = [(ScaleFactor(degrees, divisor), 1)]
    assert renyi_below(factors, order, [reverse]) <= truth <= renyi_above(factors, order, [reverse])
    assert renyi_above(factors, order, [reverse]) <= 1.02 * renyi_below(factors, order, [reverse])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", [1.5, 2.0])
def test_the_known_moment_is_that_of_the_order_asked_for(order: float, reverse: bool) -> None:
    """Batch and membership told: N(m, s^2) against N(0, 1), m = (K + N)/((K + 1) sigma), s = K/(K + 1)."""
    found = DividedPair(3.0, 0.3, 4, 5).known_moment(order, reverse)
    with mpmath.workdps(30):
        mean, scale = mpmath.mpf(9) / 18, mpmath.mpf(5) / 6

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            p, q = mpmath.npdf(x, mean, scale), mpmath.npdf(x)
            return q**order * p ** (1 - order) if reverse else p**order * q ** (1 - order)

        truth = mpmath.log(mpmath.quad(integrand, [-40, -10, -3, 0, 3, 10, 40]))
    assert truth <= found <= truth * (1 + mpmath.mpf("1e-9"))


def divided_by_quadrature(size: int, rate: float, sigma: float, v: float, w: float, order: float, swap: bool) -> float:
    """D_t of one round on one coordinate: others v, the record w, the noisy sum over N + 1 or over N."""
    x = np.linspace(-60.0 / size, 60.0 / size, 20_001)

    def density(shifts: list[tuple[float, float]], divisor: int) -> np.ndarray:
        total = np.zeros_like(x)
        for (weight, shift), drawn in itertools.product(shifts, range(size + 1)):
            chance = weight * math.comb(size, drawn) * rate**drawn * (1.0 - rate) ** (size - drawn)
            total += chance * np.exp(-0.5 * ((x * divisor - drawn * v - shift) / sigma) ** 2) * divisor / sigma
        return total / math.sqrt(2.0 * math.pi)

    p, q = density([(rate, w), (1.0 - rate, 0.0)], size + 1), density([(1.0, 0.0)], size)
    p, q = (q, p) if swap else (p, q)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where((p > 0) & (q > 0), np.exp(order * np.log(p) + (1.0 - order) * np.log(q)), 0.0)
    return math.log(float(np.sum(values)) * (x[1] - x[0])) / (order - 1.0)


@pytest.mark.parametrize("order", [1.5, 2.0])
def test_expected_batches_bound_every_choice_of_gradients(order: float) -> None:
    """Datasets of 4, 5 and 6 records: no choice of gradients on a line leaks more than the upper bound of one round."""
    rate, sigma = 0.3, 3.0
    run = Run(dataset_size=5, sample_rate=rate, steps=1, noise_multiplier=sigma, normalization="expected", dimension=1)
    found = measure(run).rdp(order)
    leaks = [
        divided_by_quadrature(size, rate, sigma, v, w, order, swap)
        for size in (4, 5)
        for v, w in ((-1.0, 1.0), (0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, 0.0))
        for swap in (False, True)
    ]
    assert max(leaks) <= found.upper
    assert 0.0 < found.lower <= max(leaks) * (1.0 + 1e-9)
    assert math.isfinite(found.upper)


SHUFFLED = {
    "sampler": "shuffle",
    "dataset_size": 1050,
    "batch_size": 100,
    "epochs": 3,
    "noise_multiplier": 1.0,
    "adjacency": "zero-out",
}


@pytest.mark.slow
def test_shuffled_epochs_lie_between_the_attack_and_fixed_batches() -> None:
    """With a record left over the bracket is narrower than fixed batches: 3 t/(2 sigma^2) for three epochs."""
    found = measure(Run(**SHUFFLED)).rdp(2.0)
    assert 2.0 < found.lower <= found.upper < 0.75 * 3.0
    order = 40.0
    high = measure(Run(**SHUFFLED)).rdp(order)
    assert high.lower <= high.upper <= 1.5 * order * (1.0 + 1e-9)


def test_moving_rates_are_refused_with_the_reason() -> None:
    """A batch size that only one dataset can show has an infinite ratio in the proof."""
    run = Run(dataset_size=50, batch_size=5, steps=5, noise_multiplier=1.0, derived_rate="moving")
    with pytest.raises(UnsupportedError, match="the rate moves with the dataset"):
        measure(run).rdp(2.0)


def faint_by_quadrature(rate: float, sigma: float, order: float, swap: bool) -> mpmath.mpf:
    """D_t of one sampled step, from E_Q[L^t - 1 - t (L - 1)], whose integrand does not change sign."""
    with mpmath.workdps(40):
        q, s, t = mpmath.mpf(rate), mpmath.mpf(sigma), mpmath.mpf(order)

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))
            density = mpmath.npdf(x, 0, s)
            if swap:
                ratio, density = 1 / ratio, density * ratio
            return density * (ratio**t - 1 - t * (ratio - 1))

        cuts = [-20 * s, -5 * s, 0, 1, 2, order, order + 5 * s, order + 20 * s + 5]
        return mpmath.log(1 + mpmath.quad(integrand, sorted(set(cuts)))) / (t - 1)


@pytest.mark.parametrize(("rate", "sigma"), [(1e-7, 1.0), (1e-6, 4.0), (1e-5, 0.7), (1e-3, 1.0)])
@pytest.mark.parametrize("order", [1.1, 2.0, 8.0])
def test_faint_steps_keep_their_digits(rate: float, sigma: float, order: float) -> None:
    """A step of 1e-15 and more, where log E[L^t] drowned in the rounding of 1: the bracket is within 1e-3."""
    truth = max(faint_by_quadrature(rate, sigma, order, swap) for swap in (False, True))
    found = measure(Run(sample_rate=rate, steps=1000, noise_multiplier=sigma)).rdp(order)
    assert found.lower <= 1000 * truth <= found.upper
    assert found.upper <= 1.001 * found.lower


class FourFifths(DominatingPair):
    """A fifth of Q lies where P vanishes, and nothing beyond the ends of the law."""

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        pair = Pair("", atom_log_p=(math.log(0.5),) * 2, atom_log_q=(math.log(0.4),) * 2, q_zero=0.2)
        return pair.upper(resolution, log_tail)

    def log_beyond(self, order: float, log_tail: float, reverse: bool) -> list[float]:
        return []


@pytest.mark.parametrize("order", [1.1, 2.0, 7.0])
def test_mass_where_the_first_dataset_cannot_be_counts(order: float) -> None:
    """E_Q[L^t] = 0.8 * 1.25^t, though no atom of the law holds the fifth whose ratio is 0."""
    truth = (math.log(0.8) + order * math.log(1.25)) / (order - 1.0)
    assert truth <= renyi_above([(FourFifths(), 1)], order, (False,)) <= truth * (1.0 + 1e-9)


@pytest.mark.parametrize("reverse", [False, True])
def test_what_lies_beyond_shallow_cells_counts(monkeypatch: pytest.MonkeyPatch, reverse: bool) -> None:
    """Cells that end where a sixth of Q is left: the bound stays above the moment by quadrature, in both orders."""
    rate, order = 0.5, 2.0
    monkeypatch.setattr(renyi_module, "_log_tail", lambda source, order: -2.0)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        q = mpmath.npdf(x)
        p = (1 - rate) * q + rate * mpmath.npdf(x, 1)
        return q**order * p ** (1 - order) if reverse else p**order * q ** (1 - order)

    truth = mpmath.log(mpmath.quad(integrand, [-30, -8, -2, 0, 2, 8, 30])) / (order - 1.0)
    assert truth <= renyi_above([(poisson_gaussian(rate, 1.0), 1)], order, (reverse,))


class CutShort(DominatingPair):
    """P = (0.7, 0.3), Q = (0.999, 0.001); the law calls the second ratio infinite, the moments know better."""

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        pair = Pair("", atom_log_p=(math.log(0.7),), atom_log_q=(math.log(0.999),), p_inf=0.3, q_zero=0.001)
        return pair.upper(resolution, log_tail)

    def known_moment(self, order: float, reverse: bool) -> float:
        return math.log(0.999 * (0.7 / 0.999) ** order + 0.001 * 300.0**order)


@pytest.mark.parametrize("order", [1.1, 1.2, 2.0])
def test_mass_at_infinity_is_on_the_tangent(order: float) -> None:
    """The moment of the true pair is known, and no cut of it may come out smaller."""
    truth = CutShort().known_moment(order, False) / (order - 1.0)
    assert truth * (1.0 - 1e-12) <= renyi_above([(CutShort(), 1)], order, (False,)) <= truth * (1.0 + 1e-9)


@pytest.mark.parametrize(("order", "p_inf"), [(1.05, 0.3), (1.7, 1e-9), (3.0, 0.0), (3.0, 0.3), (30.0, 0.3)])
def test_beyond_a_cut_is_its_tangent(monkeypatch: pytest.MonkeyPatch, order: float, p_inf: float) -> None:
    """Atom by atom, at each of the cuts, by definition: e^(t x) up to K, and K^t + t K^(t-1) (e^x - K) beyond."""
    monkeypatch.setattr(renyi_module, "_PIECE", 16)
    ratios = np.sort(np.random.default_rng(4).normal(0.0, 3.0, 80))
    log_q = -0.5 * ratios**2 - 8.0
    pmf = PrivacyLossPmf.dominating(ratios, log_q, p_inf=p_inf, q_zero=0.01, mass_error=0.0, shift_error=0.0)
    rest = min(-math.log(p_inf) / (order - 1.0), 300.0) if p_inf > 0.0 else 300.0
    beyond = renyi_module._BEYOND
    least = mpmath.inf
    for cut in np.linspace(0.0, ratios[-1] + rest, renyi_module._CUTS)[1:]:
        k = mpmath.exp(cut)
        total = order * k ** (order - 1.0) * p_inf
        for x, mass in zip(pmf.log_ratio, pmf.log_q, strict=True):
            whole = mpmath.exp(order * x) if x <= cut else k**order + order * k ** (order - 1.0) * (mpmath.exp(x) - k)
            total += mpmath.exp(mass) * whole
        total += min(mpmath.exp(s + (order - s) * cut) for s in {*(order + beyond), *(order + (order - 1.0) * beyond)})
        least = min(least, mpmath.log(total))
    found = renyi_module._cut(pmf, order, lambda s: s)
    assert least <= found <= least + 1e-11 * (1.0 + abs(least))
