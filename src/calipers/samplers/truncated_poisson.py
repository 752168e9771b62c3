"""Poisson sampling with a largest batch: every record enters by its own coin, and what exceeds the limit is dropped.

As training on accelerators does it, which wants one shape. A record of a batch that is full displaces another one
(`calipers.pld.subsampling.truncated`). Under add-remove both neighbors count, N - 1 and N + 1 records.

**Drawing.** Poisson batches with a largest size: every record joins by its own coin, surplus is dropped at random.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from calipers.domains import COUNT
from calipers.errors import InputError, UnsupportedError
from calipers.numerics.types import IntArray
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.subsampling.hidden_size import HiddenSize
from calipers.pld.subsampling.truncated import hidden_place_proof, truncated_attack, truncated_proof
from calipers.pld.subsampling.truncation import Truncation
from calipers.run_fields import RunFields
from calipers.samplers.analysis import Analysis, Attack, Proof, Scheme, moved_numbers, read_as_public
from calipers.samplers.draws import distinct
from calipers.samplers.law import SamplerLaw
from calipers.samplers.poisson import Poisson
from calipers.samplers.units import all_of, binomial_shifts, sampled_unit


@dataclass(frozen=True, kw_only=True)
class TruncatedPoisson(Poisson):
    """Every record joins with probability q; if more than `max_batch_size` have joined, so many of them are kept.

    Formal guarantees:
        - Before truncation: independent coins, as for `Poisson`.
        - Truncation: every set of `max_batch_size` of those that joined is equally likely to be kept.
        - Batch size: min(Binomial(N, q), max_batch_size), independent between steps.
        - A record of a full batch displaces another one: other records' batches do tell something about it.
        - Memory: O(batch) at any time.
    """

    max_batch_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(max_batch_size=COUNT)

    def law(self) -> SamplerLaw:
        """As Poisson's, at most `max_batch_size` records on average."""
        law = super().law()
        mean = min(law.mean_batch_size, float(self.max_batch_size))
        return dataclasses.replace(law, sampler="truncated-poisson", mean_batch_size=mean)

    def run_keys(self) -> dict[str, object]:
        """As Poisson's, and the limit."""
        return {**super().run_keys(), "max_batch_size": self.max_batch_size}

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """One step: who joined, or as many of them as may."""
        return (self._kept(joined, rng) for joined in super().epoch(rng))

    def _kept(self, joined: IntArray, rng: np.random.Generator) -> IntArray:
        if joined.size <= self.max_batch_size:
            return joined
        return joined[distinct(joined.size, self.max_batch_size, rng)]


STATEMENT = "calipers:truncated"
_REASON = (
    "Whether the batch was full without the record is revealed: if not, a record moves the sum by its gradient; if so, "
    "it displaces another one, as in a batch of fixed size"
)
_HIDING = (
    "Of a batch that is full, or one record short of it, all records but one are revealed, and not whether it is full: "
    "the other one, the record or nobody is hidden among them"
)
_ONE_LESS = (
    "The others are put in a random order, and neither whether the batch is full nor whether it is one or two records "
    "short of it is revealed; in half of the orders the last two of them change places"
)
_MATTERS = 1e-12
"""Where full batches in a run are expected this seldom, it does not matter whether they are revealed."""
_NEVER = 1e-12
"""So many records of a unit join so seldom that their number does not matter to the attack on it."""
_COMMON = 1e-2
"""Where batches are full at least so often, the proof that hides whether one is two records short is tried too."""


class TruncatedPoissonScheme(Scheme):
    """Coins, and a limit."""

    name = "truncated-poisson"
    summary = "coins, up to a largest batch"
    whole_epochs = False
    stepwise = True
    drawn_by = TruncatedPoisson

    def check(self, run: RunFields) -> None:
        """How often batches are full depends on how many records there are."""
        if run.dataset_size is None:
            raise InputError(f"sampler={self.name!r} needs dataset_size: it decides how often a batch is full.")

    def why_zero_out(self, run: RunFields) -> str:
        """Units of several records."""
        return f"nothing is proven of adding or removing a {run.unit_name} of several records to batches with a limit"

    def default_adjacency(self, run: RunFields) -> str:
        """Zero-out for units of several records."""
        return "add-remove" if run.records_per_unit == 1 else "zero-out"

    def check_neighbors(self, run: RunFields) -> None:
        """Refuse to add or remove a unit: the chain from record to record would meet datasets of many sizes."""
        if run.adjacency == "add-remove" and run.records_per_unit > 1:
            raise UnsupportedError(
                f"Nothing is proven of adding or removing a {run.unit_name} of {run.records_per_unit} records where "
                "batches have a largest size: name adjacency 'zero-out', a weaker promise, or 'substitute', leave the "
                "limit out (sampler = 'poisson'), or let each unit enter a step by one coin."
            )

    def unit_attacks(self, run: RunFields) -> tuple[Attack, ...]:
        """All records of the unit, where there is room for all that ever join; elsewhere they count as left out."""
        assert run.dataset_size is not None
        assert run.max_batch_size is not None
        records, shift = run.records_per_unit, 1.0 / run.noise_multiplier
        joining = binomial_shifts(records, run.rate, shift).without(_NEVER)
        most = round(joining.lengths[-1] / shift)
        if most > run.max_batch_size:
            return ()
        cut = Truncation(run.dataset_size - records, run.rate, run.max_batch_size - most + 1)
        chances = [cut.room * chance for chance in joining.weights]
        if sum(chances) == 0.0:
            return ()
        elsewhere = max(0.0, 1.0 - sum(chances))
        shifts = Shifts.of([0.0, *joining.lengths], [elsewhere, *chances], joining.rounding + cut.rounding)
        instead = ", their replacements the opposite one," if run.adjacency == "substitute" else ""
        description = (
            f"{all_of(run)}{instead} and all other gradients are zero. The score of a step is its log ratio, as if "
            "none of them were in a batch that has hardly room for them."
        )
        pair = drawn_shift(shifts, opposite=run.adjacency == "substitute")
        return (Attack(pair, run.total_steps, "calipers:drawn-shift", description, one_sided=True),)

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """A limit three deviations above the mean."""
        mean = run.expected_batch_size
        return {"sampler": self.name, "max_batch_size": math.ceil(mean + 3.0 * math.sqrt(mean))}

    def batches(self, run: RunFields) -> str:
        """In words."""
        return (
            f"Poisson batches of at most {run.max_batch_size:,} records (each of {run.dataset_size:,} enters with "
            "probability {rate}, surplus is dropped)"
        )

    def analyze(self, run: RunFields) -> Analysis:
        """The exposures of both neighbors."""
        assert run.dataset_size is not None
        assert run.max_batch_size is not None
        if run.dataset_size < run.max_batch_size:
            return sampled_unit(run, run.total_steps)
        others = run.dataset_size - 1
        sizes = (others, run.dataset_size) if run.adjacency == "add-remove" else (others,)
        counted = [Truncation(size, run.rate, run.max_batch_size) for size in sizes]
        attack = _attack(run, counted[0])  # the fewest others hide least
        first, *further = (Analysis((_proof(run, one), *_hiding(run, one)), attack) for one in counted)
        return replace(first, neighbors=tuple(further))

    def hides_batches(self, run: RunFields) -> bool:
        """Who is left out of a full batch is drawn too."""
        return True

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What truncation does."""
        assert run.dataset_size is not None
        assert run.max_batch_size is not None
        full = Truncation(run.dataset_size - 1, run.rate, run.max_batch_size).truncated
        return (
            f"A batch has at most {run.max_batch_size} records, and records that joined beyond that are dropped at "
            f"random. It is full without the record with probability {full:.3g}; then a record that is kept displaces "
            "another one, which shows more than its own gradient. The larger the limit, the nearer to Poisson "
            "sampling.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The rate, and the steps of so many epochs."""
        return read_as_public(run, rate=True)

    def taken_as_public(self, run: RunFields) -> tuple[str, ...]:
        """The same, where one record moves them."""
        return moved_numbers(run, rate=True)

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """A larger limit."""
        assert run.dataset_size is not None
        mean = run.expected_batch_size
        enough = min(run.dataset_size, math.ceil(mean + 8.0 * math.sqrt(mean) + 8.0))
        if run.max_batch_size is None or run.max_batch_size >= enough:
            return ()
        text = f"Make room for {enough} records in a batch (max_batch_size = {enough}): it is hardly ever full."
        return ((text, {"max_batch_size": enough}),)


_revealing = functools.lru_cache(maxsize=32)(truncated_proof)
"""One object per kind, so that equal phases are counted together."""


def _proof(run: RunFields, truncation: Truncation) -> Proof:
    source = _revealing(truncation, 1.0 / run.noise_multiplier, run.adjacency)
    return Proof(source, run.total_steps, STATEMENT, _REASON, published=True)  # dp_accounting's event says the same


def _hiding(run: RunFields, truncation: Truncation) -> tuple[Proof, ...]:
    """The proof that hides whether a batch is full, where there is one and it matters."""
    often = truncation.truncated * run.total_steps >= _MATTERS
    if run.rate == 1 or not often:
        return ()
    shift = 1.0 / run.noise_multiplier
    found = (Proof(_hidden_place(truncation, shift, run.adjacency), run.total_steps, STATEMENT, _HIDING),)
    if truncation.truncated < _COMMON or truncation.largest < 2:
        return found
    return (*found, Proof(HiddenSize(truncation, shift, run.adjacency), run.total_steps, STATEMENT, _ONE_LESS))


_hidden_place = functools.lru_cache(maxsize=32)(hidden_place_proof)


def _attack(run: RunFields, truncation: Truncation) -> Attack:
    """All others zero."""
    replaced = {"add-remove": "", "zero-out": " (zero once zeroed out)", "substitute": " (-u once replaced)"}
    return Attack(
        _alone(truncation, 1.0 / run.noise_multiplier, run.adjacency),
        run.total_steps,
        STATEMENT,
        f"{all_of(run)}{replaced[run.adjacency]}, and all other gradients are zero. The score of a step is its log "
        "ratio.",
        one_sided=True,
    )


_alone = functools.lru_cache(maxsize=32)(truncated_attack)
