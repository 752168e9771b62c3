"""What a sampler is to Calipers: one `Scheme` says everything that depends on how batches are drawn, its analysis too.

Everything else reads the registry (`calipers.samplers`) and compares no names: a `Run` asks which keys mean something
and which numbers fit, `measure` asks for the analysis, reports for words and remedies, training for the sampler that
draws, audits for what there is to enumerate.

**Analysis.** How a run exposes one record (or one unit of several): proofs above, attacks below.

A `Proof` says that each of `count` participations is dominated by the pessimistic PLDs of its source; the proofs of one
analysis compete, and the smallest bound counts. An `Attack` says what each participation shows once everybody's
gradients are chosen: its optimistic PLDs; attacks compete too, and the most that any of them shows counts. A pair that
is both proven and attained is the source of both, and then the bracket closes. Where the neighbors of a dataset expose
a record differently, each has an analysis of its own, and the largest counts.

Phases of one run compose: an adaptive composition is dominated by the product of what dominates its parts, and an
attack chooses everybody's gradients anew in every phase, so attacks on the phases are one attack on the run.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np

from calipers.domains import Domain
from calipers.errors import InputError, UnsupportedError
from calipers.mechanisms.gaussian import NOISE, gaussian
from calipers.numerics.types import FloatArray
from calipers.pld.core.allocated_unit import AllocatedUnit
from calipers.pld.core.source import AnyPair, AttainedPair, DominatingPair, TwoSidedPair
from calipers.run_fields import RunFields
from calipers.run_keys import OWN_KEYS, whole

if TYPE_CHECKING:
    from calipers.pld.allocation.adaptive_sign import AdaptiveSignAttack
    from calipers.samplers.law import Sampler

Kind = TypeVar("Kind", bound=AnyPair, covariant=True)

KNOWN_TIME = "The record takes part in"


@dataclass(frozen=True)
class CompositionFactor(Generic[Kind]):
    """`count` participations, each with the distributions of `source`; `additional`: those of another kind that are
    there too.
    """

    source: Kind
    count: int
    statement: str
    additional: tuple[tuple[Kind, int], ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Proof(CompositionFactor[DominatingPair]):
    """Participations, each dominated by the distributions of its source.

    `statement`: its key in `calipers/citations.json`. `reason` begins a sentence that the evaluation ends with how many
    there are. `published`: others publish the same bound, and ours is never the larger for its rounding
    (`calipers.pld.composition.product`).
    """

    reason: str
    published: bool = False

    @property
    def shift(self) -> float | None:
        """mu of a participation that is a plain Gaussian at a known time."""
        return self.source.mu

    @property
    def one_sided(self) -> bool:
        """Whether nothing is known of the source from below."""
        return self.source.both is None


@dataclass(frozen=True)
class Attack(CompositionFactor[AttainedPair]):
    """Participations, each of which shows the distributions of its source to whoever plays the `description`.

    `one_sided`: the source is composed from below only, by `AttackProduct`, even where it has an upper side too (where
    it has none, that is so anyway). `rival`: an attack that is made for the number asked for, where all participations
    are alike.
    """

    description: str
    one_sided: bool = False
    rival: AdaptiveSignAttack | None = None


@dataclass(frozen=True)
class Analysis:
    """The proofs that compete for the upper bound of one phase, and the attack behind its lower bound.

    `attacks`: further attacks, which compete. `neighbors`: the exposures of further neighbors of the dataset.
    """

    proofs: tuple[Proof, ...]
    attack: Attack
    attacks: tuple[Attack, ...] = ()
    neighbors: tuple[Analysis, ...] = ()

    @property
    def closes(self) -> bool:
        """Whether one pair is both proven and attained."""
        return len(self.proofs) == 1 and self.proofs[0].source.both == self.attack.source and not self.neighbors


release = functools.lru_cache(maxsize=64)(gaussian)
"""One object per shift, so that equal phases are counted together."""


def closed(source: TwoSidedPair, count: int, statement: str, reason: str, description: str) -> Analysis:
    """A pair that is proven and attained."""
    return Analysis((Proof(source, count, statement, reason),), Attack(source, count, statement, description))


def known_release(
    run: RunFields, count: int, statement: str = "dong2022:cor3.3+cor2.13", reason: str = KNOWN_TIME
) -> Proof:
    """Plain Gaussians at known times, in which a record takes part at most `count` times."""
    return Proof(release(run.largest_shift), count, statement, reason)


def known_times(run: RunFields, count: int) -> Analysis:
    """A record whose participations are all at known times: `count` plain Gaussians."""
    played = "The record's clipped gradient is u, a unit vector, in every step"
    played += ", that of its replacement -u" if run.adjacency == "substitute" else ""
    description = f"{played}, and all other gradients are zero, so each participation attains exactly this pair."
    return closed(release(run.largest_shift), count, "dong2022:cor3.3+cor2.13", KNOWN_TIME, description)


Configurations = tuple[FloatArray, FloatArray, FloatArray]
"""(log weights, others in each round, whether the differing record is in it) of every configuration of an epoch."""


@dataclass(frozen=True, kw_only=True)
class AuditedSums(ABC):
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

    name: the word for it in runs, on the command line and in JSON. summary: a few words next to it in a list.
    independent: every record enters every step by its own coin, so that a step is an epoch of its own.
    whole_epochs: batches are drawn for an epoch of the run (one pass) at a time; a sample rate must then be 1/M. With
    neither this nor `stepwise` they are drawn for the whole run, and a loader of them cannot be watched (`attach`).
    equal_batches: every batch has the same public number of records.
    revealed: the sampler that this one is once its order is known, which can only leak more.
    stepwise: nothing ties steps together, so that a step is an epoch of its own.
    isolates: the isolated view is offered, in which all other gradients count as zero.
    counts_units: exposures are those of a unit of `records_per_unit` records, under the adjacencies named; else of one
    record, and group privacy does the rest.
    others_zero: in the attack on one record, added or zeroed out, all other gradients are zero (undivided sums).
    drawn_by: the class that draws such batches.
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
    drawn_by: ClassVar[type[Sampler] | None] = None
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
        """Batches after which the sampler starts afresh: one step where nothing ties steps together, an epoch, or all.

        The same number as `law().rounds` of the class that draws: a training refuses its sampler where they differ.
        """
        if self.stepwise:
            return 1
        return run.steps_per_epoch if self.whole_epochs else run.total_steps

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """The keys that turn a run of another sampler into one of this, drawing as many records as often."""
        return {"sampler": self.name}

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """What the description left open, and how it was read."""
        return ()

    def why_zero_out(self, run: RunFields) -> str:
        """Why add-remove is not the relation of a run that names none, where it is not."""
        return "one record more or fewer can change the number of batches"

    def default_adjacency(self, run: RunFields) -> str:
        """The neighboring relation of a run that names none."""
        return "add-remove"

    def neighbors(self, run: RunFields, unit: str) -> str | None:
        """What neighbors differ by, where the adjacency's own words would say more than is proven."""
        return None

    def hides_batches(self, run: RunFields) -> bool:
        """Whether who is in which batch is drawn at random, and has to stay secret."""
        return run.rate < 1.0

    def counted(self, run: RunFields) -> tuple[str, ...]:
        """Which of 'adding' and 'removing' a unit changes the number of batches, so that anybody can tell it."""
        return ()

    def check_neighbors(self, run: RunFields) -> None:  # noqa: B027  # most samplers have them all
        """Raise `UnsupportedError` where the run has no neighbors of the adjacency it names."""

    @abstractmethod
    def batches(self, run: RunFields) -> str:
        """How batches are drawn, in words that fit after 'steps of'; `{rate}`, `{per_epoch}` and
        `{batches}` are filled in.
        """

    # What it shows of a record

    @abstractmethod
    def analyze(self, run: RunFields) -> Analysis:
        """The proofs and the attacks of one phase.

        Args:
            run: Drawn by this sampler, and checked by it.

        Returns:
            Proofs that each dominate the phase, for adaptively chosen gradients, and attacks that show what they say.

        Raises:
            UnsupportedError: Nothing is proven for the adjacency, the view or the unit of this run.
        """

    def revealed_allocation(self, run: RunFields) -> tuple[AllocatedUnit, int] | None:
        """How the records of a unit are allocated to batches, and how often; None where that is not said."""
        return None

    def unit_attacks(self, run: RunFields) -> tuple[Attack, ...]:
        """Attacks in which all records of a unit have equal gradients; none where there is none but that on one."""
        return ()

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

    def taken_as_public(self, run: RunFields) -> tuple[str, ...]:
        """The numbers that a neighboring dataset may have another one of, and that no key says are public."""
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
        return self.drawn_by.of_run(run, **self.drawn_with)

    # Audits

    def draw(self, sums: AuditedSums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """1 where the differing record is in the batch, for runs x epochs x rounds."""
        raise UnsupportedError(f"No built-in target draws sampler={self.name!r}.")

    def crowd(self, sums: AuditedSums, epochs: int, rng: np.random.Generator) -> FloatArray:
        """How many others are in each batch, where that does not follow from the differing record's place."""
        raise UnsupportedError(f"No built-in target draws sampler={self.name!r}.")

    def configurations(self, sums: AuditedSums, member: bool) -> Configurations:
        """All configurations of one epoch's batches, or `UnsupportedError` if there are too many to list."""
        raise UnsupportedError(f"The batches of sampler={self.name!r} are not enumerated; use the matched filter.")


def sizes_of(run: RunFields) -> tuple[int, int]:
    """(dataset_size, batch_size), which such batches need."""
    if run.sizes is None:
        raise InputError(f"sampler={run.sampler!r} draws batches of a given size; give dataset_size and batch_size.")
    return run.sizes


def batches_of_neighbors(run: RunFields) -> tuple[int, int, int]:
    """floor(N/B) of the smaller neighbor, of the dataset itself, and of the larger one."""
    size, batch = sizes_of(run)
    return (size - run.records_per_unit) // batch, size // batch, (size + run.records_per_unit) // batch


def moved_numbers(run: RunFields, rate: bool) -> tuple[str, ...]:
    """Of the numbers that `read_as_public` names those that one record, or unit, more or fewer moves."""
    if run.sizes is None:
        return ()
    steps = run.epochs is not None and len(set(batches_of_neighbors(run))) > 1
    return (*["rate"] * rate, *["number of steps"] * steps)


def read_as_public(run: RunFields, rate: bool) -> tuple[str, ...]:
    """That numbers which follow from the dataset size, the `rate` and the steps of so many epochs, are not its own."""
    found = [f"rate {run.batch_size:,}/{run.dataset_size:,}"] if rate and run.sizes is not None else []
    found += [f"number of steps {run.total_steps:,}"] if run.epochs is not None and run.sizes is not None else []
    if not found:
        return ()
    return (
        f"The {' and the '.join(found)} {'are' if len(found) > 1 else 'is'} read as constant, the same for both "
        f"neighbors. A loop that computes {'them' if len(found) > 1 else 'it'} from its own dataset is not covered.",
    )
