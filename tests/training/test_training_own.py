"""The user's own training: datasets, several inputs, optimizers, schedules, precision, evaluation, adapters."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402
from torch.utils.data import Dataset as TorchDataset  # noqa: E402

from calipers.errors import InputError  # noqa: E402
from calipers.samplers import Poisson, Shuffle  # noqa: E402
from calipers.training import Plan, Trainer, own_loss, train, with_lora  # noqa: E402
from calipers.training.gradients import GradientSum  # noqa: E402

pytestmark = pytest.mark.torch

N = 30
RNG = np.random.default_rng(0)
RECORDS = RNG.normal(size=(N, 6)).astype(np.float32)
LABELS = (np.arange(N) % 3).astype(np.int64)
SAMPLER = Poisson(dataset_size=N, batch_size=6, steps=6)


def plan(**changes):
    return Plan(**{"sampler": SAMPLER, "noise_multiplier": 1.0, "learning_rate": 0.5, "seed": 3, **changes})


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


class Lazy(TorchDataset):
    """Records that are made when they are asked for; `asked` says which, `augment` draws from PyTorch's generator."""

    def __init__(self, augment=0.0):
        self.augment, self.asked = augment, []

    def __len__(self):
        return N

    def __getitem__(self, row):
        self.asked.append(row)
        return RECORDS[row] + self.augment * torch.randn(6).numpy(), LABELS[row]


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, x, mask, labels=None):
        scores = self.layer(x * mask)
        if labels is None:
            return scores
        return type("Output", (), {"logits": scores, "loss": torch.nn.functional.cross_entropy(scores, labels)})()


def test_a_dataset_a_loader_and_arrays_are_one_training() -> None:
    """Read by number as drawn, with and without workers; to the bit, and nothing is read that was not drawn."""
    expected = weights(train(plan(), network(), RECORDS, LABELS, device="cpu").model)
    lazy = Lazy()
    trainer = Trainer(plan(), network(), lazy, device="cpu")
    lazy.asked.clear()
    drawn = []
    stream = Trainer(plan(), network(), RECORDS, LABELS, device="cpu")._stream
    for batch in stream:
        trainer.take_step()
        drawn += batch.tolist()
    assert lazy.asked == drawn
    assert torch.equal(weights(trainer.model), expected)
    loaders = (
        DataLoader(TensorDataset(torch.from_numpy(RECORDS), torch.from_numpy(LABELS)), batch_size=4, shuffle=True),
        DataLoader(Lazy(), num_workers=1, batch_size=7),
    )
    for loader in loaders:
        found = train(plan(), network(), loader, device="cpu")
        assert torch.equal(weights(found.model), expected)
        assert (found.run().batch_size, found.run().sampler) == (6, "poisson")  # the plan's sampler, not the loader's


def test_random_records_are_repeated_by_workers_and_by_resuming(tmp_path) -> None:
    """Augmentation is seeded by step and record; killed after 4 steps, or read by a worker, it draws the same."""
    augmented = {"records": Lazy(augment=0.5), "device": "cpu"}
    expected = weights(train(plan(), network(), **augmented).model)
    plain = weights(train(plan(), network(), RECORDS, LABELS, device="cpu").model)
    assert not torch.allclose(expected, plain, atol=1e-4)
    assert torch.equal(weights(train(plan(), network(), workers=1, **augmented).model), expected)
    path = tmp_path / "run.checkpoint"

    def dying(done, steps):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(plan(), network(), workers=1, checkpoint=path, checkpoint_every=3, progress=dying, **augmented)
    found = train(plan(), network(), workers=1, checkpoint=path, checkpoint_every=3, **augmented)
    assert found.resumed_at == 3
    assert torch.equal(weights(found.model), expected)


def test_several_inputs_by_position_and_by_name_and_the_models_own_loss() -> None:
    mask = (RNG.random((N, 6)) < 0.5).astype(np.float32)
    seen = [
        train(plan(), Masked(), records, labels, loss=loss, device="cpu")
        for records, labels, loss in (
            ((RECORDS, mask), LABELS, torch.nn.functional.cross_entropy),
            ({"x": RECORDS, "mask": mask}, LABELS, torch.nn.functional.cross_entropy),
            ({"x": RECORDS, "mask": mask, "labels": LABELS}, None, own_loss),
        )
    ]
    dictionaries = Dictionaries([dict(x=x, mask=m, labels=y) for x, m, y in zip(RECORDS, mask, LABELS, strict=True)])
    seen += [train(plan(), Masked(), dictionaries, device="cpu")]
    seen += [train(plan(), Masked(), dictionaries, loss=own_loss, device="cpu")]
    for found in seen:
        assert torch.equal(weights(found.model), weights(seen[0].model))
    other = train(plan(), Masked(), (RECORDS, np.ones_like(mask)), LABELS, device="cpu")
    assert not torch.allclose(weights(other.model), weights(seen[0].model))


class Dictionaries(TorchDataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]


def test_any_optimizer_and_schedule_on_the_noisy_gradient(tmp_path) -> None:
    """AdamW with OneCycle, by hand on the gradients that the trainer leaves; resumed too."""

    def adamw(parameters):
        return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.3)

    def cycle(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=7)

    settings = {"optimizer": adamw, "schedule": cycle, "device": "cpu"}
    trainer, by_hand = Trainer(plan(), network(), RECORDS, LABELS, **settings), network()
    optimizer = adamw(by_hand.parameters())
    schedule = cycle(optimizer)
    rates = []
    for _ in range(6):
        trainer.take_step()
        for ours, theirs in zip(by_hand.parameters(), trainer.model.parameters(), strict=True):
            ours.grad = theirs.grad.clone()
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        assert torch.equal(weights(by_hand), weights(trainer.model))
    assert len(set(rates)) == 6
    path = tmp_path / "run.checkpoint"
    half = Trainer(plan(), network(), RECORDS, LABELS, **settings)
    for _ in range(3):
        half.take_step()
    half.save(path)
    again = Trainer(plan(), network(), RECORDS, LABELS, **settings)
    again.resume(path)
    for _ in range(3):
        again.take_step()
    assert torch.equal(weights(again.model), weights(by_hand))
    with pytest.raises(InputError, match="updates was AdamW"):
        Trainer(plan(), network(), RECORDS, LABELS, device="cpu").resume(path)
    model = network()
    given = train(plan(), model, RECORDS, LABELS, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), device="cpu")
    assert torch.equal(weights(given.model), weights(train(plan(), network(), RECORDS, LABELS, device="cpu").model))


def test_evaluations_see_the_model_as_it_is_used_and_survive(tmp_path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 3))
    model[0].eval()

    def look(model, step):
        assert not any(layer.training for layer in model.modules())
        assert not torch.is_grad_enabled()
        torch.rand(3)  # drawn here, missed nowhere
        return {"norm": float(weights(model).norm())}

    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen = train(plan(), model, RECORDS, LABELS, evaluation=look, evaluate_every=2, device="cpu")
    assert [step for step, _ in seen.evaluations] == [2, 4, 6]
    assert seen.evaluations[-1][1] == {"norm": pytest.approx(float(weights(model).norm()))}
    assert [layer.training for layer in model] == [False, True, True]
    model.load_state_dict(start)
    unseen = train(plan(), model, RECORDS, LABELS, device="cpu")
    assert torch.equal(weights(unseen.model), weights(model))
    assert unseen.evaluations == ()
    path = tmp_path / "run.checkpoint"
    for _ in range(2):  # the second takes up a finished training
        model.load_state_dict(start)
        again = train(plan(), model, RECORDS, LABELS, evaluation=look, evaluate_every=4, checkpoint=path, device="cpu")
        assert [step for step, _ in again.evaluations] == [4, 6]


@pytest.mark.parametrize("norm", [1e-3, 0.5])
def test_bf16_is_said_and_clips_the_numbers_in_memory(norm) -> None:
    """Every record's summand has norm at most C exactly, and is a rough version of the precise one."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 200), torch.nn.Tanh(), torch.nn.Linear(200, 10))
    records, labels = torch.randn(20, 64), torch.arange(20) % 10
    rough = GradientSum(model, max_grad_norm=norm, precision="bf16")
    precise = GradientSum(model, max_grad_norm=norm)
    for row in range(20):
        one = slice(row, row + 1)
        found, expected = rough(records[one], labels[one]), precise(records[one], labels[one])
        assert found.dtype == torch.float32
        assert float(found.double().norm()) <= norm
        assert float((found - expected).norm()) <= 0.1 * norm
        assert not torch.equal(found, expected)
    trained = train(plan(), network(), RECORDS, LABELS, precision="bf16", device="cpu")
    assert trained.precision == "bfloat16 products (autocast), weights and sums in float32"
    assert train(plan(), network(), RECORDS, LABELS, device="cpu").precision == "float32"


def test_physical_pieces_do_not_change_the_step() -> None:
    whole = train(plan(micro_batch=100), network().double(), RECORDS.astype(float), LABELS, device="cpu")
    pieces = train(plan(micro_batch=2), network().double(), RECORDS.astype(float), LABELS, device="cpu")
    assert torch.allclose(weights(whole.model), weights(pieces.model), rtol=0, atol=1e-12)


def test_adapters_alone_are_trained_clipped_and_measured() -> None:
    """What a record adds to the sum is the clipped gradient of A and B; the base does not move."""
    model = with_lora(network(), rank=2, layers=("2",))
    base = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    torch.nn.init.normal_(model[2].up.weight)
    total = GradientSum(model, max_grad_norm=1e-3)
    assert total.dimension == 2 * 5 + 3 * 2
    one = total(torch.from_numpy(RECORDS[:1]), torch.from_numpy(LABELS[:1]))
    scores = model(torch.from_numpy(RECORDS[:1]))
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(LABELS[:1]))
    true = torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])]
    )
    assert torch.allclose(one, true * 1e-3 / true.norm(), rtol=1e-4, atol=1e-9)
    trained = train(plan(), model, RECORDS, LABELS, device="cpu")
    assert trained.run().dimension == 16
    for name, parameter in model.named_parameters():
        assert name not in base or torch.equal(parameter, base[name])
    with pytest.raises(InputError, match="no linear layer called nothing; the model has 0, 2"):
        with_lora(network(), rank=2, layers=("nothing",))


class Uneven(TorchDataset):
    def __len__(self):
        return N

    def __getitem__(self, row):
        return np.ones(6 + row % 2, dtype=np.float32), 0


class Words(Uneven):
    def __getitem__(self, row):
        return "word", 0


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("records", "settings", "words"),
    [
        (Uneven(), {}, "Pad all records to one length"),
        (Words(), {}, "expected numbers as tensors or arrays"),
        (Endless(), {}, "draws records by their numbers"),
        (iter(()), {}, "draws records by their numbers"),
        (Lazy(), {"labels": LABELS}, "A dataset brings its labels"),
        (RECORDS, {"labels": LABELS, "workers": 2}, "need no workers"),
        (RECORDS, {"labels": LABELS[:-1]}, "30 records and 29 labels"),
        (Dictionaries([{"x": 1.0}] * N), {}, "Expected records with the key labels"),
        (RECORDS, {"labels": LABELS, "loss": own_loss}, "returned no loss of its own"),
        (RECORDS, {"labels": LABELS, "loss": lambda o, _: o}, "loss of a record to be one number"),
        (RECORDS, {"labels": LABELS, "precision": "fp16"}, "precision"),
        (RECORDS, {"labels": LABELS, "optimizer": torch.optim.LBFGS}, "LBFGS"),
        (RECORDS, {"labels": LABELS, "optimizer": lambda _: torch.optim.SGD([torch.zeros(1)])}, "no trained parameter"),
        (RECORDS, {"labels": LABELS, "schedule": torch.optim.lr_scheduler.ReduceLROnPlateau}, "waits for a loss"),
    ],
)
def test_what_cannot_be_trained_is_said(records, settings, words) -> None:
    with pytest.raises(InputError, match=words):
        train(plan(), network(), records, device="cpu", **settings)


def test_contradictions_and_frozen_models_are_refused() -> None:
    frozen = network().requires_grad_(False)
    with pytest.raises(InputError, match="nothing to train"):
        train(plan(), frozen, RECORDS, LABELS, device="cpu")
    with pytest.raises(InputError, match="leave one of them out"):
        train(plan(momentum=0.9), network(), RECORDS, LABELS, optimizer=torch.optim.SGD, device="cpu")
    shuffled = plan(sampler=Shuffle(dataset_size=N + 1, batch_size=6, epochs=1))
    with pytest.raises(InputError, match="give the sampler dataset_size=30"):
        train(shuffled, network(), Lazy(), device="cpu")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of PyTorch's own import
@pytest.mark.parametrize("part", ["whole", "layer"])
def test_compiled_models_are_refused_with_what_to_give_instead(part) -> None:
    linear = torch.nn.Linear(3, 2)
    model = torch.compile(linear) if part == "whole" else torch.nn.Sequential(torch.compile(linear))
    plan = Plan(sampler=Poisson(dataset_size=4, batch_size=2, steps=1), noise_multiplier=1.0, seed=0)
    with pytest.raises(InputError, match=r"torch\.compile .*model\._orig_mod"):
        Trainer(plan, model, np.zeros((4, 3), np.float32), np.zeros(4, np.int64), device="cpu")
