"""Random allocation: every record takes part in exactly k of the t steps, uniformly, independently of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.domains import COUNT, Domain
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.samplers.law import Sampler, SamplerLaw

_MOST_PLACES = 2**29
_BLOCK = 2**20


@dataclass(frozen=True, kw_only=True)
class RandomAllocation(Sampler):
    """Every record in exactly `participations` of `steps` steps.

    Formal guarantees:
        - Participation: every set of k of the t steps is equally likely, for every record, independently.
        - Batch size: Binomial(N, k/t) in every step; all of them add up to k N.
        - Other records' batches are independent of this record's and reveal nothing about it.
        - Exact in integer arithmetic. Memory: 8 bytes for each of the k N places, drawn before the first batch.
    """

    steps: int
    participations: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(steps=COUNT)
        self._keep(participations=Domain(1, self.steps, integer=True))
        places = self.dataset_size * self.participations
        if places > _MOST_PLACES:
            raise InputError(
                f"Expected dataset_size * participations <= {_MOST_PLACES}, got {places}: the places of all records "
                "are drawn beforehand and kept in memory."
            )

    @property
    def batch_size(self) -> float | None:
        """The mean size, which follows from public numbers."""
        return self.law().mean_batch_size

    def law(self) -> SamplerLaw:
        """One epoch of all steps, in k of which a record takes part."""
        rate = self.participations / self.steps
        mean = self.dataset_size * self.participations / self.steps
        size, steps = self.dataset_size, self.steps
        return SamplerLaw("random-allocation", size, rate=rate, rounds=steps, mean_batch_size=mean)

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """All steps, from the places of all records."""
        places = self._places(rng)
        order = np.argsort(places, kind="stable")
        ends = np.cumsum(np.bincount(places, minlength=self.steps))
        starts = np.concatenate(([0], ends[:-1]))
        records = order // self.participations
        for start, end in zip(starts, ends, strict=True):
            yield records[start:end]

    def _places(self, rng: np.random.Generator) -> IntArray:
        """The steps of record 0, of record 1, ...: for each a uniformly random set, by Floyd's method."""
        found = np.empty((self.dataset_size, self.participations), dtype=np.int64)
        block = max(1, _BLOCK // self.participations)
        for start in range(0, self.dataset_size, block):
            rows = found[start : start + block]
            # Floyd: for j = t - k .. t - 1 draw one of 0 .. j; if it is there already, take j itself.
            for place, highest in enumerate(range(self.steps - self.participations, self.steps)):
                drawn = rng.integers(highest + 1, size=len(rows))
                taken = (rows[:, :place] == drawn[:, None]).any(axis=1)
                rows[:, place] = np.where(taken, highest, drawn)
        return found.ravel()
