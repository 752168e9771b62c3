"""Algorithm S: a fresh permutation every epoch, cut into equal batches.

This is what data loaders do when they are told to shuffle and to drop the last partial batch; or to keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.domains import choice
from calipers.numerics.types import IntArray
from calipers.samplers.draws import permuted, sliced
from calipers.samplers.equal_batches import EqualBatches
from calipers.samplers.law import SamplerLaw


@implements("chua2024:alg3", "ertan2026:def3.2")
@dataclass(frozen=True, kw_only=True)
class Shuffle(EqualBatches):
    """Consecutive blocks of a uniformly random permutation, drawn anew in every epoch.

    `rounds` is the number M of batches in an epoch; left out, it is floor(N/B), as in a data
    loader. Chua et al. (2024) assume N = M B. Ertan and van Dijk (2026) start from M instead and
    use B = floor(N/M); that is `batch_size=N // M, rounds=M`. The two readings differ: N = 10,
    M = 4 gives B = 2, of which a data loader would make 5 batches, not 4.
    The records of an epoch that are dropped are the last N - M B of its permutation, so they are
    other ones in every epoch. `last_batch="keep"` drops none: the last batch is shorter instead.
    `reshuffle="once"` draws one permutation and repeats it in every epoch.

    Formal guarantees:
        - Inclusion: P(record i in batch t) = B/N for every i and t.
        - Participation: in an epoch at most once; exactly once with probability M B/N, and then
          uniformly in one of the M rounds (in a shorter last batch less often). Epochs are
          independent, or repeat the first.
        - Joint: two records share a given batch with probability B(B-1)/(N(N-1)); the batches of an
          epoch are disjoint.
        - Batch size: always B, but for a last batch that is kept.
        - Other records' batches determine this record's batch (or that it was dropped): the sizes
          give it away. Amplification statements that need independence do not apply.
        - Exact: every ordered outcome of an epoch is equally likely, in integer arithmetic.
        - Memory: one bit for each record, and towards the end of the epoch one byte more (32 MiB
          if that is larger), besides the batch itself. The first batch does not wait for the epoch.
    """

    reshuffle: str = "every-epoch"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("reshuffle", self.reshuffle, ("every-epoch", "once"))

    def law(self) -> SamplerLaw:
        """Random allocation to one of M rounds, with positions revealed by the fixed sizes."""
        return self._law("shuffle", rate=self.batch_size / self.dataset_size)

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Blocks of a fresh permutation."""
        return sliced(permuted(self.dataset_size, rng), iter(self.sizes))
