"""What a sampler is to Calipers: one `Scheme` says everything that depends on how batches are drawn.

Everything else reads the registry (`calipers.schemes`) and compares no names: a `Run` asks which keys mean something
and which numbers fit, `measure` asks for exposures, reports for words and remedies, training for the sampler that
draws, audits for what there is to enumerate.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from calipers.domains import Domain
from calipers.errors import InputError, UnsupportedError
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.mechanisms.gaussian import NOISE
from calipers.numerics.types import FloatArray
from calipers.run_fields import RunFields
from calipers.run_keys import whole
from calipers.schemes.exposure import Attack, Exposure
from calipers.schemes.own_keys import OWN_KEYS

if TYPE_CHECKING:
    from calipers.samplers.law import Sampler

Configurations = tuple[FloatArray, FloatArray, FloatArray]
"""(log weights, others in each round, whether the differing record is in it) of every configuration of an epoch."""


@dataclass(frozen=True, kw_only=True)
class Sums(ABC):
    """What an audit tells a scheme about the sums it plays.

    others: N, the records besides the differing one. sample_rate: the probability of the differing record being in a
    given batch. rounds: batches in an epoch.
    """

    others: int
    sample_rate: float
    rounds: int = 1

    @property
    def batch_size(self) -> int:
        """The size of a batch where it is fixed."""
        return round(self.sample_rate * (self.others + 1))

    @property
    @abstractmethod
    def crowd_matters(self) -> bool:
        """Whether outputs depend on how many others are in a batch."""


class Scheme(ABC):
    """One way of drawing batches.

    name: the word for it in runs, on the command line and in JSON. summary: a few words beside it in a list.
    independent: every record enters every step by its own coin, so that a step is an epoch of its own.
    whole_epochs: batches are drawn for an epoch at a time.
    equal_batches: every batch has the same public number of records.
    revealed: the sampler that this one is once its order is known, which can only leak more.
    stepwise: nothing ties steps together, so that a step is an epoch of its own.
    isolates: the isolated view is offered, in which all other gradients count as zero.
    counts_units: exposures are those of a unit of `records_per_unit` records, under the adjacencies named; else of one
    record, and group privacy does the rest.
    others_zero: in the attack on one record, added or zeroed out, all other gradients are zero (undivided sums).
    drawn_by: the class of `calipers.samplers` that draws such batches, by its name: drawing needs more than describing.
    drawn_with: fields of that class that are no keys of a run.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    independent: ClassVar[bool] = False
    whole_epochs: ClassVar[bool] = True
    equal_batches: ClassVar[bool] = False
    revealed: ClassVar[str | None] = None
    stepwise: ClassVar[bool] = False
    counts_units: ClassVar[tuple[str, ...]] = ()
    isolates: ClassVar[bool] = True
    others_zero: ClassVar[bool] = False
    drawn_by: ClassVar[str | None] = None
    drawn_with: ClassVar[Mapping[str, object]] = {}

    # The description of a run

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a run that mean something to this sampler and not to every one."""
        return tuple(key for key, names in OWN_KEYS.items() if self.name in names)

    def check(self, run: RunFields) -> None:
        """Refuse numbers that do not fit this sampler."""
        if self.whole_epochs and run.batch_size is None and whole(1 / run.rate) is None:
            raise InputError(
                f"sampler={self.name!r} needs sample_rate = 1/M for a whole number M of batches per epoch, got "
                f"sample_rate={run.sample_rate}; give dataset_size and batch_size instead."
            )

    def rounds(self, run: RunFields) -> int:
        """Batches after which the sampler starts afresh: one epoch, or one step where nothing ties steps together."""
        return 1 if self.stepwise else run.steps_per_epoch

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """The keys that turn a run of another sampler into one of this, drawing as many records as often."""
        return {"sampler": self.name}

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """What the description left open, and how it was read."""
        return ()

    def default_adjacency(self, run: RunFields) -> str:
        """The neighboring relation of a run that names none."""
        return "add-remove"

    def neighbors(self, run: RunFields, unit: str) -> str | None:
        """What neighbors differ by, where the adjacency's own words would say more than is proven."""
        return None

    def check_neighbors(self, run: RunFields) -> None:  # noqa: B027  # most samplers have them all
        """Raise `UnsupportedError` where the run has no neighbors of the adjacency it names."""

    @abstractmethod
    def batches(self, run: RunFields) -> str:
        """How batches are drawn, in words that fit after 'steps of'; `{rate}` and `{per_epoch}` are filled in."""

    # What it shows of a record

    @abstractmethod
    def exposure(self, run: RunFields) -> Exposure:
        """The proofs and the attack of one phase, or `UnsupportedError` where nothing is proven."""

    def dealt(self, run: RunFields) -> tuple[DealtUnit, int] | None:
        """How the records of a unit are dealt into batches, and how often; None where that is not said."""
        return None

    def unit_attack(self, run: RunFields) -> Attack | None:
        """An attack in which all records of a unit have equal gradients; None where there is none but that on one."""
        return None

    def sizes_of_units(self, run: RunFields) -> tuple[int, int] | None:
        """(dataset with the unit, dataset with one of its records): what attacks and chains over its records start
        from, where that depends on the size.
        """
        return None

    def noise_range(self, run: RunFields) -> Domain:
        """The noise multipliers at which such a run can be measured."""
        return NOISE

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What an honest reader must know about runs drawn so."""
        return ()

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """How numbers that follow from the dataset size were read, under add-remove adjacency."""
        return ()

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """What to change so that less is shown, or more is proven: a sentence, and the keys of the run."""
        return ()

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """What a certificate states of such a run, in exact numbers: the keys that `calipers_verify` has for it."""
        raise UnsupportedError(f"No certificate can be had yet for sampler={self.name!r}; measure it without one.")

    # Who draws

    def sampler(self, run: RunFields) -> Sampler:
        """The sampler that draws such batches."""
        if self.drawn_by is None:
            raise UnsupportedError(f"Calipers does not draw sampler={self.name!r} itself.")
        if self.equal_batches:
            sizes_of(run)
        kind: type[Sampler] = getattr(importlib.import_module("calipers.samplers"), self.drawn_by)
        return kind.of_run(run, **self.drawn_with)

    # Audits

    def draw(self, sums: Sums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """1 where the differing record is in the batch, for runs x epochs x rounds."""
        raise UnsupportedError(f"No built-in target draws sampler={self.name!r}.")

    def crowd(self, sums: Sums, epochs: int, rng: np.random.Generator) -> FloatArray:
        """How many others are in each batch, where that does not follow from the differing record's place."""
        raise UnsupportedError(f"No built-in target draws sampler={self.name!r}.")

    def configurations(self, sums: Sums, member: bool) -> Configurations:
        """All configurations of one epoch's batches, or `UnsupportedError` if there are too many to list."""
        raise UnsupportedError(f"The batches of sampler={self.name!r} are not enumerated; use the matched filter.")


def sizes_of(run: RunFields) -> tuple[int, int]:
    """(dataset_size, batch_size), which such batches need."""
    if run.sizes is None:
        raise InputError(f"sampler={run.sampler!r} draws batches of a given size; give dataset_size and batch_size.")
    return run.sizes


def read_as_public(run: RunFields, rate: bool) -> tuple[str, ...]:
    """That numbers which follow from the dataset size, the `rate` and the steps of so many epochs, are not its own."""
    found = [f"rate {run.batch_size:,}/{run.dataset_size:,}"] if rate and run.sizes is not None else []
    found += [f"number of steps {run.total_steps:,}"] if run.epochs is not None and run.sizes is not None else []
    if not found:
        return ()
    return (
        f"The {' and the '.join(found)} {'are' if len(found) > 1 else 'is'} read as public, the same for both "
        f"neighbors. A loop that computes {'them' if len(found) > 1 else 'it'} from its own dataset is not covered.",
    )
