"""A training step of JAX as something to probe.

The step takes the loss as an argument, so that a probe can plant gradients::

    def step(loss, params, batch, key):               # the released gradient, a tree like params
        clipped = jax_privacy.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=1)
        total = clipped(params, batch)
        ...
        return noisy_total

The loss that the probe hands over is <params, record> where a record is a tree like `params`: the gradient of a
record *is* the record. It is one function for all steps, so a compiled step may take it as a static argument. A step
that has a parameter `is_padding_example` gets batches padded to a multiple of 8, with the padding marked.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from calipers.adapters.jax_privacy import SEEDS, library_module, padded_rows
from calipers.errors import InputError
from calipers.numerics.types import FloatArray


class JaxLoop:
    """A step of JAX (see `calipers.probing.protocol`); `batches(epochs, rng)` yields indices, if given.

    `params` is any tree of arrays: only shapes and types are used, its leaves are the layers.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        params: Any = None,
        batches: Callable[[int, np.random.Generator], Iterable[Any]] | None = None,
        steps_per_epoch: int = 1,
    ) -> None:
        jax = self._jax = library_module("jax")
        shapes = {"first": jax.numpy.zeros(400), "second": jax.numpy.zeros((20, 30))} if params is None else params
        self._params = jax.tree.map(jax.numpy.zeros_like, shapes)
        leaves, self._tree = jax.tree.flatten(self._params)
        self._shapes = [tuple(leaf.shape) for leaf in leaves]
        self.layers = tuple(math.prod(shape) for shape in self._shapes)
        self.dimension = sum(self.layers)
        self.noise_multiplier, self.max_grad_norm = float(noise_multiplier), float(max_grad_norm)
        self.steps_per_epoch = steps_per_epoch
        self.shows_batches = batches is not None
        self._batches, self._step = batches, step
        self._padded = "is_padding_example" in inspect.signature(step).parameters
        self._loss = self._linear_loss()

    def _linear_loss(self) -> Callable[[Any, Any], Any]:
        jax = self._jax

        def loss(params: Any, records: Any) -> Any:
            products = jax.tree.map(lambda p, r: (p * r).sum(), params, records)
            return sum(jax.tree.leaves(products))

        return loss

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterable[Any]:
        """What the given function yields."""
        return () if self._batches is None else self._batches(epochs, rng)

    def update(self, gradients: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One step on records that are these gradients, cut into leaves."""
        count = len(gradients)
        length = padded_rows(count) if self._padded else count
        rows = np.zeros((length, self.dimension), dtype=np.float32)
        with np.errstate(over="ignore"):
            rows[:count] = gradients
        parts = np.split(rows, np.cumsum(self.layers)[:-1], axis=1)
        leaves = [part.reshape(length, *shape) for part, shape in zip(parts, self._shapes, strict=True)]
        batch = self._jax.tree.unflatten(self._tree, [self._jax.numpy.asarray(leaf) for leaf in leaves])
        key = self._jax.random.key(int(rng.integers(SEEDS)))
        extra = {"is_padding_example": self._jax.numpy.arange(length) >= count} if self._padded else {}
        released = self._jax.tree.leaves(self._step(self._loss, self._params, batch, key, **extra))
        if [tuple(np.shape(leaf)) for leaf in released] != self._shapes:
            raise InputError("The step must return the released gradient, a tree of the shapes of params.")
        return np.concatenate([np.asarray(leaf, dtype=np.float64).ravel() for leaf in released])
