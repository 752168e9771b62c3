"""Attacks on several epochs and phases, composed from below."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.composition.attack_product import AttackProduct
from calipers.pld.composition.product import Product
from calipers.pld.composition.proof_product import ProofProduct
from calipers.pld.core.pmf import PrivacyLossPmf


def test_one_epoch_composed_is_one_epoch() -> None:
    """The law of one epoch shows at most what its best test shows, and nearly all of it."""
    attack = ShuffleAttack(0.9, 50)
    for epsilon in (0.0, 1.5):
        single, (composed, _) = attack.best_test(epsilon).delta, AttackProduct([(attack, 1)]).delta(epsilon)
        assert 0.97 * single <= composed <= single * 1.001
    single, (composed, _) = attack.best_epsilon(1e-5)[0], AttackProduct([(attack, 1)]).epsilon(1e-5)
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
    found, backward = AttackProduct(factors).epsilon(1e-6)
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
    log_tail = math.log(1e-5) - math.log(2.0) - 18.0
    shown = two_by_atoms(below.directions[0].pilot(log_tail)[0][0])
    proven = two_by_atoms(above.directions[0].pilot(log_tail)[0][0])
    found = below._epsilon_one_direction(below.directions[0], 1e-5)
    assert shown(found) >= 1e-5 > shown(1.002 * found)
    bound = above._epsilon_one_direction(above.directions[0], 1e-5, log_tail)
    assert proven(bound) <= 1e-5 < proven(bound / 1.002)
    for epsilon in (0.5 * bound, 0.8 * bound):
        assert 0.99 * shown(epsilon) <= below._delta_one_direction(below.directions[0], epsilon) <= shown(epsilon)
        assert (
            proven(epsilon) <= above._delta_one_direction(above.directions[0], epsilon, 0.0) <= 1.01 * proven(epsilon)
        )


def test_a_second_phase_shows_more() -> None:
    """Adding epochs of any kind never shows less."""
    one = AttackProduct([(ShuffleAttack(1.0, 30), 2)])
    more = AttackProduct([(ShuffleAttack(1.0, 30), 2), (ShuffleAttack(3.0, 10), 1)])
    assert more.delta(1.0)[0] > one.delta(1.0)[0]


def test_very_small_deltas_are_resolved() -> None:
    """delta at a large epsilon, far below double precision of 1, stays positive and below the Gaussian's."""
    found, _ = AttackProduct([(ShuffleAttack(1.0, 10), 3)]).delta(14.0)
    assert 0.0 < found <= float(gaussian_delta(math.sqrt(3.0), 14.0)) < 1e-9


def test_bad_input() -> None:
    with pytest.raises(InputError, match="factor"):
        AttackProduct([])
    with pytest.raises(InputError, match="count"):
        AttackProduct([(ShuffleAttack(1.0, 10), 0)])
