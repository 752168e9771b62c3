"""Algorithm D: fixed order, equal batches, the same in every epoch.

No randomness, hence no amplification: the reference against which the other samplers are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.numerics.types import IntArray
from calipers.samplers.equal_batches import EqualBatches
from calipers.samplers.law import SamplerLaw


@implements("chua2024:alg2")
@dataclass(frozen=True, kw_only=True)
class Deterministic(EqualBatches):
    """Batch t of every epoch is the t-th block of `batch_size` consecutive records.

    `rounds`, the number M of batches in an epoch, defaults to floor(N/B). The last N - M B records
    of the dataset are never used.

    Formal guarantees:
        - Inclusion: record i is in round floor(i/B) + 1 of every epoch, if i < M B; otherwise nowhere.
        - Participation: exactly once in an epoch (never, for the dropped records).
        - Batch size: always B, but for a last batch that is kept.
        - Every position is public knowledge.
        - Memory: O(batch).
    """

    def law(self) -> SamplerLaw:
        """Fixed positions; `rate` is 1 because some record is certain to be in any given round."""
        return self._law("deterministic", rate=1.0)

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Consecutive blocks; nothing is drawn."""
        for start in range(0, self.kept, self.batch_size):
            yield np.arange(start, min(start + self.batch_size, self.kept), dtype=np.int64)
