"""A guard of an attached record never says a number where the record says that nothing is proven; nor does the gate."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from calipers.adaptive import PrivacyFilter
from calipers.callbacks import BudgetGuard
from calipers.gate import Budget
from calipers.pytest_plugin import TrainingGate
from calipers.run import Run

pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore")]
RECORDS, BATCH, DELTA = 105, 10, 1e-5
TERMS = {"epsilon": 3.0, "delta": DELTA}


def trained(**options: Any) -> SimpleNamespace:
    """Opacus with Adam, Poisson sampling; `step` takes one step, `gate` is that of the pytest plugin."""
    torch, opacus = pytest.importorskip("torch"), pytest.importorskip("opacus")
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(RECORDS, 3), torch.randint(2, (RECORDS,)))
    engine, layer = opacus.PrivacyEngine(), torch.nn.Linear(3, 2)
    model, optimizer, loader = engine.make_private(
        module=layer, optimizer=torch.optim.Adam(layer.parameters()), noise_multiplier=4.0, max_grad_norm=1.0,
        data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH), loss_reduction="sum",
    )  # fmt: skip
    gate = TrainingGate({"epochs": 3}, Budget(**TERMS))
    record = gate.attach(engine, optimizer, loader, **options)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum").backward()
        optimizer.step()

    return SimpleNamespace(record=record, optimizer=optimizer, loader=loader, step=step, gate=gate)


def passes(training: SimpleNamespace, guard: BudgetGuard, *places: int) -> int:
    """A pass for each place, broken off there with a batch in hand; the steps that the guard allowed."""
    taken = 0
    for place in places:
        for number, batch in enumerate(guard.batches(training.loader)):
            if number == place:
                break
            training.step(batch)
            taken += 1
    return taken


def silent(training: SimpleNamespace, guard: BudgetGuard) -> None:
    """The record, the guard and the gate agree: nothing is proven."""
    bracket = training.record.epsilon(DELTA)
    assert (bracket.lower, bracket.upper) == (0.0, math.inf)
    assert not guard.allows()
    assert "nothing is proven" in guard.reason
    values = guard.values()
    assert values["calipers/epsilon_at_most"] == math.inf
    assert values.get("calipers/epsilon_at_most_if_length_fixed", math.inf) == math.inf
    assert values.get("calipers/epsilon_at_least_if_length_fixed", 0.0) == 0.0
    (checked,) = training.gate.check()
    assert checked.outcome.exit_status != 0
    assert checked.bracket is None or checked.bracket.upper == math.inf


MENU = Run(dataset_size=RECORDS, sample_rate=1 / 11, steps=1, noise_multiplier=4.0, dimension=8)


def with_filter() -> dict[str, Any]:
    return {"privacy_filter": PrivacyFilter({"only": MENU}, **TERMS), "adjacency": "add-remove", "public_rate": True}


@pytest.mark.parametrize("paying", [False, True])
def test_the_counter_of_adam_is_believed(paying: bool) -> None:
    """A state of 22 updates is loaded after attach: steps that nobody saw; the guard said 3.0 before."""
    earlier = trained()
    guard = BudgetGuard(earlier.record, epsilon=50, delta=DELTA)
    assert passes(earlier, guard, 20, 20) == 22
    training = trained(**(with_filter() if paying else {}))
    guard = BudgetGuard(training.record, **({} if paying else TERMS))
    assert passes(training, guard, 3) == 3
    training.optimizer.load_state_dict(earlier.optimizer.state_dict())
    assert passes(training, guard, 20) == 0
    silent(training, guard)


@pytest.mark.parametrize("paying", [False, True])
def test_passes_that_break_off_at_different_places(paying: bool) -> None:
    """After 2 and after 4 batches, each with the next one in hand: from the third pass on the answer is no."""
    training = trained(**(with_filter() if paying else {}))
    guard = BudgetGuard(training.record, **({} if paying else TERMS))
    assert passes(training, guard, 2, 4, 3) <= 7
    silent(training, guard)


def test_a_batch_that_was_fetched_ahead_and_dropped() -> None:
    """A loop that holds one batch more than it uses goes on while it may still use it, and not into another pass."""
    training = trained()
    guard = BudgetGuard(training.record, epsilon=50, delta=DELTA)
    for drop in (False, True):
        held = None
        for batch in guard.batches(training.loader):
            if held is not None:
                training.step(held)
            held = batch
        assert not guard.stopped
        if not drop:
            training.step(held)
            assert math.isfinite(guard.values()["calipers/epsilon_at_most"])
    assert training.record.steps == 21
    assert list(guard.batches(training.loader)) == []
    bracket = training.record.epsilon(DELTA)
    assert (bracket.lower, bracket.upper) == (0.0, math.inf)
    assert guard.values()["calipers/epsilon_at_most"] == math.inf
    (checked,) = training.gate.check()
    assert checked.outcome.exit_status != 0
