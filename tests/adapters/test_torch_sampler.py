"""Batches for `DataLoader`: the sampler's own, whatever the workers, and resumable; no PyTorch needed to draw them."""

from __future__ import annotations

import importlib
import json
import math

import numpy as np
import pytest

from calipers.adapters.torch_sampler import CollateWithEmpty, TorchBatches
from calipers.errors import InputError
from calipers.samplers import BallsAndBins, Deterministic, Poisson, Shuffle
from calipers.samplers.stream import BatchStream

N = 50
SAMPLERS = {
    "poisson": Poisson(dataset_size=N, batch_size=5, steps=30),
    "shuffle": Shuffle(dataset_size=N, batch_size=7, epochs=3),
    "balls-and-bins": BallsAndBins(dataset_size=N, rounds=6, epochs=3),
    "deterministic": Deterministic(dataset_size=N, batch_size=7, epochs=3),
}


def expected(name, seed=1):
    return [batch.tolist() for batch in SAMPLERS[name].batches(np.random.default_rng(seed))]


def all_epochs(batches, length):
    found = []
    while batches.position < length:
        found.extend(batches)
    return found


@pytest.mark.parametrize("name", list(SAMPLERS))
@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"])
def test_a_stream_taken_up_again_after_every_batch_is_the_same_stream(name, bits) -> None:
    """Through JSON and back after each batch, with every generator numpy has."""
    sampler = SAMPLERS[name]

    def generator():
        return np.random.Generator(getattr(np.random, bits)(5))

    stream = BatchStream(sampler, generator())
    found = []
    for _ in range(sampler.law().steps):
        stream = BatchStream.resumed(sampler, json.loads(json.dumps(stream.state())))
        found.append(next(stream).tolist())
    assert found == [batch.tolist() for batch in sampler.batches(generator())]
    with pytest.raises(StopIteration):
        next(BatchStream.resumed(sampler, stream.state()))


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_epochs_follow_one_another_and_then_end(name) -> None:
    """The batches of all epochs are those of the sampler; one epoch more is refused, not silently empty."""
    batches = TorchBatches(SAMPLERS[name], seed=1)
    whole = expected(name)
    assert len(batches) == {"poisson": 10, "shuffle": 7, "balls-and-bins": 6, "deterministic": 7}[name]
    assert list(batches) == whole[: len(batches)]
    assert [*whole[: len(batches)], *all_epochs(batches, len(whole))] == whole
    with pytest.raises(InputError, match="are taken"):
        iter(batches)


@pytest.mark.parametrize("name", list(SAMPLERS))
@pytest.mark.parametrize("taken", [0, 1, 6, 7, 13])
def test_a_state_continues_the_same_stream(name, taken) -> None:
    first = TorchBatches(SAMPLERS[name], seed=1)
    seen = []
    while len(seen) < taken:
        for batch in first:
            seen.append(batch)
            if len(seen) == taken:
                break
    other = TorchBatches(SAMPLERS[name])
    other.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert seen + all_epochs(other, len(expected(name))) == expected(name)


def test_batches_drawn_ahead_are_not_lost() -> None:
    """A loader with workers has drawn 9 when the loop has used 4: the state of 4 gives the fifth batch next."""
    ahead = TorchBatches(SAMPLERS["shuffle"], seed=1)
    drawing = iter(ahead)
    for _ in range(6):
        next(drawing)
    other = TorchBatches(SAMPLERS["shuffle"])
    other.load_state_dict(ahead.state_dict(taken=4))
    assert next(iter(other)) == expected("shuffle")[4]
    with pytest.raises(InputError, match="taken"):
        ahead.state_dict(taken=7)
    with pytest.raises(InputError, match="taken"):
        other.state_dict(taken=3)


def test_states_of_other_samplers_and_damaged_ones_are_refused() -> None:
    state = TorchBatches(SAMPLERS["shuffle"], seed=1).state_dict()
    with pytest.raises(InputError, match="another sampler"):
        TorchBatches(SAMPLERS["poisson"]).load_state_dict(state)
    for damage in ({"position": 99}, {"generator": {"bit_generator": "Dice"}}, {"taken": 3}):
        with pytest.raises(InputError):
            TorchBatches(SAMPLERS["shuffle"]).load_state_dict(state | damage)
    with pytest.raises(InputError, match="without sampler"):
        TorchBatches(SAMPLERS["shuffle"]).load_state_dict({})


def test_the_length_of_a_poisson_epoch_can_be_chosen() -> None:
    """12 steps an epoch of 30: 12, 12 and 6."""
    batches = TorchBatches(SAMPLERS["poisson"], seed=1, steps_per_epoch=12)
    assert [len(list(batches)) for _ in range(3)] == [12, 12, 6]
    with pytest.raises(InputError, match="epochs of its own"):
        TorchBatches(SAMPLERS["shuffle"], steps_per_epoch=3)
    with pytest.raises(InputError, match="sampler"):
        TorchBatches([[1, 2]])
    with pytest.raises(InputError, match="seed"):
        TorchBatches(SAMPLERS["shuffle"], seed=-1)


@pytest.fixture
def data():
    """`torch.utils.data`, and a dataset of (features, label) records."""
    torch = importlib.import_module("torch")
    loading = importlib.import_module("torch.utils.data")
    features = torch.arange(2 * N, dtype=torch.float32).reshape(N, 2)
    return loading, loading.TensorDataset(features, torch.arange(N))


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["poisson", "shuffle"])
def test_a_loader_gives_the_samplers_batches_whatever_the_workers(data, name, workers) -> None:
    loading, dataset = data
    batches = TorchBatches(SAMPLERS[name], seed=1)
    loader = loading.DataLoader(
        dataset, batch_sampler=batches, num_workers=workers, collate_fn=CollateWithEmpty(dataset)
    )
    assert len(loader) == len(batches)
    found = [labels.tolist() for _ in range(3) for _, labels in loader]
    assert found == expected(name)


@pytest.mark.torch
def test_empty_batches_have_the_shape_of_a_record_and_no_rows(data) -> None:
    loading, dataset = data
    sampler = Poisson(dataset_size=N, sample_rate=1e-9, steps=2)
    loader = loading.DataLoader(dataset, batch_sampler=TorchBatches(sampler), collate_fn=CollateWithEmpty(dataset))
    features, labels = next(iter(loader))
    assert (tuple(features.shape), tuple(labels.shape)) == ((0, 2), (0,))
    nested = CollateWithEmpty([{"a": 1.0, "b": (2, 3)}])
    assert {key: len(value) for key, value in nested([]).items()} == {"a": 0, "b": 2}
    assert nested([{"a": 1.0, "b": (2, 3)}])["a"].tolist() == [1.0]


@pytest.mark.torch
@pytest.mark.opacus
def test_opacus_trains_on_these_batches() -> None:
    """The two lines of the module's docstring in an Opacus script; empty batches included (mean size 2 of 50)."""
    opacus = pytest.importorskip("opacus")
    torch = importlib.import_module("torch")
    loading = importlib.import_module("torch.utils.data")
    dataset = loading.TensorDataset(torch.eye(N), torch.zeros(N, 1))
    sampler = Poisson(dataset_size=N, batch_size=2, steps=25)
    batches = TorchBatches(sampler, seed=3)
    loader = loading.DataLoader(dataset, batch_sampler=batches, collate_fn=CollateWithEmpty(dataset))
    model = torch.nn.Linear(N, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    opacus_library = importlib.import_module("calipers.adapters.opacus_library")
    with opacus_library.quiet_engine():
        model, optimizer, loader = opacus.PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=0.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            loss_reduction="sum",
        )
        used = []
        for features, _ in loader:
            optimizer.zero_grad()
            model(features).sum().backward()
            optimizer.step()
            used.append(optimizer.params[0].grad.flatten().nonzero().flatten().tolist())
    drawn = [batch.tolist() for batch in sampler.batches(np.random.default_rng(3))]
    assert used == drawn
    assert any(not batch for batch in drawn)
    assert math.isclose(np.mean([len(batch) for batch in drawn]), 2, abs_tol=1.5)
