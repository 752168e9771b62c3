"""Many drawn shifts with a revealed index, cut together: against closed forms of another library."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import optimize, stats

from calipers.pld.core.drawn_shift import Shifts
from calipers.pld.core.progression import log_sums_together, splits_together, together_error
from calipers.pld.core.revealed_shifts import revealed_shifts
from calipers.pld.core.thinning import chosen_nodes, spaced_nodes, thinned

UNIT, COUNT = 0.7, 12
CHANCES = np.array([0.002, 0.008, 0.03, 0.06, 0.1, 0.2, 0.25, 0.35])
WEIGHTS = np.array([stats.binom.pmf(np.arange(COUNT + 1), COUNT, rate) for rate in np.linspace(0.6, 0.05, 8)])
LENGTHS = UNIT * np.arange(COUNT + 1)


@pytest.fixture(scope="module")
def pair():
    parts = [
        (Shifts.of(list(LENGTHS), list(weights)), float(chance))
        for weights, chance in zip(WEIGHTS, CHANCES, strict=True)
    ]
    return revealed_shifts("eight parts", parts, UNIT, 1e-15)


def exact(epsilon: float) -> tuple[float, float]:
    """delta in both orders: every part's test is a threshold of z."""
    forward = backward = 0.0
    for weights, chance in zip(WEIGHTS, CHANCES, strict=True):

        def log_ratio(z: float, weights=weights) -> float:
            return float(np.log(weights @ np.exp(LENGTHS * (z - 0.5 * LENGTHS))))

        edge = optimize.brentq(lambda z: log_ratio(z) - epsilon, -40.0, 40.0, xtol=1e-13)
        p, q = weights @ stats.norm.sf(edge - LENGTHS), stats.norm.sf(edge)
        forward += chance * (p - math.exp(epsilon) * q)
        if log_ratio(-30.0) < -epsilon:
            edge = optimize.brentq(lambda z: log_ratio(z) + epsilon, -40.0, 40.0, xtol=1e-13)
            p, q = weights @ stats.norm.cdf(edge - LENGTHS), stats.norm.cdf(edge)
            backward += chance * (q - math.exp(epsilon) * p)
    return forward, backward


@pytest.mark.parametrize(
    ("resolution", "tilt"), [(0.2, None), (0.01, None), (0.1, 1.0), (0.05, 0.3), (0.002, 1.1), (0.001, 1.0)]
)
def test_every_law_dominates_and_is_near(pair, resolution, tilt):
    """From the table, in even cells, and with parts that are cut anew."""
    pmf = pair.upper_for(resolution, -40.0, tilt)
    for epsilon in (0.2, 1.0, 3.0, 8.0):
        for truth, found in zip(exact(epsilon), (pmf.delta(epsilon), pmf.reverse().delta(epsilon)), strict=True):
            assert truth * (1.0 - 1e-10) <= found <= truth * (1.0 + 2e-3) + 1e-12


def test_finer_laws_are_nearer(pair):
    truth = exact(3.0)[0]
    excess = [pair.upper_for(resolution, -40.0, 1.05).delta(3.0) / truth - 1.0 for resolution in (0.1, 0.01, 0.002)]
    assert 1e-12 < 2.0 * excess[2] < excess[1] < excess[0]


@pytest.mark.parametrize("log_tail", [-40.0, -12.0])
def test_what_is_charged_covers_the_masses(pair, log_tail):
    """Total masses of both datasets are 1 up to the stated errors. In a shallow law much lies in the tails; what is
    beyond an end for one dataset is left there for the other, so that its mass is no less."""
    pmf = pair.upper_for(0.01, log_tail, 1.0)
    assert (min(pmf.p_inf, pmf.q_zero) > 1e-9) == (log_tail > -40.0)
    for masses, missing in ((pmf.log_p, pmf.p_inf), (pmf.log_q, pmf.q_zero)):
        excess = float(np.exp(masses).sum()) + missing - 1.0
        assert -pmf.rounding - 1e-16 <= excess <= pmf.rounding + 1e-16 + pmf.p_inf + pmf.q_zero


def test_sums_together_err_by_no_more_than_is_stated():
    """Small and large means, and weights of nothing."""
    rng = np.random.default_rng(4)
    weights = rng.dirichlet(np.ones(60), size=3) * (rng.uniform(size=(3, 60)) > 0.2)
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    z = np.linspace(-9.0, 50.0, 3000)
    found = log_sums_together(logs, 0.8, z)
    with mp.workdps(40):
        for row in range(3):
            for place in range(0, 3000, 397):
                terms = [
                    mp.mpf(weight) * mp.exp(mp.mpf(0.8 * j) * (mp.mpf(z[place]) - mp.mpf(0.8 * j) / 2))
                    for j, weight in enumerate(weights[row])
                ]
                truth = mp.log(mp.fsum(terms))
                allowed = together_error(60) + 5e-16 * (8.0 + 48.0 * (abs(z[place]) + 24.0))
                assert abs(float(mp.mpf(float(found[row, place])) - truth)) <= allowed


@pytest.mark.parametrize(("unit", "width"), [(0.8, 0.02), (3.3, 0.2), (0.02, 0.1)])
def test_what_cells_give_to_their_ends_is_right_to_its_stated_error(unit, width):
    """Narrow cells, in which sums hardly change, and wide ones; term by term in exact arithmetic."""
    rng = np.random.default_rng(8)
    weights = rng.dirichlet(np.ones(40), size=2) * (rng.uniform(size=(2, 40)) > 0.2)
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    ends = np.arange(-4.0, 40.0 * unit + 4.0, width)
    nodes = np.array([-0.8, -0.3, 0.3, 0.8])
    points = 0.5 * (ends[:-1] + ends[1:])[:, None] + 0.5 * np.diff(ends)[:, None] * nodes
    masses = rng.uniform(0.1, 1.0, points.shape)
    up, down = splits_together(logs, unit, ends, points, masses)

    def total(row, z):
        means = [mp.mpf(unit) * j for j in range(40)]
        terms = (mp.mpf(w) * mp.exp(m * (mp.mpf(z) - m / 2)) for w, m in zip(weights[row], means, strict=True))
        return mp.fsum(terms)

    with mp.workdps(40):
        for row in range(2):
            for cell in range(0, len(points), max(1, len(points) // 9)):
                low, high = total(row, ends[cell]), total(row, ends[cell + 1])
                inside = [total(row, z) for z in points[cell]]
                rise = mp.fsum(mp.mpf(m) * (x - low) for m, x in zip(masses[cell], inside, strict=True)) / high
                fall = mp.fsum(mp.mpf(m) * (high - x) for m, x in zip(masses[cell], inside, strict=True)) / high
                # A place that is rounded moves what it is taken from by this share of the width.
                allowed = 3.0 * together_error(40) + 1e-15 * (abs(ends[cell]) + 40.0 * unit) * (
                    40.0 * unit + 50.0 / width
                )
                for found, truth in ((up[row, cell], rise), (down[row, cell], fall)):
                    if max(found, float(truth)) < 1e-24:  # there a sum is constant to working precision
                        continue
                    assert abs(float(mp.mpf(float(found)) / truth - 1)) <= allowed


@pytest.mark.parametrize("seed", range(3))
def test_a_thinned_law_keeps_both_masses_and_dominates(seed):
    """Nodes placed for weights, and evenly; some neighbors are equal, some far apart."""
    rng = np.random.default_rng(seed)
    x = np.sort(np.concatenate((rng.normal(0.0, 1.0, 400), rng.uniform(0.0, 60.0, 300), [0.5] * 20)))
    q = rng.dirichlet(np.ones(len(x))) * np.exp(-np.maximum(x, 0.0))
    for index in (chosen_nodes(x, q / q.sum(), 1e-3, 40), spaced_nodes(x, 60)):
        nodes, log_q, error = thinned(x, np.log(q), index)
        fewer = np.exp(log_q)
        assert len(nodes) < len(x)
        assert error < 1e-12
        assert fewer.sum() == pytest.approx(q.sum(), rel=1e-12)
        assert fewer @ np.exp(nodes) == pytest.approx(q @ np.exp(x), rel=1e-12)
        for level in (-1.0, 0.0, 0.7, 5.0, 30.0):
            before = q @ np.maximum(np.exp(x) - math.exp(level), 0.0)
            after = fewer @ np.maximum(np.exp(nodes) - math.exp(level), 0.0)
            assert before * (1.0 - 1e-12) <= after
