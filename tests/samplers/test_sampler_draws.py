"""The exact draws: every outcome of tiny cases is counted, and named wrong methods are caught."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaincc

from calipers.samplers.draws import BLOCK, bernoulli_indices, permuted, sliced, throw


def drain(size, rng, **options):
    return np.concatenate(list(permuted(size, rng, **options)))


def uniform(outcomes):
    outcomes = list(outcomes)
    return dict.fromkeys(outcomes, 1 / len(outcomes))


def biased_fisher_yates(size, rng):
    """The classical mistake: every position is swapped with any position, not with a later one."""
    entries = list(range(size))
    for here in range(size):
        there = int(rng.integers(size))
        entries[here], entries[there] = entries[there], entries[here]
    return entries


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="dense"),
        pytest.param({"dense_limit": 0, "block": 1}, id="one-by-one"),
        pytest.param({"dense_limit": 0, "block": 3}, id="in-pieces"),
        pytest.param({"dense_limit": 2, "block": 2}, id="both-phases"),
    ],
)
def test_every_permutation_of_four_is_equally_likely(fits, options):
    """All 24 permutations have probability 1/24 by every route."""
    rng = np.random.default_rng(1)
    law = uniform(itertools.permutations(range(4)))
    assert fits((tuple(drain(4, rng, **options).tolist()) for _ in range(3000)), law)


def test_the_biased_shuffle_is_rejected(fits):
    """Swapping with any position gives probabilities 4/27 and 5/27 instead of 1/6 on three records."""
    rng = np.random.default_rng(2)
    law = uniform(itertools.permutations(range(3)))
    assert not fits((tuple(biased_fisher_yates(3, rng)) for _ in range(6000)), law)
    assert fits((tuple(drain(3, rng, dense_limit=0).tolist()) for _ in range(6000)), law)


@given(size=st.integers(1, 3000), limit=st.integers(0, 3000), block=st.integers(1, 700), seed=st.integers(0, 99))
def test_permuted_is_a_permutation(size, limit, block, seed):
    """Whatever the sizes of the pieces, every record comes exactly once."""
    rng = np.random.default_rng(seed)
    assert np.array_equal(np.sort(drain(size, rng, dense_limit=limit, block=block)), np.arange(size))


def test_position_of_a_record_in_a_long_stream_is_uniform(fits):
    """Across the change from drawing to listing, a record's place has the uniform law on ten tenths."""
    size = 100
    rng = np.random.default_rng(3)
    law = uniform(range(10))
    streams = [drain(size, rng, dense_limit=0, block=40) for _ in range(1200)]
    for record in (0, 7, 8, size - 1):
        assert fits((int(np.flatnonzero(stream == record)[0]) * 10 // size for stream in streams), law)
    assert not fits((int(np.flatnonzero(np.sort(s) == 7)[0]) * 10 // size for s in streams), law)


def test_the_whole_stream_needs_nine_eighths_of_a_byte_a_record():
    """Listing an eighth of the records as int64 beside one bit each: at most 1.25 bytes with slack for blocks."""
    size = 2_000_000
    rng = np.random.default_rng(4)
    tracemalloc.start()
    total = sum(piece.size for piece in permuted(size, rng, dense_limit=0, block=4096))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == size
    assert peak < 1.25 * size + 500_000


@pytest.mark.parametrize(("rate", "block"), [(0.3, BLOCK), (0.9, BLOCK), (0.3, 1), (0.8, 2)])
def test_every_subset_has_its_product_probability(fits, rate, block):
    """All 8 subsets of three records: q^k (1-q)^(3-k), also where one block of gaps ends and the next begins."""
    rng = np.random.default_rng(5)
    law = {
        subset: rate ** len(subset) * (1 - rate) ** (3 - len(subset))
        for k in range(4)
        for subset in itertools.combinations(range(3), k)
    }
    assert fits((tuple(bernoulli_indices(3, rate, rng, block=block).tolist()) for _ in range(15000)), law)


def test_drawing_with_replacement_is_not_bernoulli(fits):
    """A binomial number of draws with replacement, duplicates merged, is rejected: it includes too rarely."""
    rng = np.random.default_rng(6)
    rate = 0.3
    law = {
        subset: rate ** len(subset) * (1 - rate) ** (3 - len(subset))
        for k in range(4)
        for subset in itertools.combinations(range(3), k)
    }

    def with_replacement():
        count = int((rng.random(3) < rate).sum())
        return tuple(sorted(set(rng.integers(3, size=count).tolist())))

    assert not fits((with_replacement() for _ in range(15000)), law)


@pytest.mark.parametrize(("size", "rate", "draws"), [(10**8, 1e-4, 100), (10**6, 0.5, 5), (3 * BLOCK, 0.99, 5)])
def test_counts_and_places_at_scale(size, rate, draws):
    """Sizes are Binomial(N, q) and places uniform, also over several blocks; a rate 3% off is noticed."""
    rng = np.random.default_rng(7)
    batches = [bernoulli_indices(size, rate, rng) for _ in range(draws)]
    sizes = np.array([batch.size for batch in batches])
    spread = size * rate * (1 - rate)
    p_size = gammaincc(draws / 2, ((sizes - size * rate) ** 2).sum() / spread / 2)
    wrong = 1.03 * rate if rate < 0.9 else 0.97 * rate
    p_wrong = gammaincc(draws / 2, ((sizes - size * wrong) ** 2).sum() / (size * wrong * (1 - wrong)) / 2)
    assert p_size > 1e-6 > p_wrong
    cells = np.bincount(np.concatenate(batches) * 32 // size, minlength=32)
    edges = -(-np.arange(33) * size // 32)
    expected = draws * rate * np.diff(edges)
    p_place = gammaincc(16, ((cells - expected) ** 2 / (expected * (1 - rate))).sum() / 2)
    assert p_place > 1e-6


def test_neighboring_indices_are_independent():
    """P(i and i+1 both drawn) = q^2 over a million disjoint pairs, within five standard errors."""
    rng = np.random.default_rng(8)
    drawn = np.zeros(2_000_000, dtype=bool)
    drawn[bernoulli_indices(drawn.size, 0.2, rng)] = True
    both = np.count_nonzero(drawn[0::2] & drawn[1::2])
    assert abs(both - 40_000) < 5 * math.sqrt(1e6 * 0.04 * 0.96)


def test_rate_one_takes_everything_and_tiny_rates_nothing():
    """q = 1 is the whole dataset; a rate at the edge of the floating-point numbers gives no warning and no record."""
    rng = np.random.default_rng(9)
    assert np.array_equal(bernoulli_indices(5, 1.0, rng), np.arange(5))
    assert bernoulli_indices(2**42, 5e-324, rng).size == 0
    assert np.array_equal(bernoulli_indices(5, 1 - 2**-53, rng), np.arange(5))


@given(size=st.integers(1, 10**6), rate=st.floats(1e-9, 1.0), seed=st.integers(0, 99))
def test_bernoulli_indices_are_increasing_and_in_range(size, rate, seed):
    """Strictly increasing (so distinct), between 0 and N - 1."""
    indices = bernoulli_indices(size, rate, np.random.default_rng(seed))
    assert indices.dtype == np.int64
    assert np.all(np.diff(indices) > 0)
    assert indices.size == 0 or (indices[0] >= 0 and indices[-1] < size)


def test_throws_are_multinomial(fits):
    """Three balls into two bins: the count of the first is Binomial(3, 1/2); sums are exact."""
    rng = np.random.default_rng(10)
    counts = [tuple(throw(3, 2, rng).tolist()) for _ in range(4000)]
    assert fits(counts, {(3, 0): 1 / 8, (2, 1): 3 / 8, (1, 2): 3 / 8, (0, 3): 1 / 8})
    assert not fits(counts, {(3, 0): 1 / 4, (2, 1): 1 / 4, (1, 2): 1 / 4, (0, 3): 1 / 4})
    assert int(throw(3 * BLOCK + 1, 7, rng).sum()) == 3 * BLOCK + 1


def test_slices_follow_the_stream():
    """Pieces of any size become slices of any size, empty ones included, in order and each owns its memory."""
    pieces = iter([np.arange(0, 4), np.arange(4, 5), np.arange(5, 10)])
    parts = list(sliced(pieces, iter([0, 3, 3, 0, 4])))
    assert [part.tolist() for part in parts] == [[], [0, 1, 2], [3, 4, 5], [], [6, 7, 8, 9]]
    assert all(part.flags.owndata for part in parts)
