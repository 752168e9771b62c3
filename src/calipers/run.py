"""The description of what was executed.

A `Run` says how many records there are, how batches were drawn, how often, and with how much noise.
It computes nothing about privacy; it makes sure that there is exactly one thing to measure.

**Rate and epochs.** `calipers.run_fields` says how they follow from each other. A remainder is recorded in `Run.notes`,
because it is a choice somebody made.

**The last batch.** A loader of shuffled or fixed batches either drops the records that do not fill a batch
(`last_batch = "drop"`, drop_last=True in PyTorch) or keeps them as a short last one ("keep", PyTorch's default, a step
more per epoch). Poisson loops that take ceil(N/B) steps per epoch say so with `steps`.

**The order.** Shuffled batches come in a new order every epoch (`reshuffle = "every-epoch"`), or in one order that is
drawn once and kept for the whole run ("once"), which hides a record far less.

**Keys that were not named.** `adjacency` is then add-remove where adding and removing a record both leave the number of
steps as it is, and zero-out elsewhere (`calipers.samplers.equal_batches`); `last_batch` is "drop".
`Run.assumed` lists them, and reports say what was assumed.

**Partial epochs.** A run may end inside an epoch. What depends on the sampler is asked of its scheme
(`calipers.samplers`).

**Phases.** A run file may hold `[[phase]]` tables: each inherits the keys at the top of the file,
overrides some, and the phases follow one another on the same data.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from calipers.display import NotebookDisplay
from calipers.domains import POSITIVE, Domain, choice
from calipers.errors import InputError
from calipers.run_fields import RunFields
from calipers.run_keys import (
    MEANT,
    as_toml,
    called,
    complete,
    exactly_one,
    known,
    named_keys,
    overridden,
    phase_tables,
    read_toml,
    refuse_event,
    whole,
)
from calipers.samplers import SAMPLERS, having, scheme_named, scheme_of
from calipers.synonyms import adjacency_named

NORMALIZATIONS = ("none", "constant", "expected", "floor", "realized")
ADJACENCIES = ("add-remove", "zero-out", "substitute")
VIEWS = ("worst-case", "isolated")

UNIT = re.compile(r"[A-Za-z][A-Za-z0-9 _-]{0,39}")

# Samplers whose name is not enough: the key without which nothing is known about their batches.
NEEDED = ("max_batch_size", "cycle", "participations")
# Keys that mean something to some samplers only, with the values they have where nothing is said, and those of them
# that are written down only where they differ from it.
OPTIONAL: dict[str, object] = {
    field.name: field.default
    for field in dataclasses.fields(RunFields)
    if field.name in ("reshuffle", "derived_rate", *NEEDED)
} | {"last_batch": "drop"}
UNSAID = ("derived_rate",)
# Divisors that depend on the dataset and therefore need its size.
DATA_DEPENDENT = ("expected", "floor", "realized")
# Counts up to 2^53 are exact in double precision.
COUNT = Domain(1, 2**53, integer=True)
EPOCHS = Domain(0, 2**53, low_open=True)
RATE = Domain(2**-53, 1)


@named_keys
@dataclass(frozen=True, kw_only=True)
class Run(RunFields, NotebookDisplay):
    """What was executed, checked when it is built.

    Exactly one of `batch_size` (with `dataset_size`) and `sample_rate`, and exactly one of `steps`
    and `epochs`. Under "add-remove" `dataset_size` is the user's own dataset: both neighbors, one
    record fewer and one more, count.

    noise_multiplier: standard deviation of the noise / clipping norm.
    sampler: how batches were really drawn, one of `calipers.samplers.SAMPLERS`. max_batch_size: the largest batch of
    "truncated-poisson". cycle: how many groups take turns under "cyclic-poisson". participations: in how many of all
    steps a record takes part under "random-allocation".
    normalization: what the noisy sum is divided by: "none", "constant" (a public number), "expected"
    (N q), "floor" (floor(N q)) or "realized" (the batch size that came out); the last three need
    `dataset_size` and `dimension`, the number of trained parameters.
    last_batch: "drop" or "keep" what does not fill a batch; reshuffle: "every-epoch" or "once" (see the module).
    adjacency: "add-remove", "zero-out" or "substitute"; where none is named, see the module. view: "worst-case", or
    "isolated" for an adversary who sees only the record's own noisy contribution.
    derived_rate: whether batch_size / dataset_size is a "public" number that both neighbors use, or "moving": computed
    by the loop from the dataset it is given, so that one record changes it.
    unit, records_per_unit: what is protected (a name, such as "user"), and the most records that one of them has.
    """

    assumed: ClassVar[tuple[str, ...]] = ()
    """Of `adjacency` and `last_batch`, those that nobody named: an attribute of every run, and no key of it."""

    def __post_init__(self) -> None:
        self._keep("assumed", tuple(name for name in ("last_batch", "adjacency") if not getattr(self, name)))
        if not self.last_batch:
            self._keep("last_batch", "drop")
        if not self.adjacency:
            self._keep("adjacency", "zero-out")  # until the sizes, on which it depends, have been checked
        self._keep("adjacency", adjacency_named(self.adjacency))
        self._check_fields()
        self._check_batches()
        self._check_divisor()
        self._check_length()
        if "adjacency" in self.assumed:
            self._keep("adjacency", scheme_of(self).default_adjacency(self))
            scheme_of(self).check(self)

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_fields(self) -> None:
        remedy = "It is the standard deviation of the noise / clipping norm; without noise there is no privacy."
        self._keep("noise_multiplier", POSITIVE.check("noise_multiplier", self.noise_multiplier, remedy))
        for name in ("dataset_size", "batch_size", "steps", "dimension", "records_per_unit", *NEEDED):
            if getattr(self, name) is not None:
                self._keep(name, COUNT.check_int(name, getattr(self, name)))
        if self.sample_rate is not None:
            remedy = "It is the probability that a record enters a batch."
            self._keep("sample_rate", RATE.check("sample_rate", self.sample_rate, remedy))
        if self.epochs is not None:
            epochs = EPOCHS.check("epochs", self.epochs)
            self._keep("epochs", int(epochs) if epochs.is_integer() else epochs)
        for name, allowed in CHOICES.items():
            choice(name, getattr(self, name), allowed)
        for name, default in OPTIONAL.items():
            if getattr(self, name) != default and name not in scheme_of(self).keys:
                raise InputError(_refused(self, name))
        for name in NEEDED:
            if name in scheme_of(self).keys and getattr(self, name) is None:
                raise InputError(f"sampler={self.sampler!r} needs {name}: it {MEANT[name][0]}.")
        self._check_unit()
        if self.view == "isolated" and not scheme_of(self).isolates:
            raise InputError(
                f"view='isolated' is not offered for sampler={self.sampler!r}, where a record shows by the one that it "
                "displaces; leave it out."
            )
        if self.derived_rate == "moving" and self.batch_size is None:
            raise InputError(_refused(self, "derived_rate"))

    def _check_unit(self) -> None:
        if self.unit is not None and not UNIT.fullmatch(str(self.unit)):
            raise InputError(f"Expected unit to be a short name such as 'user', got unit={self.unit!r}.")
        if self.records_per_unit > 1 and self.unit is None:
            raise InputError(
                f"records_per_unit={self.records_per_unit} needs a unit: say what has so many records, such as "
                "unit='user'."
            )
        if self.dataset_size is not None and self.records_per_unit > self.dataset_size:
            raise InputError(
                f"Expected records_per_unit <= dataset_size, got {self.records_per_unit} of {self.dataset_size}."
            )

    def _check_batches(self) -> None:
        if self.participations is None or self._sized:
            exactly_one(self, "batch_size", "sample_rate", "how large a batch is")
        if self.batch_size is not None and self.dataset_size is None:
            raise InputError("batch_size needs dataset_size; add dataset_size, or give sample_rate instead.")
        if self.sizes is not None and self.sizes[1] > self.sizes[0]:
            raise InputError(
                f"Expected batch_size <= dataset_size, got batch_size={self.batch_size} and "
                f"dataset_size={self.dataset_size}."
            )
        scheme_of(self).check(self)

    def _check_divisor(self) -> None:
        if self.normalization in DATA_DEPENDENT and self.dataset_size is None:
            raise InputError(
                f"normalization={self.normalization!r} divides by a number that depends on the data; add dataset_size."
            )
        if self.normalization == "floor" and self.expected_batch_size < 1:
            raise InputError(
                f"normalization='floor' would divide by floor({self.expected_batch_size:g}) = 0; raise the sample rate."
            )

    def _check_length(self) -> None:
        exactly_one(self, "steps", "epochs", "how long the run is")
        per_epoch = self.steps_per_epoch
        if self.epochs is not None and whole(self.epochs * per_epoch) is None:
            raise InputError(
                f"epochs={self.epochs} times {per_epoch} steps per epoch is not a whole number of steps; give steps."
            )
        COUNT.check("epochs * steps_per_epoch", self.total_steps)
        if not scheme_of(self).whole_epochs or not self.total_steps % per_epoch:
            return
        if "last_batch" in self.assumed:
            self._refuse_steps_of_kept_batches()
        if self.reshuffle == "once":
            below = self.total_steps // per_epoch * per_epoch
            nearest = f"{below} or {below + per_epoch}" if below else f"{per_epoch}"
            raise InputError(
                f"reshuffle='once' needs whole epochs of {per_epoch} steps, got {self.total_steps} steps; use "
                f"{nearest} steps."
            )

    @property
    def _sized(self) -> bool:
        return self.batch_size is not None or self.sample_rate is not None

    def _refuse_steps_of_kept_batches(self) -> None:
        """Ask what became of the last batch, where the steps fit whole epochs only if it was kept."""
        if self.sizes is None or "last_batch" not in scheme_of(self).keys or not self.sizes[0] % self.sizes[1]:
            return
        dropped = self.steps_per_epoch
        if self.total_steps % (dropped + 1) == 0:
            raise InputError(
                f"{self.total_steps} steps are whole epochs of {dropped + 1} batches if the last, shorter batch is "
                f"kept (last_batch='keep', PyTorch's default), and end inside an epoch of {dropped} if it is dropped "
                "(last_batch='drop'); say which."
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the description left open and how it was read."""
        if self.unit is None or self.records_per_unit > 1:
            return scheme_of(self).reading(self)
        return (
            *scheme_of(self).reading(self),
            f"One {self.unit} is read as one example, clipped and drawn as a whole (records_per_unit = 1). Where a "
            f"{self.unit} has several examples that are clipped one by one, give their largest number: it leaks more.",
        )

    def replace(self, **changes: object) -> Run:
        """A new run with some keys changed.

        Naming one of batch_size/sample_rate, or one of steps/epochs, drops the other; another sampler drops what is
        said about the last batch and the order if it has neither. A sample rate that is given is public. What nobody
        named (`assumed`) is settled anew.
        """
        record = {key: value for key, value in self.to_dict().items() if key not in self.assumed}
        scheme = scheme_named(choice("sampler", changes.get("sampler", self.sampler), SAMPLERS))
        for name in OPTIONAL:
            if name not in scheme.keys:
                record.pop(name, None)
        if self.participations is not None and "participations" not in scheme.keys and not self._sized:
            record["sample_rate"] = self.rate
        if changes.get("sample_rate") is not None:
            record.pop("derived_rate", None)
        return Run.from_dict(overridden(record, changes))

    def to_dict(self) -> dict[str, object]:
        """The keys that were given or have a default and mean something; `from_dict` gives back an equal run."""
        record = dataclasses.asdict(self)
        for name, default in OPTIONAL.items():
            if name not in scheme_of(self).keys or (record[name] == default and name in UNSAID):
                record[name] = None
        if self.records_per_unit == 1:
            record["records_per_unit"] = None
        return {name: record[name] for name in KEYS if record[name] is not None}

    def to_toml(self) -> str:
        """The same as the text of a run file."""
        return as_toml(self.to_dict())

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> Run:
        """The run a mapping describes, or `InputError` naming the key. Keys set to None count as absent."""
        if not isinstance(record, Mapping):
            raise InputError(f"Expected a mapping that describes a run, got {type(record).__name__}.")
        for key in record:
            known(key, KEYS)
        given = {key: value for key, value in record.items() if value is not None}
        complete(given)
        return cls(**given)  # type: ignore[arg-type]  # every value is checked by __post_init__

    @classmethod
    def from_opacus(cls, version: str, **settings: Any) -> Run:
        """What a release of Opacus executes under Poisson sampling: its own rate, steps and divisor.

        `settings` are dataset_size, noise_multiplier, batch_size (or, before 1.0, sample_rate), epochs or steps, and
        where needed dimension, loss_reduction, drop_last, public_rate. Refused where the rate moves with the dataset's
        size.
        """
        from calipers.opacus_releases import check_settings, run_keys

        check_settings(settings)
        own = {key: settings.pop(key, None) for key in ("noise_multiplier", "dimension")}
        return cls.from_dict(run_keys(version, **settings) | own)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Run:
        """The one run of a run file; `load_runs` reads files with several phases."""
        runs = load_runs(path)
        if len(runs) != 1:
            raise InputError(f"{os.fspath(path)}: the file holds {len(runs)} phases; read it with load_runs.")
        return runs[0]


# Of run files and records, in the order in which they are written.
KEYS = tuple(field.name for field in dataclasses.fields(RunFields))
CHOICES = {
    "sampler": SAMPLERS,
    "normalization": NORMALIZATIONS,
    "adjacency": ADJACENCIES,
    "view": VIEWS,
    "last_batch": ("drop", "keep"),
    "reshuffle": ("every-epoch", "once"),
    "derived_rate": ("public", "moving"),
}


def _refused(run: Run, name: str) -> str:
    """Why a key does not fit the sampler, and what to do."""
    meaning, remedy = MEANT[name]
    said = f"{name}={getattr(run, name)!r} {meaning} (sampler {' or '.join(map(repr, having(name)))})"
    return f"{said}, got sampler={run.sampler!r}; {remedy}."


def as_phases(runs: Run | Sequence[Run]) -> tuple[Run, ...]:
    """One run or several that follow one another, checked to be about the same pair of datasets."""
    refuse_event(runs)
    if hasattr(runs, "menu"):
        raise InputError(
            "Expected a Run, or several in a list, got an adaptive run: everything but `measure` and `certify` is "
            "about runs that were fixed in advance."
        )
    if isinstance(runs, (str, os.PathLike, Mapping)) or not isinstance(runs, (Run, Iterable)):
        raise InputError(
            f"Expected a Run, or several in a list, got {type(runs).__name__}; read a run file with load_runs, a "
            "dictionary with Run.from_dict."
        )
    phases = (runs,) if isinstance(runs, Run) else tuple(runs)
    if not phases:
        raise InputError("Expected at least one run, got none.")
    for position, phase in enumerate(phases, start=1):
        refuse_event(phase)
        if not isinstance(phase, Run):
            raise InputError(f"Expected phase {position} to be a Run, got {type(phase).__name__}.")
    (phases,) = with_one_adjacency([phases])
    for position, phase in enumerate(phases, start=1):
        for name in ("adjacency", "view", "dataset_size", "unit", "records_per_unit"):
            if getattr(phase, name) != getattr(phases[0], name):
                raise InputError(
                    f"The phases of one run share {name}, got {getattr(phases[0], name)} in phase 1 and "
                    f"{getattr(phase, name)} in phase {position}."
                )
    return phases


def with_one_adjacency(described: Sequence[tuple[Run, ...]]) -> list[tuple[Run, ...]]:
    """Several runs, those that name no adjacency with one that all of them have.

    It is the one that others name, if it is one; else add-remove if that is what all would have, and zero-out if not.
    """
    phases = [run for runs in described for run in runs]
    named = {run.adjacency for run in phases if "adjacency" not in run.assumed}
    own = {run.adjacency for run in phases if "adjacency" in run.assumed}
    if len(named) > 1 or not own:
        return list(described)
    (shared,) = named or {"add-remove" if own == {"add-remove"} else "zero-out"}

    def alike(run: Run) -> Run:
        return run if run.adjacency == shared else run.replace(adjacency=shared)

    return [tuple(map(alike, runs)) for runs in described]


def load_runs(
    path: str | os.PathLike[str], *, defaults: Mapping[str, object] | None = None, other_keys: Sequence[str] = ()
) -> tuple[Run, ...]:
    """The phases of a run file (one, when it has no `[[phase]]`), or `InputError` naming the file.

    `defaults` fills keys that the file leaves out; keys named by `other_keys` are read by whoever names them.
    """
    name = os.fspath(path)
    record = read_toml(name)
    try:
        if "step" in record:
            raise InputError(
                "It describes an adaptive run (a menu of [[step]] tables). `calipers measure`, `calibrate` and "
                "`certify` read it; everything else is about runs that were fixed in advance."
            )
        for key in record:
            known(key, (*KEYS, "phase", "calipers", *other_keys))
        # [calipers] is the budget of `calipers check`, which reads it for itself; it says nothing about the run.
        described = {key: value for key, value in record.items() if key not in ("phase", "calipers", *other_keys)}
        shared = overridden(dict(defaults or {}), described)
        return as_phases([Run.from_dict(overridden(shared, phase)) for phase in phase_tables(record)])
    except InputError as error:
        raise InputError(f"{called(name)}: {error}") from error
