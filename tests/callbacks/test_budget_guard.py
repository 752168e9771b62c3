"""A guard never lets a step through that the budget does not cover, and none is refused that a proof covers."""

from __future__ import annotations

import logging
import math

import pytest

from calipers.adaptive import PrivacyFilter
from calipers.callbacks import BudgetGuard, BudgetSpent
from calipers.callbacks import guard as guard_module
from calipers.callbacks.contradiction import contradiction, shown
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
    """At the end of each pass and every few steps: what was executed so far, growing; what is proven is the budget."""
    sent: list[tuple[int, dict[str, float]]] = []
    guard = BudgetGuard(
        POISSON, epsilon=upper(POISSON, steps=20), delta=DELTA, every=5, log=lambda v, s: sent.append((s, dict(v)))
    )
    steps_taken(guard, per_pass=8)
    assert [step for step, _ in sent][:3] == [5, 8, 13]
    for step, values in sent:
        low, high = (values[f"calipers/epsilon_at_{end}_if_length_fixed"] for end in ("least", "most"))
        assert 0 < low <= high <= values["calipers/epsilon_at_most"] == guard.budget.epsilon
        assert low <= upper(POISSON, steps=step)
        assert values["calipers/delta"] == DELTA
    highs = [values["calipers/epsilon_at_most_if_length_fixed"] for _, values in sent]
    assert highs == sorted(highs)


def test_no_attack_is_logged_on_a_pass_that_is_under_way() -> None:
    """In the middle of the first pass nothing is attained; after it, something is."""
    guard = BudgetGuard(DEALT, epsilon=100, delta=DELTA)
    guard.counted(2, 1)
    assert guard.values()["calipers/epsilon_at_least_if_length_fixed"] == 0.0
    assert guard.values()["calipers/epsilon_at_most_if_length_fixed"] == upper(DEALT, epochs=1)
    guard.counted(4, 1)
    assert guard.values()["calipers/epsilon_at_least_if_length_fixed"] > 0.0


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
    assert (contradiction(run, shown(loader)) is not None) is wrong


def test_a_plan_is_what_a_training_that_may_stop_early_is_reported_with() -> None:
    """Stopped at 5 of 20 planned steps, the number is that of 20; that of 5 is named by its condition."""
    guard = BudgetGuard(POISSON, epsilon=50, delta=DELTA, planned_steps=20)
    guard.counted(5, 1)
    values = guard.values()
    assert values["calipers/epsilon_at_most"] == upper(POISSON, steps=20)
    assert values["calipers/epsilon_at_most_if_length_fixed"] == upper(POISSON, steps=5)
    assert "at most 20 steps" in guard.licensed_by


def test_a_declared_plan_is_never_extended() -> None:
    """The step after the last planned one is refused, whatever is left of the budget."""
    guard = BudgetGuard(POISSON, epsilon=50, delta=DELTA, planned_steps=12)
    assert steps_taken(guard, per_pass=5) == 12
    assert "12 planned steps" in guard.reason


def test_the_plan_of_a_trainer_that_is_extended_is_none() -> None:
    """A second call of fit with more steps than the first: from then on the budget is the number."""
    guard = BudgetGuard(POISSON, epsilon=50, delta=DELTA)
    guard.plan(10)
    guard.counted(10, 1)
    assert guard.values()["calipers/epsilon_at_most"] == upper(POISSON, steps=10)
    guard.plan(30)
    assert guard.values()["calipers/epsilon_at_most"] == 50


def test_passes_of_a_plan_count_whole() -> None:
    """Dealt batches: a plan of six steps, four per pass, is two epochs."""
    guard = BudgetGuard(DEALT, epsilon=50, delta=DELTA, planned_steps=6)
    guard.counted(2, 1)
    assert guard.values()["calipers/epsilon_at_most"] == upper(DEALT, epochs=2)


class Watched:
    """A record as `attach` returns it, whose noise somebody lowered while training."""

    def __init__(self, noises: list[float]) -> None:
        self.noises = noises

    def ahead(self, *, in_hand: bool = False) -> Watched:
        return self

    @property
    def terms(self) -> object:
        return tuple(self.noises)

    def position(self, *, new_pass: bool = False, further: int = 1) -> int:
        return len(self.noises) + further

    def runs(self, position: int) -> tuple[Run, ...]:
        noises = self.noises + [min(self.noises)] * (position - len(self.noises))
        return tuple(
            POISSON.replace(steps=noises.count(noise), noise_multiplier=noise) for noise in sorted(set(noises))
        )

    def finished(self) -> tuple[Run, ...]:
        return self.runs(len(self.noises))


def test_noise_that_changed_is_refused_unless_the_schedule_was_fixed_in_advance() -> None:
    """The composition of what happened to be taken is no guarantee: the guard names the condition and stops."""
    for schedule, allowed in ((None, False), ("fixed", True)):
        guard = BudgetGuard(Watched([2.0, 2.0, 1.5]), epsilon=50, delta=DELTA, schedule=schedule)
        assert guard.allows() is allowed
        assert ("PrivacyFilter" in guard.reason) is not allowed
        guard.counted(3, 1)
        assert math.isfinite(guard.values()["calipers/epsilon_at_most"]) is allowed
    assert BudgetGuard(Watched([2.0, 2.0]), epsilon=50, delta=DELTA).allows()


FILTER_MENU = {"quiet": POISSON, "sharp": POISSON.replace(noise_multiplier=1.5)}


def test_a_guard_pays_each_step_from_its_filter_before_it_is_taken() -> None:
    """Steps of either kind, none paid twice, none taken unpaid; the target is the number."""
    keep = PrivacyFilter(FILTER_MENU, 2.0, DELTA)
    guard = BudgetGuard(keep)
    guard.step = "sharp"
    for taken, _ in enumerate(guard.batches(range(5)), start=1):
        assert sum(keep.spent.values()) == taken
    guard.step = "quiet"
    guard.demand()
    guard.demand()  # asking twice before one step pays once
    assert keep.spent == {"quiet": 1, "sharp": 5}
    guard.counted(6, 2)
    assert steps_taken(guard, per_pass=10) > 0
    assert keep.remaining["quiet"] == 0
    assert "filter" in guard.reason
    assert guard.values() == {"calipers/epsilon_at_most": 2.0, "calipers/delta": DELTA}
    with pytest.raises(BudgetSpent):
        guard.demand()


def test_a_resumed_training_needs_the_filter_it_had(tmp_path) -> None:
    """Steps that a restored counter knows of and the filter does not would be free; with its file all is well."""
    path = tmp_path / "run.filter"
    first = BudgetGuard(PrivacyFilter(FILTER_MENU, 2.0, DELTA, path=path))
    first.step = "quiet"
    assert len(list(first.batches(range(4)))) == 4
    again = BudgetGuard(PrivacyFilter(FILTER_MENU, 2.0, DELTA, path=path))
    again.step = "quiet"
    again.counted(4, 1)
    again.demand()
    assert again.training.spent["quiet"] == 5
    with pytest.raises(InputError, match="knows of 0 steps"):
        BudgetGuard(PrivacyFilter(FILTER_MENU, 2.0, DELTA)).counted(4, 1)


def test_a_guard_of_a_filter_asks_which_step_comes_next() -> None:
    """A menu of several steps and none chosen, a misspelt one, a budget that is not the filter's: each is refused."""
    keep = PrivacyFilter(FILTER_MENU, 2.0, DELTA)
    with pytest.raises(InputError, match=r"guard\.step"):
        BudgetGuard(keep).allows()
    with pytest.raises(InputError, match="'quite'"):
        BudgetGuard(keep).step = "quite"
    with pytest.raises(InputError, match="own budget"):
        BudgetGuard(keep, epsilon=3.0, delta=DELTA)
    with pytest.raises(InputError, match="epsilon and delta"):
        BudgetGuard(POISSON)


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
    found = contradiction(run, shown(loader))
    assert found is None if reason is None else reason in found
