"""Whatever a model, its loss or `prepare` does: no record comes into the gradient of another, or is kept."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.samplers import Deterministic  # noqa: E402
from calipers.training import Plan, Trainer  # noqa: E402
from calipers.training.gradients import GradientSum  # noqa: E402
from calipers.training.torch_library import refuse_rounding, tensor_cores  # noqa: E402

pytestmark = pytest.mark.torch

RECORDS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 2
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def summed(model, **options):
    """The clipped sum of the records, on a GPU where there is one."""
    return GradientSum(model.to(DEVICE), max_grad_norm=1.0, **options)(RECORDS.to(DEVICE), LABELS.to(DEVICE))


class Stateful(torch.nn.Module):
    """What it returned last scales what it returns next, as a hidden state that is carried over batches does.

    `looking` at the values keeps `vmap` from following: records are then taken one by one.
    """

    def __init__(self, *, looking: bool, used: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.looking, self.used = torch.nn.Linear(3, 2), looking, used
        self.last = torch.zeros((), device=DEVICE)

    def forward(self, x):
        scale = 2.0 if self.looking and float(x.sum()) > 1e9 else 1.0
        found = scale * self.inner(x) * (1.0 + (self.last if self.used else 0.0))
        self.last = found.detach().mean()
        return found


class Writing(torch.nn.Module):
    """Adds every record to a weight, of which PyTorch keeps count, or past its count."""

    def __init__(self, *, counted: bool) -> None:
        super().__init__()
        self.inner, self.seen, self.counted = torch.nn.Linear(3, 2), torch.nn.Parameter(torch.zeros(3)), counted

    def forward(self, x):
        if float(x.sum()) > 1e9:
            return x
        with torch.no_grad():
            (self.seen if self.counted else self.seen.data).add_(x[0].detach())
        return self.inner(x + self.seen)


class Averaging(Stateful):
    """Subtracts a slow average of what it read."""

    def forward(self, x):
        self.last = 0.999 * self.last + 0.001 * x.detach().mean()
        return self.inner(x - self.last)


def test_models_that_remember_slowly_are_refused() -> None:
    with pytest.raises(InputError, match="remembers what it has read"):
        summed(Averaging(looking=False))


@pytest.mark.parametrize("looking", [False, True])
def test_models_that_remember_are_refused(looking) -> None:
    with pytest.raises(InputError, match="remembers what it has read"):
        summed(Stateful(looking=looking))


def test_losses_that_remember_are_refused() -> None:
    """Also where no layer has a rule."""
    model, past = torch.nn.PReLU(3), []

    def loss(outputs, labels):
        past.append(outputs.detach().sum())
        return (outputs * past[-2 if len(past) > 1 else -1]).sum()

    with pytest.raises(InputError, match="remembers what it has read"):
        summed(model, loss=loss)


@pytest.mark.parametrize("counted", [True, False])
def test_models_that_write_to_their_weights_are_refused(counted) -> None:
    with pytest.raises(InputError, match=r"(writes to its weights while it runs \(seen\)|remembers what it has read)"):
        summed(Writing(counted=counted))


@pytest.mark.parametrize("looking", [False, True])
def test_what_is_kept_and_never_used_is_no_memory(looking) -> None:
    """Kept to be looked at, and dropout, which draws anew for every record."""
    model = torch.nn.Sequential(Stateful(looking=looking, used=False), torch.nn.Dropout(0.5))
    total = GradientSum(model.to(DEVICE), max_grad_norm=1.0)
    for _ in range(3):
        assert bool(total(RECORDS.to(DEVICE), LABELS.to(DEVICE)).any())


def trainer(prepare):
    sampler = Deterministic(dataset_size=6, batch_size=6, epochs=1)
    plan = Plan(sampler=sampler, noise_multiplier=0.0, max_grad_norm=1.0, seed=0)
    return Trainer(plan, torch.nn.Linear(3, 2), RECORDS.numpy(), LABELS.numpy(), prepare=prepare, device="cpu")


def standardized(rows):
    return rows - rows.mean(dim=0)


def in_numpy(rows):  # which `vmap` cannot follow
    return torch.from_numpy(rows.numpy() - rows.numpy().mean(axis=0))


@pytest.mark.parametrize("prepare", [standardized, in_numpy, lambda rows: rows / rows.abs().max()])
def test_prepare_sees_one_record_at_a_time(prepare) -> None:
    """Of a batch, every record becomes what it becomes alone."""
    found, _ = trainer(prepare)._records.take(0, np.arange(6), 0)
    alone = torch.cat([prepare(RECORDS[row : row + 1]) for row in range(6)])
    assert torch.allclose(found, alone)
    assert trainer(prepare)._records.take(0, np.arange(0), 0)[0].shape == (0, 3)


def test_prepare_may_draw_and_may_not_join() -> None:
    drawn, _ = trainer(lambda rows: rows * 0 + torch.randn(3))._records.take(0, np.arange(6), 0)
    assert len(drawn.unique(dim=0)) == 6
    with pytest.raises(InputError, match="one row of each"):
        trainer(lambda rows: rows.repeat(2, 1)).take_step()


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="before 2.9 there is no such switch")
def test_products_of_a_cpu_are_not_rounded_either() -> None:
    """`medium` lets a CPU that can round the factors of products to 8 bits; a clipped sum is a product."""
    place = torch.backends.mkldnn.matmul
    torch.set_float32_matmul_precision("medium")
    try:
        assert place.fp32_precision == "bf16"
        with tensor_cores(True):
            assert place.fp32_precision == "ieee"
        assert place.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_products_that_are_rounded_all_the_same_are_refused(monkeypatch) -> None:
    """As by NVIDIA_TF32_OVERRIDE=1, which no flag of PyTorch shows."""
    exact = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: exact(a.bfloat16().float(), b.bfloat16().float()))
    refuse_rounding.cache_clear()
    with pytest.raises(InputError, match="unset NVIDIA_TF32_OVERRIDE"):
        GradientSum(torch.nn.Linear(3, 2), max_grad_norm=1.0)
    monkeypatch.undo()
    GradientSum(torch.nn.Linear(3, 2), max_grad_norm=1.0)


def test_gradients_of_before_are_forgotten() -> None:
    """A frozen layer with a gradient of an ordinary backward pass does not move, though the optimizer holds it."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model(RECORDS).sum().backward()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    sampler = Deterministic(dataset_size=6, batch_size=6, epochs=1)
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = Plan(sampler=sampler, noise_multiplier=1.0, seed=0)
    Trainer(plan, model, RECORDS.numpy(), LABELS.numpy(), optimizer=own, device="cpu").take_step()
    assert torch.equal(model[0].weight, before)
