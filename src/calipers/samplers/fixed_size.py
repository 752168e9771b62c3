"""Batches of exactly B records, drawn anew in every step, without or with replacement.

Without replacement every set of B records is equally likely; with replacement every one of the B places is filled by
a uniformly random record, so a record may come several times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.domains import COUNT, Domain
from calipers.numerics.types import IntArray
from calipers.samplers.draws import distinct
from calipers.samplers.law import DATASET_SIZE, Sampler, SamplerLaw


@dataclass(frozen=True, kw_only=True)
class FixedSize(Sampler):
    """B of N records in every step, independently of all other steps.

    Formal guarantees:
        - Without replacement: every set of B records is equally likely, P(record i in batch t) = B/N.
        - With replacement: every sequence of B records is equally likely; a record fills Binomial(B, 1/N) places.
        - Participation in T steps: independent between steps; possibly never, possibly many times.
        - Batch size: always B, so a record that is drawn displaces another one.
        - Exact in integer arithmetic. Memory: O(batch) at any time, whatever the dataset size.
    """

    batch_size: int
    steps: int
    replacement: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        most = DATASET_SIZE.high if self.replacement else self.dataset_size
        self._keep(batch_size=Domain(1, most, integer=True), steps=COUNT)

    def law(self) -> SamplerLaw:
        """Independent rounds with rate B/N; `rounds` is 1 and `epochs` counts the steps."""
        return SamplerLaw(
            "with-replacement" if self.replacement else "without-replacement",
            self.dataset_size,
            rate=min(1.0, self.batch_size / self.dataset_size),
            epochs=self.steps,
            fixed_batch_size=True,
            mean_batch_size=float(self.batch_size),
        )

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """One step: B draws, put back or not."""
        if self.replacement:
            yield rng.integers(self.dataset_size, size=self.batch_size)
        else:
            yield distinct(self.dataset_size, self.batch_size, rng)
