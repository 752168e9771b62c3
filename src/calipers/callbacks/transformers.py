"""A callback for the Hugging Face Trainer.

    callback = PrivacyBudget(training, epsilon=3, delta=1e-5)
    trainer = Trainer(..., callbacks=[callback])
    callback.log_to(trainer)                    # both bounds go wherever `report_to` goes

The Trainer checks its flag to stop after a step, so the callback asks after each step whether another is within the
budget. What the flag cannot prevent (the very first step, a step after `should_training_stop` was taken back) raises
`BudgetSpent` before it is taken. The longest training that is possible, which `EarlyStoppingCallback` may cut short, is
the Trainer's `max_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calipers.callbacks.guard import BudgetGuard
from calipers.extras import library, on_demand


class _TransformersStopping:
    """Stops `train` before the step that the budget does not cover; see `BudgetGuard` for the arguments."""

    def __init__(self, training: Any, *, every: int | None = None, **terms: Any) -> None:
        self.guard = BudgetGuard(training, every=every, log=self._send, **terms)
        self._trainer: Any = None

    def log_to(self, trainer: Any) -> None:
        """Send both bounds through `trainer.log`, and so to every tracker that it reports to."""
        self._trainer = trainer

    def _send(self, values: Mapping[str, float], steps: int) -> None:
        if self._trainer is not None:
            self._trainer.log(dict(values))

    def on_train_begin(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        """Compare the loader with the declared run, and refuse to begin what no budget covers."""
        self._compare(args, things.get("train_dataloader"))
        self.guard.plan(int(state.max_steps or 0))
        self.on_epoch_begin(args, state, control)
        self.guard.demand()

    def _compare(self, args: Any, data_loader: Any) -> None:
        """Refuse a loader, or an accumulation of its batches, that is not what was declared."""
        self._accumulation = int(args.gradient_accumulation_steps)
        self.guard.refuse_contradiction(data_loader, self._accumulation)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        """Another pass begins."""
        self._passes = math.floor((state.epoch or 0) + 1e-9) + 1
        self.guard.counted(state.global_step, self._passes)

    def on_step_begin(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        """The last moment before the step."""
        if args.gradient_accumulation_steps != self._accumulation:
            self._compare(args, things.get("train_dataloader"))
        self.guard.demand()

    def on_step_end(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        """Ask for the next step; with the last step of an epoch, its end asks."""
        self.guard.counted(state.global_step, self._passes)
        if not self._epoch_ends(state) and not self.guard.allows():
            control.should_training_stop = True

    def _epoch_ends(self, state: Any) -> bool:
        return math.isclose(state.epoch or 0, self._passes, rel_tol=0, abs_tol=1e-6)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        """Ask for another epoch, and log."""
        if not self.guard.stopped and not self.guard.allows(new_pass=True):
            control.should_training_stop = True
        self.guard.log()


def _base() -> Any:
    return library("transformers", "This callback needs Transformers: install calipers[transformers].").TrainerCallback


__getattr__ = on_demand(__name__, "PrivacyBudget", _TransformersStopping, _base)
