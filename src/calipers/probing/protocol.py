"""What is probed: a training library, asked for batches and for single steps, and nothing else.

A **probe** treats an implementation of DP-SGD as a black box with two openings: it draws batches, and it
turns the per-record gradients of a batch into the vector that the optimizer applies. Everything the
probe says follows from what comes out; the source is not read. Three adapters offer these openings
(Opacus, JAX-Privacy, and this one for a loop of your own)::

    # mine.py
    class Loop:
        dimension, noise_multiplier, max_grad_norm = 1000, 1.0, 1.0

        def __init__(self, dataset_size, batch_size):
            self.size, self.batch = dataset_size, batch_size
            self.steps_per_epoch = dataset_size // batch_size

        def batches(self, epochs, rng):                 # the batches of one run, in order
            for _ in range(epochs * self.steps_per_epoch):
                yield rng.choice(self.size, self.batch, replace=False)

        def update(self, gradients, rng):               # (records, dimension) -> (dimension,)
            norms = numpy.linalg.norm(gradients, axis=1, keepdims=True)
            clipped = gradients / numpy.maximum(1.0, norms)
            return (clipped.sum(axis=0) + rng.normal(size=1000)) / self.batch

        def accounted(self):                            # optional: (sample rate, noise multiplier)
            return self.batch / self.size, 1.0

    calipers probe mine:Loop --dataset-size 1000 --batch-size 100

All randomness must come from `rng`: with the same seed a step adds the same noise, and the difference
of two steps shows the gradients' part alone, without statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from calipers.auditing.loading import check_called, load_function
from calipers.errors import InputError
from calipers.numerics.types import FloatArray


class Configuration(Protocol):
    """An implementation set up for one dataset size and batch size.

    More attributes are used where there are any: `accounted()` returns the (sample rate, noise multiplier) that
    the library hands to its accountant for every step; `layers` holds the sizes of the layers in the order of the
    coordinates (noise is compared between layers); `directions` holds, one row each, the gradients whose multiples are
    all that the loop can be given (a real model with real data). A loop with real data may offer a number of
    `companions` and `update_among(gradients, companion, rng)`: a step with one record more, of gradient zero; it
    returns what `update` would and, by name, what else the step changed. `other_optimizers` names those that took
    steps.
    """

    dimension: int
    noise_multiplier: float
    max_grad_norm: float
    steps_per_epoch: int

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterable[ArrayLike]:
        """The batches of one run of that many epochs, as indices into range(dataset_size)."""

    def update(self, gradients: FloatArray, rng: np.random.Generator) -> ArrayLike:
        """What one step hands to the optimizer for these per-record gradients, shape (records, dimension)."""


Configure = Callable[[int, int], Configuration]


@dataclass(frozen=True)
class Finding:
    """One answer of a probe.

    `error_probability` bounds the chance that the verdict is wrong because of chance; 0 means that
    nothing random entered it (differences of steps with equal noise, counts that contradict a distribution).
    `alarm` marks what breaks the accounting or the training.
    """

    subject: str
    verdict: str
    evidence: str
    error_probability: float = 0.0
    alarm: bool = False


@dataclass(frozen=True)
class Schedule:
    """What an implementation does at one dataset size; None where it does not say or nothing is divided by."""

    dataset_size: int
    steps_per_epoch: int
    accounted_rate: float | None
    divisor: float | None


def load_configure(address: str) -> Configure:
    """The function (or class) at "module:function" that sets up a configuration."""
    function = load_function(address)
    called = f"{address} cannot be called as function(dataset_size, batch_size)"
    check_called(function, (1, 1), f"{called}: {{error}}; see `calipers probe --help`.")

    def configure(dataset_size: int, batch_size: int) -> Configuration:
        return checked(cast(Configure, function)(dataset_size, batch_size), address)

    return configure


def checked(configuration: Configuration, name: str) -> Configuration:
    """The configuration, or `InputError` that names what is missing from it."""
    needed = ("dimension", "noise_multiplier", "max_grad_norm", "steps_per_epoch", "batches", "update")
    missing = [attribute for attribute in needed if not hasattr(configuration, attribute)]
    if missing:
        raise InputError(
            f"{name} returned {type(configuration).__name__}, which lacks {', '.join(missing)}; see "
            "`calipers probe --help`."
        )
    return configuration


def accounted(configuration: Configuration) -> tuple[float, float] | None:
    """(sample rate, noise multiplier) that the library accounts for, if it accounts."""
    ask = getattr(configuration, "accounted", None)
    if ask is None:
        return None
    rate, noise = ask()
    return float(rate), float(noise)
