"""What a watched run becomes if it goes on: bounds that hold for the steps ahead, and a guard that stops in time."""

from __future__ import annotations

import pytest

from calipers.callbacks import BudgetGuard
from calipers.errors import UnsupportedError
from calipers.measure import measure
from calipers.receipts import receipt, verify_receipt
from calipers.run import Run

pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore")]
RECORDS, BATCH, DELTA = 42, 10, 1e-5


@pytest.fixture
def training():
    torch, opacus = pytest.importorskip("torch"), pytest.importorskip("opacus")
    from calipers.adapters.opacus import attach

    def made(*, poisson_sampling: bool, shuffle: bool = False, noise_multiplier: float = 4.0):
        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(RECORDS, 3), torch.randint(2, (RECORDS,)))
        model, engine = torch.nn.Linear(3, 2), opacus.PrivacyEngine()
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), noise_multiplier=noise_multiplier,
            data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=shuffle), max_grad_norm=1.0,
            loss_reduction="sum", poisson_sampling=poisson_sampling,
        )  # fmt: skip

        criterion = torch.nn.CrossEntropyLoss(reduction="sum")

        def step(batch) -> None:
            inputs, targets = batch
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()

        return attach(engine, optimizer, loader, loss=criterion), optimizer, loader, step

    return made


def upper(runs) -> float:
    return measure(runs).epsilon(DELTA).upper


def test_a_loop_of_ones_own_ends_at_the_last_step_within_the_budget(training) -> None:
    """Poisson: the record itself says afterwards that this many steps keep the budget, and one more would not."""
    record, _, loader, step = training(poisson_sampling=True)
    run = Run(dataset_size=RECORDS, sample_rate=0.2, steps=9, noise_multiplier=4.0)
    allowed = upper(run) * (1 + 1e-12)
    guard = BudgetGuard(record, epsilon=allowed, delta=DELTA)
    for _ in range(10):
        for batch in guard.batches(loader):
            step(batch)
    assert record.steps == 9
    assert record.why_not() == ()
    assert record.epsilon(DELTA).upper <= allowed < upper(run.replace(steps=10))
    assert verify_receipt(receipt(record)).standing.value == "confirmed"


def test_passes_that_break_off_are_counted_as_passes(training) -> None:
    """Fixed order, one step a pass: the bound grows by a pass each time, and covers what the record says."""
    record, _, loader, step = training(poisson_sampling=False)
    for number in range(1, 4):
        for batch in loader:
            step(batch)
            break
        ahead = record.ahead()
        assert ahead.position() == number
        assert ahead.position(new_pass=True) == number + 1
        assert upper(ahead.runs(number)) >= record.epsilon(DELTA).upper
    assert ahead.finished() == ()


def test_a_whole_pass_is_followed_by_another(training) -> None:
    """After its last batch the next step costs a pass, before it nothing more."""
    record, _, loader, step = training(poisson_sampling=False, shuffle=True)
    for number, batch in enumerate(loader, start=1):
        step(batch)
        assert record.ahead().position() == (2 if number == len(loader) else 1)
    (run,) = record.ahead().finished()
    assert (run.sampler, run.total_epochs) == ("shuffle", 1)
    assert (run,) == record.runs()


@pytest.mark.parametrize("schedule", [None, "fixed"])
def test_noise_that_falls_voids_the_permission(training, schedule) -> None:
    """A guard that allowed many steps at one noise asks again when it falls, and stops unless that was planned."""
    record, optimizer, loader, step = training(poisson_sampling=True)
    allowed = upper(Run(dataset_size=RECORDS, sample_rate=0.2, steps=40, noise_multiplier=4.0))
    guard = BudgetGuard(record, epsilon=allowed, delta=DELTA, schedule=schedule)
    taken = 0
    for _ in range(20):
        for batch in guard.batches(loader):
            step(batch)
            taken += 1
            if taken == 5:
                optimizer.noise_multiplier = 3.0
    assert guard.stopped
    if schedule is None:
        assert taken == 5
        assert "fixed in advance" in guard.reason
    else:
        assert 5 < taken < 40
        assert record.epsilon(DELTA).upper <= allowed


def test_what_was_not_seen_stops(training) -> None:
    """A step on a batch that no watched loader delivered: nothing is proven, and the guard says no."""
    record, _, loader, step = training(poisson_sampling=True)
    torch = pytest.importorskip("torch")
    step((torch.randn(5, 3), torch.randint(2, (5,))))
    with pytest.raises(UnsupportedError):
        record.ahead().runs(3)
    guard = BudgetGuard(record, epsilon=100, delta=DELTA)
    assert list(guard.batches(loader)) == []
    assert "nothing is proven" in guard.reason


def test_a_plan_of_passes_is_reported_whole(training) -> None:
    """Stopped inside the second of three planned passes: epsilon_at_most is that of three, not of those begun."""
    record, _, loader, step = training(poisson_sampling=False)
    guard = BudgetGuard(record, epsilon=50.0, delta=DELTA, planned_steps=15)
    for batch in guard.batches(loader):
        step(batch)
    step(next(iter(guard.batches(loader))))
    (two,) = record.ahead().runs(2)
    three = measure(two.replace(epochs=3)).epsilon(DELTA)
    assert three.lower <= guard.values()["calipers/epsilon_at_most"] <= three.upper
