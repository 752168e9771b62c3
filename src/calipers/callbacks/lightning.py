"""A callback for Lightning: `Trainer(callbacks=[PrivacyBudget(...)])`.

Both bounds go to every logger of the trainer (TensorBoard, Weights & Biases, MLflow, CSV), through Lightning's own
interface. After each batch the callback asks whether another is within the budget, and sets `trainer.should_stop`
if not. The longest training that is possible, which `EarlyStopping` may cut short, is the trainer's own plan of steps.
Lightning goes on in spite of that while `min_steps` or `min_epochs` are not met; then the callback raises
`BudgetSpent` before the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calipers.callbacks.guard import BudgetGuard
from calipers.errors import CalipersError, InputError
from calipers.extras import library, on_demand


class _LightningStopping:
    """Stops `fit` before the step that the budget does not cover; see `BudgetGuard` for the arguments."""

    def __init__(self, training: Any, *, every: int | None = None, **terms: Any) -> None:
        super().__init__()
        self.guard = BudgetGuard(training, every=every, log=self._send, **terms)
        self._trainer: Any = None

    def _send(self, values: Mapping[str, float], steps: int) -> None:
        for logger in self._trainer.loggers:
            logger.log_metrics(dict(values), step=steps)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Compare the loader with the declared run, and refuse to begin what no budget covers."""
        self._trainer = trainer
        self._compare(trainer)
        longest = trainer.estimated_stepping_batches
        self.guard.plan(int(longest) if math.isfinite(longest) else 0)
        self.guard.counted(trainer.global_step, trainer.current_epoch + 1)
        self.guard.demand()

    def _compare(self, trainer: Any) -> None:
        """Refuse a loader, or an accumulation of its batches, that is not what was declared."""
        self._accumulation = int(trainer.accumulate_grad_batches)
        for other in trainer.callbacks if self.guard.describes else ():
            changing = any(kind.__name__ == "GradientAccumulationScheduler" for kind in type(other).__mro__)
            if changing and set(other.scheduling.values()) != {self._accumulation}:
                raise InputError(
                    "GradientAccumulationScheduler changes how many batches make a step, and one Run does not describe "
                    "that; give Trainer(accumulate_grad_batches=...) one number."
                )
        self.guard.refuse_contradiction(trainer.train_dataloader, self._accumulation, trainer.num_training_batches)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """The last moment before the step."""
        if trainer.accumulate_grad_batches != self._accumulation:
            self._compare(trainer)
        self.guard.counted(trainer.global_step, trainer.current_epoch + 1)
        self.guard.demand()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ask for the next batch of this epoch; after its last one the epoch's end asks."""
        self.guard.counted(trainer.global_step, trainer.current_epoch + 1)
        if not trainer.is_last_batch and not self.guard.allows():
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ask for another epoch, and log."""
        if not self.guard.stopped and not self.guard.allows(new_pass=True):
            trainer.should_stop = True
        self.guard.log()


def _base() -> Any:
    missing = "This callback needs Lightning: install calipers[lightning]."
    try:
        return library("lightning.pytorch", missing).Callback
    except CalipersError:
        return library("pytorch_lightning", missing).Callback


__getattr__ = on_demand(__name__, "PrivacyBudget", _LightningStopping, _base)
