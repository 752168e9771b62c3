"""Gradients of several batches in one step: counted as the batch that they make together, or refused.

1290 shuffled records in batches of 40, four of them in a step, are batches of 160: over four epochs at noise 1 an
attack shows epsilon 16.303, and the bound for batches of 40 is 11.536. Under Poisson sampling a record may be in
several of the batches of one step: 32 steps of four batches at rate 1/32 have epsilon at least 5.037, and the bound
for 128 steps of one batch is 1.512.
"""

from __future__ import annotations

import pytest
from tests.callbacks.test_callback_libraries import keras, keras_model, lightning, torch, transformers

from calipers.adaptive import PrivacyFilter
from calipers.callbacks import BudgetGuard
from calipers.errors import InputError
from calipers.measure import measure
from calipers.run import Run

__all__ = ["keras", "lightning", "torch", "transformers"]  # fixtures
pytestmark = [pytest.mark.callbacks, pytest.mark.filterwarnings("ignore")]
RECORDS, BATCH, TOGETHER, DELTA = 325, 10, 4, 1e-5
SHUFFLED = Run(dataset_size=RECORDS, batch_size=BATCH, epochs=2, noise_multiplier=4.0, sampler="shuffle")
WHOLE = SHUFFLED.replace(batch_size=BATCH * TOGETHER)
POISSON = Run(dataset_size=RECORDS, sample_rate=1 / 32, steps=64, noise_multiplier=4.0)
TERMS = {"epsilon": 50.0, "delta": DELTA}


def loader_of(torch, records: int = RECORDS, **options):
    """Batches of ten, shuffled, the last one dropped."""
    data = torch.utils.data.TensorDataset(torch.randn(records, 3), torch.randint(2, (records,)))
    settings = {"batch_size": BATCH, "shuffle": True, "drop_last": True, **options}
    if "batch_sampler" in settings:
        from calipers.adapters.torch_sampler import CollateWithEmpty

        settings = {"batch_sampler": settings["batch_sampler"], "collate_fn": CollateWithEmpty(data)}
    return torch.utils.data.DataLoader(data, **settings)


def poisson_batches():
    from calipers.adapters.torch_sampler import TorchBatches
    from calipers.samplers import Poisson

    return TorchBatches(Poisson(dataset_size=RECORDS, sample_rate=1 / 32, steps=64), seed=1)


def lightning_fit(torch, lightning, training, *others, **options):
    """A trainer with the callback, its guard, and a module that it can fit."""
    from calipers.callbacks.lightning import PrivacyBudget

    class Linear(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1], reduction="sum")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    terms = {} if isinstance(training, PrivacyFilter) else TERMS
    callback = PrivacyBudget(training, **terms)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, callbacks=[callback, *others], enable_checkpointing=False,
        max_epochs=2, enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip
    return trainer, callback.guard, Linear()


def test_lightning_counts_the_batches_of_a_step_as_one(torch, lightning) -> None:
    """Declared as it is executed, eight steps of 40 records an epoch, it has the number of that run."""
    trainer, guard, module = lightning_fit(torch, lightning, WHOLE, accumulate_grad_batches=TOGETHER)
    trainer.fit(module, loader_of(torch))
    assert trainer.global_step == 2 * WHOLE.steps_per_epoch == 16
    values, truth = guard.values(), measure(WHOLE).epsilon(DELTA)
    assert truth.lower <= values["calipers/epsilon_at_most"] <= truth.upper
    assert values["calipers/epsilon_at_most"] > measure(SHUFFLED).epsilon(DELTA).upper


@pytest.mark.parametrize(
    ("run", "loading", "options", "reason"),
    [
        (SHUFFLED, {}, {}, "batch_size=10, and the loader .* has 40, 4 batches of 10 in each step"),
        (WHOLE.replace(batch_size=80), {}, {}, "batch_size=80, and the loader .* has 40"),
        (WHOLE.replace(dataset_size=350), {"records": 350}, {}, "35 batches.*smaller"),
        (WHOLE.replace(dataset_size=315, last_batch="keep"), {"records": 315, "drop_last": False}, {}, "smaller"),
        (WHOLE, {}, {"limit_train_batches": 30}, "30 batches.*smaller"),
        (POISSON, {"batch_sampler": poisson_batches}, {}, "poisson.*accumulation to 1"),
    ],
)
def test_lightning_refuses_another_accumulation(run, loading, options, reason, torch, lightning) -> None:
    """Not one step is taken where the declared batch is not the batch of a step."""
    loading = {name: value() if callable(value) else value for name, value in loading.items()}
    trainer, _, module = lightning_fit(torch, lightning, run, accumulate_grad_batches=TOGETHER, **options)
    with pytest.raises(InputError, match=reason):
        trainer.fit(module, loader_of(torch, **loading))
    assert trainer.global_step == 0


def test_lightning_refuses_accumulation_with_a_filter(torch, lightning) -> None:
    """A filter pays for steps of its menu, and none of them has several batches."""
    keep = PrivacyFilter({"only": POISSON.replace(steps=1)}, **TERMS)
    trainer, _, module = lightning_fit(torch, lightning, keep, accumulate_grad_batches=2)
    with pytest.raises(InputError, match="accumulation to 1"):
        trainer.fit(module, loader_of(torch, batch_sampler=poisson_batches()))
    assert sum(keep.spent.values()) == trainer.global_step == 0


def test_lightning_refuses_accumulation_that_changes(torch, lightning) -> None:
    """Its own scheduler before the first step, another callback before the first step that differs."""
    scheduler = lightning.callbacks.GradientAccumulationScheduler(scheduling={0: 1, 1: TOGETHER})
    trainer, _, module = lightning_fit(torch, lightning, SHUFFLED, scheduler)
    with pytest.raises(InputError, match="GradientAccumulationScheduler"):
        trainer.fit(module, loader_of(torch))
    assert trainer.global_step == 0

    class Changing(lightning.Callback):
        def on_train_epoch_start(self, trainer, *_):
            trainer.accumulate_grad_batches = 1 + trainer.current_epoch

    trainer, _, module = lightning_fit(torch, lightning, SHUFFLED, Changing())
    with pytest.raises(InputError, match="has 20, 2 batches of 10 in each step"):
        trainer.fit(module, loader_of(torch))
    assert trainer.global_step == SHUFFLED.steps_per_epoch


def hugging_face(torch, transformers, folder, run, records: int = RECORDS):
    from calipers.callbacks.transformers import PrivacyBudget

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, inputs, labels):
            logits = self.layer(inputs)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_strategy="no", num_train_epochs=2, gradient_accumulation_steps=TOGETHER,
        dataloader_drop_last=True,
    )  # fmt: skip
    data = [{"inputs": torch.randn(3), "labels": number % 2} for number in range(records)]
    callback = PrivacyBudget(run, **TERMS)
    return transformers.Trainer(model=Model(), args=arguments, train_dataset=data, callbacks=[callback]), callback


def test_hugging_face_counts_the_batches_of_a_step_as_one(torch, transformers, tmp_path) -> None:
    """As Lightning does."""
    trainer, callback = hugging_face(torch, transformers, tmp_path, WHOLE)
    trainer.train()
    assert trainer.state.global_step == 2 * WHOLE.steps_per_epoch == 16
    truth = measure(WHOLE).epsilon(DELTA)
    assert truth.lower <= callback.guard.values()["calipers/epsilon_at_most"] <= truth.upper


@pytest.mark.parametrize(
    ("run", "reason"),
    [(SHUFFLED, "has 40, 4 batches of 10 in each step"), (WHOLE.replace(dataset_size=350), "35 batches.*smaller")],
)
def test_hugging_face_refuses_another_accumulation(run, reason, torch, transformers, tmp_path) -> None:
    """Not one step is taken."""
    trainer, _ = hugging_face(torch, transformers, tmp_path, run, run.dataset_size)
    with pytest.raises(InputError, match=reason):
        trainer.train()
    assert trainer.state.global_step == 0


def test_hugging_face_refuses_accumulation_that_changes(torch, transformers, tmp_path) -> None:
    """A callback that changes the arguments after the first epoch: no step differs from those before."""

    class Changing(transformers.TrainerCallback):
        def on_epoch_end(self, args, *_, **__):
            args.gradient_accumulation_steps = 2

    trainer, _ = hugging_face(torch, transformers, tmp_path, WHOLE)
    trainer.add_callback(Changing())
    with pytest.raises(InputError, match="has 20, 2 batches of 10 in each step"):
        trainer.train()
    assert trainer.state.global_step == WHOLE.steps_per_epoch


def test_a_loader_of_accelerate_says_its_accumulation(torch) -> None:
    """A loop of one's own with Accelerate: the prepared loader knows how many batches make a step."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=TOGETHER)
    try:
        loader = accelerator.prepare(loader_of(torch))
        with pytest.raises(InputError, match="has 40, 4 batches of 10 in each step"):
            next(BudgetGuard(SHUFFLED, **TERMS).batches(loader))
        guard = BudgetGuard(WHOLE, **TERMS)
        assert sum(1 for _ in range(2) for _ in guard.batches(loader)) == 64
        truth = measure(WHOLE).epsilon(DELTA)
        assert truth.lower <= guard.values()["calipers/epsilon_at_most_if_length_fixed"] <= truth.upper
        assert guard.values()["calipers/epsilon_at_least_if_length_fixed"] > 0
    finally:
        accelerate.state.GradientState._reset_state()
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("training", [POISSON, PrivacyFilter({"only": POISSON.replace(steps=1)}, **TERMS)])
def test_keras_refuses_an_optimizer_that_accumulates(training, keras) -> None:
    """Keras's optimizers can hold gradients back; how many records a step has is not visible there."""
    import numpy as np

    from calipers.callbacks.keras import PrivacyBudget

    model = keras_model(keras)
    model.optimizer = keras.optimizers.SGD(gradient_accumulation_steps=TOGETHER)
    callback = PrivacyBudget(training, **({} if isinstance(training, PrivacyFilter) else TERMS))
    with pytest.raises(InputError, match="gradient_accumulation_steps"):
        model.fit(np.zeros((40, 3)), np.zeros(40), batch_size=BATCH, verbose=0, callbacks=[callback])
    assert int(model.optimizer.iterations) == 0
