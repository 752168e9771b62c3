"""A training step of PyTorch as something to probe: your own model, optimizer, loader and loss.

Gradients are planted through the data: a few records of your dataset are taken, and the gradient that flows back into
the model from the output of a record is multiplied by a chosen number. A record then has any multiple of its own
gradient, which is computed once by plain differentiation and taken for the truth. Nothing else is changed: the
forward pass, the loss, the backward pass and the step are yours, with whatever computes per-record gradients inside.
Weights, buffers and the optimizer's state are put back after every step, and the hook by which Opacus tells its
accountant is left out, so that probing spends no budget.

A batch can also be given a companion: one more record (another label, another length, another input) whose own
gradient is planted as zero. What the step does must not depend on who it is (`calipers.probing.companions`).

What is read is the gradient that the innermost optimizer of `torch.optim` is handed; whatever that optimizer makes of
it (momentum, Adam, weight decay) is post-processing. An optimizer of your own is read by how far it moves the
weights, divided by the learning rate.

Per-record gradients by `torch.func.vmap` run the model once for all records, so nothing can be planted through its
output; such a loop is refused. Show its step to the probe as arrays (`calipers.probing.protocol`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from calipers.adapters.opacus_library import one_thread, quiet_engine, torch_module
from calipers.adapters.torch_companions import chosen_companions, refuse_mixing, spread_numbers
from calipers.adapters.torch_state import StepState
from calipers.errors import InputError
from calipers.numerics.types import FloatArray, IntArray

SEEDS = 2**63 - 1
RECORDS = 4


class TorchLoop:
    """A loop of PyTorch set up for one dataset (see `calipers.probing.protocol`).

    `step(inputs, targets)` runs one whole step; left out, it is zero_grad, loss(model(inputs), targets).backward() and
    step. The noise multiplier and the clipping norm are those of the optimizer if it has any.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loader: Any,
        loss: Callable[[Any, Any], Any],
        *,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        step: Callable[[Any, Any], object] | None = None,
    ) -> None:
        self._torch = torch_module()
        self._model, self._optimizer, self._loader, self._loss = model, optimizer, loader, loss
        self._step = self._plain_step if step is None else step
        self.noise_multiplier = _asked("noise_multiplier", noise_multiplier, optimizer)
        self.max_grad_norm = _asked("max_grad_norm", max_grad_norm, optimizer)
        self._inner = _innermost(optimizer)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if not self._parameters:
            raise InputError("The optimizer holds no parameters that need gradients.")
        self.layers = tuple(int(parameter.numel()) for parameter in self._parameters)
        self.dimension = sum(self.layers)
        self._state = StepState(model, optimizer, self._inner, self._parameters)
        inputs, targets = _records(loader, self._parameters[0].device)
        count = min(RECORDS, len(inputs))
        self._inputs, self._targets = inputs[:count], targets[:count]
        self.dataset_size = len(loader.dataset)
        self.steps_per_epoch = len(loader)
        self.shows_batches = getattr(loader, "batch_sampler", None) is not None
        self._gradients = self._own_gradients()
        self.directions = self._gradients / np.linalg.norm(self._gradients, axis=1, keepdims=True)
        weight = getattr(getattr(loss, "criterion", loss), "weight", None)
        self._company = chosen_companions(inputs, targets, self._loss_alone, weight)
        self.companions = len(self._company[0])

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """The batches of the loader's own batch sampler."""
        sampler = self._loader.batch_sampler
        holders = (self._loader, sampler, getattr(sampler, "sampler", None), getattr(self._loader, "sampler", None))
        with self._seeded(rng, holders), quiet_engine():
            for _ in range(epochs):
                for batch in sampler:
                    yield np.asarray(batch, dtype=np.int64).ravel()

    def update(self, gradients: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One step on records whose gradients are these rows: multiples of `directions`."""
        inputs, targets, scales = self._records_of(gradients)
        return self._stepped(inputs, targets, scales, rng, watched=False)[0]

    def update_among(
        self, gradients: FloatArray, companion: int, rng: np.random.Generator
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """The same with one more record, number `companion`, whose own gradient is planted as zero.

        Returns:
            What the optimizer is handed, and by name how all other tensors changed.
        """
        inputs, targets, scales = self._records_of(gradients)
        one = slice(companion, companion + 1)
        pieces = ((inputs, self._company[0][one]), (targets, self._company[1][one]))
        inputs, targets = (self._torch.cat(pair) for pair in pieces)
        return self._stepped(inputs, targets, np.append(scales, 0.0), rng, watched=self._known)

    @property
    def other_optimizers(self) -> tuple[str, ...]:
        """The kinds of other optimizers that took a step within a step."""
        return self._state.other_optimizers

    def _records_of(self, gradients: FloatArray) -> tuple[Any, Any, FloatArray]:
        """Inputs and targets of the records to take, and by what to multiply their gradients."""
        along = gradients @ self.directions.T
        picked = (
            np.argmax(np.nan_to_num(np.abs(along), nan=np.inf), axis=1) if len(gradients) else np.zeros(0, np.int64)
        )
        lengths = np.linalg.norm(self._gradients, axis=1)
        scales = along[np.arange(len(picked)), picked] / lengths[picked]
        indices = self._torch.as_tensor(picked, device=self._inputs.device)
        return self._inputs[indices], self._targets[indices], scales

    def _stepped(
        self, inputs: Any, targets: Any, scales: FloatArray, rng: np.random.Generator, *, watched: bool
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """One step; what the optimizer is handed and, where it is watched, what else changed."""
        released: list[Any] = []
        other: dict[str, FloatArray] = {}
        accounting = getattr(self._optimizer, "step_hook", None)
        with self._state.put_back() as saved, ExitStack() as afterwards:
            if accounting is not None:
                self._optimizer.step_hook = None
                afterwards.callback(setattr, self._optimizer, "step_hook", accounting)
            with ExitStack() as watching:
                if watched:
                    other = watching.enter_context(self._state.changes(saved))
                if self._known:
                    handed = self._inner.register_step_pre_hook(lambda *_: released.append(self._handed()))
                    watching.callback(handed.remove)
                with self._seeded(rng, (self._optimizer,)), self._planted(scales), one_thread(), quiet_engine():
                    self._step(inputs, targets)
            if self._known:
                return (released[-1] if released else np.zeros(self.dimension)), other
            return self._moved(saved), other

    def _plain_step(self, inputs: Any, targets: Any) -> None:
        self._optimizer.zero_grad()
        self._loss(self._model(inputs), targets).backward()
        self._optimizer.step()

    @property
    def _known(self) -> bool:
        """Whether the innermost optimizer is PyTorch's own, and so is handed gradients."""
        return type(self._inner).__module__.startswith("torch.optim")

    def _handed(self) -> FloatArray:
        parts = [self._torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        return self._flat(parts)

    def _moved(self, saved: dict[str, Any]) -> FloatArray:
        """How far the weights moved, divided by the learning rate."""
        rates = [group["lr"] for group in self._optimizer.param_groups for p in group["params"] if p.requires_grad]
        if not all(rates):
            raise InputError("An optimizer of your own is read by how far it moves; give it a learning rate above 0.")
        before = self._state.before(saved)
        return self._flat([(b - p) / lr for p, b, lr in zip(self._parameters, before, rates, strict=False)])

    def _flat(self, parts: list[Any]) -> FloatArray:
        flat = self._torch.cat([part.detach().reshape(-1) for part in parts])
        return np.asarray(flat.double().cpu(), dtype=np.float64)

    @contextmanager
    def _planted(self, scales: FloatArray) -> Iterator[None]:
        """Multiply the gradient at each record's output by its number; records are counted in the order they come."""
        torch, seen = self._torch, 0
        weights = torch.as_tensor(scales, dtype=torch.float32, device=self._inputs.device)

        def forward(_module: Any, _inputs: Any, outputs: Any) -> None:
            nonlocal seen
            if not isinstance(outputs, torch.Tensor):
                raise InputError(
                    f"The model returns a {type(outputs).__name__}; a probe needs one tensor, a row a record."
                )
            if not outputs.requires_grad or not len(weights):
                return
            rows = weights[(torch.arange(len(outputs), device=weights.device) + seen) % len(weights)]
            seen += len(outputs)
            shaped = rows.reshape(-1, *[1] * (outputs.dim() - 1)).to(outputs.dtype)
            outputs.register_hook(lambda gradient: gradient * shaped)

        handle = self._model.register_forward_hook(forward)
        try:
            yield
        finally:
            handle.remove()
        if len(weights) and (seen == 0 or seen % len(weights)):
            raise InputError(
                f"The model's output held {seen} rows in a step on {len(weights)} records, so no gradients can be "
                "planted through it (torch.func.vmap?); show the step as arrays, see calipers.probing.protocol."
            )

    @contextmanager
    def _seeded(self, rng: np.random.Generator, holders: tuple[Any, ...]) -> Iterator[None]:
        """PyTorch's generators, and those that these objects hold, seeded for a while and put back."""
        torch = self._torch
        seed = int(rng.integers(SEEDS))
        held = {id(g): g for g in (getattr(holder, "generator", None) for holder in holders) if g is not None}
        states = [(generator, generator.get_state()) for generator in held.values()]
        try:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                for generator in held.values():
                    generator.manual_seed(seed)
                yield
        finally:
            for generator, state in states:
                generator.set_state(state)

    def _own_gradients(self) -> FloatArray:
        """Each record's gradient, by differentiating its loss alone."""
        torch, found = self._torch, []
        for number in range(len(self._inputs)):
            with self._by_itself():
                value = self._loss_of(self._inputs[number : number + 1], self._targets[number : number + 1])
                parts = torch.autograd.grad(value, self._parameters, allow_unused=True)
                pairs = zip(parts, self._parameters, strict=True)
                found.append(self._flat([torch.zeros_like(p) if part is None else part for part, p in pairs]))
        rows = [row for row in found if np.isfinite(row).all() and np.linalg.norm(row) > 0]
        if len(rows) < len(found):
            raise InputError(
                "A record's gradient, by itself, is zero or not finite at these weights. Probe the model as "
                "initialized; a loss that compares records with each other (contrastive) leaves clipping nothing to "
                "bound."
            )
        return np.stack(rows)

    def _loss_alone(self, inputs: Any, targets: Any) -> Any:
        """The loss of one record, for the choice of companions, and the model's output."""
        with self._by_itself(), self._torch.no_grad():
            return self._loss_of(inputs, targets), self._alone(inputs)

    @contextmanager
    def _by_itself(self) -> Iterator[None]:
        """The model without hooks for per-record gradients, put back afterwards."""
        wrapped = hasattr(self._model, "disable_hooks") and hasattr(self._model, "enable_hooks")
        with self._state.put_back(), quiet_engine(), ExitStack() as afterwards:
            if wrapped:
                self._model.disable_hooks()
                afterwards.callback(self._model.enable_hooks)
            yield

    def _loss_of(self, inputs: Any, targets: Any) -> Any:
        loss = getattr(self._loss, "criterion", self._loss)
        with self._torch.random.fork_rng():
            self._torch.manual_seed(0)
            return loss(self._alone(inputs), targets).sum()

    def _alone(self, inputs: Any) -> Any:
        try:
            return self._model(inputs)
        except ValueError as error:
            raise InputError(
                f"The model cannot take one record by itself ({' '.join(str(error).split())}): with normalization over "
                "the batch a record's gradient depends on the others, and clipping does not bound what it does."
            ) from error


def _asked(name: str, given: float | None, optimizer: Any) -> float:
    value = getattr(optimizer, name, None) if given is None else given
    if isinstance(value, list):  # by layers
        value = float(np.linalg.norm(value))
    if value is None:
        raise InputError(f"Nothing says what {name} is asked for; give {name}.")
    return float(value)


def _innermost(optimizer: Any) -> Any:
    while hasattr(optimizer, "original_optimizer"):
        optimizer = optimizer.original_optimizer
    return optimizer


def _records(loader: Any, device: Any) -> tuple[Any, Any]:
    """The first records of the loader's dataset and some from all over it, as one batch of inputs and targets."""
    dataset = getattr(loader, "dataset", None)
    if dataset is None or not hasattr(dataset, "__getitem__") or len(dataset) < 2:
        raise InputError("The loader needs a dataset of at least two records that can be read by index.")
    numbers = list(range(min(RECORDS, len(dataset))))
    items = [dataset[number] for number in numbers + spread_numbers(len(dataset), len(numbers))]
    batch = loader.collate_fn(items)
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise InputError("The loader's batches are not pairs (inputs, targets).")
    refuse_mixing(loader.collate_fn, items)
    return batch[0].to(device), batch[1].to(device)
