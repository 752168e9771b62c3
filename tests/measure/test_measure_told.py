"""Units of which whoever is told how many take part sees Gaussians: the proof that is left with next to no noise."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import NoReturn

import numpy as np
import pytest

import calipers as cp
from calipers.errors import CertificationError
from calipers.measure.bounds import MaximumBound, MinimumBound
from calipers.measure.units import RevealedCountsProof
from calipers.numerics.normal import gaussian_delta
from calipers.pld.core.drawn_shift import Shifts

NOISE = 0.8


def moved(sampler: str, adjacency: str, size: int, batch: int, records: int) -> Counter[float]:
    """By how much the best gradients move one step's sum, every draw that there is counted once.

    The unit's records are the first; their gradients are 1, and 0 or -1 on the other dataset.
    """
    draw = itertools.product(range(size), repeat=batch)
    if sampler == "without-replacement":
        draw = itertools.combinations(range(size), batch)  # type: ignore[assignment]
    found: Counter[float] = Counter()
    for places in draw:
        drawn = sum(place < records for place in places)
        found[float(drawn if adjacency == "zero-out" else 2 * drawn)] += 1
    return found


@pytest.mark.parametrize("sampler", ["without-replacement", "with-replacement"])
@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_enumerated_draws_of_two_steps_are_covered(sampler: str, adjacency: str) -> None:
    """Given the lengths of all steps the run is one Gaussian of the root of their squares; its mean is enumerated."""
    size, batch, records, steps = 6, 3, 2, 2
    one = moved(sampler, adjacency, size, batch, records)
    total = sum(one.values())
    run = cp.Run(
        sampler=sampler, dataset_size=size, batch_size=batch, steps=steps, noise_multiplier=NOISE, adjacency=adjacency,
        unit="user", records_per_unit=records,
    )  # fmt: skip
    parts = cp.measure(run).evaluation.upper.parts  # type: ignore[attr-defined]
    (told,) = (part for part in parts if isinstance(part, RevealedCountsProof))
    assert [length * NOISE for length in told.steps[0][0].lengths] == pytest.approx(sorted(one))
    assert list(told.steps[0][0].weights) == pytest.approx([one[length] / total for length in sorted(one)])
    for epsilon in (0.0, 1.0, 5.0, 12.0):
        exact = 0.0
        for lengths in itertools.product(one, repeat=steps):
            chance = math.prod(one[length] / total for length in lengths)
            mu = math.hypot(*lengths) / NOISE
            exact += chance * float(gaussian_delta(mu, epsilon)) if mu > 0.0 else 0.0
        assert exact <= told.delta(epsilon, 1e-3).value
        assert told.epsilon(exact, 1e-3).value >= epsilon
        assert exact <= float(told.curve(1e-12, 1e-3).delta(epsilon)) + 1e-15


def test_truncated_batches_move_by_those_kept_and_those_displaced() -> None:
    """Three others and a unit of two, coins of 0.4, at most two in a batch: every outcome of the coins, enumerated."""
    size, records, limit, rate = 5, 2, 2, 0.4
    joined: Counter[float] = Counter()
    for others, own in itertools.product(range(size - records + 1), range(records + 1)):
        chance = math.comb(size - records, others) * rate**others * (1 - rate) ** (size - records - others)
        chance *= math.comb(records, own) * rate**own * (1 - rate) ** (records - own)
        kept, ways = min(limit, others + own), math.comb(others + own, min(limit, others + own))
        for k in range(max(0, kept - others), min(own, kept) + 1):
            gone = min(others, limit) - (kept - k)
            joined[float(k + gone)] += chance * math.comb(own, k) * math.comb(others, kept - k) / ways
    run = cp.Run(
        sampler="truncated-poisson", dataset_size=size, sample_rate=rate, max_batch_size=limit, steps=1,
        noise_multiplier=NOISE, unit="user", records_per_unit=records,
    )  # fmt: skip
    above = cp.measure(run).evaluation.upper
    jaws = [part for bound in getattr(above, "parts", [above]) for part in getattr(bound, "parts", [bound])]
    for told in (part for part in jaws if isinstance(part, RevealedCountsProof)):
        lengths, weights = (np.array(part) for part in (told.steps[0][0].lengths, told.steps[0][0].weights))
        for length in range(1, 5):  # it covers both neighbors, so it may be larger, not smaller
            tail = sum(chance for moves, chance in joined.items() if moves >= length)
            assert float(np.sum(weights[lengths * NOISE > length - 0.5])) >= tail * (1.0 - 1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_never_below_an_attack(seed: int) -> None:
    """Random units, samplers and relations, from hardly any noise to some."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(50, 1000))
    keys: dict[str, object] = {"dataset_size": size, "batch_size": int(rng.integers(2, size // 3))}
    sampler = str(rng.choice(["without-replacement", "with-replacement", "truncated-poisson"]))
    if sampler == "truncated-poisson":
        keys = {"dataset_size": size, "sample_rate": float(rng.uniform(0.01, 0.3))}
        keys["max_batch_size"] = int(max(1, size * keys["sample_rate"] * rng.uniform(0.7, 1.5)))  # type: ignore[operator]
    adjacency = str(rng.choice(["zero-out", "substitute"]))
    run = cp.Run(
        **keys, sampler=sampler, adjacency=adjacency, steps=int(rng.integers(1, 30)), unit="user",  # type: ignore[arg-type]
        noise_multiplier=float(10 ** rng.uniform(-1.3, 0.5)), records_per_unit=int(rng.integers(2, 12)),
    )  # fmt: skip
    found, delta = cp.measure(run).evaluation, float(10 ** rng.uniform(-9, -2))
    (told,) = (part for part in found.upper.parts if isinstance(part, RevealedCountsProof))  # type: ignore[attr-defined]
    shown = found.lower.epsilon(delta, 1e-3).value
    assert shown <= told.epsilon(delta, 1e-3).value < math.inf
    assert found.lower.delta(0.5 * shown, 1e-3).value <= told.delta(0.5 * shown, 1e-3).value


def test_next_to_no_noise_has_a_finite_proof() -> None:
    """Laws on a lattice end before the log ratios of such steps do; the whole page is answered."""
    run = cp.Run(
        sampler="without-replacement", dataset_size=6_000, batch_size=600, steps=100, noise_multiplier=0.3,
        adjacency="substitute", unit="user", records_per_unit=200,
    )  # fmt: skip
    m = cp.measure(run)
    found = m.epsilon(1e-5)
    assert found.lower <= found.upper < 1.1 * found.lower
    assert "revealed" in found.upper_evidence.statement
    assert m.delta(0.5 * found.lower).upper <= 1.0
    assert m.tpr(1e-3).upper <= 1.0


@pytest.mark.parametrize("sampler", ["poisson", "truncated-poisson"])
def test_totals_that_no_lattice_holds_are_bracketed(sampler: str) -> None:
    """The sum of log ratios of a large unit with hardly any noise, simulated: mean and deviation of one step."""
    size, records, rate, noise, steps = 60_000, 200, 0.1, 0.05, 100_000
    run = cp.Run(
        sampler=sampler, dataset_size=size, batch_size=6_000, steps=steps, noise_multiplier=noise, unit="user",
        max_batch_size=6_900 if sampler == "truncated-poisson" else None, records_per_unit=records,
    )  # fmt: skip
    m, rng = cp.measure(run), np.random.default_rng(0)
    moved = rng.binomial(records, rate, 10**6) / noise
    # Noise so small tells how many have joined: what is left of log L is half of the square.
    ratios = 0.5 * np.square(moved) + moved * rng.standard_normal(10**6)
    center, deviation = steps * ratios.mean(), math.sqrt(steps) * ratios.std()
    found = m.epsilon(1e-5)
    slack = 4.0 * deviation * math.sqrt(steps / 10**6)
    assert center - 1.5 * deviation - slack <= found.lower <= center + 4.3 * deviation + slack
    assert center + 4.2 * deviation - slack <= found.upper <= center + 6.0 * deviation + slack
    assert m.delta(0.5 * found.lower).lower > 0.99
    assert m.gdp().mu.lower > 70.0


def test_rare_lengths_are_charged() -> None:
    """A length that hardly ever occurs: epsilon at a delta above its probability does not see it, below it does."""
    told = RevealedCountsProof(((Shifts.of([0.0, 1.0, 100.0], [0.5, 0.5 - 1e-8, 1e-8]), 1),))
    assert told.epsilon(1e-3, 1e-3).value < 10.0
    assert told.epsilon(1e-9, 1e-3).value > 0.4 * 100.0**2
    assert told.delta(0.3 * 100.0**2, 1e-3).value >= 1e-8 * (1.0 - 1e-6)


class Refusing(RevealedCountsProof):
    """Answers nothing."""

    def epsilon(self, delta: float, tolerance: float) -> NoReturn:
        """Refuses."""
        raise CertificationError("Too far.")


def test_who_cannot_answer_leaves_it_to_the_others_but_not_the_neighbors() -> None:
    """Proofs compete, so one that refuses is no loss; a neighbor that is not proven is no guarantee."""
    steps = ((Shifts.of([0.0, 1.0], [0.5, 0.5]), 3),)
    told, refusing = RevealedCountsProof(steps), Refusing(steps)
    assert MinimumBound((told, refusing)).epsilon(1e-5, 1e-3) == told.epsilon(1e-5, 1e-3)
    for none in (MinimumBound((refusing, refusing)), MaximumBound((told, refusing)), MaximumBound((refusing, told))):
        with pytest.raises(CertificationError):
            none.epsilon(1e-5, 1e-3)
