"""Ordinary loops that do nothing wrong: each has the bounds of its run, or a refusal that names what is missing.

N 1050, B 100, sigma 1, sums, two epochs, delta 1e-5 unless a test says otherwise.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from calipers.adapters.opacus import attach
from calipers.errors import CalipersWarning, InputError, UnsupportedError
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


def ahead(loader: Any, lag: int = 1) -> Iterator[Any]:
    """Batches, the next ones fetched before this one is used."""
    held = []
    for batch in loader:
        held.append(batch)
        if len(held) > lag:
            yield held.pop(0)
    yield from held


@pytest.mark.parametrize("lag", [1, 3, 100])
@pytest.mark.parametrize("poisson_sampling", [True, False])
def test_fetching_ahead_changes_nothing(script, lag, poisson_sampling) -> None:
    """One batch, three, or the whole pass; with batches of equal size too."""
    loop = script(1000 if not poisson_sampling else 1050, poisson_sampling=poisson_sampling)
    record = watched(loop, adjacency="zero-out")
    for _ in range(2):
        loop.train(loader=ahead(loop.loader, lag))
    assert record.why_not() == ()
    (run,) = record.runs()
    assert (run.sampler, run.total_steps) == (("poisson", 22) if poisson_sampling else ("shuffle", 20))


def test_fetching_ahead_over_the_end_of_a_pass(script) -> None:
    """The first batch of the next pass is fetched before the last one of this pass is used."""
    loop = script()
    record = watched(loop)

    def endless() -> Iterator[Any]:
        for _ in range(2):
            yield from loop.loader

    loop.train(loader=ahead(endless()))
    assert (record.why_not(), record.runs()) == ((), (CLEAN,))


@pytest.mark.parametrize("skipped", [0, 4, 10])
@pytest.mark.parametrize("poisson_sampling", [True, False])
def test_a_batch_passed_over_while_fetching_ahead_is_noticed(script, skipped, poisson_sampling) -> None:
    """One that was fetched and not used, at the beginning, in the middle, at the end."""
    loop = script(1100 if not poisson_sampling else 1050, poisson_sampling=poisson_sampling)
    record = watched(loop, adjacency="zero-out")

    def train() -> None:
        for _ in range(2):
            for position, (records, labels) in enumerate(ahead(loop.loader)):
                if position != skipped:
                    loop.step(records, labels)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train()
    assert any("passed over" in reason for reason in record.why_not())
    assert proven(record) == (0.0, math.inf)


def test_two_loaders_in_step(script) -> None:
    """zip of two attached loaders, a step on each batch: both runs together."""
    loop = script()
    record = watched(loop)
    other = opacus.data_loader.DPDataLoader.from_data_loader(torch.utils.data.DataLoader(loop.data, batch_size=100))
    attach(loop.engine, loop.optimizer, other)
    for one, two in zip(loop.loader, other, strict=True):
        loop.step(*one)
        loop.step(*two)
    assert record.why_not() == ()
    assert proven(record) == epsilon(CLEAN.replace(steps=11), CLEAN.replace(steps=11))


def test_two_loaders_in_one_step(script) -> None:
    """Their batches put together: a record may be in both, and is measured as it came."""
    loop = script()
    record = watched(loop)
    other = opacus.data_loader.DPDataLoader.from_data_loader(torch.utils.data.DataLoader(loop.data, batch_size=100))
    attach(loop.engine, loop.optimizer, other)

    def train() -> None:
        for one, two in zip(loop.loader, other, strict=True):
            loop.step(*(torch.cat(parts) for parts in zip(one, two, strict=True)))

    with pytest.warns(CalipersWarning, match="several batches"):
        train()
    assert record.steps == 11
    shown = record.facts["most participations of a record"]
    assert proven(record) == (0.0, epsilon(CLEAN.replace(sample_rate=1.0, steps=shown))[1])


def test_a_layer_frozen_during_training(script) -> None:
    """The first layer stands still from the second epoch on."""

    def network() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 3))

    loop = script(network=network)
    record = watched(loop)
    loop.train()
    for parameter in loop.network[0].parameters():
        parameter.requires_grad = False
    loop.train()
    assert record.why_not() == ()
    assert proven(record) == epsilon(CLEAN)
    assert record.facts["parameters"] == 6 * 4 + 4 + 4 * 3 + 3


def test_the_prepared_loader_of_accelerate(script) -> None:
    """It hands the batches of its own loader on, one later."""
    accelerate = pytest.importorskip("accelerate")
    loop = script()
    prepared = accelerate.Accelerator(cpu=True).prepare_data_loader(loop.loader)
    record = attach(loop.engine, loop.optimizer, prepared, loss=loop.criterion)
    loop.train(2, loader=prepared)
    assert (record.why_not(), record.runs()) == ((), (CLEAN,))


def test_ghost_clipping_with_the_plain_criterion(script) -> None:
    """Nothing was clipped: that is the reason, and 22 steps were taken."""
    loop = script(grad_sample_mode="ghost")
    record = watched(loop)
    loop.criterion = torch.nn.CrossEntropyLoss(reduction="sum")
    with pytest.warns(CalipersWarning, match="nothing had clipped"):
        loop.train(2)
    assert record.steps == 22
    assert proven(record) == (0.0, math.inf)
    assert any("criterion that make_private returned" in reason for reason in record.why_not())


def test_a_noise_multiplier_that_is_a_tensor(script) -> None:
    """Read as the number that it is."""
    loop = script(noise_multiplier=torch.tensor(1.0))
    record = watched(loop)
    loop.train(2)
    assert proven(record) == epsilon(CLEAN)


@pytest.mark.parametrize("poisson_sampling", [True, False])
def test_a_pass_resumed_in_its_middle(script, poisson_sampling) -> None:
    """Four of its batches were used before the checkpoint; the resumed loop draws and passes over as many."""
    order = {"generator": torch.Generator().manual_seed(3)}
    size = 1050 if poisson_sampling else 1000
    first = script(size, loader=order, poisson_sampling=poisson_sampling)
    record = watched(first, adjacency="zero-out")
    first.train(stop=4)
    saved = record.state_dict()
    order = {"generator": torch.Generator().manual_seed(3)}
    loop = script(size, loader=order, poisson_sampling=poisson_sampling, seed=9)
    loop.model.load_state_dict(first.model.state_dict())
    record = watched(loop, state=saved, adjacency="zero-out")
    for position, (records, labels) in enumerate(loop.loader):
        if position >= 4:
            loop.step(records, labels)
    assert record.why_not() == ()
    (run,) = record.runs()
    if poisson_sampling:
        assert (run.sampler, run.total_steps) == ("poisson", 11)
    else:
        assert (run.sampler, run.total_epochs) == ("shuffle", 1)


def test_batches_passed_over_that_no_checkpoint_explains(script) -> None:
    """Three, where four had been used."""
    first = script()
    record = watched(first)
    first.train(stop=4)
    loop = script(seed=9)
    loop.model.load_state_dict(first.model.state_dict())
    record = watched(loop, state=record.state_dict())

    def train() -> None:
        for position, (records, labels) in enumerate(loop.loader):
            if position >= 3:
                loop.step(records, labels)

    with pytest.warns(CalipersWarning, match="passed over"):
        train()
    assert proven(record) == (0.0, math.inf)


@pytest.mark.slow
def test_a_noise_in_every_step_is_measured_in_seconds(script) -> None:
    """220 noise levels: the bounds hold those of the least and of the largest noise, in processor time below 25 s."""
    loop = script()
    record = watched(loop)
    for epoch in range(20):
        for position, (records, labels) in enumerate(loop.loader):
            loop.optimizer.noise_multiplier = 2.0 - 0.004 * (11 * epoch + position)
            loop.step(records, labels)
    assert len(record.runs()) == 220
    began = time.process_time()
    lower, upper = proven(record)
    assert time.process_time() - began < 25
    assert epsilon(CLEAN.replace(steps=220, noise_multiplier=2.0))[0] < lower < upper
    assert upper < epsilon(CLEAN.replace(steps=220, noise_multiplier=1.12))[1]
    assert upper / lower < 1.1


def test_the_most_ordinary_script_has_an_answer(script) -> None:
    """1000 records in batches of 100, all defaults: no stop, one warning with the advice, and a proven bracket."""
    loop = script(1000, loss_reduction="mean")
    with pytest.warns(CalipersWarning) as seen:
        record = watched(loop)
    (warning,) = [str(each.message) for each in seen]
    for word in (
        "zero-out",
        "public_rate=True",
        "batches of 100 to 111 (91 to 100 with drop_last=True)",
        "attach(..., b",
    ):
        assert word in warning
    assert "loss_reduction" not in warning  # undivided sums move with the rate too
    loop.train(2)
    (run,) = record.runs()
    assert (run.adjacency, run.total_steps, run.normalization) == ("zero-out", 20, "floor")
    assert proven(record) == epsilon(run)
    assert 3.4 < proven(record)[0] <= proven(record)[1] < 3.7
    assert any("zeroing one record out" in note for note in record.measure().notes)
    (reason,) = record.why_not()
    assert "zeroing one record out" in reason


def test_every_record_says_what_it_rests_on(script) -> None:
    """Fixed in advance, early stopping, and the loss that nobody showed."""
    loop = script()
    record = watched(loop, loss=None)
    loop.train()
    notes = " ".join(record.measure().notes)
    assert "fixed in advance" in notes
    assert "longest run that was possible" in notes
    assert "attach was not given the criterion" in notes
    (unknown,) = record.why_not()
    assert unknown.startswith("Not known: whether the criterion sums, as loss_reduction='sum' assumes.")
    record = watched(loop)
    assert record.why_not() == ()
    assert "not given" not in " ".join(record.conditions)
    assert record.facts["loss"] == "CrossEntropyLoss(reduction='sum')"
    assert set(record.facts["seen at"]) >= {"noise multiplier", "reduction and divisor", "clipping norm"}
    assert record.facts["releases"] == ["11 steps: noise 1.0, sum"]


def criterion(**settings: Any) -> Any:
    """Cross entropy, as people configure it."""
    return torch.nn.CrossEntropyLoss(**settings)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize(
    ("reduction", "settings", "refused"),
    [
        ("sum", {"reduction": "sum"}, None),
        ("mean", {}, None),
        ("mean", {"label_smoothing": 0.1}, None),
        ("sum", {"reduction": "sum", "weight": [1.0, 50.0, 1.0]}, None),
        ("sum", {}, (InputError, "reduction='mean' and the optimizer loss_reduction='sum'")),
        ("mean", {"reduction": "sum"}, (InputError, "reduction='sum' and the optimizer")),
        ("mean", {"weight": [1.0, 50.0, 1.0]}, (UnsupportedError, "weights of the other records' classes")),
        ("mean", {"ignore_index": 0}, (UnsupportedError, "number of targets that are not ignored")),
    ],
)
def test_a_criterion_is_checked_where_it_is_given(script, mode, reduction, settings, refused) -> None:
    """Its reduction is the optimizer's, and the loss of a record depends on no other."""
    loop = script(loss_reduction=reduction, grad_sample_mode=mode)
    settings = settings | ({"weight": torch.tensor(settings["weight"])} if "weight" in settings else {})
    if refused is None:
        assert watched(loop, loss=criterion(**settings)).loss.startswith("CrossEntropyLoss")
        return
    with pytest.raises(refused[0], match=refused[1]):
        watched(loop, loss=criterion(**settings))


def test_a_function_is_no_criterion(script) -> None:
    """It does not say how it reduces."""
    with pytest.raises(InputError, match="a criterion with a reduction"):
        watched(script(), loss=torch.nn.functional.cross_entropy)
