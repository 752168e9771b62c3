"""What a sampler says about itself: the distribution of which records meet which rounds.

The privacy of DP-SGD does not depend on the batch size as such. It depends on the joint distribution of
the rounds one record takes part in, and on what the other records' batches tell about them.
`SamplerLaw` holds exactly that, in numbers. It is produced by the object that draws the batches,
so the analysis cannot describe another sampler than the one that ran.

An epoch here is what a sampler draws at once, M = `rounds` batches: one pass over the data where a record is allocated
once per pass, one step for coins, the whole run where all of its steps are drawn together (groups in turn, k of t).
Epochs are independent and identically distributed (for the deterministic sampler, and one order for all: identical).
Within an epoch of M rounds a record takes part

- by coins: in each round independently with probability q. There is nothing that ties rounds
  together, so every round counts as an epoch of its own: M = 1, and `epochs` is the number of steps;
- allocated: in at most one round, uniformly one of the M if it is kept; or in exactly k of them, uniformly;
- in a fixed order: in one round known beforehand, the same in every epoch.

Fixed batch sizes reveal positions. If every batch holds exactly B records and an adversary knows
in which batch each *other* record lies, then the batch with only B - 1 others holds the remaining
record; if all M batches are full without it, it was dropped. With Poisson or balls-and-bins the
other records' rounds are independent of this record's, and reveal nothing.

Fixed-size samplers need a fixed number of records, so they have no add-remove neighbors: their
analysis replaces the record by one that contributes zero ("zero-out") or by another record
("substitute"). See Chua et al. (2024), Section 2.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from calipers.domains import Domain
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.run_fields import RunFields

# 2^42 records: sums of 2^16 gaps of at most 2^43 each then stay far below 2^63, so index
# arithmetic in `draws` cannot overflow.
DATASET_SIZE = Domain(1, 2**42, integer=True)
_KEYS = {field.name for field in dataclasses.fields(RunFields)} - {"dataset_size"}


@dataclass(frozen=True)
class SamplerLaw:
    """The distribution of participation of one record, as the accounting needs it.

    Attributes:
        sampler: the sampler's name, the word used everywhere in Calipers.
        dataset_size: N.
        rate: probability that a given record is in a given round, the largest over records and
            rounds. It is the same for all of them except for "deterministic", where it is 1.
        rounds: rounds M in an epoch (1 for coins).
        epochs: independent repetitions of the epoch (the steps, for coins).
        fixed_batch_size: whether every batch has the same, known size.
        mean_batch_size: expected number of records in a batch.
        dropped: the records that sit out one epoch.
    """

    sampler: str
    dataset_size: int
    _: KW_ONLY
    rate: float
    mean_batch_size: float
    rounds: int = 1
    epochs: int = 1
    fixed_batch_size: bool = False
    dropped: int = 0

    @property
    def kept(self) -> int:
        """Records that can take part in one epoch; exactly so many do, except by coins."""
        return self.dataset_size - self.dropped

    @property
    def steps(self) -> int:
        """Batches drawn in the whole run: rounds x epochs."""
        return self.rounds * self.epochs


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """What every batch sampler offers: it draws, it states the distribution it draws from, and the keys of such a run.

    `dataset_size` is the number of records N; batches hold indices in range(N). `batch_size` is the size that was asked
    for, where one was.
    """

    dataset_size: int

    if TYPE_CHECKING:  # a field of most samplers

        @property
        def batch_size(self) -> float | None:
            """The size asked for."""

    def __post_init__(self) -> None:
        self._keep(dataset_size=DATASET_SIZE)

    def _keep(self, **domains: Domain) -> None:
        """Check these fields, and keep whole numbers as such."""
        for name, domain in domains.items():
            object.__setattr__(self, name, domain.check(name, getattr(self, name)))

    def _keep_one(self, remedy: str, **domains: Domain) -> None:
        """Check and keep the one of these fields that is given; `InputError` if none or several are."""
        given = {name: domain for name, domain in domains.items() if getattr(self, name) is not None}
        if len(given) != 1:
            values = ", ".join(f"{name}={getattr(self, name)}" for name in domains)
            raise InputError(f"Expected exactly one of {' and '.join(domains)}, got {values}. {remedy}")
        self._keep(**given)

    @property
    def repeats(self) -> bool:
        """Whether all epochs are the first one again."""
        return self.run_keys().get("reshuffle") == "once"

    @abstractmethod
    def law(self) -> SamplerLaw:
        """The distribution of the batches that `batches` draws."""

    def batches(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """All batches of the run in order, each drawn from `rng` when it is asked for."""
        check_generator(rng)
        again, once = copy.deepcopy(rng), self.repeats
        # To repeat the first epoch, its numbers are drawn again: that is cheaper than keeping the batches.
        epochs = (self.epoch(copy.deepcopy(again) if once and n else rng) for n in range(self.law().epochs))
        return itertools.chain.from_iterable(epochs)

    @abstractmethod
    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """The batches of one epoch; of one step, where nothing ties steps together.

        Nothing is drawn before the first of them is asked for: a stream that is resumed may begin an epoch twice.
        """

    def run_keys(self) -> dict[str, object]:
        """The keys with which a `Run` describes these batches, besides the sampler's name and the dataset size."""
        names = [field.name for field in dataclasses.fields(self) if field.name in _KEYS]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @classmethod
    def of_run(cls, run: RunFields, **further: Any) -> Self:
        """The sampler that draws the batches of a run: its fields are called as the keys of a run are."""
        names = [field.name for field in dataclasses.fields(cls)]
        read: dict[str, Any] = {"steps": run.total_steps, "epochs": run.total_epochs} | further
        if "batch_size" not in names:
            read["sample_rate"] = run.rate
        if run.batch_size is None:
            read["rounds"] = run.steps_per_epoch
        given = {name: read.get(name, getattr(run, name, None)) for name in names}
        return cls(**{name: value for name, value in given.items() if value is not None})


def check_generator(rng: object) -> None:
    """Raise `InputError` unless `rng` is a numpy Generator (seeds and legacy states are refused)."""
    if not isinstance(rng, np.random.Generator):
        raise InputError(
            f"Expected rng to be a numpy.random.Generator, got rng={rng!r}. Pass numpy.random.default_rng(seed)."
        )
