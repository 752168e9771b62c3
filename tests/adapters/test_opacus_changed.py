"""Loops that change what the optimizer and the loader were configured with: read when it acts, or refused.

N 1050, B 100, sigma 1, sums, two epochs, delta 1e-5 unless a test says otherwise: the plain run is [3.4165, 3.4183].
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from calipers.adapters.opacus import attach
from calipers.errors import CalipersWarning, UnsupportedError
from calipers.measure import measure
from calipers.run import Run

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]

DELTA = 1e-5
CLEAN = Run(dataset_size=1050, sample_rate=1 / 11, noise_multiplier=1.0, steps=22, dimension=21)


def watched(loop: Any, **settings: Any) -> Any:
    """The first of the two lines."""
    return attach(loop.engine, loop.optimizer, loop.loader, **({"loss": loop.criterion} | settings))


def epsilon(*runs: Run) -> tuple[float, float]:
    """The bounds of a description by hand."""
    found = measure(runs).epsilon(DELTA)
    return found.lower, found.upper


def proven(record: Any, **reading: Any) -> tuple[float, float]:
    """The bounds of a record."""
    found = record.epsilon(DELTA, **reading)
    return found.lower, found.upper


def warnings_of(training: Any) -> str:
    """What is said while a loop runs."""
    with pytest.warns(CalipersWarning) as seen:
        training()
    return " ".join(str(warning.message) for warning in seen)


NOTHING = (0.0, math.inf)


def test_a_rate_raised_after_the_first_epoch_is_that_of_each_draw(script) -> None:
    """Four times the rate in the second epoch: 8.7, not 3.4; refused where the rate is not public."""
    loop = script()
    record = watched(loop, public_rate=True)
    loop.train()
    loop.loader.batch_sampler.sample_rate *= 4
    loop.train()
    expected = epsilon(CLEAN.replace(steps=11), CLEAN.replace(steps=11, sample_rate=4 / 11))
    assert proven(record) == expected
    assert expected == pytest.approx((8.703, 8.708), abs=5e-4)
    assert [text.rpartition(" ")[2] for text in record.facts["loaders"]] == [repr(1 / 11), repr(4 / 11)]
    assert proven(record, public_rate=False, adjacency="add-remove") == NOTHING
    assert "not one over a number of batches" in record.why_not(public_rate=False, adjacency="add-remove")[0]


def test_a_rate_raised_inside_a_pass_counts_from_the_next_draw(script) -> None:
    """Three draws at 1/11, eight at 2/11."""
    loop = script()
    record = watched(loop, public_rate=True)
    for position, (records, labels) in enumerate(loop.loader):
        if position == 2:
            loop.loader.batch_sampler.sample_rate *= 2
        loop.step(records, labels)
    assert proven(record) == epsilon(CLEAN.replace(steps=3), CLEAN.replace(steps=8, sample_rate=2 / 11))


def test_a_divisor_that_follows_the_batch_is_the_realized_one(script) -> None:
    """expected_batch_size = len(x): the scale of all coordinates shows the size; at least 13, not 3.4."""
    loop = script(loss_reduction="mean")
    record = watched(loop)
    for _ in range(2):
        for records, labels in loop.loader:
            loop.optimizer.expected_batch_size = max(1, len(records))
            loop.step(records, labels)
    (run,) = record.runs()
    assert (run.normalization, run.total_steps) == ("realized", 22)
    assert proven(record)[0] > 13
    assert proven(record)[1] > 15


def test_a_divisor_that_moves_otherwise_is_refused(script) -> None:
    """Nobody knows what it follows."""
    loop = script(loss_reduction="mean")
    record = watched(loop)
    loop.train(stop=3)
    loop.optimizer.expected_batch_size = 7
    loop.train(stop=3)
    loop.optimizer.expected_batch_size = 9
    loop.train(stop=3)
    assert proven(record) == NOTHING
    assert "changed during the run (7, 9, 95)" in record.why_not()[0]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_what_is_set_after_training_changes_nothing(script, reduction) -> None:
    """Divisor, reduction, noise, norm and rate of a finished run are those that acted."""
    loop = script(loss_reduction=reduction)
    record = watched(loop)
    loop.train(2)
    before = proven(record)
    loop.optimizer.loss_reduction = "mean" if reduction == "sum" else "sum"
    loop.optimizer.expected_batch_size = 7
    loop.optimizer.noise_multiplier = 9.0
    loop.optimizer.max_grad_norm = 9.0
    loop.loader.batch_sampler.sample_rate = 1e-3
    record._measured = None
    assert proven(record) == before == epsilon(CLEAN)


def test_single_looks_that_leave_empty_batches_out(script) -> None:
    """next(iter(loader)) and `continue` at an empty batch: at least 5.94 is true of that loop, 3.95 was said."""
    loop = script(12, 1)
    record = watched(loop, public_rate=True)

    def train() -> None:
        while record.steps < 40:
            records, labels = next(iter(loop.loader))
            if len(records):
                loop.step(records, labels)

    with pytest.warns(CalipersWarning, match="passes over empty batches"):
        train()
    lower, upper = proven(record)
    assert lower == 0.0
    assert upper >= 5.943


def test_single_looks_that_are_refused_for_what_is_in_them(script) -> None:
    """Whether a step is taken tells on the batch: nothing is proven."""
    loop = script()
    record = watched(loop)
    while record.steps < 10:
        records, labels = next(iter(loop.loader))
        if float(records.mean()) > 0:
            loop.step(records, labels)
    assert proven(record) == NOTHING
    assert "passed over a batch" in record.why_not()[0]


def test_passes_that_break_off_at_an_empty_batch(script) -> None:
    """The place of the break tells that a batch was empty, in every pass but the last, and in the last."""
    loop = script(12, 1)
    record = watched(loop, public_rate=True)

    def train() -> None:
        for _ in range(6):
            for records, labels in loop.loader:
                if not len(records):
                    break
                loop.step(records, labels)

    with pytest.warns(CalipersWarning, match="passes over empty batches"):
        train()
    assert proven(record)[0] == 0.0
    assert any("empty batches" in reason for reason in record.why_not())


def test_passes_that_break_off_for_what_is_in_a_batch(script) -> None:
    """At different places, with the batch in hand."""
    loop = script()
    record = watched(loop)
    for place in (3, 5, 2, 4):
        for position, (records, labels) in enumerate(loop.loader):
            if position == place:
                break
            loop.step(records, labels)
    assert proven(record) == NOTHING
    assert "at different places" in record.why_not()[0]


@pytest.mark.parametrize("copies", [2, 10])
def test_rows_that_a_subset_repeats_are_one_record(script, copies) -> None:
    """Five rows ten times each: their records enter a batch by ten coins."""

    def repeat(data: Any) -> Any:
        again = [0, 1, 2, 3, 4] * (copies - 1)
        return torch.utils.data.Subset(data, [*range(1050 - len(again)), *again])

    loop = script(dataset=repeat)
    record = watched(loop, batch_size=100)
    loop.train(2)
    assert proven(record) == epsilon(CLEAN.replace(unit="record", records_per_unit=copies))
    assert proven(record)[0] > (38 if copies == 10 else 7.4)
    assert record.facts["rows of one record"] == copies


def test_a_dataset_twice_is_every_record_twice(script) -> None:
    """ConcatDataset([data] * 2), also as two datasets of the same tensors."""
    data = torch.utils.data

    def twice(own: Any) -> Any:
        return data.ConcatDataset([own, data.TensorDataset(*own.tensors)])

    loop = script(525, dataset=twice)
    record = watched(loop)
    loop.train(2)
    assert proven(record) == epsilon(CLEAN.replace(unit="record", records_per_unit=2))
    assert proven(record)[0] >= 7.42


def test_a_mean_over_repeated_rows_is_refused_for_add_remove(script) -> None:
    """Removing the record moves the divisor by its rows; zeroing it out does not."""
    loop = script(525, dataset=lambda own: torch.utils.data.ConcatDataset([own] * 2), loss_reduction="mean")
    with pytest.raises(UnsupportedError, match="behind 2 rows"):
        watched(loop, adjacency="add-remove")


@pytest.mark.parametrize("observed", [False, True])
def test_rows_that_are_chosen_anew_during_training(script, observed) -> None:
    """They may be chosen by what is in them; stated not to be, batches are measured as they came."""

    def order(data: Any) -> Any:
        return torch.utils.data.SubsetRandomSampler(range(len(data)))

    loop = script(200, 20, order=order, poisson_sampling=False)
    record = watched(loop, observed=observed, adjacency="zero-out")
    loop.train()
    loop.loader.batch_sampler.sampler.indices = [7] * 200
    assert "other rows than when it was attached" in warnings_of(loop.train)
    # Once in the first epoch, then 20 times in each of 10 batches: 1 + 10 * 400.
    assert record.facts["most participations of a record"] == 1 + 10 * 400
    upper = proven(record)[1]
    assert 1000 < upper < math.inf if observed else upper == math.inf


def test_an_index_that_becomes_another_record_blinds(script) -> None:
    """A Subset whose indices are replaced: what was counted for an index is another record's, whoever vouches."""
    loop = script(dataset=lambda own: torch.utils.data.Subset(own, list(range(1050))))
    record = watched(loop, observed=True)
    loop.train()
    loop.data.indices = [7] * 1050
    assert "an index is not the record that it was" in warnings_of(loop.train)
    assert proven(record) == NOTHING


def test_noise_shifted_by_dropout_is_noticed(script) -> None:
    """A seed in every epoch, batches from a generator of their own: the noise is the same, at another place."""

    def network() -> Any:
        nn = torch.nn
        return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))

    loop = script(network=network, loader={"generator": torch.Generator().manual_seed(5)})
    record = watched(loop)

    def train() -> None:
        for _ in range(2):
            torch.manual_seed(0)
            loop.train()

    with pytest.warns(CalipersWarning, match="was set back"):
        train()
    assert proven(record) == NOTHING


def test_noise_shifted_inside_a_pass_is_noticed(script) -> None:
    """A seed in every step: dropout draws as many numbers as the batch has rows, so no two states are equal."""

    def network() -> Any:
        nn = torch.nn
        return nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 32), nn.Linear(32, 3))

    loop = script(network=network, loader={"generator": torch.Generator().manual_seed(5)})
    record = watched(loop)

    def train() -> None:
        for records, labels in loop.loader:
            torch.manual_seed(0)
            loop.step(records, labels)

    with pytest.warns(CalipersWarning, match="was set back"):
        train()
    assert proven(record) == NOTHING


def test_honest_noise_is_never_taken_for_repeated(script) -> None:
    """500 steps of a small model, dropout and seeds that differ."""
    loop = script(
        60, 5, network=lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(), torch.nn.Linear(8, 3))
    )
    record = watched(loop, public_rate=True)
    for epoch in range(40):
        torch.manual_seed(100 + epoch)
        loop.train()
    assert (record.steps, record.why_not()) == (480, ())


def test_a_second_engine_on_the_same_model(script) -> None:
    """11 steps by one optimizer, 11 by another: the second record knows of the first, or is refused."""
    loop = script()
    first = watched(loop)
    loop.train()
    engine = opacus.PrivacyEngine()
    _, optimizer, loader = engine.make_private(
        module=loop.model, optimizer=torch.optim.SGD(loop.model.parameters(), lr=0.001), data_loader=loop.own_loader,
        noise_multiplier=1.0, max_grad_norm=1.0, loss_reduction="sum",
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="Another private optimizer of the same parameters counts 11 steps"):
        attach(engine, optimizer, loader)
    loop.optimizer, loop.loader = optimizer, loader
    record = attach(engine, optimizer, loader, earlier=first.runs())
    loop.train()
    assert proven(record) == epsilon(CLEAN.replace(steps=11), CLEAN.replace(steps=11))


def test_two_optimizers_in_turns(script) -> None:
    """The other one moves the parameters between two steps of the attached one."""
    loop = script()
    record = watched(loop)
    other = torch.optim.SGD(loop.network.parameters(), lr=0.1)
    loop.train(stop=2)
    other.step()
    with pytest.warns(CalipersWarning, match="not by the attached optimizer"):
        loop.train(stop=2)
    assert proven(record) == NOTHING


@pytest.mark.parametrize("late", [False, True])
def test_adam_counts_the_steps_that_nobody_watched(script, late) -> None:
    """A resumed script that loads model and optimizer and forgets the accountant: 44 steps, not 22."""
    first = script(inner=torch.optim.Adam)
    first.train(2)
    model, adam = first.model.state_dict(), first.optimizer.state_dict()
    loop = script(inner=torch.optim.Adam, seed=1)
    if not late:
        loop.model.load_state_dict(model)
        loop.optimizer.load_state_dict(adam)
        with pytest.raises(UnsupportedError, match="inner optimizer's own counter shows 22 steps, and 0"):
            watched(loop)
        record = watched(loop, earlier=[CLEAN])
        loop.train(2)
        assert proven(record) == epsilon(CLEAN, CLEAN)
        return
    record = watched(loop)
    loop.model.load_state_dict(model)
    loop.optimizer.load_state_dict(adam)
    loop.train(2)
    assert proven(record) == NOTHING
    assert "counter shows 44 steps, and 22" in record.why_not()[0]


def swapped(loop: Any) -> None:
    """Another optimizer inside."""
    loop.optimizer.original_optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.1)


def clean_again(loop: Any) -> None:
    """A step hook that puts the sum without noise back."""

    def hook(optimizer: Any) -> None:
        for parameter in optimizer.params:
            parameter.grad = parameter.summed_grad.clone()

    loop.optimizer.attach_step_hook(hook)


def noise_away(loop: Any) -> None:
    """A hook of the inner optimizer that takes the noise away, past PyTorch's count of writes."""

    def hook(optimizer: Any, *_: Any) -> None:
        for parameter in loop.optimizer.params:
            parameter.grad.data.copy_(parameter.summed_grad)

    loop.optimizer.original_optimizer.register_step_pre_hook(hook)


def weights_edited(loop: Any) -> None:
    """The parameters are set by hand, past PyTorch's count of writes."""
    for parameter in loop.optimizer.params:
        parameter.data.mul_(0.5)


@pytest.mark.parametrize(
    ("trick", "reason"),
    [
        (swapped, "was replaced after attach"),
        (clean_again, "is not the noisy one"),
        (noise_away, "is not the noisy one"),
        (weights_edited, "changed between two steps"),
    ],
)
def test_tricks_that_take_the_noise_away(script, trick, reason) -> None:
    """Each is noticed at the step where it acts."""
    loop = script()
    record = watched(loop)
    loop.train(stop=3)
    trick(loop)
    assert reason in warnings_of(lambda: loop.train(stop=3))
    assert proven(record) == NOTHING
