"""Fixed size, truncated, cyclic and allocated batches come from the laws they state. Level 1e-6, fixed seeds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.samplers import BallsAndBins, CyclicPoisson, FixedSize, RandomAllocation, Shuffle, TruncatedPoisson
from calipers.samplers.stream import BatchStream

DRAWS = 6000
EVERYONE = [
    FixedSize(dataset_size=6, batch_size=2, steps=12),
    FixedSize(dataset_size=6, batch_size=2, steps=12, replacement=True),
    TruncatedPoisson(dataset_size=6, sample_rate=0.5, steps=12, max_batch_size=3),
    CyclicPoisson(dataset_size=7, sample_rate=0.5, steps=12, cycle=3),
    RandomAllocation(dataset_size=6, steps=12, participations=2),
    BallsAndBins(dataset_size=6, rounds=3, epochs=4, reshuffle="once"),
    Shuffle(dataset_size=6, batch_size=2, epochs=4, reshuffle="once"),
]


def drawn(sampler, seed=3):
    return [tuple(int(i) for i in batch) for batch in sampler.batches(np.random.default_rng(seed))]


def binomial(trials, rate):
    return {k: math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(trials + 1)}


def test_every_set_is_equally_likely_without_replacement(fits):
    """Fifteen pairs of six records; draws with replacement are rejected."""
    law = dict.fromkeys(itertools.combinations(range(6), 2), 1 / 15)
    assert fits(drawn(FixedSize(dataset_size=6, batch_size=2, steps=DRAWS)), law)
    put_back = drawn(FixedSize(dataset_size=6, batch_size=2, steps=DRAWS, replacement=True))
    assert not all(a < b for a, b in put_back)
    assert fits(put_back, dict.fromkeys(itertools.product(range(6), repeat=2), 1 / 36))


def test_small_batches_of_large_datasets_are_sets():
    """The other way of drawing: distinct, in range, and every record about equally often."""
    batches = drawn(FixedSize(dataset_size=1000, batch_size=20, steps=500))
    assert all(len(set(batch)) == 20 and min(batch) >= 0 and max(batch) < 1000 for batch in batches)
    seen = np.bincount(np.concatenate(batches), minlength=1000)
    assert abs(seen.std() - math.sqrt(500 * 0.02 * 0.98)) < 0.5


def test_truncated_sizes_and_who_is_kept(fits):
    """Sizes are min(Binomial, limit), and in a full batch every set of so many is equally likely."""
    batches = drawn(TruncatedPoisson(dataset_size=5, sample_rate=0.5, steps=DRAWS, max_batch_size=2))
    free = binomial(5, 0.5)
    law = {0: free[0], 1: free[1], 2: 1 - free[0] - free[1]}
    assert fits([len(batch) for batch in batches], law)
    assert not fits([len(batch) for batch in batches], {0: free[0], 1: free[1] + 0.05, 2: law[2] - 0.05})
    full = [batch for batch in batches if len(batch) == 2]
    assert fits(full, dict.fromkeys(itertools.combinations(range(5), 2), 1 / 10))


def test_groups_take_turns(fits):
    """Record i in steps i mod 3 only, by coins; a coin of another rate is rejected."""
    batches = drawn(CyclicPoisson(dataset_size=7, sample_rate=0.4, steps=DRAWS, cycle=3))
    for step, batch in enumerate(batches):
        assert all(i % 3 == step % 3 for i in batch)
    sizes = [len(batch) for batch in batches[::3]]  # records 0, 3 and 6
    assert fits(sizes, binomial(3, 0.4))
    assert not fits(sizes, binomial(3, 0.5))


def test_every_record_in_exactly_k_steps(fits):
    """Each of the ten pairs of five steps, equally likely for every record, and records are independent."""
    places = []
    for seed in range(600):
        steps = [[] for _ in range(10)]
        for step, batch in enumerate(drawn(RandomAllocation(dataset_size=10, steps=5, participations=2), seed)):
            for record in batch:
                steps[record].append(step)
        places.extend(tuple(found) for found in steps)
    assert all(len(found) == 2 for found in places)
    assert fits(places, dict.fromkeys(itertools.combinations(range(5), 2), 1 / 10))


def test_bins_that_are_kept_are_the_same_in_every_epoch():
    batches = drawn(BallsAndBins(dataset_size=50, rounds=5, epochs=3, reshuffle="once"))
    assert batches[:5] == batches[5:10] == batches[10:]
    anew = drawn(BallsAndBins(dataset_size=50, rounds=5, epochs=3))
    assert anew[:5] != anew[5:10]


ANEW = [BallsAndBins(dataset_size=6, rounds=3, epochs=4), Shuffle(dataset_size=6, batch_size=2, epochs=4)]


@pytest.mark.parametrize("sampler", [*EVERYONE, *ANEW], ids=lambda sampler: sampler.law().sampler)
def test_an_interrupted_stream_goes_on(sampler):
    """At every place, with the batches it would have had."""
    whole = [tuple(batch) for batch in BatchStream(sampler, np.random.default_rng(5))]
    assert len(whole) == sampler.law().steps == 12
    for place in range(12):
        stream = BatchStream(sampler, np.random.default_rng(5))
        for _ in range(place):
            next(stream)
        assert [tuple(batch) for batch in BatchStream.resumed(sampler, stream.state())] == whole[place:]


@pytest.mark.parametrize("sampler", EVERYONE, ids=lambda sampler: sampler.law().sampler)
def test_the_run_of_a_sampler_draws_with_that_sampler(sampler):
    from calipers.samplers import scheme_of
    from calipers.training.plan import run_of

    run = run_of(sampler, noise_multiplier=1.0, adjacency="zero-out")
    assert run.sampler == sampler.law().sampler
    assert drawn(scheme_of(run).sampler(run)) == drawn(sampler)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (FixedSize, {"dataset_size": 5, "batch_size": 6, "steps": 1}),
        (TruncatedPoisson, {"dataset_size": 5, "batch_size": 2, "steps": 1, "max_batch_size": 0}),
        (CyclicPoisson, {"dataset_size": 5, "sample_rate": 0.5, "steps": 1, "cycle": 6}),
        (RandomAllocation, {"dataset_size": 5, "steps": 3, "participations": 4}),
        (RandomAllocation, {"dataset_size": 2**30, "steps": 3, "participations": 3}),
        (BallsAndBins, {"dataset_size": 5, "rounds": 3, "epochs": 1, "reshuffle": "never"}),
    ],
)
def test_what_cannot_be_drawn_is_refused(kind, settings):
    with pytest.raises(InputError):
        kind(**settings)
