"""The callbacks inside the real libraries: training ends before the step that the budget does not cover.

Each is trained far beyond its budget; the counter of the library's own optimizer says how many steps were taken, which
must be the largest number whose upper bound keeps the budget, and both bounds must have arrived where the library logs.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calipers.callbacks import BudgetSpent
from calipers.errors import InputError
from calipers.measure import measure
from calipers.run import Run

pytestmark = [
    pytest.mark.callbacks,
    # What other libraries warn of is theirs to mend.
    pytest.mark.filterwarnings("ignore"),
]
os.environ.setdefault("KERAS_BACKEND", "torch")

DELTA = 1e-5
RECORDS, BATCH = 42, 10
FIXED = Run(
    dataset_size=RECORDS, batch_size=BATCH, epochs=1, noise_multiplier=4.0, sampler="deterministic", last_batch="keep"
)
POISSON = Run(sample_rate=0.25, steps=1, noise_multiplier=2.0)


def upper(run: Run, **length: int) -> float:
    return measure(run.replace(**length)).epsilon(DELTA).upper


def budget(run: Run, **length: int) -> dict[str, float]:
    """A budget that this much of the run just keeps."""
    return {"epsilon": upper(run, **length) * (1 + 1e-12), "delta": DELTA}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def dataset(torch):
    torch.manual_seed(0)
    return torch.utils.data.TensorDataset(torch.randn(RECORDS, 3), torch.randint(2, (RECORDS,)))


# Lightning


def lightning_module(torch, lightning, loader, attach=None):
    """A linear model; with `attach`, made private by Opacus and watched."""

    class Linear(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)
            self.record = None

        def training_step(self, batch, _):
            inputs, targets = batch
            loss = torch.nn.functional.cross_entropy(self.layer(inputs), targets, reduction="sum")
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def train_dataloader(self):
            return loader

    return Linear()


def lightning_trainer(lightning, folder, callback, **options):
    logger = importlib.import_module("lightning.pytorch.loggers").CSVLogger(folder, name="", version="")
    settings = {"max_epochs": 50, "enable_progress_bar": False, "enable_model_summary": False, **options}
    return lightning.Trainer(
        accelerator="cpu", devices=1, logger=logger, callbacks=[callback], enable_checkpointing=False,
        default_root_dir=folder, log_every_n_steps=1, **settings,
    )  # fmt: skip


@pytest.fixture(scope="module")
def lightning():
    found = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return found


def logged(folder: Path) -> list[tuple[float, float]]:
    """(at least, at most) of every row of Lightning's own CSV file that has them."""
    with (folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("calipers/epsilon_at_most")]
    names = [f"calipers/epsilon_at_{end}_if_length_fixed" for end in ("least", "most")]
    return [(float(row[names[0]]), float(row[names[1]])) for row in rows]


@pytest.mark.parametrize("sampler", ["deterministic", "poisson"])
def test_lightning_stops_before_the_budget_is_passed(sampler, torch, lightning, tmp_path) -> None:
    """Three epochs of a fixed order, or 13 steps of something declared to be Poisson: not one step more."""
    from calipers.callbacks.lightning import PrivacyBudget

    if sampler == "poisson":
        allowed, run, taken = budget(POISSON, steps=13), POISSON, 13
        from calipers.adapters.torch_sampler import CollateWithEmpty, TorchBatches
        from calipers.samplers import Poisson

        records = dataset(torch)
        batches = TorchBatches(Poisson(sample_rate=0.25, steps=10_000, dataset_size=RECORDS), seed=1)
        loader = torch.utils.data.DataLoader(records, batch_sampler=batches, collate_fn=CollateWithEmpty(records))
    else:
        allowed, run, taken = budget(FIXED, epochs=3), FIXED, 15
        loader = torch.utils.data.DataLoader(dataset(torch), batch_size=BATCH)
    callback = PrivacyBudget(run, **allowed)
    trainer = lightning_trainer(lightning, tmp_path, callback)
    trainer.fit(lightning_module(torch, lightning, loader))
    assert trainer.global_step == taken
    assert callback.guard.stopped
    found = logged(tmp_path)
    assert found[-1][0] <= found[-1][1] <= allowed["epsilon"]
    assert found[-1][0] > 0


def test_lightning_raises_where_it_would_go_on(torch, lightning, tmp_path) -> None:
    """min_steps makes Lightning ignore should_stop; then the step is prevented by an exception."""
    from calipers.callbacks.lightning import PrivacyBudget

    callback = PrivacyBudget(FIXED, **budget(FIXED, epochs=1))
    trainer = lightning_trainer(lightning, tmp_path, callback, min_steps=30)
    loader = torch.utils.data.DataLoader(dataset(torch), batch_size=BATCH)
    with pytest.raises(BudgetSpent):
        trainer.fit(lightning_module(torch, lightning, loader))
    assert trainer.global_step == 5


def test_lightning_refuses_a_loader_that_shuffles(torch, lightning, tmp_path) -> None:
    """Declared Poisson, executed shuffled: nothing is trained."""
    from calipers.callbacks.lightning import PrivacyBudget

    loader = torch.utils.data.DataLoader(dataset(torch), batch_size=BATCH, shuffle=True)
    trainer = lightning_trainer(lightning, tmp_path, PrivacyBudget(POISSON, epsilon=9, delta=DELTA))
    with pytest.raises(InputError, match="RandomSampler"):
        trainer.fit(lightning_module(torch, lightning, loader))
    assert trainer.global_step == 0


@pytest.mark.parametrize("poisson_sampling", [True, False])
def test_lightning_with_a_training_that_is_watched(poisson_sampling, torch, lightning, tmp_path) -> None:
    """Opacus inside Lightning, attached: the record itself says afterwards that the budget was kept."""
    opacus = pytest.importorskip("opacus")
    from calipers.adapters.opacus import attach
    from calipers.adapters.watched_before import UNKNOWN_SUM
    from calipers.callbacks.lightning import PrivacyBudget

    module = lightning_module(torch, lightning, None)
    engine = opacus.PrivacyEngine()
    shuffled = torch.utils.data.DataLoader(dataset(torch), batch_size=BATCH, shuffle=True)
    layer, optimizer, loader = engine.make_private(
        module=module.layer, optimizer=torch.optim.SGD(module.layer.parameters(), lr=0.01), data_loader=shuffled,
        noise_multiplier=4.0, max_grad_norm=1.0, loss_reduction="sum", poisson_sampling=poisson_sampling,
    )  # fmt: skip
    record = attach(engine, optimizer, loader)
    module.layer, module.configure_optimizers = layer, lambda: optimizer
    if poisson_sampling:
        described = Run(dataset_size=RECORDS, sample_rate=0.2, steps=8, noise_multiplier=4.0)
        allowed, taken = budget(described, steps=8), 8
    else:
        described = Run(
            dataset_size=RECORDS, batch_size=BATCH, epochs=1, noise_multiplier=4.0, sampler="shuffle", last_batch="keep"
        )
        allowed, taken = budget(described, epochs=2), 10
    trainer = lightning_trainer(lightning, tmp_path, PrivacyBudget(record, **allowed))
    trainer.fit(module, loader)
    assert record.steps == taken
    assert record.why_not() == (UNKNOWN_SUM,)  # nobody showed it the criterion
    assert record.epsilon(DELTA).upper <= allowed["epsilon"]
    low, high = logged(tmp_path)[-1]
    assert 0 < low <= high <= allowed["epsilon"]


# Hugging Face


def hugging_face_trainer(torch, transformers, folder, callback, **options):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, inputs, labels):
            logits = self.layer(inputs)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Fixed(transformers.Trainer):
        """A loader in a fixed order; the usual one shuffles."""

        def _get_train_sampler(self, *arguments):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    records = [{"inputs": x, "labels": y} for x, y in dataset(torch)]
    settings = {"num_train_epochs": 50, **options}
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_strategy="no", **settings,
    )  # fmt: skip
    kind = transformers.Trainer if options.pop("shuffled", False) else Fixed
    return kind(model=Model(), args=arguments, train_dataset=records, callbacks=[callback])


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.mark.parametrize(("run", "length", "taken"), [(FIXED, {"epochs": 3}, 15), (FIXED, {"epochs": 1}, 5)])
def test_hugging_face_stops_before_the_budget_is_passed(run, length, taken, torch, transformers, tmp_path) -> None:
    """Whole epochs that the budget covers, to their last step; both bounds in the trainer's own history."""
    from calipers.callbacks.transformers import PrivacyBudget

    callback = PrivacyBudget(run, **budget(run, **length))
    trainer = hugging_face_trainer(torch, transformers, tmp_path, callback)
    callback.log_to(trainer)
    trainer.train()
    assert trainer.state.global_step == taken
    assert callback.guard.stopped
    rows = [row for row in trainer.state.log_history if "calipers/epsilon_at_most" in row]
    assert len(rows) == length["epochs"]
    assert 0 < rows[-1]["calipers/epsilon_at_least_if_length_fixed"] <= rows[-1]["calipers/epsilon_at_most"]


def test_hugging_face_stops_inside_an_epoch(torch, transformers, tmp_path) -> None:
    """Steps of declared Poisson sampling (the sampler is not visible to the callback here): 8 and no ninth."""
    from calipers.callbacks.transformers import PrivacyBudget

    callback = PrivacyBudget(POISSON, **budget(POISSON, steps=8))
    callback.guard.refuse_contradiction = lambda *_: None
    trainer = hugging_face_trainer(torch, transformers, tmp_path, callback)
    trainer.train()
    assert trainer.state.global_step == 8


def test_hugging_face_refuses_its_usual_loader_as_poisson(torch, transformers, tmp_path) -> None:
    """The Trainer shuffles unless told otherwise, and accelerate wraps the loader: it is recognized all the same."""
    from calipers.callbacks.transformers import PrivacyBudget

    class Plain(transformers.Trainer):
        pass

    callback = PrivacyBudget(POISSON, epsilon=9, delta=DELTA)
    fixed = hugging_face_trainer(torch, transformers, tmp_path, callback)
    trainer = Plain(model=fixed.model, args=fixed.args, train_dataset=fixed.train_dataset, callbacks=[callback])
    with pytest.raises(InputError, match="shuffle"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_budget_for_nothing_trains_nothing(torch, transformers, tmp_path) -> None:
    """Even the first step is asked for."""
    from calipers.callbacks.transformers import PrivacyBudget

    trainer = hugging_face_trainer(torch, transformers, tmp_path, PrivacyBudget(FIXED, epsilon=1e-9, delta=DELTA))
    with pytest.raises(BudgetSpent):
        trainer.train()
    assert trainer.state.global_step == 0


# Keras


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def keras_model(keras, **options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(
        optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False, **options
    )
    return model


def arrays():
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.normal(size=(RECORDS, 3)).astype("float32"), rng.integers(2, size=RECORDS)


@pytest.mark.parametrize(("length", "taken"), [({"epochs": 3}, 15), ({"epochs": 1}, 5)])
def test_keras_stops_before_the_budget_is_passed(length, taken, keras) -> None:
    """The optimizer's own counter, and both bounds in the history of `fit`."""
    from calipers.callbacks.keras import PrivacyBudget

    model, (inputs, targets) = keras_model(keras), arrays()
    callback = PrivacyBudget(FIXED, **budget(FIXED, **length))
    history = model.fit(
        inputs, targets, batch_size=BATCH, epochs=50, shuffle=False, verbose=0, callbacks=[callback]
    ).history
    assert int(model.optimizer.iterations) == taken
    assert len(history["calipers/epsilon_at_most"]) == length["epochs"]
    assert 0 < history["calipers/epsilon_at_least_if_length_fixed"][-1] <= history["calipers/epsilon_at_most"][-1]


AT_ONCE = """
import keras, numpy
from calipers.callbacks.keras import PrivacyBudget
from calipers.measure import measure
from calipers.run import Run
run = Run(sample_rate=0.25, steps=7, noise_multiplier=2.0)
epsilon = measure(run).epsilon(1e-5).upper * (1 + 1e-12)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.compile(optimizer="sgd", loss="mse", steps_per_execution=2)
callback = PrivacyBudget(run, epsilon=epsilon, delta=1e-5)
inputs, targets = numpy.ones((40, 3), "float32"), numpy.ones((40, 2), "float32")
model.fit(inputs, targets, batch_size=10, epochs=50, verbose=0, callbacks=[callback])
print(keras.backend.backend(), int(model.optimizer.iterations))
"""


def test_keras_asks_for_all_steps_of_one_execution() -> None:
    """With two steps at a time (the JAX backend) and a budget for 7, six are taken."""
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("keras") is None:
        pytest.skip("needs Keras and JAX")
    # In a process of its own: where JAX runs, PyTorch's loaders must not fork.
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_ONCE], capture_output=True, text=True, check=False,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert result.stdout.split() == ["jax", "6"], result.stderr


def test_keras_goes_on_counting_in_a_second_fit(keras) -> None:
    """Two epochs are covered; the second `fit` gets what the first left."""
    from calipers.callbacks.keras import PrivacyBudget

    model, (inputs, targets) = keras_model(keras), arrays()
    callback = PrivacyBudget(FIXED, **budget(FIXED, epochs=2))
    for _ in range(2):
        model.fit(inputs, targets, batch_size=BATCH, epochs=1, shuffle=False, verbose=0, callbacks=[callback])
    with pytest.raises(BudgetSpent):
        model.fit(inputs, targets, batch_size=BATCH, epochs=1, shuffle=False, verbose=0, callbacks=[callback])
    assert int(model.optimizer.iterations) == 10


def test_keras_refuses_another_number_of_steps(keras) -> None:
    """The description drops the last batch, Keras keeps it."""
    from calipers.callbacks.keras import PrivacyBudget

    model, (inputs, targets) = keras_model(keras), arrays()
    run = FIXED.replace(last_batch="drop")
    with pytest.raises(InputError, match="4 steps per epoch"):
        model.fit(
            inputs, targets, batch_size=BATCH, shuffle=False, verbose=0,
            callbacks=[PrivacyBudget(run, epsilon=9, delta=DELTA)],
        )  # fmt: skip
