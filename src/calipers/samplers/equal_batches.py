"""What the two fixed-size samplers share: M disjoint batches of B records in every epoch, the last perhaps shorter."""

from __future__ import annotations

from dataclasses import dataclass

from calipers.domains import COUNT, Domain, choice
from calipers.errors import InputError
from calipers.samplers.law import Sampler, SamplerLaw


@dataclass(frozen=True, kw_only=True)
class EqualBatches(Sampler):
    """`rounds` batches of `batch_size` records in each of `epochs` epochs; the rest is dropped.

    Left out, `rounds` is floor(N/B), as in a data loader that drops the last partial batch. With `last_batch="keep"`
    what does not fill a batch makes a shorter last one.
    """

    batch_size: int
    epochs: int
    rounds: int | None = None
    last_batch: str = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(batch_size=Domain(1, self.dataset_size, integer=True), epochs=COUNT)
        choice("last_batch", self.last_batch, ("drop", "keep"))
        if self.last_batch == "keep" and self.rounds is not None:
            raise InputError("last_batch='keep' uses every record, so the number of rounds follows; leave rounds out.")
        if self.rounds is not None:
            self._keep(rounds=COUNT)
            if self.batch_size * self.rounds > self.dataset_size:
                raise InputError(
                    f"Expected rounds * batch_size <= dataset_size, got {self.rounds} * {self.batch_size} > "
                    f"{self.dataset_size}. Leave rounds out to use as many full batches as the dataset holds."
                )

    @property
    def steps_per_epoch(self) -> int:
        """The number M of batches in an epoch."""
        if self.rounds is not None:
            return self.rounds
        batches, rest = divmod(self.dataset_size, self.batch_size)
        return batches + 1 if rest and self.last_batch == "keep" else batches

    @property
    def kept(self) -> int:
        """Records used in an epoch: M B, or all of them."""
        return min(self.dataset_size, self.steps_per_epoch * self.batch_size)

    @property
    def sizes(self) -> list[int]:
        """How many records the batches of an epoch hold, in order."""
        full, rest = divmod(self.kept, self.batch_size)
        return [self.batch_size] * full + [rest] * (rest > 0)

    def _law(self, sampler: str, rate: float) -> SamplerLaw:
        return SamplerLaw(
            sampler,
            self.dataset_size,
            rate=rate,
            rounds=self.steps_per_epoch,
            epochs=self.epochs,
            fixed_batch_size=True,
            mean_batch_size=self.kept / self.steps_per_epoch,
            dropped=self.dataset_size - self.kept,
        )
