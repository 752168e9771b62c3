"""Batches of fixed size drawn anew: the proof lies above every choice of gradients, the attacks are such choices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from oracles import plane
from scipy.special import ndtr

from calipers.pld.composition.one_sided import AttackProduct, ProofProduct
from calipers.pld.composition.product import Product
from calipers.pld.core.drawn_shift import Shifts
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.subsampling.counted import CountedPair
from calipers.pld.subsampling.fixed_size import fixed_size_attack, fixed_size_proof

ADJACENCIES = ("add-remove", "zero-out", "substitute")
EPSILONS = (0.0, 0.1, 0.7)


def shown(gradients, record, instead, batch, sigma, replacement=False):
    """(weights, means) of what a step shows: all batches of `batch` of the others' gradients and the record's.

    `record` None: the record is not there. Listed batch by batch, nothing else is assumed.
    """
    everybody = list(gradients) + ([] if record is None else [record if instead is None else instead])
    if replacement:
        drawn = list(itertools.product(range(len(everybody)), repeat=batch))
    else:
        drawn = list(itertools.combinations(range(len(everybody)), batch))
    sums = np.array([np.sum([everybody[i] for i in members], axis=0) for members in drawn])
    return np.full(len(drawn), 1.0 / len(drawn)), sums / sigma


def neighbors(gradients, record, adjacency, batch, sigma, other=None, replacement=False):
    """Both datasets of a neighboring pair."""
    present = shown(gradients, record, None, batch, sigma, replacement)
    if adjacency == "add-remove":
        return present, shown(gradients, None, None, batch, sigma, replacement)
    instead = np.zeros(2) if adjacency == "zero-out" else other
    return present, shown(gradients, record, instead, batch, sigma, replacement)


def directed(pmf: PrivacyLossPmf, reverse: bool) -> PrivacyLossPmf:
    return pmf.reverse() if reverse else pmf


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("seed", range(3))
def test_no_gradients_show_more_than_the_proof(adjacency, seed):
    """Every batch of three others and the record is enumerated, gradients anywhere in the disk, both orders."""
    rng = np.random.default_rng(seed)
    batch, sigma = 2, float(rng.uniform(0.7, 2.0))
    others = plane.unit_disk(3, rng)
    record, other = plane.unit_disk(2, rng)
    rate = batch / 4
    pmf = fixed_size_proof(rate, 1.0 / sigma, adjacency).upper(0.02, -40.0)
    present, absent = neighbors(others, record, adjacency, batch, sigma, other)
    for eps in EPSILONS:
        assert plane.divergence(*present, *absent, eps) <= directed(pmf, False).delta(eps) * (1 + 5e-4) + 1e-9
        assert plane.divergence(*absent, *present, eps) <= directed(pmf, True).delta(eps) * (1 + 5e-4) + 1e-9


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_worst_gradients_reach_the_proof(adjacency):
    """Others -u, the record u (or all -u): one step attains the proof, in the order it is made for."""
    sigma, batch, u = 1.2, 2, np.array([1.0, 0.0])
    pmf = fixed_size_proof(batch / 5, 1.0 / sigma, adjacency).upper(0.01, -40.0)
    forward = neighbors([-u] * 4, u, adjacency, batch, sigma, -u)
    backward = forward if adjacency == "add-remove" else neighbors([-u] * 4, -u, adjacency, batch, sigma, u)
    for eps in EPSILONS:
        assert plane.divergence(*forward[0], *forward[1], eps) == pytest.approx(pmf.delta(eps), rel=1e-3)
        assert plane.divergence(*backward[1], *backward[0], eps) == pytest.approx(pmf.reverse().delta(eps), rel=1e-3)


def test_an_accountant_that_forgets_displacement_is_refuted():
    """The Poisson pair, which moves the sum by one gradient only, lies below what these gradients show."""
    sigma, batch, u = 1.2, 2, np.array([1.0, 0.0])
    present, absent = neighbors([-u] * 4, u, "add-remove", batch, sigma)
    claimed = fixed_size_proof(batch / 5, 0.5 / sigma, "add-remove").upper(0.01, -40.0)
    assert plane.divergence(*present, *absent, 0.1) > 1.5 * claimed.delta(0.1)


@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
@pytest.mark.parametrize(("rate", "sigma", "steps"), [(0.01, 1.0, 1000), (0.3, 9.4, 200), (0.004, 0.8, 5)])
def test_the_attack_stays_below_the_proof_over_many_steps(adjacency, rate, sigma, steps):
    upper = Product([(fixed_size_proof(rate, 1.0 / sigma, adjacency), steps)]).epsilon(1e-5).upper
    pair = fixed_size_attack(rate, 1.0 / sigma, adjacency)
    assert AttackProduct([(pair, steps)]).epsilon(1e-5)[0] <= upper


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta", "least", "most"),
    [(1e-3, 0.8, 10**4, 1e-6, 15.24, 15.26), (256 / 60_000, 1.1, 14_040, 1e-5, 14.69, 14.71)],
)
def test_reference_values_of_adding_or_removing(rate, sigma, steps, delta, least, most):
    """Far above Poisson's .947 and 2.380 for the same numbers."""
    bounds = Product([(fixed_size_proof(rate, 1.0 / sigma, "add-remove"), steps)]).epsilon(delta)
    assert least <= bounds.lower <= bounds.upper <= most


@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
@pytest.mark.parametrize("seed", range(2))
def test_several_places_show_no_more_than_their_proof(adjacency, seed):
    """With replacement: all 4^3 sequences of draws are enumerated."""
    rng = np.random.default_rng(100 + seed)
    batch, sigma = 3, float(rng.uniform(1.0, 2.5))
    others, (record, other) = plane.unit_disk(3, rng), plane.unit_disk(2, rng)
    if seed == 0:
        others, record, other = np.tile([-1.0, 0.0], (3, 1)), np.array([1.0, 0.0]), np.array([-1.0, 0.0])
    chances = [math.comb(batch, j) * 0.25**j * 0.75 ** (batch - j) for j in range(batch + 1)]
    counts = Shifts.of([j / sigma for j in range(batch + 1)], chances)
    pmf = CountedPair(counts, adjacency).upper(0.02, -40.0)
    present, absent = neighbors(others, record, adjacency, batch, sigma, other, replacement=True)
    for eps in EPSILONS:
        assert plane.divergence(*present, *absent, eps) <= pmf.delta(eps) * (1 + 5e-4)
        assert plane.divergence(*absent, *present, eps) <= pmf.reverse().delta(eps) * (1 + 5e-4)


@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_one_place_is_the_exact_worst_case(rate):
    """The bounds by joint convexity are the joined pair where j is 0 or 1, in both orders."""
    shift = 0.8
    counts = Shifts.of([0.0, shift], [1.0 - rate, rate])
    for adjacency in ("substitute", "zero-out"):
        bound = CountedPair(counts, adjacency).upper(0.02, -40.0)
        exact = fixed_size_proof(rate, shift, adjacency).upper(0.005, -40.0)
        for eps in (0.0, 0.01, 0.2, 1.0):
            for way in (False, True):
                found, truth = directed(bound, way).delta(eps), directed(exact, way).delta(eps)
                assert truth * (1 - 1e-3) <= found <= truth * (1 + 1e-3)


def test_places_that_are_revealed_are_bounded_by_the_best_test_of_each():
    """Sum over j of the best threshold, found by trying many: never above the node, and the node is no larger."""
    rate, shift, batch = 0.05, 0.9, 4
    chances = [math.comb(batch, j) * rate**j * (1 - rate) ** (batch - j) for j in range(batch + 1)]
    eta = 1.0 - chances[0]
    nodes = CountedPair(Shifts.of([j * shift for j in range(batch + 1)], chances), "zero-out").nodes(False, -40.0)
    z = np.linspace(-3.0, 25.0, 200_001)
    for eps, value in nodes[1 : len(nodes) : 97]:
        total, k = 0.0, math.exp(eps)
        for j in range(1, batch + 1):
            s = j * shift
            gain = eta * (ndtr(2 * s - z) - k * ndtr(s - z)) - (k - 1) * (1 - eta) * ndtr(-z)
            total += chances[j] / eta * float(np.max(gain))
        assert value <= total * (1 + 1e-6) + 1e-12
    assert nodes[0][1] > 0.0


def test_counted_pairs_compose():
    counts = Shifts.of([0.0, 0.8], [0.98, 0.02])
    assert ProofProduct([(CountedPair(counts, "substitute"), 100)]).epsilon(1e-5) > 0.0
