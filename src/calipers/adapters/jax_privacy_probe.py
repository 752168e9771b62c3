"""JAX-Privacy as something to probe, and as an audit target.

JAX-Privacy hands out parts (batch selection, clipped sums, noise) and leaves their numbers to the user: the sample
rate and the divisor are what one writes into the configuration. What is probed here is the plan of
`BandMFExecutionPlanConfig` for DP-SGD with the numbers a user would write for N records and batches of B: rate
B/N, ceil(N/B) iterations an epoch, clipped sums divided by B. `written_for` keeps them when the dataset has a
record more or less, as a configuration file does. The loss of a record x is <w, x>, so its gradient is x.

Batches are padded to a multiple of 8 and marked with `is_padding_example`, the way the library asks for; it
refuses batches of no records that are not padded.

As a target, the differing record's gradient is a unit vector and all others are zero: the worst case for a
noisy sum that is divided by a constant. The projection on that vector is then sufficient, and larger where the
record was present.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from calipers.adapters.jax_privacy import jax_privacy_module, noise_of
from calipers.domains import COUNT, POSITIVE, Domain
from calipers.numerics.types import FloatArray, IntArray

__all__ = ["JaxPrivacyConfiguration", "JaxPrivacyTarget", "written_for"]

SEEDS = 2**31 - 1
PADDED = 8


class JaxPrivacyConfiguration:
    """DP-SGD by an execution plan of JAX-Privacy (see `calipers.auditing.probe_protocol`)."""

    def __init__(
        self,
        dataset_size: int,
        batch_size: int,
        *,
        dimension: int = 1000,
        noise_multiplier: float = 1.0,
        max_grad_norm: float = 1.0,
        normalize_by: float | None = None,
        sample_rate: float | None = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        plans = jax_privacy_module("jax_privacy.experimental.execution_plan")
        accounting = jax_privacy_module("dp_accounting")
        relation = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        self.dimension = dimension
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = max_grad_norm
        self.steps_per_epoch = math.ceil(dataset_size / batch_size) if steps_per_epoch is None else steps_per_epoch
        self._size = dataset_size
        self._settings: dict[str, Any] = {
            "strategy": np.ones(1),
            "epsilon": None,
            "delta": None,
            "noise_multiplier": noise_multiplier,
            "l2_clip_norm": max_grad_norm,
            "rescale_to_unit_norm": False,
            "normalize_by": float(batch_size if normalize_by is None else normalize_by),
            "sampling_prob": batch_size / dataset_size if sample_rate is None else sample_rate,
            "partition_type": jax_privacy_module("jax_privacy.batch_selection").PartitionType.INDEPENDENT,
            "accountant": accounting.pld.PLDAccountant(relation),
            "noise_seed": 0,
        }
        self._plans = plans
        self._plan = self._planned(self.steps_per_epoch)
        self._step = self._compiled()

    def _planned(self, iterations: int) -> Any:
        return self._plans.BandMFExecutionPlanConfig(iterations=iterations, **self._settings).plan

    def _compiled(self) -> Any:
        jax = jax_privacy_module("jax")
        clipped = self._plan.clipped_grad(lambda weights, records: (records @ weights).sum(), keep_batch_dim=True)
        noise = self._plan.noise_addition_transform
        weights = jax.numpy.zeros(self.dimension)

        def step(records: Any, padding: Any, seed: Any) -> Any:
            _, inner = noise.init(weights)
            total = clipped(weights, records, is_padding_example=padding)
            released, _ = noise.update(total, (jax.random.key(seed), inner))
            return released

        return jax.jit(step)

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """The batches of the plan's own selection strategy."""
        strategy = self._planned(epochs * self.steps_per_epoch).batch_selection_strategy
        for indices in strategy.batch_iterator(self._size, rng):
            yield np.asarray(indices, dtype=np.int64)

    def update(self, gradients: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Clipped sum, division and noise by the plan's own transformations."""
        seed = int(rng.integers(SEEDS))
        length = PADDED * max(1, math.ceil(len(gradients) / PADDED))
        records = np.zeros((length, self.dimension), dtype=np.float32)
        records[: len(gradients)] = gradients
        padding = np.arange(length) >= len(gradients)
        return np.asarray(self._step(records, padding, seed), dtype=np.float64)

    def accounted(self) -> tuple[float, float]:
        """(sample rate, noise multiplier) in the event that the plan states."""
        return _rate_of(self._plan.dp_event), noise_of(self._plan.dp_event)


def written_for(dataset_size: int, batch_size: int, **settings: Any) -> Callable[[int, int], JaxPrivacyConfiguration]:
    """How a configuration written for N records and batches of B is set up for datasets of other sizes."""
    chosen = {
        "sample_rate": batch_size / dataset_size,
        "steps_per_epoch": math.ceil(dataset_size / batch_size),
        "normalize_by": batch_size,
    }
    return functools.partial(JaxPrivacyConfiguration, **(chosen | settings))


def _rate_of(event: Any) -> float:
    """The sampling probability inside an event; 1 if nothing is sampled."""
    while event is not None:
        if hasattr(event, "sampling_probability"):
            return float(event.sampling_probability)
        event = getattr(event, "event", None)
    return 1.0


class JaxPrivacyTarget:
    """One step of an execution plan on `dataset_size` records (absent) or one more (present)."""

    chunk = 200

    def __init__(
        self,
        *,
        dataset_size: int = 3,
        sample_rate: float = 0.5,
        noise_multiplier: float = 1.0,
        max_grad_norm: float = 1.0,
        normalize_by: float = 1.0,
        dimension: int = 100,
    ) -> None:
        self.dataset_size = COUNT.check_int("dataset_size", dataset_size)
        self.sample_rate = Domain(0, 1, low_open=True).check("sample_rate", sample_rate)
        self.noise_multiplier = POSITIVE.check("noise_multiplier", noise_multiplier)
        self.max_grad_norm = POSITIVE.check("max_grad_norm", max_grad_norm)
        self.normalize_by = POSITIVE.check("normalize_by", normalize_by)
        self.dimension = COUNT.check_int("dimension", dimension)

    @property
    def name(self) -> str:
        """What is audited."""
        return f"JAX-Privacy {jax_privacy_module().__version__}, one step, normalize_by={self.normalize_by:g}"

    def identity(self) -> dict[str, object]:
        """Everything that changes the law of the outputs."""
        return {
            "target": "jax-privacy",
            "jax_privacy": str(jax_privacy_module().__version__),
            "dataset_size": self.dataset_size,
            "sample_rate": self.sample_rate,
            "noise_multiplier": self.noise_multiplier,
            "max_grad_norm": self.max_grad_norm,
            "normalize_by": self.normalize_by,
            "dimension": self.dimension,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JaxPrivacyTarget) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash(tuple(self.identity().items()))

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """`count` independent steps: shape (count, dimension)."""
        engine = _engine(self, bool(present))
        records = np.zeros((self.dataset_size + 1, self.dimension))
        records[-1, 0] = self.max_grad_norm
        found = np.empty((count, self.dimension))
        done = 0
        while done < count:
            for batch in engine.batches(1, rng):
                found[done] = engine.update(records[batch], rng)
                done += 1
                if done == count:
                    break
        return found

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The coordinate along the differing gradient; the likelihood ratio increases with it."""
        return np.ascontiguousarray(outputs[:, 0])


# Compiled once in each process, for all targets that are equal.
@functools.lru_cache(maxsize=8)
def _engine(target: JaxPrivacyTarget, present: bool) -> JaxPrivacyConfiguration:
    return JaxPrivacyConfiguration(
        target.dataset_size + present,
        1,
        dimension=target.dimension,
        noise_multiplier=target.noise_multiplier,
        max_grad_norm=target.max_grad_norm,
        normalize_by=target.normalize_by,
        sample_rate=target.sample_rate,
    )
