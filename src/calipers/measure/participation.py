"""How often a record takes part in a run, and what one participation shows at most.

Under Poisson sampling a record may take part in every step. All other samplers deal it out at most once per epoch:
"deterministic" in a batch known beforehand, "shuffle" and "balls-and-bins" in a random one of M batches. Whatever the
sampler, one participation moves the sum by a vector of norm at most 1 (zeroed out) or 2 (replaced by another record),
in units of the clipping norm, under noise of deviation sigma.
"""

from __future__ import annotations

from calipers.domains import Domain
from calipers.laws.average import SIGMA
from calipers.mechanisms.gaussian import NOISE
from calipers.run import Run

ALLOCATED = ("shuffle", "balls-and-bins")
"""Samplers that deal a record out to a random batch of every epoch."""


def participation(run: Run) -> float:
    """Probability that a record takes part in an epoch of fixed batches: used / dataset_size."""
    if run.dataset_size is None or run.batch_size is None or run.last_batch == "keep":
        return 1.0
    return run.steps_per_epoch * run.batch_size / run.dataset_size


def left_over(run: Run) -> int | None:
    """How many records every epoch leaves over, or None where the sizes are not known."""
    if run.dataset_size is None or run.batch_size is None:
        return None
    return 0 if run.last_batch == "keep" else run.dataset_size % run.batch_size


def participations(run: Run) -> int:
    """How many releases a record can take part in: every step under Poisson sampling, else one per epoch."""
    if run.sampler == "poisson":
        return run.total_steps
    assert run.total_epochs is not None  # a Run with fixed batches has whole epochs
    return run.total_epochs


def largest_shift(run: Run) -> float:
    """At least mu of one participation whose time is known: 1/sigma, doubled when the record is replaced."""
    return (2.0 if run.adjacency == "substitute" else 1.0) / run.noise_multiplier


def gaussian_shift(run: Run) -> float | None:
    """mu of one participation when it shows a plain Gaussian whose time is known, or None."""
    in_doubt = {
        "poisson": run.rate < 1,
        "deterministic": False,
        "balls-and-bins": run.steps_per_epoch > 1,
        # Even a single shuffled batch hides a record if it may be left out of it.
        "shuffle": run.steps_per_epoch > 1 or participation(run) < 1,
    }
    return None if in_doubt[run.sampler] else largest_shift(run)


def noise_range(run: Run) -> Domain:
    """The noise multipliers at which a run like this one can be measured."""
    if run.sampler not in ALLOCATED:
        return NOISE
    # Replacing a record moves a sum by 2: attacks on it live at half the noise.
    return Domain(2.0 * SIGMA.low, SIGMA.high) if run.adjacency == "substitute" else SIGMA
