"""What a step of PyTorch changes besides the weights by its optimizer: seen while it runs, and put back afterwards.

A step may leave traces that no noise covers: a buffer that averages the batch, a part of the model that another
optimizer trains, weights that the script edits by hand. `StepState` compares every tensor of the model before and after
a step and subtracts what the watched optimizer did; every other optimizer that takes a step meanwhile is named.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from calipers.adapters.opacus_library import torch_module
from calipers.numerics.types import FloatArray


class StepState:
    """The tensors of a model and the state of its optimizer, around single steps.

    Args:
        model: the module; parameters and buffers are looked at.
        optimizer: the optimizer that the probe watches, with whatever it wraps.
        inner: the innermost optimizer, whose own changes of the weights are what the probe reads elsewhere.
        parameters: the parameters that the optimizer trains.
    """

    def __init__(self, model: Any, optimizer: Any, inner: Any, parameters: list[Any]) -> None:
        self._torch = torch_module()
        self._optimizer, self._inner, self._parameters = optimizer, inner, parameters
        named = {id(p): (f"weights {name}", p) for name, p in model.named_parameters()}
        named |= {id(b): (f"buffer {name}", b) for name, b in model.named_buffers()}
        for number, p in enumerate(parameters):
            named.setdefault(id(p), (f"weights {number} of the optimizer", p))
        self._named = dict(named.values())
        self.other_optimizers: tuple[str, ...] = ()

    @contextmanager
    def put_back(self) -> Iterator[dict[str, Any]]:
        """Everything as it is, by name; whatever happens to it within, it is so again afterwards."""
        saved = {name: value.detach().clone() for name, value in self._named.items()}
        gradients = [p.grad if p.grad is None else p.grad.clone() for p in self._parameters]
        states = [_kept_state(self._inner)]
        foreign: dict[int, tuple[Any, Any]] = {}
        with self._foreign(foreign, states):
            try:
                yield saved
            finally:
                with self._torch.no_grad():
                    for name, before in saved.items():
                        self._named[name].copy_(before)
                    for value, before in foreign.values():
                        value.copy_(before)
                if hasattr(self._optimizer, "zero_grad"):
                    self._optimizer.zero_grad()
                for p, gradient in zip(self._parameters, gradients, strict=True):
                    p.grad = gradient
                for state, kept in states:
                    state.clear()
                    state.update(kept)

    @contextmanager
    def _foreign(
        self, found: dict[int, tuple[Any, Any]], states: list[tuple[dict[Any, Any], dict[Any, Any]]]
    ) -> Iterator[None]:
        """Name other optimizers that take a step; keep the weights and the state they are about to change."""
        ours, optimizer = set[int](), self._optimizer
        while optimizer is not None:
            ours.add(id(optimizer))
            optimizer = getattr(optimizer, "original_optimizer", None)
        known = {id(value) for value in self._named.values()}

        def stepping(other: Any, *_: Any) -> None:
            if id(other) in ours:
                return
            if all(state is not other.state for state, _ in states):
                states.append(_kept_state(other))
            self.other_optimizers = tuple(dict.fromkeys((*self.other_optimizers, type(other).__name__)))
            for p in (p for group in other.param_groups for p in group["params"]):
                if id(p) not in known:
                    found.setdefault(id(p), (p, p.detach().clone()))

        handle = torch_module("torch.optim.optimizer").register_optimizer_step_pre_hook(stepping)
        try:
            yield
        finally:
            handle.remove()

    def before(self, saved: dict[str, Any]) -> list[Any]:
        """The saved values of the optimizer's parameters, in its order."""
        names = {id(value): name for name, value in self._named.items()}
        return [saved[names[id(p)]] for p in self._parameters]

    @contextmanager
    def changes(self, saved: dict[str, Any]) -> Iterator[dict[str, FloatArray]]:
        """Filled afterwards: by name, how each tensor changed, less what the innermost optimizer changed."""
        inner = {id(p) for p in self._parameters}
        by_optimizer: dict[int, Any] = {}
        before: dict[int, Any] = {}
        found: dict[str, FloatArray] = {}

        def begins(*_: Any) -> None:
            before.update({id(p): p.detach().double().clone() for p in self._parameters})

        def ends(*_: Any) -> None:
            for p in self._parameters:
                by_optimizer[id(p)] = by_optimizer.get(id(p), 0.0) + p.detach().double() - before[id(p)]

        with ExitStack() as afterwards:
            afterwards.callback(self._inner.register_step_pre_hook(begins).remove)
            afterwards.callback(self._inner.register_step_post_hook(ends).remove)
            yield found
        for name, value in self._named.items():
            moved = value.detach().double() - saved[name].double()
            if id(value) in inner:
                moved = moved - by_optimizer.get(id(value), 0.0)
            found[name] = np.asarray(moved.reshape(-1).cpu(), dtype=np.float64)


def _kept_state(optimizer: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The state of an optimizer and a copy of it; parameters are its keys and are not copied."""
    state = getattr(optimizer, "state", {})
    return state, {key: _copied(value) for key, value in state.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return value.clone() if hasattr(value, "clone") else copy.deepcopy(value)
