"""What is done with a noisy gradient: an optimizer and a schedule, of the plan or of one's own.

Whatever an optimizer does with numbers that are private already is post-processing, as long as it sees nothing else. So
any optimizer of PyTorch will do that takes one gradient per step, and any schedule that counts steps. What is refused
would look at the records again, or at something that was computed from them without noise: optimizers that evaluate the
loss several times per step, and schedules that wait for a loss to fall.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from calipers.errors import InputError
from calipers.training.checkpoint import check_like
from calipers.training.fingerprint import fingerprint
from calipers.training.plan import Plan
from calipers.training.torch_library import torch_module


class Updates:
    """An optimizer of the trained parameters, and its learning rates.

    `optimizer` is one that exists or a function that makes one of the parameters; None is the plan's. `schedule` makes
    a learning-rate scheduler of PyTorch from the optimizer; None is the plan's, or constant with one's own optimizer.
    """

    def __init__(
        self, plan: Plan, parameters: list[Any], optimizer: Any, schedule: Callable[[Any], Any] | None
    ) -> None:
        self._plan, self._parameters, self._own = plan, parameters, optimizer is not None
        chosen = (plan.optimizer, plan.momentum, plan.weight_decay, plan.schedule)
        if self._own and chosen != ("sgd", 0.0, 0.0, "constant"):
            raise InputError("The plan names an optimizer or a schedule, and another is given; leave one of them out.")
        made = optimizer if hasattr(optimizer, "param_groups") or optimizer is None else optimizer(parameters)
        self.optimizer = _of_plan(plan, parameters) if made is None else made
        self._check()
        self._schedule = None if schedule is None else schedule(self.optimizer)
        lr = torch_module("torch.optim.lr_scheduler")
        if isinstance(self._schedule, lr.ReduceLROnPlateau):
            raise InputError(
                "ReduceLROnPlateau waits for a loss that no noise protects; choose a schedule that counts steps."
            )
        if self._schedule is not None and plan.schedule != "constant":
            raise InputError("The plan names a schedule, and another is given; leave one of them out.")
        self._views: list[Any] = []
        self._place, self._steady = 0, False
        kind = f"{type(self.optimizer).__qualname__} {self.optimizer.defaults!r}"
        self.reported = (
            f"{kind}, schedule {fingerprint(schedule)}" if self._own or schedule is not None else "the plan's"
        )

    def _check(self) -> None:
        if isinstance(self.optimizer, torch_module("torch.optim").LBFGS):
            raise InputError(
                "LBFGS evaluates the loss several times per step; choose an optimizer that takes gradients."
            )
        seen = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        if not seen & {id(parameter) for parameter in self._parameters}:
            raise InputError(
                "The optimizer holds no trained parameter of this model; make it of the model's parameters."
            )
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # one that is frozen may have a gradient of before, and would go along it

    @property
    def can_be_held_back(self) -> bool:
        """Whether the device itself can leave a step out: the plan's optimizer, as one kernel."""
        return not self._own and self._schedule is None and bool(self.optimizer.defaults.get("fused"))

    def hold_back(self, flag: Any) -> None:
        """Leave out every step at whose time `flag`, a number on the device, is 1 (as for gradients that overflow)."""
        self.optimizer.found_inf = flag

    def forget(self) -> None:
        """Let go of the last gradient before the next is computed, unless both lie in one place (a recording)."""
        if not self._steady:
            self._views = []
            for parameter in self._parameters:
                parameter.grad = None

    def apply(self, update: Any, divisor: float, step: int) -> None:
        """Divide the noisy sum, in its place, and take a step; it is in the parameters' `grad` afterwards."""
        if not self._own and self._schedule is None:
            for group in self.optimizer.param_groups:
                group["lr"] = self._plan.rate_at(step)
        update.div_(divisor)
        self._steady = bool(self._views) and update.data_ptr() == self._place
        if not self._steady:
            self._place = update.data_ptr()
            parts = update.split([parameter.numel() for parameter in self._parameters])
            self._views = [part.view_as(own) for part, own in zip(parts, self._parameters, strict=True)]
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view
        self.optimizer.step()
        if self._schedule is not None:
            self._schedule.step()

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"optimizer": self.optimizer.state_dict()} | (
            {} if self._schedule is None else {"schedule": self._schedule.state_dict()}
        )

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise `InputError` unless `state` is of the form that `state()` has.

        What optimizers of a plan keep of a parameter is like it, but for the count of steps; others have their own.
        """
        own = self.state()
        if not isinstance(state["optimizer"], Mapping):
            raise InputError("optimizer is no mapping")
        check_like(state["optimizer"]["param_groups"], own["optimizer"]["param_groups"], "optimizer")
        for found, group in zip(state["optimizer"]["param_groups"], own["optimizer"]["param_groups"], strict=True):
            for key in (key for key, value in group.items() if isinstance(value, bool) and found[key] is not value):
                raise InputError(f"optimizer.{key} is {found[key]!r}, and {group[key]!r} here")
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        for number, kept in {} if self._own else state["optimizer"]["state"].items():
            for key, value in kept.items():
                if key == "step":
                    check_like(value, torch_module().zeros(()), "optimizer.step")
                elif value is not None or key != "momentum_buffer":
                    check_like(value, parameters[number].detach(), f"optimizer.{key}")
        if self._schedule is not None:
            check_like(state["schedule"], own["schedule"], "schedule")

    def go_to(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self._schedule is not None:
            self._schedule.load_state_dict(state["schedule"])


def _of_plan(plan: Plan, parameters: list[Any]) -> Any:
    optim = torch_module("torch.optim")
    # On a GPU one kernel for all parameters, if they lie as their gradients do; elsewhere what PyTorch chooses.
    usual = all(parameter.is_contiguous() for parameter in parameters)
    fused = True if usual and parameters[0].device.type == "cuda" else None
    settings: dict[str, Any] = {"lr": plan.learning_rate, "weight_decay": plan.weight_decay, "fused": fused}
    if plan.optimizer == "adam":
        return optim.Adam(parameters, betas=(plan.momentum or 0.9, 0.999), **settings)
    return optim.SGD(parameters, momentum=plan.momentum, **settings)
