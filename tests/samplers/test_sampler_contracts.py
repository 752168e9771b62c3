"""What holds for every draw, at the edges of the parameters, and for wrong input."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.citations import IMPLEMENTATIONS
from calipers.errors import InputError
from calipers.samplers import BallsAndBins, Deterministic, Poisson, Sampler, Shuffle


def draw(sampler: Sampler, seed: int = 0) -> list[np.ndarray]:
    return list(sampler.batches(np.random.default_rng(seed)))


@st.composite
def samplers(draw_):
    size = draw_(st.integers(1, 300))
    batch = draw_(st.integers(1, size))
    epochs = draw_(st.integers(1, 4))
    return draw_(
        st.sampled_from(
            [
                Poisson(dataset_size=size, batch_size=batch, steps=epochs),
                Shuffle(dataset_size=size, batch_size=batch, epochs=epochs),
                BallsAndBins(dataset_size=size, batch_size=batch, epochs=epochs),
                BallsAndBins(dataset_size=size, rounds=batch, epochs=epochs),
                Deterministic(dataset_size=size, batch_size=batch, epochs=epochs),
            ]
        )
    )


@given(sampler=samplers(), seed=st.integers(0, 1000))
def test_batches_keep_the_promises_of_the_law(sampler, seed):
    """Right number of batches; distinct indices in range; fixed sizes; an epoch uses exactly `kept` records once."""
    law = sampler.law()
    batches = draw(sampler, seed)
    assert len(batches) == law.steps
    assert law.kept + law.dropped == law.dataset_size == sampler.dataset_size
    for batch in batches:
        assert batch.dtype == np.int64
        assert len(set(batch.tolist())) == batch.size
        assert batch.size == 0 or (batch.min() >= 0 and batch.max() < law.dataset_size)
        assert not law.fixed_batch_size or batch.size == law.mean_batch_size
    if not isinstance(sampler, Poisson):
        for start in range(0, law.steps, law.rounds):
            used = np.concatenate(batches[start : start + law.rounds])
            assert used.size == len(set(used.tolist())) == law.kept


@given(sampler=samplers())
def test_the_same_seed_gives_the_same_batches(sampler):
    """Batches are a function of the generator's state, and iterating twice does not share state."""
    for a, b in zip(draw(sampler, 5), draw(sampler, 5), strict=True):
        assert np.array_equal(a, b)


def test_another_seed_gives_other_batches():
    """Two seeds disagree, except for the deterministic sampler, which ignores the generator."""
    for sampler in (
        Poisson(dataset_size=1000, batch_size=100, steps=1),
        Shuffle(dataset_size=1000, batch_size=100, epochs=1),
        BallsAndBins(dataset_size=1000, batch_size=100, epochs=1),
    ):
        assert not np.array_equal(draw(sampler, 1)[0], draw(sampler, 2)[0])
    fixed = Deterministic(dataset_size=1000, batch_size=100, epochs=1)
    assert np.array_equal(draw(fixed, 1)[0], draw(fixed, 2)[0])


def test_deterministic_batches_are_consecutive_blocks_in_every_epoch():
    """N = 7, B = 3: records 0-2, 3-5, again and again; record 6 is never used."""
    blocks = [batch.tolist() for batch in draw(Deterministic(dataset_size=7, batch_size=3, epochs=2))]
    assert blocks == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]]


def test_one_record():
    """N = 1: the record is in every batch of the exactly-once samplers' epochs, and in some Poisson batches."""
    for sampler in (
        Shuffle(dataset_size=1, batch_size=1, epochs=3),
        Deterministic(dataset_size=1, batch_size=1, epochs=3),
        BallsAndBins(dataset_size=1, rounds=1, epochs=3),
        Poisson(dataset_size=1, sample_rate=1.0, steps=3),
    ):
        assert [batch.tolist() for batch in draw(sampler)] == [[0]] * 3
    sizes = [batch.size for batch in draw(Poisson(dataset_size=1, sample_rate=0.5, steps=60))]
    assert set(sizes) == {0, 1}
    thrown = draw(BallsAndBins(dataset_size=1, rounds=5, epochs=4))
    assert [sum(b.size for b in thrown[k : k + 5]) for k in range(0, 20, 5)] == [1, 1, 1, 1]


def test_full_and_single_batches():
    """B = N is everything at once, B = 1 one at a time, q = 1 everything every time."""
    assert [sorted(b.tolist()) for b in draw(Shuffle(dataset_size=9, batch_size=9, epochs=2))] == [list(range(9))] * 2
    ones = draw(Shuffle(dataset_size=9, batch_size=1, epochs=1))
    assert sorted(int(b[0]) for b in ones) == list(range(9))
    assert all(b.size == 9 for b in draw(Poisson(dataset_size=9, batch_size=9, steps=4)))


def test_empty_poisson_batches_are_kept():
    """A run of T steps has T batches even when nobody is drawn: an empty batch is still a noisy step."""
    sizes = [batch.size for batch in draw(Poisson(dataset_size=10, sample_rate=0.01, steps=200))]
    assert len(sizes) == 200
    assert 0 in sizes


def test_rounds_may_be_fewer_than_a_data_loader_would_make():
    """N = 10 cut into M = 4 rounds of floor(10/4) = 2 drops 2; a data loader with B = 2 makes 5 rounds."""
    cut = Shuffle(dataset_size=10, batch_size=2, rounds=4, epochs=1).law()
    loader = Shuffle(dataset_size=10, batch_size=2, epochs=1).law()
    assert (cut.rounds, cut.kept, cut.dropped) == (4, 8, 2)
    assert (loader.rounds, loader.kept, loader.dropped) == (5, 10, 0)


def test_replacing_a_field_recomputes_the_rounds():
    """A sampler with other batches keeps no round count from before."""
    changed = dataclasses.replace(Shuffle(dataset_size=100, batch_size=50, epochs=1), batch_size=10)
    assert changed.law().rounds == 10


def test_laws_of_the_four_samplers():
    """The numbers the accounting reads, for a common setting with remainder (N = 60,000, B = 256)."""
    common = {"dataset_size": 60_000, "batch_size": 256}
    poisson = Poisson(**common, steps=14_040).law()
    shuffle = Shuffle(**common, epochs=60).law()
    thrown = BallsAndBins(**common, epochs=60).law()
    fixed = Deterministic(**common, epochs=60).law()
    assert [law.steps for law in (poisson, shuffle, thrown, fixed)] == [14_040] * 4
    assert [law.rounds for law in (poisson, shuffle, thrown, fixed)] == [1, 234, 234, 234]
    assert [law.fixed_batch_size for law in (poisson, shuffle, thrown, fixed)] == [False, True, False, True]
    assert [law.dropped for law in (poisson, shuffle, thrown, fixed)] == [0, 96, 0, 96]
    assert (poisson.rate, shuffle.rate, thrown.rate, fixed.rate) == (256 / 60_000, 256 / 60_000, 1 / 234, 1.0)
    assert (poisson.mean_batch_size, thrown.mean_batch_size) == (256.0, 60_000 / 234)


@pytest.mark.parametrize("bad", [0, -1, 2.5, math.nan, math.inf, True, "8", None, 2**43])
def test_bad_dataset_sizes_are_refused(bad):
    """Name, domain and value are in the message; booleans, strings and NaN lie outside."""
    for make in (
        lambda: Poisson(dataset_size=bad, sample_rate=0.1, steps=1),
        lambda: Shuffle(dataset_size=bad, batch_size=1, epochs=1),
        lambda: BallsAndBins(dataset_size=bad, rounds=1, epochs=1),
        lambda: Deterministic(dataset_size=bad, batch_size=1, epochs=1),
    ):
        with pytest.raises(InputError, match="Expected dataset_size in"):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Poisson(dataset_size=8, steps=1), "exactly one of sample_rate and batch_size"),
        (lambda: Poisson(dataset_size=8, steps=1, sample_rate=0.5, batch_size=4), "exactly one of"),
        (lambda: Poisson(dataset_size=8, steps=1, sample_rate=0.0), "sample_rate"),
        (lambda: Poisson(dataset_size=8, steps=1, sample_rate=1.5), "sample_rate"),
        (lambda: Poisson(dataset_size=8, steps=1, sample_rate=math.nan), "sample_rate"),
        (lambda: Poisson(dataset_size=8, steps=1, batch_size=9), "batch_size"),
        (lambda: Poisson(dataset_size=8, steps=1, batch_size=5e-324), "batch_size / dataset_size"),
        (lambda: Poisson(dataset_size=8, steps=0, sample_rate=0.5), "steps"),
        (lambda: Shuffle(dataset_size=8, batch_size=9, epochs=1), "batch_size"),
        (lambda: Shuffle(dataset_size=8, batch_size=2, epochs=1.5), "epochs"),
        (lambda: Shuffle(dataset_size=8, batch_size=2, epochs=1, rounds=5), "rounds \\* batch_size"),
        (lambda: Deterministic(dataset_size=8, batch_size=2, epochs=1, rounds=0), "rounds"),
        (lambda: BallsAndBins(dataset_size=8, epochs=1), "exactly one of rounds and batch_size"),
        (lambda: BallsAndBins(dataset_size=8, epochs=1, rounds=2, batch_size=4), "exactly one of"),
        (lambda: BallsAndBins(dataset_size=8, epochs=1, batch_size=9), "batch_size"),
        (lambda: BallsAndBins(dataset_size=8, epochs=True, rounds=2), "epochs"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    """Contradictions and values outside their domain are refused where the sampler is built."""
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("rng", [0, None, np.random.RandomState(0)])
def test_only_a_generator_is_accepted_and_at_once(rng):
    """The check does not wait for the first batch, and the message says what to pass."""
    for sampler in (
        Poisson(dataset_size=8, steps=1, sample_rate=0.5),
        Shuffle(dataset_size=8, batch_size=2, epochs=1),
        BallsAndBins(dataset_size=8, rounds=2, epochs=1),
        Deterministic(dataset_size=8, batch_size=2, epochs=1),
    ):
        with pytest.raises(InputError, match="default_rng"):
            sampler.batches(rng)


def test_samplers_are_frozen_and_keyword_only():
    """A sampler cannot change between drawing and accounting."""
    sampler = Poisson(dataset_size=np.int64(8), steps=2.0, sample_rate=1)
    assert (type(sampler.dataset_size), type(sampler.steps), type(sampler.sample_rate)) == (int, int, float)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.steps = 3
    with pytest.raises(TypeError):
        Shuffle(8, 2, 1)


def peak_bytes(sampler: Sampler, steps: int) -> int:
    batches = sampler.batches(np.random.default_rng(0))
    tracemalloc.start()
    for batch in itertools.islice(batches, steps):
        assert batch.size > 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_hundred_million_records_are_never_listed():
    """Poisson needs only its batch; shuffling one bit a record. A list of the indices would take 800 MB."""
    size = 10**8
    assert peak_bytes(Poisson(dataset_size=size, batch_size=4096, steps=5), 5) < 500_000
    assert peak_bytes(Shuffle(dataset_size=size, batch_size=4096, epochs=1), 40) < size / 8 + 6_000_000


def test_balls_and_bins_holds_sizes_and_bits_only():
    """Five million records in an epoch of 1000 rounds: one bit a record and blocks, at its beginning."""
    size = 5_000_000
    assert peak_bytes(BallsAndBins(dataset_size=size, rounds=1000, epochs=1), 5) < size / 8 + 6_000_000


def test_the_published_algorithms_are_registered():
    """Algorithms 2, 3 and 4 of Chua et al. each have exactly one implementation."""
    for key, name in [("alg2", "Deterministic"), ("alg3", "Shuffle"), ("alg4", "Poisson")]:
        assert [thing.rpartition(".")[2] for thing in IMPLEMENTATIONS[f"chua2024:{key}"]] == [name]
