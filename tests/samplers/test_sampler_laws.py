"""Each sampler draws from the law it states, and not from its neighbors' laws.

Six records, three rounds, two records a batch on average: small enough that every law below is an
elementary fraction. All tests have level 1e-6 and fixed seeds.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from calipers.samplers import BallsAndBins, Deterministic, Poisson, Shuffle

N, M, B, EPOCHS = 6, 3, 2, 8000
SAMPLERS = {
    "poisson": Poisson(dataset_size=N, sample_rate=1 / M, steps=M * EPOCHS),
    "shuffle": Shuffle(dataset_size=N, batch_size=B, epochs=EPOCHS),
    "balls-and-bins": BallsAndBins(dataset_size=N, rounds=M, epochs=EPOCHS),
    "deterministic": Deterministic(dataset_size=N, batch_size=B, epochs=EPOCHS),
}


def membership(batches, rounds, records):
    """Array [epoch, round, record]: was the record in the batch?"""
    rows = []
    for batch in batches:
        row = np.zeros(records, dtype=bool)
        row[batch] = True
        rows.append(row)
    return np.array(rows).reshape(-1, rounds, records)


@pytest.fixture(scope="module")
def drawn():
    return {name: membership(sampler.batches(np.random.default_rng(2024)), M, N) for name, sampler in SAMPLERS.items()}


def binomial(trials, rate):
    return {k: math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(trials + 1)}


def pairs(first, second):
    return zip(first.tolist(), second.tolist(), strict=True)


def independent_pair(p):
    return {(True, True): p * p, (True, False): p * (1 - p), (False, True): p * (1 - p), (False, False): (1 - p) ** 2}


@pytest.mark.parametrize("name", ["poisson", "balls-and-bins"])
def test_a_batch_of_independent_records_has_binomial_size(fits, drawn, name):
    """One batch an epoch (independent ones): Binomial(N, 1/M)."""
    for t in range(M):
        assert fits(drawn[name][:, t].sum(axis=1).tolist(), binomial(N, 1 / M))


@pytest.mark.parametrize("name", ["shuffle", "deterministic"])
def test_fixed_size_samplers_always_draw_b_and_are_not_binomial(fits, drawn, name):
    """Every batch has exactly B records, which the binomial law rejects."""
    sizes = drawn[name].sum(axis=2)
    assert np.all(sizes == B)
    assert not fits(sizes[:, 0].tolist(), binomial(N, 1 / M))


def test_balls_and_bins_sizes_add_up_and_poisson_sizes_do_not(fits, drawn):
    """An epoch of balls-and-bins uses N records in all; M Poisson batches use Binomial(M N, 1/M)."""
    totals = drawn["balls-and-bins"].sum(axis=(1, 2))
    assert np.all(totals == N)
    law = binomial(M * N, 1 / M)
    bulk = {k: p for k, p in law.items() if 2 <= k <= 10}
    bulk["tail"] = 1 - sum(bulk.values())
    assert fits((k if k in bulk else "tail" for k in drawn["poisson"].sum(axis=(1, 2)).tolist()), bulk)
    assert not fits(totals.tolist(), bulk)


def test_poisson_participation_is_binomial_over_rounds(fits, drawn):
    """A record joins Binomial(M, q) of M Poisson rounds; exactly-once samplers are rejected."""
    for record in range(N):
        assert fits(drawn["poisson"][:, :, record].sum(axis=1).tolist(), binomial(M, 1 / M))
        assert not fits(drawn["shuffle"][:, :, record].sum(axis=1).tolist(), binomial(M, 1 / M))
        assert not fits(drawn["balls-and-bins"][:, :, record].sum(axis=1).tolist(), binomial(M, 1 / M))


@pytest.mark.parametrize("name", ["shuffle", "balls-and-bins", "deterministic"])
def test_exactly_once_an_epoch(drawn, name):
    """Without remainder every record takes part in exactly one round of every epoch; Poisson does not."""
    assert np.all(drawn[name].sum(axis=1) == 1)
    assert not np.all(drawn["poisson"].sum(axis=1) == 1)


@pytest.mark.parametrize("name", ["shuffle", "balls-and-bins"])
def test_the_round_of_a_record_is_uniform(fits, drawn, name):
    """Uniform over M rounds for each record; the deterministic sampler is rejected."""
    law = dict.fromkeys(range(M), 1 / M)
    for record in range(N):
        assert fits(drawn[name][:, :, record].argmax(axis=1).tolist(), law)
        assert not fits(drawn["deterministic"][:, :, record].argmax(axis=1).tolist(), law)


@pytest.mark.parametrize("name", ["shuffle", "balls-and-bins"])
def test_epochs_are_independent(fits, drawn, name):
    """Rounds of a record in epochs 2k and 2k+1: uniform on M^2 pairs. One permutation for ever is rejected."""
    law = dict.fromkeys(itertools.product(range(M), repeat=2), 1 / M**2)
    rounds = drawn[name].argmax(axis=1)
    for record in range(N):
        assert fits(pairs(rounds[0::2, record], rounds[1::2, record]), law)
    assert not fits(pairs(rounds[0::2, 0], rounds[0::2, 0]), law)


def test_two_records_in_one_batch(fits, drawn):
    """Together with probability 1/M^2 if independent, B(B-1)/(N(N-1)) if shuffled: each law rejects the other."""
    free = independent_pair(1 / M)
    both = B * (B - 1) / (N * (N - 1))
    tied = {(True, True): both, (True, False): B / N - both, (False, True): B / N - both}
    tied[(False, False)] = 1 - sum(tied.values())
    for i, j in [(0, 1), (0, 5), (2, 3)]:
        observed = {name: list(pairs(table[:, 1, i], table[:, 1, j])) for name, table in drawn.items()}
        assert fits(observed["poisson"], free)
        assert fits(observed["balls-and-bins"], free)
        assert fits(observed["shuffle"], tied)
        assert not fits(observed["shuffle"], free)
        assert not fits(observed["poisson"], tied)
        assert not fits(observed["deterministic"], tied)


def test_one_record_in_two_rounds(fits, drawn):
    """Poisson rounds are independent for a record; balls-and-bins and shuffle never use it twice."""
    free = independent_pair(1 / M)
    for record in range(N):
        assert fits(pairs(drawn["poisson"][:, 0, record], drawn["poisson"][:, 1, record]), free)
        for name in ("balls-and-bins", "shuffle"):
            assert not fits(pairs(drawn[name][:, 0, record], drawn[name][:, 1, record]), free)


def test_others_reveal_the_position_exactly_when_sizes_are_fixed(fits, drawn):
    """From the other records' batches: the shuffled record lies where one is missing; otherwise they say nothing."""
    for name, sampler in SAMPLERS.items():
        others = drawn[name][:, :, 1:].sum(axis=2)
        mine = drawn[name][:, :, 0]
        emptiest = others.argmin(axis=1)
        if sampler.law().fixed_batch_size:
            assert np.array_equal(mine.argmax(axis=1), emptiest)
            assert np.all(mine.sum(axis=1) == 1)
        else:
            hits = mine[np.arange(len(mine)), emptiest].tolist()
            assert fits(hits, {True: 1 / M, False: 1 - 1 / M})


@pytest.mark.parametrize(("records", "size"), [(3, 1), (4, 2), (5, 2)])
def test_shuffle_enumerated(fits, records, size):
    """Every ordered sequence of disjoint batches is equally likely, with and without a dropped record."""
    rounds = records // size
    cells = {
        tuple(frozenset(p[t * size : (t + 1) * size]) for t in range(rounds))
        for p in itertools.permutations(range(records))
    }
    sampler = Shuffle(dataset_size=records, batch_size=size, epochs=2500)
    batches = [frozenset(batch.tolist()) for batch in sampler.batches(np.random.default_rng(11))]
    epochs = [tuple(batches[k : k + rounds]) for k in range(0, len(batches), rounds)]
    assert len(epochs) == 2500
    assert fits(epochs, dict.fromkeys(cells, 1 / len(cells)))


def test_the_dropped_record_changes_from_epoch_to_epoch(fits):
    """N = 5, B = 2: each record is dropped with probability 1/5. Always dropping the last one is rejected."""
    law = dict.fromkeys(range(5), 1 / 5)

    def dropped(sampler):
        used = membership(sampler.batches(np.random.default_rng(12)), 2, 5).any(axis=1)
        assert np.all(used.sum(axis=1) == 4)
        return used.argmin(axis=1).tolist()

    assert fits(dropped(Shuffle(dataset_size=5, batch_size=2, epochs=2000)), law)
    assert not fits(dropped(Deterministic(dataset_size=5, batch_size=2, epochs=2000)), law)


def test_balls_and_bins_enumerated(fits):
    """All M^N assignments of four records to two batches are equally likely; shuffling reaches only 6 of the 16."""
    law = dict.fromkeys(itertools.product(range(2), repeat=4), 1 / 16)

    def assignments(sampler):
        table = membership(sampler.batches(np.random.default_rng(13)), 2, 4)
        return [tuple(row) for row in table.argmax(axis=1).tolist()]

    assert fits(assignments(BallsAndBins(dataset_size=4, rounds=2, epochs=3000)), law)
    assert not fits(assignments(Shuffle(dataset_size=4, batch_size=2, epochs=3000)), law)


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_the_stated_law_is_the_drawn_law(drawn, name):
    """rate, mean_batch_size and steps of law() agree with what was drawn, within six standard errors."""
    law = SAMPLERS[name].law()
    table = drawn[name]
    assert law.steps == table.shape[0] * table.shape[1]
    assert law.rounds == (1 if name == "poisson" else M)
    frequencies = table.mean(axis=0)
    slack = 6 * math.sqrt(0.25 / len(table))
    assert abs(frequencies.max() - law.rate) < slack
    assert abs(table.sum(axis=2).mean() - law.mean_batch_size) < slack
    taking_part = 1 - (1 - law.rate) ** M if name == "poisson" else law.kept / law.dataset_size
    assert abs(table.any(axis=1).mean() - taking_part) < slack
