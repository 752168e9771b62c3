"""What is proven of the best of several trials: against orders of scores, the supremum itself, published bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.bracket import Side
from calipers.curves.gdp import gaussian_curve
from calipers.curves.tradeoff import TradeoffCurve
from calipers.measure.selected_profile import SelectedProfile
from calipers.mechanisms.selection import Trials
from calipers.numerics.types import FloatArray

LAWS = [("geometric", None), ("logarithmic", None), ("poisson", None), ("negative-binomial", -0.5)]


def slope(trials: Trials, u: FloatArray) -> FloatArray:
    """f'(1 - u) over the mean, by its formula."""
    if trials.poisson:
        return np.asarray(np.exp(-trials.mean * u))
    return np.asarray((1.0 + (1.0 / trials.gamma - 1.0) * u) ** -(trials.shape + 1.0))


@pytest.mark.parametrize(("kind", "shape"), LAWS)
@pytest.mark.parametrize("mean", [1.5, 8.0, 100.0])
def test_no_order_of_scores_shows_more_than_is_proven(kind: str, shape: float | None, mean: float) -> None:
    """Random pairs of a few outcomes, scored in random orders some outcomes shown by one dataset only."""
    rng, trials = np.random.default_rng(7), Trials.of(kind, mean, shape)
    closest = 0.0
    for atoms, alone in ((2, 0.0), (3, 0.0), (3, 0.03), (5, 1e-3), (8, 0.0)):
        p, q = rng.dirichlet(np.full(atoms, 0.7)) + 1e-4, rng.dirichlet(np.full(atoms, 0.7)) + 1e-4
        p, q = p / p.sum(), 0.5 * (p / p.sum() + q / q.sum())
        one = TradeoffCurve.from_atoms((1.0 - alone) * p, q, p_inf=alone, side=Side.UPPER).symmetrized()
        proven = SelectedProfile(trials, one)
        p, q, atoms = np.append((1.0 - alone) * p, alone), np.append(q, 0.0), atoms + 1
        orders = [rng.permutation(atoms) for _ in range(40)] + [np.argsort(p - q), np.argsort(q - p)]
        for epsilon in (0.0, 0.05, 0.4, 1.5):
            shown = 0.0
            for order in orders:
                sums = [np.append(0.0, np.minimum(np.cumsum(mass[order]), 1.0)) for mass in (p, q)]
                first, second = (np.diff(1.0 - trials.missed(1.0 - below)) for below in sums)
                for here, there in ((first, second), (second, first)):
                    shown = max(shown, float(np.sum(np.maximum(here - math.exp(epsilon) * there, 0.0))))
            bound = proven.delta(epsilon)
            assert shown <= bound * (1.0 + 1e-9)
            assert float(proven.curve.delta(epsilon)) >= shown
            if 0.0 < bound < proven.distance:
                assert proven.delta(proven.epsilon(bound)) <= bound * (1.0 + 1e-6)
            closest = max(closest, shown / max(bound, 1e-12))
    assert closest > 0.5


@pytest.mark.parametrize(("kind", "shape"), LAWS)
def test_the_sum_is_the_supremum_over_ranks(kind: str, shape: float | None) -> None:
    """h(L) of the proof, on a grid of u: never above, and nearly reached; also where B exceeds e^a."""
    trials, x = Trials.of(kind, 12.0, shape), np.linspace(-6.0, 9.0, 61)
    u = np.concatenate(([0.0], np.geomspace(1e-6, 1e7, 60_000)))
    for at, delta_at, epsilon in ((0.3, 0.01, 1.0), (1.2, 0.05, 0.3), (0.5, 1e-9, 2.0), (0.01, 0.2, 1.0)):
        lines = slope(trials, u), slope(trials, math.exp(at) * u + delta_at)
        found = [float(np.max(lines[0] - math.exp(epsilon - one) * lines[1])) for one in x]
        share = trials.spread(x, at, delta_at, epsilon)
        assert np.all(share >= np.array(found) - 1e-12)
        if trials.poisson or 1.0 + (1.0 / trials.gamma - 1.0) * delta_at < math.exp(at):
            assert np.all(share <= np.maximum(np.array(found), 0.0) + 1e-6)


@pytest.mark.parametrize(("kind", "shape"), LAWS)
@pytest.mark.parametrize("mean", [2.0, 50.0])
@pytest.mark.parametrize("mu", [0.02, 0.5, 3.0])
def test_nothing_is_lost_beside_renyi_bounds(kind: str, shape: float | None, mean: float, mu: float) -> None:
    """Those of Papernot and Steinke for Gaussians (Theorems 2 and 6), turned into delta order by order."""
    trials, one = Trials.of(kind, mean, shape), gaussian_curve(mu, Side.UPPER)
    proven = SelectedProfile(trials, one)
    orders = np.concatenate((np.geomspace(1.02, 2.0, 12), np.geomspace(2.1, 300.0, 60)))
    for delta in (1e-3, 1e-5, 1e-9):
        found = proven.epsilon(delta)
        for t in orders:
            own = 0.5 * mu * mu * t + math.log(mean) / (t - 1.0)
            if trials.poisson:
                own += mean * float(one.delta(-math.log1p(-1.0 / t)))
            else:
                hidden = (1.0 - 1.0 / orders) * 0.5 * mu * mu * orders - math.log(trials.gamma) / orders
                own += (1.0 + trials.shape) * float(hidden.min())
            implied = own + (math.log(1.0 / delta) + (t - 1.0) * math.log1p(-1.0 / t) - math.log(t)) / (t - 1.0)
            assert found <= max(implied, 0.0) * (1.0 + 1e-3) + 1e-9


def test_large_numbers_of_quiet_trials_add_little() -> None:
    """The best of a Poisson number of 1000 with mu = 0.01: the shift m D(0) alone would be 4."""
    trials = Trials.of("poisson", 1000.0)
    proven = SelectedProfile(trials, gaussian_curve(0.01, Side.UPPER))
    assert proven.shift > 3.9
    assert proven.epsilon(1e-5) < 0.36
    assert proven.delta(0.36) <= 1e-5


@pytest.mark.parametrize("mean", [1.0, 5.0, 60.0])
@pytest.mark.parametrize("alone", [0.0, 1e-9])
def test_moments_of_a_poisson_selection_are_at_most_those_that_large_deltas_are_read_off(
    mean: float, alone: float
) -> None:
    """E_Q[phi(L)] of the selected pair, phi linear beyond k, for random pairs in random orders."""
    rng, trials = np.random.default_rng(3), Trials.of("poisson", mean)
    closest = 0.0
    for atoms in (2, 4, 7):
        p, q = rng.dirichlet(np.ones(atoms)), rng.dirichlet(np.ones(atoms))
        p, q = (1.0 - alone) * (0.2 * p + 0.8 * q), q
        one = TradeoffCurve.from_atoms(p, q, p_inf=alone, side=Side.UPPER).symmetrized()
        masses, _, beyond, _ = one.atoms
        for t in (1.1, 2.0, 8.0):
            near = float(one.delta(-math.log1p(-1.0 / t)))
            bound, rest = trials.moment(t, masses, np.log(one.odds), beyond, near)
            log_m = (t - 1.0) * bound
            log_k = (log_m - math.log(t * rest)) / (t - 1.0)
            for _ in range(20):
                order = rng.permutation(atoms + 1)
                here, there = (
                    np.exp(-mean * np.append(np.cumsum(x[order][:0:-1])[::-1], 0.0)) * -np.expm1(-mean * x[order])
                    for x in (np.append(p, alone), np.append(q, 0.0))
                )
                some = there > 0.0
                log_l = np.log(np.maximum(here[some], 1e-300) / there[some])
                below = np.exp(t * np.minimum(log_l, log_k)) * (1.0 + t * np.expm1(np.maximum(log_l - log_k, 0.0)))
                found = math.exp(-mean) + float(there[some] @ below)
                found += t * math.exp((t - 1.0) * log_k) * float(here[~some].sum())
                assert math.log(found) <= log_m
                closest = max(closest, found / math.exp(log_m))
    assert closest > 0.6 / mean
