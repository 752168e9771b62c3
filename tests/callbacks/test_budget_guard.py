"""A guard never lets a step through that the budget does not cover, and none is refused that a proof covers."""

from __future__ import annotations

import logging
import math

import pytest

from calipers.callbacks import BudgetGuard, BudgetSpent
from calipers.callbacks import guard as guard_module
from calipers.callbacks.progress import contradiction
from calipers.errors import CertificationError, InputError
from calipers.measure import measure
from calipers.run import Run

POISSON = Run(sample_rate=0.1, steps=1, noise_multiplier=2.0)
SHUFFLED = Run(dataset_size=40, batch_size=10, epochs=1, noise_multiplier=4.0, sampler="shuffle")
DEALT = SHUFFLED.replace(sampler="deterministic")
DELTA = 1e-5


def upper(run: Run, **length: int) -> float:
    return measure(run.replace(**length)).epsilon(DELTA).upper


def steps_taken(guard: BudgetGuard, per_pass: int, most: int = 10_000) -> int:
    """A loop of passes over a loader of so many batches, until the guard ends it."""
    taken = 0
    while taken < most:
        before = taken
        for _ in guard.batches(range(per_pass)):
            taken += 1
        if taken == before:
            return taken
    return taken


def test_the_last_step_within_the_budget_is_taken_and_the_next_is_not() -> None:
    """The count at which a loop ends is the largest whose upper jaw keeps the budget, found without measuring each."""
    budget = upper(POISSON, steps=57) * (1 + 1e-12)
    assert upper(POISSON, steps=58) > budget
    guard = BudgetGuard(POISSON, epsilon=budget, delta=DELTA)
    assert steps_taken(guard, per_pass=10) == 57
    assert guard.stopped
    assert "budget" in guard.reason


def test_measuring_is_rare(monkeypatch) -> None:
    """A thousand steps cost some tens of measurements, not a thousand."""
    asked = []

    def counting(runs, *, tolerance):
        asked.append(runs)
        return measure(runs, tolerance=tolerance)

    monkeypatch.setattr(guard_module, "measure", counting)
    guard = BudgetGuard(POISSON, epsilon=upper(POISSON, steps=1000) * (1 + 1e-12), delta=DELTA)
    for step in range(1000):
        assert guard.allows()
        guard.counted(step + 1, 1)
    assert not guard.allows()
    assert len(asked) < 40


def test_a_pass_over_dealt_batches_counts_whole_from_its_first_step() -> None:
    """Two epochs are within the budget, three are not: the loop ends after the second, having lost nothing of it."""
    budget = upper(DEALT, epochs=2)
    assert upper(DEALT, epochs=3) > budget
    guard = BudgetGuard(DEALT, epsilon=budget, delta=DELTA)
    assert steps_taken(guard, per_pass=4) == 8


def test_passes_that_break_off_count_as_passes() -> None:
    """A loop that leaves each pass after one batch has spent a pass each time: two steps, not eight."""
    guard = BudgetGuard(DEALT, epsilon=upper(DEALT, epochs=2), delta=DELTA)
    taken = 0
    for _ in range(10):
        for _batch in guard.batches(range(4)):
            taken += 1
            guard.counted(taken, taken)
            break
    assert taken == 2


def test_a_second_training_with_the_same_guard_goes_on_counting() -> None:
    """Counters that start again at zero do not give the budget back."""
    guard = BudgetGuard(POISSON, epsilon=upper(POISSON, steps=30) * (1 + 1e-12), delta=DELTA)
    for step in range(1, 21):
        guard.counted(step, 1)
    guard.counted(0, 1)
    guard.counted(10, 1)
    assert not guard.allows()
    with pytest.raises(BudgetSpent, match="budget"):
        guard.demand()


def test_a_budget_for_no_step_allows_none() -> None:
    """Not one batch is handed out, and the reason says so."""
    guard = BudgetGuard(POISSON, epsilon=1e-6, delta=DELTA)
    assert list(guard.batches(range(5))) == []
    assert guard.stopped


def test_what_cannot_be_certified_stops(monkeypatch) -> None:
    """No proof, no step."""

    def refuse(runs, *, tolerance):
        raise CertificationError("no bound")

    monkeypatch.setattr(guard_module, "measure", refuse)
    guard = BudgetGuard(POISSON, epsilon=5, delta=DELTA)
    assert not guard.allows()
    assert "no bound" in guard.reason
    guard.counted(1, 1)
    assert guard.values()["calipers/epsilon_at_most"] == math.inf


def test_both_jaws_are_logged_and_enclose_the_truth() -> None:
    """At the end of each pass and every few steps: at least <= at most, at most within the budget, growing."""
    sent: list[tuple[int, dict[str, float]]] = []
    guard = BudgetGuard(
        POISSON, epsilon=upper(POISSON, steps=20), delta=DELTA, every=5, log=lambda v, s: sent.append((s, dict(v)))
    )
    steps_taken(guard, per_pass=8)
    assert [step for step, _ in sent][:3] == [5, 8, 13]
    for step, values in sent:
        low, high = values["calipers/epsilon_at_least"], values["calipers/epsilon_at_most"]
        assert 0 < low <= high <= guard.budget.epsilon
        assert low <= upper(POISSON, steps=step)
        assert values["calipers/delta"] == DELTA
    highs = [values["calipers/epsilon_at_most"] for _, values in sent]
    assert highs == sorted(highs)


def test_no_attack_is_logged_on_a_pass_that_is_under_way() -> None:
    """In the middle of the first pass nothing is attained; after it, something is."""
    guard = BudgetGuard(DEALT, epsilon=100, delta=DELTA)
    guard.counted(2, 1)
    assert guard.values()["calipers/epsilon_at_least"] == 0.0
    assert guard.values()["calipers/epsilon_at_most"] == upper(DEALT, epochs=1)
    guard.counted(4, 1)
    assert guard.values()["calipers/epsilon_at_least"] > 0.0


def test_a_loop_that_is_not_the_description_is_refused() -> None:
    """More steps in a pass than the declared run has."""
    guard = BudgetGuard(DEALT, epsilon=100, delta=DELTA)
    with pytest.raises(InputError, match="4 steps per epoch"):
        guard.counted(5, 1)


def test_it_says_once_why_it_stopped(caplog) -> None:
    """One line in the log of the process, however often it is asked."""
    guard = BudgetGuard(POISSON, epsilon=1e-6, delta=DELTA)
    with caplog.at_level(logging.WARNING, logger="calipers"):
        assert not any(guard.allows() for _ in range(5))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("wrong", [{"epsilon": -1, "delta": DELTA}, {"epsilon": 1, "delta": 0}])
def test_a_budget_that_means_nothing_is_refused(wrong) -> None:
    """As everywhere."""
    with pytest.raises(InputError):
        BudgetGuard(POISSON, **wrong)
    with pytest.raises(InputError, match="attach"):
        BudgetGuard("run.toml", epsilon=1, delta=DELTA)


class RandomSampler:
    """Called like PyTorch's."""


class SequentialSampler:
    """Called like PyTorch's."""


class Loader:
    def __init__(self, sampler):
        self.batch_sampler = type("BatchSampler", (), {})()
        self.batch_sampler.sampler = sampler


@pytest.mark.parametrize(
    ("run", "loader", "wrong"),
    [
        (POISSON, Loader(RandomSampler()), True),
        (POISSON, Loader(SequentialSampler()), True),
        (SHUFFLED, Loader(RandomSampler()), False),
        (SHUFFLED, Loader(SequentialSampler()), True),
        (POISSON, Loader(object()), False),
        (POISSON, None, False),
    ],
)
def test_a_loader_that_visibly_shuffles_is_no_poisson_sampling(run, loader, wrong) -> None:
    """Only what is certain is refused."""
    assert (contradiction(run, loader) is not None) is wrong


@pytest.mark.opacus
@pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")
@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"sample_rate": 0.2}, None),
        ({"sample_rate": 0.1}, "sample_rate=0.1, and the loader .* has 0.2"),
        ({"sample_rate": 0.2, "dataset_size": 2000}, "dataset_size=2000, and the loader .* has 1000"),
        ({"batch_size": 200, "dataset_size": 1000}, None),
        ({"batch_size": 100, "dataset_size": 1000}, "sample_rate=0.1"),
    ],
)
def test_a_declared_rate_or_size_that_the_loader_contradicts(declared, reason) -> None:
    """Opacus's loader of 1000 records in batches of 200: q = 0.1 says 3.25 where 5.86 is true."""
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch.utils.data")
    opacus = pytest.importorskip("opacus")
    dataset = data.TensorDataset(torch.zeros(1000, 1))
    loader = opacus.data_loader.DPDataLoader.from_data_loader(data.DataLoader(dataset, batch_size=200))
    guard = BudgetGuard(Run(steps=20, noise_multiplier=1.0, **declared), epsilon=50, delta=DELTA)
    if reason is None:
        assert len(list(guard.batches(loader))) == 5
        loader.batch_sampler.sample_rate = 0.4
        reason = "has 0.4"
    with pytest.raises(InputError, match=reason):
        list(guard.batches(loader))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("loading", "declared", "reason"),
    [
        ({"batch_size": 10}, {"dataset_size": 40, "batch_size": 10}, None),
        ({"batch_size": 10}, {"dataset_size": 80, "batch_size": 10}, "dataset_size=80"),
        ({"batch_size": 20}, {"dataset_size": 40, "batch_size": 10}, "batch_size=10"),
        ({"batch_size": 15}, {"dataset_size": 40, "batch_size": 15, "last_batch": "keep"}, None),
        ({"batch_size": 15}, {"dataset_size": 40, "batch_size": 15}, "last_batch='drop'"),
        ({"batch_size": 15, "drop_last": True}, {"dataset_size": 40, "batch_size": 15}, None),
    ],
)
def test_a_declared_shuffle_that_the_loader_contradicts(loading, declared, reason) -> None:
    """PyTorch keeps its last batch unless told to drop it."""
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(data.TensorDataset(torch.zeros(40, 1)), shuffle=True, **loading)
    run = Run(epochs=1, noise_multiplier=4.0, sampler="shuffle", **declared)
    found = contradiction(run, loader)
    assert found is None if reason is None else reason in found
