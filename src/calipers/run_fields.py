"""The keys of a run and the arithmetic on them, before anything is checked.

**Rate and epochs.** With a batch size, the sampling rate is q = batch_size / dataset_size and an
epoch is floor(dataset_size / batch_size) steps: full batches, the remainder dropped. With a sample
rate alone an epoch is floor(1/q) steps, where 1/q counts as the whole number M when it is within a
relative 1e-9 of M (so that the double nearest to 1/49 means 49 steps, not 48).

A sampler's scheme reads these fields; `calipers.run.Run` checks them, and settles an `adjacency` or a `last_batch` that
was not named (empty here).

**The last batch.** A loader of shuffled or fixed batches either drops the records that do not fill a batch
(`last_batch = "drop"`, drop_last=True in PyTorch) or keeps them as a short last one ("keep", PyTorch's default, a step
more per epoch). Poisson loops that take ceil(N/B) steps per epoch say so with `steps`.

**The order.** Shuffled batches come in a new order every epoch (`reshuffle = "every-epoch"`), or in one order that is
drawn once and kept for the whole run ("once"), which hides a record far less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.errors import InputError
from calipers.run_keys import whole


@dataclass(frozen=True, kw_only=True)
class RunFields:
    """What was executed, as said: see `calipers.run.Run` for what each key means."""

    dataset_size: int | None = None
    batch_size: int | None = None
    sample_rate: float | None = None
    steps: int | None = None
    epochs: int | float | None = None
    noise_multiplier: float
    sampler: str = "poisson"
    normalization: str = "none"
    dimension: int | None = None
    adjacency: str = ""
    view: str = "worst-case"
    last_batch: str = ""
    reshuffle: str = "every-epoch"
    derived_rate: str = "public"
    max_batch_size: int | None = None
    cycle: int | None = None
    participations: int | None = None
    unit: str | None = None
    records_per_unit: int = 1

    @property
    def rate(self) -> float:
        """q: the probability that a record whose turn it is enters a step.

        batch_size / dataset_size (rounded to nearest), times the number of groups that take turns; or the sample rate
        as given; or the record's participations / steps.
        """
        if self.sample_rate is not None:
            return self.sample_rate
        if self.participations is not None and self.batch_size is None:
            assert self.steps is not None
            return self.participations / self.steps
        assert self.sizes is not None
        return self.sizes[1] * (self.cycle or 1) / self.sizes[0]

    @property
    def mean_rate(self) -> float:
        """The share of the records that a step uses on average: what standard accounting calls the sampling rate."""
        return self.rate / (self.cycle or 1)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch: floor(dataset_size / batch_size), or floor(1/q); one more if a short one is kept."""
        if self.sizes is not None:
            batches, rest = divmod(self.sizes[0], self.sizes[1])
            return batches + 1 if rest and self.last_batch == "keep" else batches
        return whole(1 / self.mean_rate) or math.floor(1 / self.mean_rate)

    @property
    def total_steps(self) -> int:
        """T, the number of noisy sums released."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return round(self.epochs * self.steps_per_epoch)

    @property
    def total_epochs(self) -> int | None:
        """E with E * steps_per_epoch = total_steps, or None when the steps end inside an epoch."""
        epochs, rest = divmod(self.total_steps, self.steps_per_epoch)
        return None if rest else epochs

    @property
    def begun_epochs(self) -> int:
        """How many epochs were begun; the last one may have ended early."""
        return -(-self.total_steps // self.steps_per_epoch)

    @property
    def epoch_parts(self) -> tuple[tuple[int, int], ...]:
        """(steps of one epoch, how many such epochs): the whole epochs, and the one inside which the run ends."""
        epochs, rest = divmod(self.total_steps, self.steps_per_epoch)
        parts = ((self.steps_per_epoch, epochs), (rest, 1))
        return tuple((steps, count) for steps, count in parts if steps and count)

    @property
    def expected_batch_size(self) -> float:
        """N q, computed as a training loop computes it; needs `dataset_size`."""
        if self.batch_size is not None:
            return float(self.batch_size)
        if self.dataset_size is None:
            raise InputError("The expected batch size needs dataset_size.")
        return self.dataset_size * self.mean_rate

    @property
    def sizes(self) -> tuple[int, int] | None:
        """(dataset_size, batch_size), or None where one of them is not known."""
        if self.dataset_size is None or self.batch_size is None:
            return None
        return self.dataset_size, self.batch_size

    @property
    def left_over(self) -> int | None:
        """How many records every epoch of equal batches leaves over, or None where the sizes are not known."""
        if self.sizes is None:
            return None
        return 0 if self.last_batch == "keep" else self.sizes[0] % self.sizes[1]

    @property
    def kept_share(self) -> float:
        """Probability that a record takes part in an epoch of equal batches: records used / dataset_size."""
        if self.sizes is None or self.last_batch == "keep":
            return 1.0
        return self.steps_per_epoch * self.sizes[1] / self.sizes[0]

    @property
    def unit_name(self) -> str:
        """What the guarantee is about, in the singular: a record unless another unit was named."""
        return self.unit or "record"

    @property
    def largest_shift(self) -> float:
        """At least mu of one participation whose time is known: 1/sigma, doubled when the record is replaced."""
        return (2.0 if self.adjacency == "substitute" else 1.0) / self.noise_multiplier


def divisor_of(run: RunFields, size: int) -> int:
    """floor(size * q), computed as a training loop computes it."""
    if size == run.dataset_size and run.batch_size is not None:
        return run.batch_size
    return math.floor(size * run.rate)
