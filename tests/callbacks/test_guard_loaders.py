"""Loaders that a guard can see into: what cannot be the declared sampling is refused, for a run and for a filter.

1290 records in shuffled batches of 40 at noise 1: after four epochs an attack shows epsilon 11.53, and a filter of
Poisson steps at the same rate says 3.
"""

from __future__ import annotations

from typing import Any

import pytest

from calipers.adaptive import PrivacyFilter
from calipers.callbacks import BudgetGuard
from calipers.errors import InputError
from calipers.run import Run

pytestmark = pytest.mark.torch
RECORDS, BATCH, DELTA = 1290, 40, 1e-5
POISSON = Run(dataset_size=RECORDS, sample_rate=BATCH / RECORDS, steps=1, noise_multiplier=1.0)
SHUFFLED = Run(dataset_size=RECORDS, batch_size=BATCH, epochs=1, noise_multiplier=4.0, sampler="shuffle")


@pytest.fixture(scope="module")
def data() -> Any:
    return pytest.importorskip("torch.utils.data")


def made(data: Any, kind: str, batch_size: int = BATCH) -> Any:
    """A loader in batches of one size, by the name of its sampler."""
    torch = pytest.importorskip("torch")
    dataset = data.TensorDataset(torch.zeros(RECORDS, 1))

    class Own(data.Sampler):
        def __iter__(self):
            return iter(range(RECORDS))

        def __len__(self):
            return RECORDS

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(torch.zeros(RECORDS, 1))

    samplers = {
        "weighted": lambda: data.WeightedRandomSampler([1.0] * RECORDS, RECORDS),
        "distributed": lambda: data.DistributedSampler(dataset, num_replicas=1, rank=0),
        "own": Own,
    }
    if kind == "stream":
        return data.DataLoader(Stream(), batch_size=batch_size)
    if kind == "sampler of batches":
        return data.DataLoader(dataset, batch_size=None, sampler=data.BatchSampler(Own(), batch_size, False))
    if kind == "batch sampler":
        return data.DataLoader(dataset, batch_sampler=data.BatchSampler(Own(), batch_size, False))
    if kind == "shuffle":
        return data.DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    return data.DataLoader(dataset, batch_size=batch_size, sampler=samplers[kind]())


FIXED_SIZES = ("weighted", "distributed", "own", "stream", "batch sampler", "sampler of batches")


@pytest.mark.parametrize("kind", FIXED_SIZES)
def test_batches_of_one_size_are_no_poisson_sampling(kind: str, data: Any) -> None:
    """Under Poisson sampling the size of a batch is random, whatever sampler fills it."""
    with pytest.raises(InputError, match=r"poisson.*(40|with-replacement)"):
        next(BudgetGuard(POISSON, epsilon=3, delta=DELTA).batches(made(data, kind)))


def test_a_generator_shows_nothing_and_is_accepted(data: Any) -> None:
    """What cannot be seen is what the description says; so is a batch sampler that draws by a rule of its own."""
    guard = BudgetGuard(POISSON, epsilon=3, delta=DELTA)
    next(guard.batches(batch for batch in made(data, "shuffle")))

    class Coins(data.BatchSampler):
        def __iter__(self):
            return iter([[0, 5], [], [7]])

    dataset = made(data, "shuffle").dataset
    own = data.DataLoader(dataset, batch_sampler=Coins(range(RECORDS), BATCH, False), collate_fn=list)
    assert next(guard.batches(own))


@pytest.mark.parametrize(("kind", "word"), [("own", "batch_size"), ("stream", "batch_size"), ("weighted", "replace")])
def test_a_declared_shuffle_has_the_batch_size_that_is_visible(kind: str, word: str, data: Any) -> None:
    """Batches of 80 of a sampler that nobody knows are not the declared batches of 40."""
    with pytest.raises(InputError, match=word):
        next(BudgetGuard(SHUFFLED, epsilon=9, delta=DELTA).batches(made(data, kind, batch_size=80)))


def test_batches_of_several_processes_are_one_batch(data: Any) -> None:
    """A sampler that shares 1290 records among two processes: a step has 80 of them, not 40."""
    loader = made(data, "own")
    sampler = data.DistributedSampler(loader.dataset, num_replicas=2, rank=0)
    shared = data.DataLoader(loader.dataset, batch_size=BATCH, sampler=sampler)
    with pytest.raises(InputError, match="has 80, 2 batches of 40 in each step"):
        next(BudgetGuard(SHUFFLED, epsilon=9, delta=DELTA).batches(shared))


def menu(*rates: float) -> PrivacyFilter:
    steps = {f"at {rate:g}": POISSON.replace(sample_rate=rate) for rate in rates}
    return PrivacyFilter(steps, epsilon=3, delta=DELTA)


@pytest.mark.parametrize("kind", ["shuffle", "own"])
def test_a_filter_of_poisson_steps_refuses_batches_of_one_size(kind: str, data: Any) -> None:
    """Nothing is paid and nothing is handed out."""
    keep = menu(BATCH / RECORDS)
    with pytest.raises(InputError, match="poisson"):
        next(BudgetGuard(keep).batches(made(data, kind)))
    assert sum(keep.spent.values()) == 0


def test_a_filter_compares_the_step_that_it_pays_for(data: Any) -> None:
    """A menu of two rates: the step that is chosen must be the one that the loader draws, at every step."""
    from calipers.adapters.torch_sampler import CollateWithEmpty, TorchBatches
    from calipers.samplers import Poisson

    dataset = made(data, "shuffle").dataset
    drawn = TorchBatches(Poisson(dataset_size=RECORDS, sample_rate=1 / 64, steps=100), seed=1)
    loader = data.DataLoader(dataset, batch_sampler=drawn, collate_fn=CollateWithEmpty(dataset))
    keep = menu(1 / 64, 1 / 32)
    guard = BudgetGuard(keep)
    guard.step = "at 0.03125"
    with pytest.raises(InputError, match=r"sample_rate=0.03125, and the loader .* has 0.015625"):
        next(guard.batches(loader))
    guard.step = "at 0.015625"
    batches = guard.batches(loader)
    for _ in range(3):
        next(batches)
    guard.step = "at 0.03125"
    with pytest.raises(InputError, match="sample_rate"):
        next(batches)
    assert keep.spent == {"at 0.015625": 3, "at 0.03125": 0}
