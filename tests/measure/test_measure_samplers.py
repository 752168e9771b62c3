"""Measurements of samplers that deal every record out once per epoch: balls-and-bins, shuffling, fixed batches."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from oracles import enumeration

from calipers.bracket import Bracket, Kind, Side
from calipers.errors import InputError
from calipers.measure import measure
from calipers.pld.allocation.adaptive_sign import AdaptiveSignAttack
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.pld.composition.one_sided import AttackProduct
from calipers.run import Run


def dealt(sampler: str, batches: int, noise: float, epochs: int = 1, **more: Any) -> Run:
    if sampler in ("shuffle", "deterministic"):
        more.setdefault("adjacency", "zero-out")
    return Run(dataset_size=batches, batch_size=1, epochs=epochs, noise_multiplier=noise, sampler=sampler, **more)


def overlap(first: Bracket, second: Bracket) -> bool:
    return first.lower <= second.upper and second.lower <= first.upper


# Balls-and-bins


def two_rounds(sigma: float, eps: float) -> mp.mpf:
    """delta of the mean of two lognormal ratios: given the first, the second is a call or a put."""
    mu, k = 1 / mp.mpf(sigma), mp.exp(mp.mpf(eps))

    def first(z: mp.mpf) -> mp.mpf:
        return mp.exp(mu * z - mu**2 / 2)

    def call(z: mp.mpf) -> mp.mpf:
        strike = 2 * k - first(z)
        value = 1 - strike if strike <= 0 else enumeration.gaussian(mu, mp.log(strike))
        return mp.npdf(z) * value / 2

    def put(z: mp.mpf) -> mp.mpf:
        strike = 2 / k - first(z)
        if strike <= 0:
            return mp.mpf(0)
        eps = mp.log(strike)
        return mp.npdf(z) * (strike * mp.ncdf(mu / 2 + eps / mu) - mp.ncdf(eps / mu - mu / 2)) * k / 2

    above, below = ((mp.log(2 * k) / mu + mu / 2), (mp.log(2 / k) / mu + mu / 2))
    return max(mp.quad(call, [-12, -3, 0, above, above + 3, 14]), mp.quad(put, [-12, -6, -3, 0, below]))


@pytest.mark.parametrize(("sigma", "eps"), [(1.0, 0.0), (1.0, 0.5), (0.6, 2.0), (3.0, 0.1)])
def test_two_batches_are_one_integral(sigma: float, eps: float) -> None:
    """One epoch of two batches: the bracket holds the larger direction, by quadrature in mpmath."""
    found, truth = measure(dealt("balls-and-bins", 2, sigma)).delta(eps), two_rounds(sigma, eps)
    assert found.lower <= truth <= found.upper
    assert found.relative_width < 2e-3


def test_ten_thousand_batches() -> None:
    """M = 10,000 and sigma = 1: total variation 0.0052283, and 2.89e-7 at eps = 0.05 (computed independently)."""
    found = measure(dealt("balls-and-bins", 10_000, 1.0))
    at_zero, beyond = found.delta(0.0), found.delta(0.05)
    assert at_zero.lower <= 0.0052286
    assert at_zero.upper >= 0.0052279
    assert at_zero.relative_width <= 1e-3
    assert 2.88e-7 <= beyond.lower <= beyond.upper <= 2.90e-7
    assert found.closes


@pytest.mark.parametrize("sampler", ["balls-and-bins", "shuffle", "deterministic"])
def test_one_batch_hides_nothing(sampler: str) -> None:
    """With one batch per epoch every such sampler is fixed: mu = sqrt(E)/sigma, in closed form."""
    run = Run(dataset_size=5, batch_size=5, epochs=9, noise_multiplier=4.0, sampler=sampler)
    for eps in (0.0, 1.0):
        truth, found = enumeration.gaussian(mp.mpf("0.75"), eps), measure(run).delta(eps)
        assert found.lower <= truth <= found.upper
        assert found.relative_width < 1e-9


def test_hiding_among_more_batches_leaks_less() -> None:
    """Leakage falls with the number of batches and grows with epochs, and stays below that of fixed batches."""
    epsilons = [measure(dealt("balls-and-bins", batches, 1.0)).epsilon(1e-5) for batches in (1, 2, 10, 100)]
    for fewer, more in itertools.pairwise(epsilons):
        assert more.upper < fewer.lower
    assert measure(dealt("balls-and-bins", 100, 1.0, epochs=3)).epsilon(1e-5).lower > epsilons[-1].upper


# Shuffling, worst case


def test_the_attack_on_one_shuffled_epoch() -> None:
    """T = 1000, sigma = 0.8, eps = 1: the sum test shows 0.01826 where the event of Chua et al. shows 0.01794."""
    found = measure(dealt("shuffle", 1000, 0.8)).delta(1.0)
    assert found.lower >= 0.01826
    assert found.lower <= found.upper
    assert found.lower_evidence.kind is Kind.TEST
    assert found.upper_evidence.kind is Kind.NUMERICAL


@pytest.mark.parametrize(("noise", "epochs"), [(0.8, 1), (2.0, 4)])
def test_the_proof_for_shuffling_is_at_most_fixed_batches(noise: float, epochs: int) -> None:
    """The upper bound is at most delta of N(0, 1) against N(sqrt(E)/sigma, 1), and the lower bound never passes it."""
    found = measure(dealt("shuffle", 100, noise, epochs))
    for eps in (0.0, 0.5, 2.0):
        truth = enumeration.gaussian(mp.sqrt(epochs) / mp.mpf(noise), eps)
        jaws = found.delta(eps)
        assert jaws.lower < jaws.upper <= truth * (1 + mp.mpf(10) ** -9)
    jaws = found.epsilon(1e-5)
    assert enumeration.gaussian(mp.sqrt(epochs) / mp.mpf(noise), jaws.upper * (1 - 1e-9)) >= mp.mpf(1e-5)
    assert jaws.lower < jaws.upper
    assert not found.closes


def test_every_reading_of_shuffling_is_in_order() -> None:
    """Lower bounds stay below upper bounds in all readings, and the guarantee's curve below the attack's."""
    found = measure(dealt("shuffle", 50, 1.0, epochs=2))
    brackets = [found.advantage(), found.separation(), found.gdp().mu, *(found.tpr(a) for a in (1e-4, 0.01, 0.3))]
    brackets += [found.tradeoff(0.1), found.bayes_error(0.3), found.epsilon(1e-3)]
    assert all(0.0 <= bracket.lower < bracket.upper for bracket in brackets)
    assert found.curve(Side.UPPER).is_below(found.curve(Side.LOWER))
    assert 0.0 < found.rdp(2.0).lower < found.rdp(2.0).upper


@pytest.mark.parametrize(
    ("adjacency", "epochs", "gain"), [("zero-out", 1, 1.02), ("substitute", 1, 1.05), ("substitute", 3, 1.02)]
)
def test_the_lower_jaw_takes_the_attack_that_changes_sides(adjacency: str, epochs: int, gain: float) -> None:
    """20 batches, sigma = 4: it shows 2 to 6 % more epsilon than one dataset throughout, and the evidence says how."""
    run = dealt("shuffle", 20, 4.0, epochs).replace(adjacency=adjacency)
    found = measure(run).epsilon(1e-5)
    source = AllocationPair(2.0, 20) if adjacency == "substitute" else ShuffleAttack(4.0, 20)
    assert found.lower > gain * AttackProduct([(source, epochs)]).epsilon(1e-5)[0]
    told = found.lower_evidence.statement
    assert told.startswith("The record changes sides.")
    assert ("In every epoch" in told) == (epochs > 1)
    policy = AdaptiveSignAttack(4.0, 20, tuned=0.0).policy
    assert f"After {', '.join(str(t) for t in np.cumsum(policy.blocks)[:-1])} batches" in told
    assert f"exceeds {found.lower:.10g}." in told


def test_nothing_conjectured_is_reported() -> None:
    """Conjecture 3.2 of Chua et al. is false, so no bracket carries a value that would depend on it."""
    one = measure(dealt("shuffle", 100, 1.0)).epsilon(1e-5)
    assert not hasattr(one, "conjectured")
    assert {one.lower_evidence.kind, one.upper_evidence.kind}.isdisjoint({Kind.CONJECTURE})


def test_the_poisson_claim_is_refuted_for_shuffled_data() -> None:
    """10,000 batches, sigma = 0.5, delta = 1e-6: accounting says eps = 1.95, an attack shows more than 10.99."""
    found = measure(dealt("shuffle", 10_000, 0.5))
    claim, epsilon = found.claim.epsilon(1e-6), found.epsilon(1e-6)
    assert 1.9532 <= claim <= 1.96
    assert claim < epsilon.lower
    assert 10.99478 <= epsilon.lower <= epsilon.upper <= 10.99716


def test_notes_say_what_to_do() -> None:
    """The note of an open bracket names the sampler that closes it; other samplers carry their own conditions."""
    assert any("balls-and-bins" in note for note in measure(dealt("shuffle", 100, 1.0)).notes)
    assert any("isolated view" in note for note in measure(dealt("shuffle", 100, 1.0, view="isolated")).notes)
    assert any("Poisson" in note for note in measure(Run(sample_rate=0.1, steps=1, noise_multiplier=1.0)).notes)
    assert any("no amplification" in note for note in measure(dealt("deterministic", 10, 1.0)).notes)


# Shuffling, isolated view


def test_the_isolated_view_closes_and_is_narrower() -> None:
    """An adversary without the other records faces the balls-and-bins pair, and less than the worst case."""
    isolated = measure(dealt("shuffle", 100, 1.0, view="isolated"))
    worst, independent = measure(dealt("shuffle", 100, 1.0)), measure(dealt("balls-and-bins", 100, 1.0))
    assert isolated.closes
    for reading in (lambda m: m.epsilon(1e-5), lambda m: m.delta(0.2), lambda m: m.advantage()):
        assert reading(isolated).relative_width < 2e-3 < reading(worst).relative_width
        assert overlap(reading(isolated), reading(independent))
        assert reading(isolated).upper < reading(worst).upper


@pytest.mark.parametrize("view", ["worst-case", "isolated"])
@pytest.mark.parametrize(
    ("dataset_size", "kept"),
    [(5, 0.6), (10, 0.9)],
)
def test_a_record_left_out_of_the_epoch_is_not_attacked(view: str, dataset_size: int, kept: float) -> None:
    """If shuffling leaves a record out with probability 1 - kept, no attack on one epoch has a larger advantage."""
    run = Run(dataset_size=dataset_size, batch_size=3, epochs=1, noise_multiplier=0.2, sampler="shuffle", view=view)
    assert measure(run).advantage().lower <= kept


@pytest.mark.parametrize("dataset_size", [11, 25])
def test_a_short_last_batch_hides_less_than_a_full_one(dataset_size: int) -> None:
    """The record is seldom in it: whoever ignores it sees the run that drops it, and that is never above the proof."""
    keys = {"dataset_size": dataset_size, "batch_size": 10, "epochs": 1, "noise_multiplier": 1.0}
    kept = Run(**keys, sampler="shuffle", view="isolated", last_batch="keep")
    dropped, equal = kept.replace(last_batch="drop"), kept.replace(dataset_size=10 * kept.steps_per_epoch)
    for reading in (lambda m: m.epsilon(1e-5), lambda m: m.delta(1.0), lambda m: m.advantage()):
        assert reading(measure(dropped)).lower <= reading(measure(kept)).upper
        assert reading(measure(kept)).lower <= reading(measure(dropped)).upper
        assert reading(measure(equal)).upper < reading(measure(kept)).upper


# Phases and refusals


def test_a_public_divisor_changes_nothing() -> None:
    run = Run(sample_rate=0.1, steps=10, noise_multiplier=1.0)
    divided = measure(run.replace(normalization="constant")).epsilon(1e-5)
    assert overlap(divided, measure(run).epsilon(1e-5))


def test_equal_phases_of_shuffling_compose() -> None:
    """Two phases of one epoch are one run of two."""
    twice, once = measure([dealt("shuffle", 100, 1.0)] * 2), measure(dealt("shuffle", 100, 1.0, epochs=2))
    assert overlap(twice.delta(0.5), once.delta(0.5))
    truth = enumeration.gaussian(mp.sqrt(2), 0.5)
    assert twice.delta(0.5).upper == once.delta(0.5).upper <= truth * (1 + mp.mpf(10) ** -9)


def test_different_pairs_of_datasets_are_refused() -> None:
    with pytest.raises(InputError, match="adjacency"):
        measure([dealt("poisson", 10, 1.0, adjacency="add-remove"), dealt("poisson", 10, 1.0, adjacency="zero-out")])
