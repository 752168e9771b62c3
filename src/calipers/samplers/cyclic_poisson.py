"""Cyclic Poisson sampling: groups of records take turns, and within a group every record joins by its own coin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE_PROBABILITY
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.samplers.draws import bernoulli_indices
from calipers.samplers.law import Sampler, SamplerLaw


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
