"""The libraries' own early stopping with a guard: the number is that of the longest training that was possible.

Early stopping looks at what was released, so the number of epochs at which it stopped is an outcome. The guard knows
the trainer's plan, and reports the bound of all of it.
"""

from __future__ import annotations

import pytest
from tests.callbacks.test_callback_libraries import (
    DELTA,
    FIXED,
    dataset,
    hugging_face_trainer,
    lightning,
    lightning_module,
    torch,
    transformers,
)

from calipers.measure import measure

__all__ = ["lightning", "torch", "transformers"]  # fixtures
pytestmark = [pytest.mark.callbacks, pytest.mark.filterwarnings("ignore")]
LONGEST = 6
BUDGET = {"epsilon": 50.0, "delta": DELTA}


def check(values: dict[str, float], epochs: int) -> None:
    """The reported number bounds the longest run, and the one of the length so far is named as such."""
    assert 0 < epochs < LONGEST
    longest, taken = (measure(FIXED.replace(epochs=number)).epsilon(DELTA) for number in (LONGEST, epochs))
    assert longest.lower <= values["calipers/epsilon_at_most"] <= longest.upper
    assert taken.lower <= values["calipers/epsilon_at_most_if_length_fixed"] <= taken.upper < longest.lower


def test_hugging_face_early_stopping_has_the_number_of_all_epochs(torch, transformers, tmp_path) -> None:
    """EarlyStoppingCallback ends after two or three of six epochs; the Trainer's max_steps is the plan."""
    from calipers.callbacks.transformers import PrivacyBudget

    callback = PrivacyBudget(FIXED, **BUDGET)
    trainer = hugging_face_trainer(
        torch, transformers, tmp_path, callback, num_train_epochs=LONGEST, metric_for_best_model="eval_loss",
        greater_is_better=False,
    )  # fmt: skip
    trainer.eval_dataset, trainer.args.eval_strategy = trainer.train_dataset, "epoch"
    trainer.add_callback(transformers.EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=1e9))
    trainer.train()
    assert not callback.guard.stopped
    check(callback.guard.values(), round(trainer.state.global_step / FIXED.steps_per_epoch))
    assert f"at most {LONGEST * FIXED.steps_per_epoch} steps" in callback.guard.licensed_by


def test_lightning_early_stopping_has_the_number_of_all_epochs(torch, lightning, tmp_path) -> None:
    """EarlyStopping ends after two of six epochs; the trainer's own plan of steps counts."""
    from calipers.callbacks.lightning import PrivacyBudget

    callback = PrivacyBudget(FIXED, **BUDGET)
    stopping = lightning.callbacks.EarlyStopping("loss", patience=1, min_delta=1e9, check_on_train_epoch_end=True)
    loader = torch.utils.data.DataLoader(dataset(torch), batch_size=FIXED.batch_size)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, callbacks=[callback, stopping], enable_checkpointing=False,
        default_root_dir=tmp_path, max_epochs=LONGEST, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(lightning_module(torch, lightning, loader))
    assert stopping.stopped_epoch > 0
    assert not callback.guard.stopped
    check(callback.guard.values(), round(trainer.global_step / FIXED.steps_per_epoch))
    assert f"at most {LONGEST * FIXED.steps_per_epoch} steps" in callback.guard.licensed_by
