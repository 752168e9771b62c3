"""Poisson sampling: every record enters every step by its own coin.

The differing record's coin is independent of everything else, so a step shows the Poisson-subsampled Gaussian pair and
no more (`calipers.mechanisms.gaussian`), which is attained when all other gradients are zero.

**Drawing.** Algorithm P: every record joins every batch by its own coin.

This is the sampler that mainstream accounting assumes, and the one that data loaders almost
never implement. Its batches vary in size and may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE_PROBABILITY, Domain
from calipers.numerics.binomial import log_binomial
from calipers.numerics.types import FloatArray, IntArray
from calipers.run_fields import RunFields
from calipers.samplers.analysis import Analysis, AuditedSums, Configurations, Scheme
from calipers.samplers.draws import bernoulli_indices
from calipers.samplers.law import Sampler, SamplerLaw
from calipers.samplers.units import sampled_unit


@implements("chua2024:alg4", "ertan2026:def3.1")
@dataclass(frozen=True, kw_only=True)
class Poisson(Sampler):
    """Every record in every step independently with probability q.

    Give either `sample_rate` (q) or `batch_size` (the expected size, q = batch_size/dataset_size).
    Batches are sorted sets of indices; their order carries no information.

    Formal guarantees:
        - Inclusion: P(record i in batch t) = q for every i and t, independently over records and
          over steps (up to a relative error of 2e-15/q, see `calipers.samplers.draws`).
        - Participation in T steps: Binomial(T, q); possibly never, possibly many times.
        - Batch size: Binomial(N, q), independent between steps; zero with probability (1-q)^N.
        - Other records' batches are independent of this record's and reveal nothing about it.
        - Memory: O(batch) at any time, whatever the dataset size; time O(batch) a step.

    >>> sampler = Poisson(dataset_size=60_000, batch_size=256, steps=3)
    >>> sum(1 for _ in sampler.batches(np.random.default_rng(0)))
    3
    """

    steps: int
    sample_rate: float | None = None
    batch_size: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(steps=COUNT)
        sizes = Domain(0.0, self.dataset_size, low_open=True)
        remedy = "Give the one your training loop uses."
        self._keep_one(remedy, sample_rate=POSITIVE_PROBABILITY, batch_size=sizes)
        POSITIVE_PROBABILITY.check("batch_size / dataset_size", self.rate)

    @property
    def rate(self) -> float:
        """The probability q with which every record joins a batch."""
        if self.sample_rate is not None:
            return self.sample_rate
        assert self.batch_size is not None
        return self.batch_size / self.dataset_size

    def law(self) -> SamplerLaw:
        """Independent rounds with rate q: `rounds` is 1 and `epochs` counts the steps."""
        size, rate = self.dataset_size, self.rate
        mean = rate * size if self.batch_size is None else self.batch_size
        return SamplerLaw("poisson", size, rate=rate, epochs=self.steps, mean_batch_size=mean)

    def run_keys(self) -> dict[str, object]:
        """The batch size where it is whole, else the rate; and the steps."""
        if self.batch_size is not None and float(self.batch_size).is_integer():
            return {"batch_size": int(self.batch_size), "steps": self.steps}
        return {"sample_rate": self.rate, "steps": self.steps}

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """One step: a coin for every record."""
        yield bernoulli_indices(self.dataset_size, self.rate, rng)


LEAST_LOG_WEIGHT = -45.0
"""Batch sizes less likely than e^-45 are left out of an enumeration."""


REPLACED_LOADERS = (
    "Opacus shuffles only with poisson_sampling=False; by default it puts a loader that draws Poisson batches (sampler "
    "= 'poisson') in the place of yours, whether that one shuffles or not."
)
"""What a reader of a shuffled run should know, who may have executed another."""


_MOVING = "describe it with derived_rate = 'moving'"
_COUNTED = (
    "and with it the number of steps (one record fewer, or one more, makes another number of batches here), so that no "
    "epsilon is finite: fix both beforehand"
)
_OF_SEVERAL = "nothing is proven then for adding or removing a unit of several records"


def coins_text(run: RunFields, divided: bool, rate: str, steps: int) -> str:
    """To draw Poisson batches at this rate, in so many steps per epoch, instead of shuffled ones.

    `divided`: by a number that would then depend on the data.
    """
    constant = ", and divide by a public constant" if divided else ""
    return (
        f"Let every record enter every batch by its own coin, at the rate {rate} (sampler = 'poisson'){constant}: "
        f"{steps:,} steps per epoch; batches vary in size.{same_for_all(run, 'Rate and number of steps')} {OPACUS}"
    )


OPACUS = (
    "The library Opacus computes a rate, a number of steps and, by default, a divisor of its own: describe its runs "
    "with Run.from_opacus."
)


def same_for_all(run: RunFields, numbers: str) -> str:
    """What has to be the same for both neighbors, where one has a record more."""
    return f" {numbers} must stay the same when a record is added or removed." if run.adjacency == "add-remove" else ""


class PoissonScheme(Scheme):
    """Independent coins."""

    name = "poisson"
    summary = "independent draws"
    independent = True
    whole_epochs = False
    stepwise = True
    counts_units = ("add-remove", "zero-out", "substitute")
    others_zero = True
    drawn_by = Poisson

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """An epoch of floor(N/B) steps is a choice somebody made."""
        if run.sizes is None or run.epochs is None:
            return ()
        batches, rest = divmod(run.sizes[0], run.sizes[1])
        if not rest:
            return ()
        return (
            f"An epoch is counted as floor({run.dataset_size:,}/{run.batch_size:,}) = {batches:,} steps; a loop that "
            f"takes {batches + 1:,} steps per epoch at this rate leaks more: give steps for it.",
        )

    def batches(self, run: RunFields) -> str:
        """In words."""
        moving = run.derived_rate == "moving" and run.dataset_size is not None
        own = f", computed from the dataset's own size, N = {run.dataset_size:,}" if moving else ""
        return f"Poisson batches (each record enters each batch with probability {{rate}}{own})"

    def analyze(self, run: RunFields) -> Analysis:
        """One pair per step, proven and attained."""
        return sampled_unit(run, run.total_steps)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """The guarantee belongs to coins, not to shuffling."""
        return (
            "Both bounds hold only for batches drawn by Poisson sampling, every record independently in every step. If "
            "the data were shuffled (in Opacus only with poisson_sampling=False), say sampler = 'shuffle'.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """Rate and steps that follow from the dataset size."""
        if run.derived_rate == "moving":
            return (
                f"The rate {run.batch_size:,}/N moves with the dataset: one record changes how often all others are "
                "drawn. Measured with the rate of either neighbor; a rate that is fixed beforehand (sample_rate) is "
                "the same for both.",
            )
        counted = run.epochs is not None
        assert run.sizes is not None
        size, batch = run.sizes
        moves = counted and len({near // batch for near in (size - 1, size, size + 1)}) > 1
        remedy = _OF_SEVERAL if run.records_per_unit > 1 else _COUNTED if moves else _MOVING
        then = "" if moves else "and this number is not proven: "
        steps = f" and the number of steps {run.total_steps:,}" if counted else ""
        constant = "are read as constants" if counted else "is read as a constant"
        return (
            f"The rate {run.batch_size:,}/{run.dataset_size:,} (batch size / number of records){steps} {constant} of "
            "the script, the same for both neighbors. Where a script computes them from its own dataset, one record "
            f"changes the rate, {then}{remedy}. {OPACUS}",
        )

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """The rate as it was written, or the fraction that batch and dataset size make."""
        if run.sample_rate is not None:
            return {"sample_rate": Fraction(repr(float(run.sample_rate))), "steps": run.total_steps}
        assert run.sizes is not None  # who gives no rate gives both sizes
        return {"sample_rate": Fraction(run.sizes[1], run.sizes[0]), "steps": run.total_steps}

    def draw(self, sums: AuditedSums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """A coin for every round."""
        return (rng.random(shape) < sums.sample_rate).astype(np.float64)

    def crowd(self, sums: AuditedSums, epochs: int, rng: np.random.Generator) -> FloatArray:
        """Successes among the others' coins: one long row of coins, cut into pieces."""
        heads = bernoulli_indices(epochs * sums.others, sums.sample_rate, rng)
        return np.bincount((heads // sums.others).astype(np.intp), minlength=epochs).astype(np.float64)

    def configurations(self, sums: AuditedSums, member: bool) -> Configurations:
        """The number of others and the differing record's coin; a step is an epoch."""
        size, rate = sums.others, sums.sample_rate
        count = np.arange(size + 1.0) if sums.crowd_matters else np.zeros(1)
        log_count = log_binomial(count, size, rate) if sums.crowd_matters else np.zeros(1)
        likely = log_count >= LEAST_LOG_WEIGHT
        count, log_count = count[likely], log_count[likely]
        with np.errstate(divide="ignore"):
            log_bit = np.log(np.array([1.0 - rate, rate])) if member else np.zeros(1)
        bits = np.arange(log_bit.size, dtype=np.float64)
        log_weight = (log_count[:, None] + log_bit).ravel()
        possible = np.isfinite(log_weight)
        crowd = np.repeat(count, bits.size)[possible, None]
        included = np.tile(bits, count.size)[possible, None]
        return log_weight[possible], crowd, included
