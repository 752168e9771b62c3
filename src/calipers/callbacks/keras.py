"""A callback for Keras 3, with any of its backends.

    model.fit(..., callbacks=[PrivacyBudget(run, epsilon=3, delta=1e-5), TensorBoard(...)])

Keras looks at `stop_training` after a batch and after an epoch, so the callback asks there whether another is within
the budget. Both bounds are added to the epoch's logs: callbacks after this one (TensorBoard, W&B, MLflow, CSVLogger)
and `History` see them. With `steps_per_execution` above 1 that many steps are asked for at once.

Keras knows nothing of how its batches hide a record: the run is declared. `fit` on arrays shuffles by default, which is
sampler="shuffle", not "poisson".
"""

from __future__ import annotations

from typing import Any

from calipers.adaptive import PrivacyFilter
from calipers.callbacks.guard import BudgetGuard
from calipers.errors import InputError
from calipers.extras import library, on_demand
from calipers.run import Run
from calipers.samplers import scheme_of


class _KerasStopping:
    """Stops `fit` before the step that the budget does not cover; see `BudgetGuard` for the arguments."""

    # Set by Keras.
    model: Any
    params: Any

    def __init__(self, training: Run | PrivacyFilter, **terms: Any) -> None:
        super().__init__()
        self.guard = BudgetGuard(training, **terms)
        self._passes = 0

    @property
    def _steps(self) -> int:
        return int(self.model.optimizer.iterations)

    @property
    def _at_once(self) -> int:
        return max(1, int(getattr(self.model, "steps_per_execution", 1) or 1))

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Compare the length of an epoch with the declared run, and refuse to begin what no budget covers."""
        run, params = self.guard.training, self.params or {}
        held_back = getattr(self.model.optimizer, "gradient_accumulation_steps", None) or 1
        if held_back > 1:
            raise InputError(
                f"The optimizer has gradient_accumulation_steps={held_back}: gradients of several batches make one "
                "step, and how many records these are Keras does not say. Leave it out, and give fit the whole batch "
                "of a step."
            )
        per_epoch = params.get("steps")
        self.guard.plan(self._steps + (per_epoch or 0) * (params.get("epochs") or 0))
        if isinstance(run, PrivacyFilter):
            self._begin(per_epoch)
            return
        if scheme_of(run).whole_epochs and per_epoch is not None and per_epoch != run.steps_per_epoch:
            raise InputError(
                f"The run is described with {run.steps_per_epoch} steps per epoch, and Keras takes {per_epoch}; "
                "describe what is executed (last_batch, batch_size)."
            )
        self._begin(run.steps_per_epoch)

    def _begin(self, per_epoch: int | None) -> None:
        """Count what an earlier call of `fit` took, and ask for the first step."""
        if per_epoch:
            self._passes = max(self._passes, -(-self._steps // per_epoch))
        self.guard.counted(self._steps, self._passes)
        self.guard.demand(new_pass=True, further=self._at_once)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Another pass begins."""
        self._passes += 1
        self.guard.counted(self._steps, self._passes)

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """The last moment before the step."""
        self.guard.demand(further=self._at_once)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Ask for the next step of this epoch; after its last one the epoch's end asks."""
        self.guard.counted(self._steps, self._passes)
        per_epoch = (self.params or {}).get("steps")
        if (per_epoch is None or batch + 1 < per_epoch) and not self.guard.allows(further=self._at_once):
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Ask for another epoch, and add both bounds to the logs."""
        if not self.guard.stopped and not self.guard.allows(new_pass=True, further=self._at_once):
            self.model.stop_training = True
        if logs is not None:
            logs.update(self.guard.log())


def _base() -> Any:
    missing = "This callback needs Keras: install calipers[keras] and one of its backends."
    return library("keras", missing).callbacks.Callback


__getattr__ = on_demand(__name__, "PrivacyBudget", _KerasStopping, _base)
