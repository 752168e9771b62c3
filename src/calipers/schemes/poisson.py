"""Poisson sampling: every record enters every step by its own coin.

The differing record's coin is independent of everything else, so a step shows the Poisson-subsampled Gaussian pair and
no more (`calipers.mechanisms.gaussian`), which is attained when all other gradients are zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from calipers.numerics.binomial import log_binomial
from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.schemes.exposure import Exposure
from calipers.schemes.scheme import Configurations, Scheme, Sums
from calipers.schemes.units import sampled_unit

LEAST_LOG_WEIGHT = -45.0
"""Batch sizes less likely than e^-45 are left out of an enumeration."""


class PoissonScheme(Scheme):
    """Independent coins."""

    name = "poisson"
    summary = "independent draws"
    independent = True
    whole_epochs = False
    stepwise = True
    counts_units = ("add-remove", "zero-out", "substitute")
    others_zero = True
    drawn_by = "Poisson"

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """An epoch of floor(N/B) steps is a choice somebody made."""
        if run.sizes is None or run.epochs is None:
            return ()
        batches, rest = divmod(run.sizes[0], run.sizes[1])
        if not rest:
            return ()
        return (
            f"An epoch is counted as floor({run.dataset_size:,}/{run.batch_size:,}) = {batches:,} steps; a loop that "
            f"takes {batches + 1:,} steps per epoch leaks more: give steps for it.",
        )

    def batches(self, run: RunFields) -> str:
        """In words."""
        return "Poisson batches (each record enters each batch with probability {rate})"

    def exposure(self, run: RunFields) -> Exposure:
        """One pair per step, proven and attained."""
        return sampled_unit(run, run.total_steps)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """The guarantee belongs to coins, not to shuffling."""
        return (
            "The upper bound holds only if batches were drawn by Poisson sampling, every record independently in "
            "every step. If the data were shuffled, say sampler = 'shuffle'.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """Rate and steps that follow from the dataset size."""
        if run.derived_rate == "moving":
            return (
                f"The rate {run.batch_size:,}/N moves with the dataset: one record changes how often all others are "
                "drawn. Measured with the rate of either neighbor; a rate that is fixed beforehand (sample_rate) leaks "
                "less.",
            )
        counted = run.epochs is not None
        steps = f" and the number of steps {run.total_steps:,}" if counted else ""
        return (
            f"The rate B/N = {run.batch_size:,}/{run.dataset_size:,}{steps} {'are' if counted else 'is'} read as "
            "public, the same for both neighbors. A loop that computes the rate from its own dataset changes it with "
            "every record and leaks more: say derived_rate = 'moving'.",
        )

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """The rate as it was written, or the fraction that batch and dataset size make."""
        if run.sample_rate is not None:
            return {"sample_rate": Fraction(repr(float(run.sample_rate))), "steps": run.total_steps}
        assert run.sizes is not None  # who gives no rate gives both sizes
        return {"sample_rate": Fraction(run.sizes[1], run.sizes[0]), "steps": run.total_steps}

    def draw(self, sums: Sums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """A coin for every round."""
        return (rng.random(shape) < sums.sample_rate).astype(np.float64)

    def crowd(self, sums: Sums, epochs: int, rng: np.random.Generator) -> FloatArray:
        """Successes among the others' coins: one long row of coins, cut into pieces."""
        from calipers.samplers.draws import bernoulli_indices

        heads = bernoulli_indices(epochs * sums.others, sums.sample_rate, rng)
        return np.bincount(heads // sums.others, minlength=epochs).astype(np.float64)

    def configurations(self, sums: Sums, member: bool) -> Configurations:
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


SCHEME = PoissonScheme()
