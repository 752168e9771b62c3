"""The description of what was executed.

A `Run` says how many records there are, how batches were drawn, how often, and with how much noise.
It computes nothing about privacy; it makes sure that there is exactly one thing to measure.

`calipers.run_fields` says how rate and epochs follow from each other, and what is said about the last batch and the
order. A remainder is recorded in `Run.notes`, because it is a choice somebody made. A run may end inside an epoch. What
depends on the sampler is asked of its scheme (`calipers.samplers`).

**Keys that were not named.** `adjacency` is then add-remove where adding and removing a record both leave the number of
steps as it is, and zero-out elsewhere (`calipers.samplers.equal_batches`); `last_batch` is "drop"; others have the
defaults of `calipers.run_fields`. `Run.assumed` lists them, and reports say what was assumed.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from calipers.display import NotebookDisplay
from calipers.domains import POSITIVE, Domain, choice
from calipers.errors import InputError
from calipers.run_fields import RunFields
from calipers.run_keys import (
    MEANT,
    as_toml,
    complete,
    exactly_one,
    known,
    named_keys,
    naming,
    overridden,
    quotient,
    read_phases,
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
    unit, records_per_unit: what is protected (a name, such as "user"), and the most records that one of them has; a
    unit needs the number, without a unit it is one record.
    """

    named: ClassVar[frozenset[str]] = frozenset()
    """The keys that were given: an attribute of every run, and no key of it."""
    assumed: ClassVar[tuple[str, ...]] = ()
    """The keys with a default that nobody named: an attribute of every run, and no key of it."""

    def __post_init__(self) -> None:
        self._keep("assumed", tuple(name for name in CHOICES if name not in self.named or not getattr(self, name)))
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
            given = quotient(self.sample_rate) or self.sample_rate
            self._keep("sample_rate", RATE.check("sample_rate", given, remedy))
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
        number = self.records_per_unit if "records_per_unit" in self.named else None
        if self.unit is not None and number is None:
            raise InputError(
                f"unit={self.unit!r} leaves open how many records one {self.unit} has. Add records_per_unit, the "
                f"largest number; 1 where a {self.unit} is one record, or is clipped and drawn as a whole."
            )
        self._keep("records_per_unit", number or 1)
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

        Args:
            changes: keys and values. Naming one of batch_size/sample_rate, or one of steps/epochs, drops the other;
                another sampler drops what is said about the last batch and the order if it has neither. A sample rate
                that is given is public. Another unit needs its own records_per_unit.

        Returns:
            The run; what nobody named (`assumed`) is settled anew.
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
        if changes.get("unit") not in (None, self.unit):
            record.pop("records_per_unit", None)
        return Run.from_dict(overridden(record, changes))

    def to_dict(self) -> dict[str, object]:
        """The keys that were given or have a default and mean something; `from_dict` gives back an equal run."""
        record = dataclasses.asdict(self)
        for name, default in OPTIONAL.items():
            unsaid = record[name] == default and name in UNSAID and name not in self.named
            if name not in scheme_of(self).keys or unsaid:
                record[name] = None
        if self.unit is None:
            record["records_per_unit"] = None
        return {name: record[name] for name in KEYS if record[name] is not None}

    def to_toml(self) -> str:
        """The same as the text of a run file, what nobody named as comments: read back it is assumed again."""
        known = self.to_dict()
        assumed = as_toml({key: value for key, value in known.items() if key in self.assumed})
        named = as_toml({key: value for key, value in known.items() if key not in self.assumed})
        return named + "".join(f"# assumed: {line}\n" for line in assumed.splitlines())

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> Run:
        """The run a mapping describes.

        Args:
            record: keys of run files and their values; those set to None count as absent.

        Returns:
            The run.

        Raises:
            InputError: naming the key.
        """
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

        Args:
            version: of Opacus, such as "1.5.2".
            settings: dataset_size, noise_multiplier, batch_size (or, before 1.0, sample_rate), epochs or steps, and
                where needed dimension, loss_reduction, drop_last, public_rate.

        Returns:
            The run.

        Raises:
            InputError: another setting, with what to write.
            UnsupportedError: the rate moves with the dataset's size.
        """
        from calipers.opacus_releases import check_settings, run_keys

        check_settings(settings)
        own = {key: settings.pop(key, None) for key in ("noise_multiplier", "dimension")}
        return cls.from_dict(run_keys(version, **settings) | own)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Run:
        """The one run of a run file.

        Args:
            path: of the file.

        Returns:
            The run.

        Raises:
            InputError: naming the file; also where it holds several phases, which `load_runs` reads.
        """
        phases = read_phases(path, KEYS)
        if len(phases) != 1:
            raise InputError(f"{os.fspath(path)}: the file holds {len(phases)} phases; read it with load_runs.")
        with naming(path):
            return cls.from_dict(phases[0])


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
