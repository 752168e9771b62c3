"""Poisson batches with a largest size: every record joins by its own coin, surplus is dropped at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.domains import COUNT
from calipers.numerics.types import IntArray
from calipers.samplers.draws import distinct
from calipers.samplers.law import SamplerLaw
from calipers.samplers.poisson import Poisson


@dataclass(frozen=True, kw_only=True)
class TruncatedPoisson(Poisson):
    """Every record joins with probability q; if more than `max_batch_size` have joined, so many of them are kept.

    Formal guarantees:
        - Before truncation: independent coins, as for `Poisson`.
        - Truncation: every set of `max_batch_size` of those that joined is equally likely to be kept.
        - Batch size: min(Binomial(N, q), max_batch_size), independent between steps.
        - A record of a full batch displaces another one: other records' batches do tell something about it.
        - Memory: O(batch) at any time.
    """

    max_batch_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(max_batch_size=COUNT)

    def law(self) -> SamplerLaw:
        """As Poisson's, at most `max_batch_size` records on average."""
        law = super().law()
        mean = min(law.mean_batch_size, float(self.max_batch_size))
        return dataclasses.replace(law, sampler="truncated-poisson", mean_batch_size=mean)

    def run_keys(self) -> dict[str, object]:
        """As Poisson's, and the limit."""
        return {**super().run_keys(), "max_batch_size": self.max_batch_size}

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """One step: who joined, or as many of them as may."""
        return (self._kept(joined, rng) for joined in super().epoch(rng))

    def _kept(self, joined: IntArray, rng: np.random.Generator) -> IntArray:
        if joined.size <= self.max_batch_size:
            return joined
        return joined[distinct(joined.size, self.max_batch_size, rng)]
