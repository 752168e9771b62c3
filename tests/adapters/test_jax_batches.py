"""Padded batches: one shape, every drawn record in it, and the padding marked."""

from __future__ import annotations

import importlib
import json
import math

import numpy as np
import pytest

from calipers.adapters.jax_batches import PADDING, PaddedBatches, padded_size
from calipers.errors import InputError
from calipers.samplers import BallsAndBins, Deterministic, Poisson, Shuffle

N = 300
SAMPLERS = [
    Poisson(dataset_size=N, batch_size=20, steps=40),
    BallsAndBins(dataset_size=N, batch_size=20, epochs=2),
    Shuffle(dataset_size=N, batch_size=20, epochs=2),
    Deterministic(dataset_size=N, batch_size=20, epochs=2),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_every_batch_is_the_samplers_own_in_one_shape(sampler) -> None:
    """Without the padding the batches are those of the sampler, none cut, none skipped."""
    batches = PaddedBatches(sampler, seed=1)
    assert len(batches) == sampler.law().steps
    found = list(batches)
    assert {batch.indices.shape for batch in found} == {(padded_size(sampler),)}
    assert {batch.indices.dtype for batch in found} == {np.dtype(np.int32)}
    drawn = list(sampler.batches(np.random.default_rng(1)))
    for padded, batch in zip(found, drawn, strict=True):
        assert np.array_equal(padded.indices[~padded.is_padding], batch)
        assert np.all(padded.indices[padded.is_padding] == PADDING)
        assert padded.size == batch.size


def test_fixed_sizes_are_not_padded() -> None:
    assert padded_size(SAMPLERS[2]) == padded_size(SAMPLERS[3]) == 20
    assert not any(batch.is_padding.any() for batch in PaddedBatches(SAMPLERS[2]))


def test_the_default_shape_holds_almost_every_batch() -> None:
    """Binomial(300, 1/15): the exact chance of a batch beyond the shape is below 2^-40."""
    shape = padded_size(SAMPLERS[0])
    rate = 20 / N
    beyond = math.fsum(math.comb(N, k) * rate**k * (1 - rate) ** (N - k) for k in range(shape + 1, N + 1))
    assert beyond < 2**-40
    assert shape < 70
    assert padded_size(Poisson(dataset_size=5, sample_rate=1.0, steps=1)) == 5


def test_a_batch_that_does_not_fit_gets_a_multiple_of_the_shape() -> None:
    """Shape 8, batches of about 20: 16, 24, 32 places, and every record is there."""
    batches = list(PaddedBatches(SAMPLERS[0], seed=2, shape=8))
    assert {len(batch.indices) % 8 for batch in batches} == {0}
    drawn = [batch.size for batch in SAMPLERS[0].batches(np.random.default_rng(2))]
    assert [batch.size for batch in batches] == drawn
    assert [len(batch.indices) for batch in batches] == [8 * max(1, math.ceil(size / 8)) for size in drawn]


def test_an_empty_batch_is_all_padding() -> None:
    """The step is still to be taken: the shape is the usual one."""
    batch = next(PaddedBatches(Poisson(dataset_size=N, sample_rate=1e-9, steps=1), shape=4))
    assert batch.indices.tolist() == [PADDING] * 4
    assert batch.is_padding.all()
    assert batch.size == 0


def test_a_state_continues_the_same_stream() -> None:
    first = PaddedBatches(SAMPLERS[0], seed=3)
    whole = [batch.indices.tolist() for batch in PaddedBatches(SAMPLERS[0], seed=3)]
    seen = [next(first).indices.tolist() for _ in range(13)]
    other = PaddedBatches(SAMPLERS[0])
    other.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert len(other) == 27
    assert seen + [batch.indices.tolist() for batch in other] == whole


def test_bad_shapes_seeds_and_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        PaddedBatches(SAMPLERS[0], shape=0)
    with pytest.raises(InputError, match="seed"):
        PaddedBatches(SAMPLERS[0], seed=1.5)
    with pytest.raises(InputError, match="32-bit"):
        PaddedBatches(Poisson(dataset_size=2**32, batch_size=10, steps=1))


@pytest.mark.jax_privacy
@pytest.mark.filterwarnings("ignore:optax.global_norm:DeprecationWarning")
def test_jax_privacy_clips_and_sums_these_batches() -> None:
    """The lines of the module's docstring: with one-hot records the clipped sum lists the batch, padding left out."""
    privacy = pytest.importorskip("jax_privacy")
    jnp = importlib.import_module("jax.numpy")
    gradient = privacy.clipped_grad(
        lambda params, record, _: params @ record, l2_clip_norm=1.0, batch_argnums=(1, 2), keep_batch_dim=False
    )
    images, labels = jnp.eye(N), jnp.zeros(N)
    sampler = Poisson(dataset_size=N, batch_size=6, steps=5)
    drawn = list(sampler.batches(np.random.default_rng(4)))
    for batch, expected in zip(PaddedBatches(sampler, seed=4), drawn, strict=True):
        found = gradient(
            jnp.zeros(N), images[batch.indices], labels[batch.indices], is_padding_example=batch.is_padding
        )
        assert np.flatnonzero(np.asarray(found)).tolist() == expected.tolist()
