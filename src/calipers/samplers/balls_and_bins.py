"""Balls-and-bins: every record is thrown into one of M batches, independently of the others.

A compromise between the two classical samplers: each record is used exactly once in an epoch, as
with shuffling, but the records are independent of each other, as with Poisson sampling, so a tight
and proven analysis exists (Chua et al., "Balls-and-Bins Sampling for DP-SGD", 2025).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, Domain, choice
from calipers.numerics.types import IntArray
from calipers.samplers.draws import permuted, sliced, throw
from calipers.samplers.law import Sampler, SamplerLaw


@implements("chua2025:sampler")
@dataclass(frozen=True, kw_only=True)
class BallsAndBins(Sampler):
    """In every epoch, every record independently in a uniformly random one of M batches.

    Give either `rounds` (M) or `batch_size`, which means M = floor(N/batch_size) rounds, as many as
    shuffling would have; the mean size N/M is then at least `batch_size`. Nothing is dropped.
    `reshuffle="once"` throws the records once and uses the same batches in every epoch.

    How it is drawn: the sizes of the M batches first, by N anonymous throws, then a uniformly
    random permutation cut into blocks of these sizes. This is the distribution above: the M^N assignments
    are equally likely, so given the sizes every ordered partition with these sizes is equally
    likely, which is what the cut permutation gives.

    Formal guarantees:
        - Inclusion: P(record i in batch t) = 1/M for every i and t.
        - Participation: exactly once in an epoch, in a uniformly random round; epochs are independent.
        - Joint: records are independent; two of them share a given batch with probability 1/M^2.
        - Batch sizes: multinomial(N; 1/M, ..., 1/M): each Binomial(N, 1/M), they add up to N, and any
          of them may be zero.
        - Other records' batches are independent of this record's and reveal nothing about it.
        - Exact in integer arithmetic.
        - Memory: as for `Shuffle`, and 8 M bytes for the sizes; the sizes cost one pass over N
          throws at the start of an epoch.
    """

    epochs: int
    rounds: int | None = None
    batch_size: int | None = None
    reshuffle: str = "every-epoch"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(epochs=COUNT)
        choice("reshuffle", self.reshuffle, ("every-epoch", "once"))
        remedy = "Give rounds if you know the number of batches in an epoch."
        self._keep_one(remedy, rounds=COUNT, batch_size=Domain(1, self.dataset_size, integer=True))

    @property
    def steps_per_epoch(self) -> int:
        """The number M of batches in an epoch."""
        if self.rounds is not None:
            return self.rounds
        assert self.batch_size is not None
        return self.dataset_size // self.batch_size

    def law(self) -> SamplerLaw:
        """Random allocation to one of M rounds, independent of all other records."""
        rounds = self.steps_per_epoch
        return SamplerLaw(
            "balls-and-bins",
            self.dataset_size,
            rate=1.0 / rounds,
            rounds=rounds,
            epochs=self.epochs,
            mean_batch_size=self.dataset_size / rounds,
        )

    def run_keys(self) -> dict[str, object]:
        """The batch size that was asked for, else one over the number of batches; and the epochs."""
        rate = {"sample_rate": 1.0 / self.rounds} if self.rounds is not None else {}
        return super().run_keys() | rate

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Blocks of a fresh permutation, of sizes that were thrown."""
        sizes = throw(self.dataset_size, self.steps_per_epoch, rng)
        yield from sliced(permuted(self.dataset_size, rng), (int(size) for size in sizes))
