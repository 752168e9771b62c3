"""Poisson batches with a largest size: every batch of small datasets is enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles import plane
from scipy import stats

from calipers.errors import UnsupportedError
from calipers.measure import measure
from calipers.pld.composition.one_sided import AttackProduct
from calipers.pld.composition.product import Product
from calipers.pld.subsampling.truncated import truncated_attack, truncated_proof
from calipers.pld.subsampling.truncation import Truncation
from calipers.run import Run
from calipers.samplers import scheme_of

EPSILONS = (0.0, 0.2, 0.9)


def shown(gradients, rate, largest, sigma):
    """(weights, means) of the truncated sum: all who join, and all sets of those that are kept."""
    found = {}
    count = len(gradients)
    for coins in itertools.product((0, 1), repeat=count):
        joined = [i for i in range(count) if coins[i]]
        chance = rate ** len(joined) * (1 - rate) ** (count - len(joined))
        kept = [tuple(joined)] if len(joined) <= largest else list(itertools.combinations(joined, largest))
        for members in kept:
            total = np.sum([gradients[i] for i in members], axis=0) if members else np.zeros(2)
            key = tuple(np.round(total, 12))
            found[key] = found.get(key, 0.0) + chance / len(kept)
    return np.array(list(found.values())), np.array(list(found)) / sigma


@pytest.mark.parametrize("seed", range(3))
def test_no_gradients_show_more_than_the_proof(seed):
    """Added or removed: three others and a record, gradients anywhere in the disk."""
    rng = np.random.default_rng(seed)
    rate, largest, sigma = float(rng.uniform(0.2, 0.7)), int(rng.integers(1, 4)), float(rng.uniform(0.8, 2.0))
    others, own = plane.unit_disk(3, rng), plane.unit_disk(1, rng)
    if seed == 0:
        others, own = np.tile([-1.0, 0.0], (3, 1)), np.array([[1.0, 0.0]])
    pmf = truncated_proof(Truncation(3, rate, largest), 1.0 / sigma, "add-remove").upper(0.02, -40.0)
    present = shown(np.concatenate((others, own)), rate, largest, sigma)
    absent = shown(others, rate, largest, sigma)
    for eps in EPSILONS:
        assert plane.divergence(*present, *absent, eps) <= pmf.delta(eps) * (1 + 5e-4) + 1e-9
        assert plane.divergence(*absent, *present, eps) <= pmf.reverse().delta(eps) * (1 + 5e-4) + 1e-9


@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
@pytest.mark.parametrize("seed", range(2))
def test_a_record_that_keeps_its_place(adjacency, seed):
    """Zeroed out, or replaced: the same enumeration with four places."""
    rng = np.random.default_rng(10 + seed)
    rate, largest, sigma = float(rng.uniform(0.2, 0.7)), int(rng.integers(1, 4)), float(rng.uniform(0.8, 2.0))
    others, (record, other) = plane.unit_disk(3, rng), plane.unit_disk(2, rng)
    instead = np.zeros(2) if adjacency == "zero-out" else other
    pmf = truncated_proof(Truncation(3, rate, largest), 1.0 / sigma, adjacency).upper(0.02, -40.0)
    present = shown(np.vstack((others, record)), rate, largest, sigma)
    absent = shown(np.vstack((others, instead)), rate, largest, sigma)
    for eps in EPSILONS:
        assert plane.divergence(*present, *absent, eps) <= pmf.delta(eps) * (1 + 5e-4) + 1e-9
        assert plane.divergence(*absent, *present, eps) <= pmf.reverse().delta(eps) * (1 + 5e-4) + 1e-9


@pytest.mark.parametrize(
    ("others", "rate", "largest"), [(9, 0.3, 4), (50, 0.2, 11), (6, 1.0, 4), (3, 0.7, 2), (2, 0.5, 4)]
)
def test_how_often_it_is_kept(others, rate, largest):
    """Against sums of binomial and hypergeometric probabilities of another library."""
    found = Truncation(others, rate, largest)
    m = np.arange(others + 1)
    chances = stats.binom.pmf(m, others, rate)
    full = m >= largest
    kept = rate * stats.hypergeom.pmf(1, m + 1, 1, np.minimum(m + 1, largest))
    assert found.truncated == pytest.approx(chances[full].sum(), rel=1e-10)
    assert found.room == pytest.approx(chances[~full].sum(), rel=1e-10, abs=1e-300)
    if chances[full].sum() > 0.0:
        averaged = chances[full] @ kept[full] / chances[full].sum()
        assert found.kept == pytest.approx(averaged, rel=1e-9)
        assert found.missing == pytest.approx(1.0 - averaged, rel=1e-9)


@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_the_attack_on_a_unit_shows_what_the_mechanism_does(adjacency):
    """Two records of five in batches of three: at most the enumerated divergence, and most of it."""
    rate, largest, sigma = 0.2, 3, 1.1
    run = Run(
        sampler="truncated-poisson", dataset_size=5, sample_rate=rate, max_batch_size=largest, steps=1,
        noise_multiplier=sigma, adjacency=adjacency, unit="user", records_per_unit=2,
    )  # fmt: skip
    (attack,) = scheme_of(run).unit_attacks(run)
    pmf = attack.source.lower(0.01, -40.0)
    others, own = np.zeros((3, 2)), np.tile([1.0, 0.0], (2, 1))
    present = shown([*others, *own], rate, largest, sigma)
    absent = shown([*others, *(0.0 * own if adjacency == "zero-out" else -own)], rate, largest, sigma)
    for eps in EPSILONS:
        exact = plane.divergence(*present, *absent, eps)
        assert 0.7 * exact - 1e-5 <= pmf.delta(eps) <= exact + 1e-7
    found = measure(run).epsilon(1e-3)
    assert 0.0 < found.lower <= found.upper


def test_adding_a_unit_is_refused():
    """Nothing is proven of it; a unit that names no neighbors is zeroed out."""
    keys = {"dataset_size": 100, "sample_rate": 0.1, "max_batch_size": 15, "steps": 5, "noise_multiplier": 3.0}
    run = Run(**keys, sampler="truncated-poisson", unit="user", records_per_unit=2)
    assert run.adjacency == "zero-out"
    with pytest.raises(UnsupportedError, match="largest size"):
        measure(run.replace(adjacency="add-remove"))


@pytest.mark.parametrize(("adjacency", "instead"), [("add-remove", None), ("zero-out", 0), ("substitute", -1)])
def test_attacks_are_what_the_mechanism_does(adjacency, instead):
    """At most the enumerated divergence, and within half a percent of it: all others zero."""
    rate, largest, sigma = 0.4, 2, 1.3
    pmf = truncated_attack(Truncation(3, rate, largest), 1.0 / sigma, adjacency).lower(0.01, -40.0)
    others = [np.zeros(2)] * 3
    present = shown([*others, np.array([1.0, 0.0])], rate, largest, sigma)
    rest = [] if instead is None else [np.array([instead, 0.0])]
    absent = shown([*others, *rest], rate, largest, sigma)
    for eps in EPSILONS:
        exact = plane.divergence(*present, *absent, eps)
        assert 0.995 * exact - 1e-5 <= pmf.delta(eps) <= exact + 1e-7


def test_a_limit_that_is_never_reached_is_poisson_sampling():
    from calipers.mechanisms.gaussian import poisson_gaussian

    plain = Product([(poisson_gaussian(0.01, 2.0), 1000)]).epsilon(1e-5)
    found = Product([(truncated_proof(Truncation(1000, 0.01, 400), 0.5, "add-remove"), 1000)]).epsilon(1e-5)
    assert found.upper == pytest.approx(plain.upper, rel=1e-4)


def test_a_limit_that_is_always_reached_is_a_batch_of_fixed_size():
    """Everybody joins and 3 of 11 are kept: 3 of 11 without replacement."""
    from calipers.pld.subsampling.fixed_size import fixed_size_proof

    fixed = Product([(fixed_size_proof(3 / 11, 0.5, "add-remove"), 50)]).epsilon(1e-5)
    found = Product([(truncated_proof(Truncation(10, 1.0, 3), 0.5, "add-remove"), 50)]).epsilon(1e-5)
    assert found.upper == pytest.approx(fixed.upper, rel=1e-4)


@pytest.mark.parametrize(("size", "batch", "largest"), [(21403, 5376, 3776), (77464, 8674, 7711)])
def test_a_batch_that_is_full_but_for_rounding(size, batch, largest):
    """The probabilities of full batches add up to a rounding above one; the run is one of fixed batches."""
    from calipers.pld.subsampling.fixed_size import fixed_size_proof

    truncation = Truncation(size - 1, batch / size, largest)
    assert truncation.truncated <= 1.0
    found = Product([(truncated_proof(truncation, 0.2, "add-remove"), 12)]).epsilon(1e-5)
    fixed = Product([(fixed_size_proof(largest / size, 0.2, "add-remove"), 12)]).epsilon(1e-5)
    assert found.upper == pytest.approx(fixed.upper, rel=1e-3)


@pytest.mark.dp_accounting
@pytest.mark.parametrize(
    ("size", "rate", "largest", "sigma", "steps"), [(1000, 0.01, 15, 2.0, 200), (100, 0.1, 3, 1.0, 50)]
)
def test_the_upper_jaw_lies_below_dp_accountings_event(size, rate, largest, sigma, steps):
    """They bound a full batch by replacement; here the pair is that of adding or removing."""
    dp_accounting = pytest.importorskip("dp_accounting")
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(size, rate, largest, sigma)
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(event, steps)
    theirs = accountant.get_epsilon(1e-5)
    for others in (size - 1, size):
        proof = truncated_proof(Truncation(others, rate, largest), 1.0 / sigma, "add-remove")
        ours = Product([(proof, steps)]).epsilon(1e-5).upper
        assert ours <= theirs
    attack = truncated_attack(Truncation(size - 1, rate, largest), 1.0 / sigma, "add-remove")
    assert AttackProduct([(attack, steps)]).epsilon(1e-5)[0] <= ours


@pytest.mark.dp_accounting
@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "substitute"])
@pytest.mark.parametrize(
    ("size", "rate", "largest", "sigma", "steps"),
    [(1000, 0.01, 30, 2.0, 200), (40, 0.4, 8, 4.0, 100), (13, 0.313, 20, 1.925, 27)],
)
def test_runs_and_events_are_never_above_dp_accounting(size, rate, largest, sigma, steps, adjacency):
    """Batches that are hardly ever full, nearly always, or never; both neighbors of the run's dataset.

    Where truncation is rare both libraries bound the same number, and ours may not be the larger by its rounding.
    """
    dp_accounting = pytest.importorskip("dp_accounting")
    from calipers.adapters.dp_accounting import RELATIONS, measurement_of

    relation = getattr(dp_accounting.NeighboringRelation, RELATIONS[adjacency])
    theirs = []
    for dataset_size in (size, size + 1) if adjacency == "add-remove" else (size,):
        event = dp_accounting.TruncatedSubsampledGaussianDpEvent(dataset_size, rate, largest, sigma)
        accountant = dp_accounting.pld.PLDAccountant(relation)
        accountant.compose(event, steps)
        theirs.append(accountant.get_epsilon(1e-5))
    run = Run(
        sampler="truncated-poisson", dataset_size=size, sample_rate=rate, max_batch_size=largest, steps=steps,
        noise_multiplier=sigma, adjacency=adjacency,
    )  # fmt: skip
    bracket = measure(run).epsilon(1e-5)
    assert bracket.lower <= bracket.upper <= max(theirs)
    first = dp_accounting.TruncatedSubsampledGaussianDpEvent(size, rate, largest, sigma)
    read = measurement_of(dp_accounting.SelfComposedDpEvent(first, steps), adjacency=adjacency, tolerance=1e-5)
    assert bracket.lower <= read.epsilon(1e-5).upper <= theirs[0]
    assert read.epsilon(1e-5).lower > 0.0
