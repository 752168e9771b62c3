"""Attacks on several epochs and phases, composed from below."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from oracles.finite_laws import law_of

from calipers.bracket import Side
from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.composition.one_sided import AttackProduct, ProofProduct
from calipers.pld.composition.product import Product
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import KnownPmfs


def test_one_epoch_composed_is_one_epoch() -> None:
    """The law of one epoch shows at most what its best test shows, and nearly all of it."""
    attack = ShuffleAttack(0.9, 50)
    for epsilon in (0.0, 1.5):
        single, (composed, *_) = attack.best_test(epsilon).delta, AttackProduct([(attack, 1)]).delta(epsilon)
        assert 0.97 * single <= composed <= single * 1.001
    single, (composed, *_) = attack.best_epsilon(1e-5)[0], AttackProduct([(attack, 1)]).epsilon(1e-5)
    assert 0.97 * single <= composed <= single * 1.001


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_phases_of_one_batch_are_one_gaussian(delta: float) -> None:
    """T = 1 hides nothing: phases with sigma = 1 (twice) and sigma = 2 (four times) have mu^2 = 2 + 1."""
    phases = AttackProduct([(ShuffleAttack(1.0, 1), 2), (ShuffleAttack(2.0, 1), 4)])
    exact = gaussian_epsilon(math.sqrt(3.0), delta)
    assert 0.98 * exact <= phases.epsilon(delta)[0] <= exact
    exact = float(gaussian_delta(math.sqrt(3.0), 1.0))
    assert 0.97 * exact <= phases.delta(1.0)[0] <= exact


def test_below_a_product_that_closes() -> None:
    """Where a pair has laws on both sides, the attack stays inside its bracket's upper bound and near its lower one."""
    factors = [(AllocationPair(1.0, 20), 3), (AllocationPair(2.0, 5, 0.8), 2)]
    bounds = Product(factors).epsilon(1e-6)
    found, backward, _ = AttackProduct(factors).epsilon(1e-6)
    assert 0.99 * bounds.lower <= found <= bounds.upper
    assert not backward


def two_by_atoms(pmf: PrivacyLossPmf) -> Callable[[float], float]:
    """The divergence of two independent steps with this law: all pairs of its atoms, and what is infinite of either."""
    ratios = np.add.outer(pmf.log_ratio, pmf.log_ratio).ravel()
    masses = np.exp(np.add.outer(pmf.log_p, pmf.log_p)).ravel()
    infinite = 1.0 - (1.0 - pmf.p_inf) ** 2

    def delta(epsilon: float) -> float:
        return infinite + float(np.sum(masses * np.maximum(-np.expm1(epsilon - ratios), 0.0)))

    return delta


@pytest.mark.parametrize("sigma", [2.33, 1.0])
def test_two_epochs_are_pairs_of_atoms(sigma: float) -> None:
    """An epoch that may show much, if rarely: a lattice made for what is rare would lose some percent of the rest."""
    attack, proof = ShuffleAttack(sigma, 400, 0.999), ShuffledEpoch(sigma, 400, 0.999)
    below, above = AttackProduct([(attack, 2)]), ProofProduct([(proof, 2)])
    below.directions, above.directions = below.directions[:1], above.directions[:1]
    log_tail = math.log(1e-5) - math.log(2.0) - 18.0
    shown = two_by_atoms(below.directions[0].pilot(log_tail)[0][0])
    proven = two_by_atoms(above.directions[0].pilot(log_tail)[0][0])
    found = below.epsilon(1e-5).value
    assert shown(found) >= 1e-5 > shown(1.002 * found)
    bound = above.epsilon(1e-5)
    assert proven(bound) <= 1e-5 < proven(bound / 1.002)
    for epsilon in (0.5 * bound, 0.8 * bound):
        assert 0.99 * shown(epsilon) <= below.delta(epsilon).value <= shown(epsilon)
        assert proven(epsilon) <= above.delta(epsilon) <= 1.01 * proven(epsilon)


def test_a_second_phase_shows_more() -> None:
    """Adding epochs of any kind never shows less."""
    one = AttackProduct([(ShuffleAttack(1.0, 30), 2)])
    more = AttackProduct([(ShuffleAttack(1.0, 30), 2), (ShuffleAttack(3.0, 10), 1)])
    assert more.delta(1.0)[0] > one.delta(1.0)[0]


def test_very_small_deltas_are_resolved() -> None:
    """delta at a large epsilon, far below double precision of 1, stays positive and below the Gaussian's."""
    found, *_ = AttackProduct([(ShuffleAttack(1.0, 10), 3)]).delta(14.0)
    assert 0.0 < found <= float(gaussian_delta(math.sqrt(3.0), 14.0)) < 1e-9


def test_bad_input() -> None:
    with pytest.raises(InputError, match="factor"):
        AttackProduct([])
    with pytest.raises(InputError, match="count"):
        AttackProduct([(ShuffleAttack(1.0, 10), 0)])


Masses = tuple[float, ...]
STEPS = 4
LOPSIDED = (0.26, 0.5, 0.2, 0.04), (0.3, 0.5, 0.1975, 0.0025)
"""A pair that shows more forward: an outcome that is sixteen times as likely."""
ENDLESS = (0.3, 0.45, 0.248, 0.002, 0.0), (0.4, 0.3, 0.2, 0.0, 0.1)
"""One outcome that only P has, and one that only Q has."""


def known(p: Masses, q: Masses) -> KnownPmfs:
    return KnownPmfs({side: law_of(np.array(p), np.array(q), side) for side in Side})


def all_outcomes(p: Masses, q: Masses) -> list[tuple[float, float]]:
    """P-mass and Q-mass of every sequence of four outcomes."""
    return [
        (math.prod(p[i] for i in drawn), math.prod(q[i] for i in drawn))
        for drawn in itertools.product(range(len(p)), repeat=STEPS)
    ]


def divergence(p: Masses, q: Masses, epsilon: float) -> float:
    return math.fsum(max(0.0, there - math.exp(epsilon) * here) for there, here in all_outcomes(p, q))


@pytest.mark.parametrize("exchanged", [False, True])
def test_the_larger_direction_counts_on_either_side(exchanged: bool) -> None:
    """Four steps of a lopsided pair and of its mirror image, against every sequence: deltas, directions, epsilons."""
    p, q = LOPSIDED[::-1] if exchanged else LOPSIDED
    factors = [(known(p, q), STEPS)]
    proof, attack = ProofProduct(factors), AttackProduct(factors)
    for epsilon in (0.2, 0.8, 2.0):
        truth = max(divergence(p, q, epsilon), divergence(q, p, epsilon))
        assert truth <= proof.delta(epsilon) <= 1.02 * truth
        shown = attack.delta(epsilon)
        assert 0.98 * truth <= shown.value <= truth
        assert shown.reversed == exchanged
    shown, bound = attack.epsilon(1e-2), proof.epsilon(1e-2)
    assert max(divergence(p, q, shown.value), divergence(q, p, shown.value)) >= 1e-2
    assert max(divergence(p, q, bound), divergence(q, p, bound)) <= 1e-2
    assert shown.value <= bound <= 1.02 * shown.value
    # The test that is named: what is above its threshold.
    outcomes = [pair[::-1] if shown.reversed else pair for pair in all_outcomes(p, q)]
    rejected = [(one, other) for one, other in outcomes if math.log(one / other) > shown.threshold]
    gain = math.fsum(one - math.exp(shown.value) * other for one, other in rejected)
    assert gain >= 0.98e-2


@pytest.mark.parametrize("exchanged", [False, True])
def test_what_is_infinite_counts_at_every_epsilon(exchanged: bool) -> None:
    """Where no finite ratio is as large, the outcomes are left that only one of the datasets has."""
    p, q = ENDLESS[::-1] if exchanged else ENDLESS
    proof = ProofProduct([(known(p, q), STEPS)])
    for epsilon in (0.5, 30.0):
        truth = max(divergence(p, q, epsilon), divergence(q, p, epsilon))
        assert truth <= proof.delta(epsilon) <= 1.02 * truth
    assert proof.epsilon(0.9 * (1.0 - 0.9**STEPS)) == math.inf


def test_the_order_that_is_looked_at_second_may_count() -> None:
    """P has an outcome of its own, Q a larger spread: epsilon is that of P, whichever order a saddle point prefers."""
    p, q = (0.4, 0.355, 0.2446, 0.0004), (0.32, 0.36, 0.32, 0.0)
    for first, second in ((p, q), (q, p)):
        factors = [(known(first, second), STEPS)]
        for bound in (ProofProduct(factors).epsilon(2e-3), Product(factors).epsilon(2e-3).upper):
            assert max(divergence(p, q, bound), divergence(q, p, bound)) <= 2e-3
            assert max(divergence(p, q, 0.98 * bound), divergence(q, p, 0.98 * bound)) > 2e-3


def test_a_delta_below_all_doubles_of_a_transform_is_bounded_by_a_moment() -> None:
    """Ten steps of a Gaussian release at an epsilon forty deviations out: no look is needed, and 0 is no answer."""
    found = ProofProduct([(AllocationPair(1.0, 1), 10)]).delta(130.0)
    assert float(gaussian_delta(math.sqrt(10.0), 130.0)) <= found < 1e-250
