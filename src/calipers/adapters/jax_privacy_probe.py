"""JAX-Privacy as something to probe; `calipers.adapters.jax_privacy_target` audits it.

JAX-Privacy hands out parts (batch selection, clipped sums, noise) and leaves their numbers to the user: the sample
rate and the divisor are what one writes into the configuration. What is probed here is the plan of
`BandMFConfig` for DP-SGD with the numbers a user would write for N records and batches of B: rate
B/N, ceil(N/B) iterations an epoch, clipped sums divided by B. `written_for` keeps them when the dataset has a
record more or less, as a configuration file does. The loss of a record x is <w, x>, so its gradient is x.

Batches are padded to a multiple of 8 and marked with `is_padding_example`, the way the library asks for; it
refuses batches of no records that are not padded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from calipers.adapters.jax_privacy import SEEDS, compiled_steps, dp_sgd_plan, inside, noise_of, padded_rows
from calipers.numerics.types import FloatArray, IntArray


@dataclass(eq=False)
class JaxPrivacyConfiguration:
    """DP-SGD by an execution plan of JAX-Privacy (see `calipers.probing.protocol`).

    What is 0 follows from the two sizes: divisor B, rate B/N, ceil(N/B) steps.
    """

    dataset_size: int
    batch_size: int
    _: KW_ONLY
    dimension: int = 1000
    noise_multiplier: float = 1.0
    max_grad_norm: float = 1.0
    normalize_by: float = 0.0
    sample_rate: float = 0.0
    steps_per_epoch: int = 0

    def __post_init__(self) -> None:
        size, batch = self.dataset_size, self.batch_size
        self.steps_per_epoch = self.steps_per_epoch or math.ceil(size / batch)
        self._planned = functools.partial(
            dp_sgd_plan,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            normalize_by=self.normalize_by or batch,
            sample_rate=self.sample_rate or batch / size,
        )
        self._plan = self._planned(iterations=self.steps_per_epoch)
        self._steps = compiled_steps(self._plan, lambda weights, record: (record @ weights).sum(), self.dimension)

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """The batches of the plan's own selection strategy."""
        strategy = self._planned(iterations=epochs * self.steps_per_epoch).batch_selection_strategy
        for indices in strategy.batch_iterator(self.dataset_size, rng):
            yield np.asarray(indices, dtype=np.int64)

    def update(self, gradients: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Clipped sum, division and noise by the plan's own transformations."""
        seed = int(rng.integers(SEEDS))
        length = padded_rows(len(gradients))
        records = np.zeros((1, length, self.dimension), dtype=np.float32)
        records[0, : len(gradients)] = gradients
        padding = np.arange(length)[None] >= len(gradients)
        return np.asarray(self._steps(seed, records, padding)[0], dtype=np.float64)

    def accounted(self) -> tuple[float, float]:
        """(sample rate, noise multiplier) in the event that the plan states."""
        event = self._plan.dp_event
        rates = [float(part.sampling_probability) for part in inside(event) if hasattr(part, "sampling_probability")]
        return rates[0] if rates else 1.0, noise_of(event)


def written_for(dataset_size: int, batch_size: int, **settings: Any) -> Callable[[int, int], JaxPrivacyConfiguration]:
    """How a configuration written for N records and batches of B is set up for datasets of other sizes."""
    chosen = {
        "sample_rate": batch_size / dataset_size,
        "steps_per_epoch": math.ceil(dataset_size / batch_size),
        "normalize_by": batch_size,
    }
    return functools.partial(JaxPrivacyConfiguration, **(chosen | settings))
