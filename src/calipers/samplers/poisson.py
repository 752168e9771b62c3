"""Algorithm P: every record joins every batch by its own coin.

This is the sampler that mainstream accounting assumes, and the one that data loaders almost
never implement. Its batches vary in size and may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE_PROBABILITY, Domain
from calipers.numerics.types import IntArray
from calipers.samplers.draws import bernoulli_indices
from calipers.samplers.law import Sampler, SamplerLaw


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
