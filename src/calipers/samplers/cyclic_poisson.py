"""Cyclic Poisson sampling: the records are split into groups that take turns, and a step draws from one group only.

A record whose group is known takes part in ceil(T / cycle) steps at most, each by a coin of its own: that many Poisson
steps at the group's rate q, proven and attained. Which group a record is in must not depend on the other records:
here it is its index modulo the number of groups.

**Drawing.** Cyclic Poisson sampling: groups of records take turns, and within a group every record joins by its own
coin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE_PROBABILITY
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.run_fields import RunFields
from calipers.samplers.analysis import Analysis, Scheme, moved_numbers, read_as_public
from calipers.samplers.draws import bernoulli_indices
from calipers.samplers.law import Sampler, SamplerLaw
from calipers.samplers.units import sampled_unit


@implements("calipers:cyclic")
@dataclass(frozen=True, kw_only=True)
class CyclicPoisson(Sampler):
    """Record i belongs to group i mod `cycle`; step t draws from group t mod `cycle`, each record with probability q.

    Formal guarantees:
        - Inclusion: probability q in the steps of the record's group, independently over records and steps; never in
          the others.
        - Participation in T steps: Binomial(ceil or floor of T / cycle, q).
        - A record that is added at the end changes nobody else's group.
        - Other records' batches are independent of this record's and reveal nothing about it.
        - Memory: O(batch) at any time.
    """

    steps: int
    sample_rate: float
    cycle: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(steps=COUNT, cycle=COUNT, sample_rate=POSITIVE_PROBABILITY)
        if self.cycle > self.dataset_size:
            raise InputError(f"Expected cycle <= dataset_size, got {self.cycle} groups of {self.dataset_size} records.")

    @property
    def batch_size(self) -> float | None:
        """The mean size, which follows from public numbers."""
        return self.law().mean_batch_size

    def law(self) -> SamplerLaw:
        """Coins of rate q whenever it is the group's turn; the run is one epoch."""
        size, rate = self.dataset_size, self.sample_rate
        mean = rate * size / self.cycle
        return SamplerLaw("cyclic-poisson", size, rate=rate, rounds=self.steps, mean_batch_size=mean)

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """All steps, each with the coins of the group whose turn it is."""
        return (self._batch(step % self.cycle, rng) for step in range(self.steps))

    def _batch(self, group: int, rng: np.random.Generator) -> IntArray:
        members = -(-(self.dataset_size - group) // self.cycle)
        return group + self.cycle * bernoulli_indices(members, self.sample_rate, rng)


class CyclicPoissonScheme(Scheme):
    """Groups that take turns, coins within the group."""

    name = "cyclic-poisson"
    summary = "coins, groups in turn"
    whole_epochs = False
    counts_units = ("add-remove", "zero-out", "substitute")
    others_zero = True
    drawn_by = CyclicPoisson

    def check(self, run: RunFields) -> None:
        """A group has no more records to draw than it has."""
        assert run.cycle is not None
        if run.sizes is not None and run.sizes[1] * run.cycle > run.sizes[0]:
            raise InputError(
                f"A group of {run.sizes[0]}/{run.cycle} records cannot fill batches of {run.sizes[1]} on average; "
                "lower batch_size or cycle."
            )

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """Two groups: the same records half as often, at twice the rate."""
        rate = {} if run.sample_rate is None else {"sample_rate": min(1.0, 2.0 * run.mean_rate)}
        return {"sampler": self.name, "cycle": 2, **rate}

    def batches(self, run: RunFields) -> str:
        """In words."""
        return (
            f"cyclic Poisson batches ({run.cycle} groups take turns; each record of the group enters with probability "
            "{rate})"
        )

    def analyze(self, run: RunFields) -> Analysis:
        """The steps of one group; several records of a unit are worst in one group."""
        assert run.cycle is not None
        return sampled_unit(run, -(-run.total_steps // run.cycle))

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What is read, and what is not."""
        assert run.cycle is not None
        turns = -(-run.total_steps // run.cycle)
        return (
            f"A record takes part in at most {turns} of {run.total_steps} steps, those of its group, each time by a "
            "coin of its own. Groups are read as known (a record's index modulo their number) and as independent of "
            "other records. The lower bound is about an adversary who knows the groups; a split that is drawn and kept "
            "secret shows no more than the upper bound; one whose groups move when a record is added is not covered.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The rate, and the steps of so many epochs."""
        return read_as_public(run, rate=True)

    def taken_as_public(self, run: RunFields) -> tuple[str, ...]:
        """The same, where one record moves them."""
        return moved_numbers(run, rate=True)
