"""Laws on a lattice: splitting keeps both masses and only spreads, scores are what they say, error norms hold."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.bracket import Side
from calipers.pld.composition.lattice import LatticeMeasure, rescore, resplit, score_pmf, split_pmf
from calipers.pld.core.pmf import PrivacyLossPmf

STEPS = st.sampled_from([0.003, 0.05, 0.31, 2.0])
TILTS = st.sampled_from([1.0, 1.7, 12.0])


def upper_pmf(ratios: list[float], seed: int = 1) -> PrivacyLossPmf:
    """Atoms with p = e^x q, random q, not normalized: everything here is linear in the masses."""
    x = np.sort(np.array(ratios))
    log_q = np.log(np.random.default_rng(seed).dirichlet(np.ones(len(x))))
    return PrivacyLossPmf(x, log_q + x, log_q, Side.UPPER)


ratios = st.lists(st.floats(-6.0, 9.0), min_size=1, max_size=12).map(upper_pmf)


def untilted(measure: LatticeMeasure, step: float, tilt: float) -> list[tuple[mp.mpf, mp.mpf]]:
    """(x, mass) with the tilt taken out, x = step * position exactly."""
    h, t = mp.mpf(step), mp.mpf(tilt)
    return [
        (h * int(i), mp.exp(mp.mpf(measure.log_norm) - t * h * int(i)) * mp.mpf(float(w)))
        for i, w in zip(measure.positions, measure.weights, strict=True)
        if w > 0
    ]


def call(atoms: list[tuple[mp.mpf, mp.mpf]], k: mp.mpf) -> mp.mpf:
    return mp.fsum(max(mp.mpf(0), (mp.exp(x) - k) * q) for x, q in atoms)


def atoms_of(pmf: PrivacyLossPmf) -> list[tuple[mp.mpf, mp.mpf]]:
    return [(mp.mpf(float(x)), mp.exp(mp.mpf(float(q)))) for x, q in zip(pmf.log_ratio, pmf.log_q, strict=True)]


def assert_spread(before: list[tuple[mp.mpf, mp.mpf]], after: list[tuple[mp.mpf, mp.mpf]]) -> None:
    """Same Q-mass, same P-mass, and a call of every strike is worth at least as much; equal up to rounding only."""
    room = mp.mpf(1) + mp.mpf(1e-13)
    for moment in (lambda x: mp.mpf(1), mp.exp):
        old, new = (mp.fsum(moment(x) * q for x, q in atoms) for atoms in (before, after))
        assert old / room <= new <= old * room
    for x in {x for x, _ in before} | {x for x, _ in after}:
        # A shift of log L by 1e-14 is the rounding of x / step; law.shift_error pays for it.
        assert call(before, mp.exp(x + mp.mpf(1e-14))) <= call(after, mp.exp(x)) * room


@given(ratios, STEPS, TILTS)
def test_splitting_is_a_mean_preserving_spread(pmf: PrivacyLossPmf, step: float, tilt: float) -> None:
    assert_spread(atoms_of(pmf), untilted(split_pmf(pmf, step, tilt), step, tilt))


@given(ratios, STEPS, TILTS)
def test_weights_are_normalized_and_belong_to_neighbors(pmf: PrivacyLossPmf, step: float, tilt: float) -> None:
    """The weights sum to 1, and no atom moves by a lattice step or more."""
    measure = split_pmf(pmf, step, tilt)
    assert abs(measure.weights.sum() - 1.0) < 1e-14
    assert np.all(measure.weights >= 0)
    gaps = np.abs(measure.positions[:, None] * step - pmf.log_ratio[None, :]).min(axis=1)
    assert np.all(gaps < step * (1 + 1e-12) + 1e-15)


@given(ratios, STEPS, TILTS, st.floats(1.5, 9.0))
def test_splitting_again_spreads_again(pmf: PrivacyLossPmf, step: float, tilt: float, factor: float) -> None:
    """Coarsening a tilted measure: still the same two masses, still more spread out."""
    fine = split_pmf(pmf, step, tilt)
    coarse = step * factor
    again = resplit(fine, step, coarse, tilt)
    assert_spread(untilted(fine, step, tilt), untilted(again, coarse, tilt))


@given(ratios, STEPS, TILTS)
def test_scores_are_rounded_ratios_under_both(pmf: PrivacyLossPmf, step: float, tilt: float) -> None:
    """One statistic, its law under P and under Q: at every threshold power and level are sums of the atoms' masses."""
    under_p, under_q = score_pmf(pmf, step, tilt)
    assert np.array_equal(under_p.positions, under_q.positions)
    scores = [round(float(x) / step) for x in pmf.log_ratio]
    for masses, measure, at in ((pmf.log_p, under_p, tilt - 1.0), (pmf.log_q, under_q, tilt)):
        found = untilted(measure, step, at)
        for threshold in set(scores):
            direct = mp.fsum(mp.exp(mp.mpf(float(m))) for m, s in zip(masses, scores, strict=True) if s > threshold)
            summed = mp.fsum(mass for x, mass in found if x > mp.mpf(step) * (threshold + 0.5))
            assert abs(direct - summed) <= mp.mpf(1e-13) * direct


@given(ratios, STEPS, TILTS, st.floats(1.5, 9.0))
def test_rescoring_rounds_the_score(pmf: PrivacyLossPmf, step: float, tilt: float, factor: float) -> None:
    """Position i goes to the nearest multiple of the coarse step, with its untilted mass unchanged."""
    under_p, under_q = score_pmf(pmf, step, tilt)
    coarse = step * factor
    for measure, at in ((under_p, tilt - 1.0), (under_q, tilt)):
        moved = dict(untilted(rescore(measure, step, coarse, at), coarse, at))
        direct: dict[mp.mpf, mp.mpf] = {}
        for x, mass in untilted(measure, step, at):
            target = mp.mpf(coarse) * int(np.rint(float(x) / step * (step / coarse)))
            direct[target] = direct.get(target, mp.mpf(0)) + mass
        assert mp.fsum(moved.values()) <= mp.fsum(direct.values()) * (1 + mp.mpf(1e-13))
        for target, mass in direct.items():
            assert abs(moved.get(target, mp.mpf(0)) - mass) <= mp.mpf(1e-12) * mass


@pytest.mark.parametrize("coarsen", [resplit, rescore])
@pytest.mark.parametrize("tilt", [1.0, 8.0])
@pytest.mark.parametrize("factor", [1.3, 7.7, 40.0])
def test_errors_grow_no_more_than_stated(coarsen: object, tilt: float, factor: float) -> None:
    """Perturb the weights by a vector of known 2-norm: the coarse weights move by no more than the coarse error.

    The worst perturbations are tried too: all weight on the positions that end in one coarse cell.
    """
    rng = np.random.default_rng(3)
    step, n = 0.01, 500
    positions = np.arange(-n // 2, n // 2)
    weights = rng.dirichlet(np.ones(n))
    crowd = (np.floor(positions / factor) == 3.0).astype(float)
    shifted = (np.rint(positions / factor) == 3.0).astype(float)
    tightest = 0.0
    for change in (rng.standard_normal(n), crowd, shifted, np.eye(n)[n // 3], np.ones(n)):
        change = 1e-3 * change / np.linalg.norm(change)
        mass = float(np.abs(change).sum())
        before = LatticeMeasure(positions, weights, 0.0, error=1e-3, escape=mass)
        after = LatticeMeasure(positions, weights + change, 0.0)
        moved, wrong = coarsen(before, step, step * factor, tilt), coarsen(after, step, step * factor, tilt)  # type: ignore[operator]
        gap = wrong.weights - moved.weights
        assert np.linalg.norm(gap) <= moved.error
        assert np.abs(gap).sum() <= moved.escape * (1 + 1e-12)
        tightest = max(tightest, float(np.linalg.norm(gap)) / moved.error)
    assert tightest > 0.15, "the bound is within a small factor of what happens"


def test_coarsening_moves_mass_inside_the_error_free_measure() -> None:
    """A measure without error stays without error."""
    fine = split_pmf(upper_pmf([-1.0, 0.2, 3.0]), 0.01, 2.0)
    assert resplit(fine, 0.01, 0.05, 2.0).error == 0.0
    assert resplit(fine, 0.01, 0.05, 2.0).escape == 0.0


@given(st.lists(st.integers(-40, 60), min_size=1, max_size=20), st.integers(1, 30))
def test_folding_keeps_every_weight(places: list[int], n: int) -> None:
    """On the circle a position is its remainder, negative ones too."""
    weights = np.arange(1.0, len(places) + 1)
    folded = LatticeMeasure(np.array(places, dtype=np.int64), weights, 0.0).fold(n)
    direct = [math.fsum(w for i, w in zip(places, weights, strict=True) if (i - j) % n == 0) for j in range(n)]
    assert folded.tolist() == direct


def test_moments() -> None:
    """Mean and variance of the position under the weights, whatever their total."""
    measure = LatticeMeasure(np.array([-2, 0, 5]), np.array([1.0, 2.0, 1.0]), 0.0)
    mean, variance = measure.moments()
    assert mean == pytest.approx(0.75)
    assert variance == pytest.approx((2.75**2 + 2 * 0.75**2 + 4.25**2) / 4)


@pytest.mark.parametrize("step", [0.05, 3.0, 700.0, 1140.4, 5000.0])
def test_splitting_keeps_all_mass_however_wide_the_step(step) -> None:
    """Of steps wider than 745 the share of Q that goes up is below every double, and is yet all of P."""
    log_ratio = step * np.array([-0.4, 0.0, 0.1, 0.5, 0.9, 1.0, 7.3])
    log_p = np.log(np.array([0.05, 0.1, 0.15, 0.2, 0.2, 0.2, 0.1]))
    pmf = PrivacyLossPmf(log_ratio, log_p, log_p - log_ratio, Side.UPPER)
    assert split_pmf(pmf, step, 1.0).log_norm == pytest.approx(0.0, abs=1e-9)
