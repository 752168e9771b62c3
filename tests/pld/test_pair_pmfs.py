"""A smooth pair, cut into cells: the UPPER law dominates it and it dominates the LOWER law, at every eps, both ways."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from oracles import enumeration
from scipy.special import ndtr

from calipers.bracket import Side
from calipers.errors import CertificationError, InputError
from calipers.numerics.normal import gaussian_delta
from calipers.pld.core.gaussian_part import gaussian_mixture_part, gaussian_pair
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import weighted
from calipers.pld.core.pmf import PrivacyLossPmf

RATES = [1e-6, 1e-4, 0.01, 0.5, 0.999999]
NOISES = [0.1, 0.2, 1.0, 10.0, 100.0]


def gaussian(mu: float) -> Pair:
    return Pair("gaussian", (gaussian_mixture_part([1.0], [mu], [1.0], [0.0]),), symmetric=True)


def poisson(q: float, sigma: float) -> Pair:
    return Pair("poisson", (gaussian_mixture_part([1.0 - q, q], [0.0, 1.0 / sigma], [1.0], [0.0]),))


def distinguished(rare: float, common: float, rarer: float) -> Pair:
    """Which of two Gaussians it is, is told: the second one is met with probability `rare`."""
    parts = [gaussian_mixture_part([1.0], [mu], [1.0], [0.0]) for mu in (common, rarer)]
    return Pair("told apart", (weighted(parts[0], 1.0 - rare), weighted(parts[1], rare)), symmetric=True)


def both_ways(pmf: PrivacyLossPmf) -> list[tuple[str, PrivacyLossPmf]]:
    return [("PQ", pmf), ("QP", pmf.reverse())]


def probes(pmf: PrivacyLossPmf) -> np.ndarray:
    """Epsilons between the ends of the law and just beyond them: the whole range, and the bulk around 0."""
    low, high = float(pmf.log_ratio[0]), float(pmf.log_ratio[-1])
    bulk = float(np.sqrt(np.sum(np.exp(pmf.log_q) * pmf.log_ratio**2)))
    inner = bulk * np.array([-2.0, -0.3, 0.0, 1e-3, 0.4, 1.0, 3.0])
    return np.concatenate(
        (low + (high - low) * np.array([0.02, 0.3, 0.7, 0.9, 0.99]), inner[inner < high], [high + 1e-9])
    )


@pytest.mark.parametrize("sigma", NOISES)
@pytest.mark.parametrize("q", RATES)
def test_a_subsampled_gaussian_lies_between_its_two_laws(q: float, sigma: float) -> None:
    """delta of the LOWER law <= truth <= delta of the UPPER law, in both directions, without tolerance."""
    pair = poisson(q, sigma)
    # The part takes 1 - q and 1/sigma as the floats they are; so does the oracle.
    truth_q, truth_sigma = mp.mpf(q), 1 / mp.mpf(1.0 / sigma)
    built = {Side.UPPER: pair.upper(0.1, -60.0), Side.LOWER: pair.lower(0.1, -60.0)}
    pmfs = {side: dict(both_ways(pmf)) for side, pmf in built.items()}
    for direction, upper in pmfs[Side.UPPER].items():
        lower = pmfs[Side.LOWER][direction]
        for eps in probes(upper):
            truth = enumeration.poisson_one_step(truth_q, truth_sigma, float(eps), direction)
            assert lower.delta(float(eps)) <= truth <= upper.delta(float(eps)), (direction, eps)


@pytest.mark.parametrize("sigma", NOISES)
@pytest.mark.parametrize("q", RATES)
def test_the_two_laws_are_close(q: float, sigma: float) -> None:
    """At eps = 0 the bounds of cells of 0.05 deviations are within 0.3 % of each other: the bound is worth having."""
    pair = poisson(q, sigma)
    pmfs = pair.upper(0.05, -60.0), pair.lower(0.05, -60.0)
    for (_, upper), (_, lower) in zip(*(both_ways(pmf) for pmf in pmfs), strict=True):
        assert upper.delta(0.0) <= 1.003 * lower.delta(0.0)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0, 10.0])
def test_a_gaussian_lies_between_its_two_laws(mu: float) -> None:
    """The closed form of one Gaussian, from eps = 0 to delta below 1e-30."""
    upper, lower = gaussian(mu).upper(0.025, -100.0), gaussian(mu).lower(0.025, -100.0)
    for eps in mu * mu / 2 + mu * np.array([-mu / 2, -0.7, 0.0, 1.0, 3.0, 6.0, 9.0, 11.5]):
        truth = enumeration.gaussian(mu, float(eps))
        for _, pmf in both_ways(upper):
            assert truth <= pmf.delta(float(eps))
        for _, pmf in both_ways(lower):
            assert pmf.delta(float(eps)) <= truth
        assert upper.delta(float(eps)) <= 1.1 * lower.delta(float(eps)) + 1e-42


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 0.2), (0.5, 1.0), (0.999999, 10.0)])
def test_total_masses(q: float, sigma: float) -> None:
    """LOWER masses sum to 1 under P and under Q. UPPER masses exceed 1, and by no more than the tails twice over."""
    lower = poisson(q, sigma).lower(0.1, -30.0)
    assert abs(math.fsum(np.exp(lower.log_p)) - 1.0) < 1e-12
    assert abs(math.fsum(np.exp(lower.log_q)) - 1.0) < 1e-12
    assert lower.p_inf == lower.q_zero == 0.0
    upper = poisson(q, sigma).upper(0.1, -30.0)
    assert np.allclose(upper.log_p, upper.log_q + upper.log_ratio, rtol=0, atol=1e-13)
    for masses, lump in ((upper.log_p, upper.p_inf), (upper.log_q, upper.q_zero)):
        assert 0.0 < lump <= 1.01 * math.exp(-30.0)
        assert -1e-13 <= math.fsum(np.exp(masses)) + lump - 1.0 <= 2.1 * math.exp(-30.0) + 1e-13


def test_tails_go_to_infinity_and_to_zero() -> None:
    """What lies beyond the last cell is the normal tail there, and it survives at eps = 1000."""
    pmf = gaussian(1.0).upper(0.1, -20.0)
    end = 1.0 + math.sqrt(40.0)
    tail = mp.ncdf(-(mp.mpf(end) - 1))
    assert float(tail) * (1 - 1e-12) <= pmf.p_inf <= float(tail) * (1 + 1e-12)
    assert pmf.q_zero == pytest.approx(pmf.p_inf, rel=1e-12)
    assert pmf.delta(1000.0) >= float(tail) * (1 - 1e-15)
    assert gaussian(1.0).lower(0.1, -20.0).delta(1000.0) == 0.0


@pytest.mark.parametrize("side", list(Side))
def test_the_error_is_of_second_order(side: Side) -> None:
    """Four times finer cells divide the error by 16 (averaged: the kink may lie anywhere in a cell)."""
    strikes = np.linspace(-0.05, 0.4, 40)
    truth = sum(enumeration.poisson_one_step(0.1, 1.0, float(eps)) for eps in strikes)

    def gap(width: float) -> float:
        pair = poisson(0.1, 1.0)
        pmf = (pair.upper if side is Side.UPPER else pair.lower)(width, -60.0)
        return abs(float(sum(pmf.delta(float(eps)) for eps in strikes) - truth))

    assert 10.0 < gap(0.02) / gap(0.005) < 24.0


def exact_cell(low: float, high: float, mean: float) -> mp.mpf:
    a, b = (mp.mpf(low) - mean) / mp.sqrt(2), (mp.mpf(high) - mean) / mp.sqrt(2)
    return (mp.erfc(a) - mp.erfc(b)) / 2 if a + b > 0 else (mp.erfc(-b) - mp.erfc(-a)) / 2


@pytest.mark.parametrize(("q", "sigma", "log_tail"), [(0.01, 1.0, -40.0), (0.5, 0.1, -101.0), (0.01, 1.0, -1000.0)])
def test_mass_error_bounds_every_stored_mass(q: float, sigma: float, log_tail: float) -> None:
    """A LOWER atom is a cell, and its two masses are normal probabilities known to any precision."""
    part = poisson(q, sigma).smooth[0]
    pmf = Pair("one part", (part,)).lower(0.1, log_tail)
    ends = np.linspace(*part.range_for(log_tail), pmf.size - 1)
    with mp.workdps(40):
        # The right half: there the ratio visibly increases, so atoms are in the order of the cells.
        for i in range(pmf.size // 2, pmf.size - 2, max(1, pmf.size // 120)):
            under_q = exact_cell(ends[i], ends[i + 1], 0)
            under_p = (1 - mp.mpf(q)) * under_q + mp.mpf(q) * exact_cell(ends[i], ends[i + 1], mp.mpf(1.0 / sigma))
            assert abs(mp.exp(mp.mpf(pmf.log_q[i + 1])) / under_q - 1) <= pmf.mass_error
            assert abs(mp.exp(mp.mpf(pmf.log_p[i + 1])) / under_p - 1) <= pmf.mass_error


def test_where_the_ratio_saturates_nodes_merge_and_nothing_is_lost() -> None:
    """Far to the left log L is log(1 - q) to all digits; hundreds of cells share one node and keep their mass."""
    pair = poisson(0.5, 0.05)
    upper, lower = pair.upper(0.1, -60.0), pair.lower(0.1, -60.0)
    assert upper.size < 0.9 * lower.size
    assert np.all(np.diff(upper.log_ratio) > 0)
    assert abs(math.fsum(np.exp(upper.log_q)) - 1.0) < 1e-12
    for eps in (-0.69, 0.0, 0.5, 0.693, 10.0):
        for direction, pmf in both_ways(upper):
            assert enumeration.poisson_one_step(0.5, 1 / mp.mpf(1 / 0.05), eps, direction) <= pmf.delta(eps)


def test_exact_atoms_and_lost_masses_pass_through() -> None:
    """A pair of atoms is its own law on both sides; p_inf and q_zero stay where they are."""
    atoms = [(0.2, 0.5), (0.6, 0.3)]
    pair = Pair(
        "atoms",
        atom_log_p=tuple(math.log(p) for p, _ in atoms),
        atom_log_q=tuple(math.log(q) for _, q in atoms),
        p_inf=0.2,
        q_zero=0.2,
    )
    for k in (0.5, 1.0, 1.7, 3.0):
        exact = 0.2 + sum(max(0.0, p - k * q) for p, q in atoms)
        swapped = 0.2 + sum(max(0.0, q - k * p) for p, q in atoms)
        upper, lower = pair.upper(0.1, -40.0), pair.lower(0.1, -40.0)
        assert lower.delta(math.log(k)) <= exact * (1 + 1e-15)
        assert upper.delta(math.log(k)) >= exact * (1 - 1e-15)
        assert upper.reverse().delta(math.log(k)) == pytest.approx(swapped, rel=1e-13)
        assert lower.reverse().delta(math.log(k)) == pytest.approx(swapped, rel=1e-13)


@pytest.mark.parametrize("resolution", [0.0, -0.1, 1.5, math.nan, math.inf])
def test_resolutions_outside_the_domain_are_refused(resolution: float) -> None:
    with pytest.raises(InputError, match="resolution"):
        gaussian(1.0).upper(resolution, -40.0)


def test_a_constant_ratio_is_refused() -> None:
    """P = Q has nothing to discretize."""
    same = Pair("same", (gaussian_mixture_part([1.0], [0.0], [1.0], [0.0]),))
    with pytest.raises(CertificationError, match="constant"):
        same.upper(0.1, -40.0)


@pytest.mark.parametrize("log_tail", [-2.0, -5.0])
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_what_lies_beyond_the_last_cells_is_kept_by_q_and_charged_to_p(mu: float, log_tail: float) -> None:
    """Cut where a tenth lies beyond: an UPPER law has at least the mass 1 under Q and under P, in both orders.

    A composition needs both: atoms of one factor meet negative thresholds left by the others.
    """
    pmf = gaussian(mu).upper(0.1, log_tail)
    for one in (pmf, pmf.reverse()):
        assert float(np.exp(one.log_q).sum()) + one.q_zero >= 1.0 - 1e-12
        assert float(np.exp(one.log_p).sum()) + one.p_inf >= 1.0 - 1e-12
        for k in (-1.5, -0.3, 0.0, 0.7, 2.0):
            masses = np.exp(one.log_q)
            call = float(np.sum(masses * np.maximum(np.expm1(one.log_ratio - k), 0.0))) * math.exp(k) + one.p_inf
            assert call >= exact_call(mu, k) * (1.0 - 1e-12)


def exact_call(mu: float, log_k: float) -> float:
    """E_Q[(L - k)+] of N(mu, 1) against N(0, 1), for every k > 0."""
    z = log_k / mu + 0.5 * mu
    return float(ndtr(mu - z) - math.exp(log_k) * ndtr(-z))


@pytest.mark.parametrize("rare", [1e-6, 1e-3, 0.3])
@pytest.mark.parametrize("tilt", [-0.5, 1.2])
def test_laws_of_a_common_and_a_rare_part_hold(rare: float, tilt: float) -> None:
    """delta is the mean of two closed forms."""
    pair, fine = distinguished(rare, 0.5, 0.8), 0.02
    upper, lower = pair.upper_for(fine, -50.0, tilt), pair.lower_for(fine, -50.0, tilt)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        exact = (1.0 - rare) * float(gaussian_delta(0.5, epsilon)) + rare * float(gaussian_delta(0.8, epsilon))
        for above, below in ((upper, lower), (upper.reverse(), lower.reverse())):
            assert below.delta(epsilon) <= exact <= above.delta(epsilon)
            if epsilon < 1.0:  # far from the tilt cells are wide
                assert above.delta(epsilon) - below.delta(epsilon) < 0.02 * exact


@pytest.mark.parametrize("pair", [poisson(0.01, 1.0), poisson(0.5, 0.1), gaussian(3.0)], ids=["small", "large", "all"])
def test_cells_that_are_split_in_pieces_are_split_as_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pair.upper(0.05)
    monkeypatch.setattr("calipers.pld.core.pair._NODES_AT_ONCE", 7)
    pieces = pair.upper(0.05)
    for name in ("log_ratio", "log_p", "log_q"):
        np.testing.assert_array_max_ulp(getattr(pieces, name), getattr(whole, name), 64)


@pytest.mark.slow
def test_crowded_cells_are_cut_once() -> None:
    """Means 1,500 deviations apart want so many cells that no tilt moves them; a curve cut them fourteen times."""
    pair = gaussian_pair(1500.0)
    assert pair.upper_for(0.2, -40.0, None) is pair.upper_for(0.01, -40.0, 1.5)
    assert pair.lower_for(0.2, -40.0, 3.0) is pair.lower_for(0.05, -40.0, None)
    assert gaussian_pair(1.0).upper_for(0.2, -40.0, 1.5) is not gaussian_pair(1.0).upper_for(0.01, -40.0, 1.5)
