"""What is to be trained, checked before anything is drawn; and the run it amounts to.

Algorithm B divides the noisy sum by the batch's size. That number depends on the data, and dividing by it is not
free. What the sum is divided by is therefore a choice, with the words used everywhere:

- "none": nothing; the learning rate alone sets the scale;
- "constant": a public number, by default the batch size the sampler was given. Division is then post-processing
  and the plain guarantee holds. The default;
- "expected": N q, and "floor": floor(N q), N the number of records. A neighbor with one record more would divide by
  another number;
- "realized": the size of the batch that was drawn, 1 for an empty one.

The noise multiplier is the standard deviation of the noise over `max_grad_norm`. Noise 0 is plain training: there is
nothing to measure, and clipping may then be left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from calipers.domains import BELOW_ONE, COUNT, NON_NEGATIVE, POSITIVE, SEED, Domain, choice
from calipers.errors import InputError, UnsupportedError
from calipers.run import NORMALIZATIONS, Run
from calipers.samplers import SAMPLERS, Sampler, scheme_named, scheme_of

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine")


class RunReading(TypedDict, total=False):
    """What a run says besides what a plan says; left out, it is as a `Run` has it."""

    dimension: int | None
    adjacency: str
    view: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of DP-SGD: the sampler that will draw, the noise, and the optimizer that sees the noisy gradients.

    `seed` None takes all randomness from the operating system's entropy (see `calipers.training.noise`); with a
    seed the run can be repeated, by anybody who knows it. `micro_batch`, the records whose gradients are held at
    a time, is chosen by the device's memory unless given. For "adam" `momentum` is its first beta, 0.9 if left at 0.
    """

    sampler: Sampler
    noise_multiplier: float
    max_grad_norm: float | None = 1.0
    normalization: str = "constant"
    constant: float | None = None
    learning_rate: float = 0.1
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    micro_batch: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, Sampler):
            raise InputError(
                f"Expected a sampler of calipers.samplers, got {self.sampler!r}; `sampler_of` makes one from its name."
            )
        NON_NEGATIVE.check("noise_multiplier", self.noise_multiplier)
        if self.max_grad_norm is not None:
            POSITIVE.check("max_grad_norm", self.max_grad_norm)
        elif self.noise_multiplier > 0:
            raise InputError("Noise without clipping protects nobody: nothing bounds a gradient; give max_grad_norm.")
        choice("normalization", self.normalization, NORMALIZATIONS)
        choice("optimizer", self.optimizer, OPTIMIZERS)
        choice("schedule", self.schedule, SCHEDULES)
        POSITIVE.check("learning_rate", self.learning_rate)
        BELOW_ONE.check("momentum", self.momentum)
        NON_NEGATIVE.check("weight_decay", self.weight_decay)
        if self.micro_batch is not None:
            COUNT.check_int("micro_batch", self.micro_batch)
        if self.seed is not None:
            SEED.check_int("seed", self.seed)
        self._check_divisor()

    def _check_divisor(self) -> None:
        if self.constant is not None:
            POSITIVE.check("constant", self.constant)
            if self.normalization != "constant":
                raise InputError(f"constant={self.constant} contradicts normalization={self.normalization!r}.")
        elif self.normalization == "constant" and self.sampler.batch_size is None:
            raise InputError(
                "normalization='constant' needs a public number, and the sampler was given no batch size; add constant."
            )
        if self.normalization == "floor" and self.sampler.law().mean_batch_size < 1:
            raise InputError("normalization='floor' would divide by 0: the expected batch is smaller than one record.")

    @property
    def steps(self) -> int:
        """Noisy sums that will be released."""
        return self.sampler.law().steps

    def divisor(self, batch_size: int) -> float:
        """What the noisy sum of a batch with so many records is divided by."""
        if self.normalization == "none":
            return 1.0
        if self.normalization == "realized":
            return float(max(batch_size, 1))
        if self.normalization == "constant":
            public = self.sampler.batch_size if self.constant is None else self.constant
            assert public is not None  # checked when the plan was made
            return float(public)
        mean = self.sampler.law().mean_batch_size
        return float(math.floor(mean)) if self.normalization == "floor" else mean

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0; "cosine" falls from the full rate to 0 over the run."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))

    def run(self, **reading: Unpack[RunReading]) -> Run:
        """What this plan executes, to be measured; `InputError` when there is no noise."""
        noise, normalization = self.noise_multiplier, self.normalization
        return run_of(self.sampler, noise_multiplier=noise, normalization=normalization, **reading)


def sampler_of(name: str, *, dataset_size: int, batch_size: int, **keys: Any) -> Sampler:
    """The sampler called `name`; an epoch is floor(N/B) batches, or one more that is shorter. Give epochs or steps."""
    scheme = scheme_named(choice("sampler", name, SAMPLERS))
    size = COUNT.check_int("dataset_size", dataset_size)
    batch = Domain(1, size, integer=True).check_int("batch_size", batch_size, f"There are {size} records.")
    named = {"sampler": name, "dataset_size": size, "batch_size": batch, "noise_multiplier": 1.0}
    run = Run.from_dict(keys | named)
    if scheme.whole_epochs and run.total_epochs is None:
        raise InputError(
            f"sampler={name!r} draws whole epochs of {run.steps_per_epoch} steps, got {run.total_steps} steps; give a "
            "multiple of it."
        )
    return scheme.sampler(run)


def run_of(
    sampler: Sampler, *, noise_multiplier: float, normalization: str = "none", **reading: Unpack[RunReading]
) -> Run:
    """The run whose batches this very sampler draws, or `UnsupportedError` if no `Run` describes them."""
    law = sampler.law()
    run = Run(
        noise_multiplier=noise_multiplier,
        dataset_size=sampler.dataset_size,
        normalization=normalization,
        sampler=law.sampler,
        **reading,
        **sampler.run_keys(),  # type: ignore[arg-type]  # every value is checked by the run
    )
    rounds = scheme_of(run).rounds(run)
    if (run.total_steps, rounds) != (law.steps, law.rounds):
        raise UnsupportedError(
            f"{sampler!r} makes {law.rounds} batches an epoch, where a Run of these sizes has {run.steps_per_epoch}; "
            "leave rounds out, or choose a batch size that divides the dataset."
        )
    return run
