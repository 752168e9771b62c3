"""Batches of exactly B records, drawn anew in every step, without or with replacement.

Without replacement every set of B records is equally likely; with replacement every one of the B places is filled by
a uniformly random record, so a record may come several times.

**Without replacement.** A record in the batch displaces another one, so under add-remove one record moves the sum by
*two* clipped gradients (`calipers.pld.subsampling.fixed_size`). Several records of a unit: j of them are in the batch,
j hypergeometric (`calipers.pld.core.drawn_shift`, `calipers.pld.subsampling.counted`).

**With replacement.** A record may be in a batch several times, and displaces another one each time: j places, j
binomial(B, 1/N) (`calipers.pld.core.drawn_shift` where it is added or removed, `calipers.pld.subsampling.counted`
else).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from calipers.domains import COUNT, Domain
from calipers.errors import InputError
from calipers.numerics.binomial import hypergeometric
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import RoundedPair
from calipers.pld.subsampling.counted import CountedPair
from calipers.pld.subsampling.fixed_size import fixed_size_attack, fixed_size_proof
from calipers.run_fields import RunFields
from calipers.samplers.analysis import (
    Analysis,
    Attack,
    AuditedSums,
    Configurations,
    Proof,
    Scheme,
    closed,
    moved_numbers,
    read_as_public,
    sizes_of,
)
from calipers.samplers.draws import distinct
from calipers.samplers.law import DATASET_SIZE, Sampler, SamplerLaw
from calipers.samplers.units import all_of, binomial_shifts


@dataclass(frozen=True, kw_only=True)
class FixedSize(Sampler):
    """B of N records in every step, independently of all other steps.

    Formal guarantees:
        - Without replacement: every set of B records is equally likely, P(record i in batch t) = B/N.
        - With replacement: every sequence of B records is equally likely; a record fills Binomial(B, 1/N) places.
        - Participation in T steps: independent between steps; possibly never, possibly many times.
        - Batch size: always B, so a record that is drawn displaces another one.
        - Exact in integer arithmetic. Memory: O(batch) at any time, whatever the dataset size.
    """

    batch_size: int
    steps: int
    replacement: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        most = DATASET_SIZE.high if self.replacement else self.dataset_size
        self._keep(batch_size=Domain(1, most, integer=True), steps=COUNT)

    def law(self) -> SamplerLaw:
        """Independent rounds with rate B/N; `rounds` is 1 and `epochs` counts the steps."""
        return SamplerLaw(
            "with-replacement" if self.replacement else "without-replacement",
            self.dataset_size,
            rate=min(1.0, self.batch_size / self.dataset_size),
            epochs=self.steps,
            fixed_batch_size=True,
            mean_batch_size=float(self.batch_size),
        )

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """One step: B draws, put back or not."""
        if self.replacement:
            yield rng.integers(self.dataset_size, size=self.batch_size)
        else:
            yield distinct(self.dataset_size, self.batch_size, rng)


CLOSED = (
    "A record in a batch of fixed size displaces another one, and adding or removing it moves the sum by up to twice "
    "the clipping norm"
)
PROVEN = (
    "A record in a batch of fixed size displaces another one; the worst case of either order of the datasets, joined "
    "where their ratio is 1, dominates every step"
)


def displacement_description(run: RunFields) -> str:
    """Everybody's gradients."""
    instead = {"add-remove": "", "zero-out": ", zero once zeroed out", "substitute": ", -u once replaced"}
    return (
        f"{all_of(run)}{instead[run.adjacency]}, all others are -u, so a batch sums to -B along u except where "
        "the record has displaced another one; the score of a step is its log likelihood ratio."
    )


class FixedSizeScheme(Scheme):
    """Batches of B records in every step, whatever the step before drew."""

    whole_epochs = False
    equal_batches = True
    stepwise = True
    counts_units = ("add-remove", "zero-out", "substitute")
    isolates = False
    drawn_by = FixedSize

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What displacement costs."""
        what = {
            "add-remove": "Added or removed, it moves the sum by up to twice the clipping norm, where Poisson sampling "
            "moves it by once: an accountant that assumes Poisson sampling understates this run.",
            "zero-out": "Zeroed out, its place in the batch stays taken.",
            "substitute": "Replaced, it moves the sum by up to twice the clipping norm.",
        }
        return (
            "Every batch has the same number of records, so a record that is drawn displaces another one. "
            f"{what[run.adjacency]}",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The steps of so many epochs; B of however many there are is no rate of its own."""
        return read_as_public(run, rate=False)

    def taken_as_public(self, run: RunFields) -> tuple[str, ...]:
        """The same, where one record moves them."""
        return moved_numbers(run, rate=False)

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Coins."""
        text = "Let every record enter every step by its own coin (sampler = 'poisson'): then it displaces nobody."
        return ((text, {"sampler": "poisson"}),)


@functools.lru_cache(maxsize=64)
def counted_attack(counts: Shifts, adjacency: str) -> Pair:
    """What the record u among others -u shows in one step, in j places with the given probabilities."""
    doubled = tuple(2.0 * s for s in counts.lengths)
    if adjacency != "zero-out":
        return drawn_shift(replace(counts, lengths=doubled))
    weights = (*counts.weights[:-1], counts.weights[-1] + counts.beyond)
    opposed = gaussian_mixture_part(weights, doubled, weights, counts.lengths)
    return RoundedPair("several places", smooth=(opposed,), rounding=counts.rounding)


def several_places(run: RunFields, counts: Shifts) -> Analysis:
    """A unit of which j records (or copies) are in a batch, j drawn with the given distribution, each displacing
    another.
    """
    steps, description, statement = run.total_steps, displacement_description(run), "calipers:counted"
    pair = counted_attack(counts, run.adjacency)
    if run.adjacency == "add-remove":
        return closed(pair, steps, "calipers:drawn-shift", CLOSED, description)
    proof = Proof(CountedPair(counts, run.adjacency), steps, statement, f"{PROVEN}.")
    return Analysis((proof,), Attack(pair, steps, statement, description, one_sided=True))


class WithoutReplacementScheme(FixedSizeScheme):
    """B distinct records in every step."""

    name = "without-replacement"
    summary = "B of N, anew every step"

    def why_zero_out(self, run: RunFields) -> str:
        """Batches are full."""
        return "with one record fewer no batch can be filled"

    def default_adjacency(self, run: RunFields) -> str:
        """Zero-out where the neighbor with a unit fewer cannot fill its batch."""
        size, batch = sizes_of(run)
        return "add-remove" if size - run.records_per_unit >= batch else "zero-out"

    def check(self, run: RunFields) -> None:
        """Both sizes, and a neighbor that can fill its batch."""
        size, batch = sizes_of(run)
        left = size - run.records_per_unit
        if run.adjacency == "add-remove" and left < batch:
            raise InputError(
                f"With {left} records left when a {run.unit_name} is removed no batch of {batch} can be drawn "
                "without replacement; lower batch_size, or use adjacency 'zero-out' or 'substitute'."
            )

    def batches(self, run: RunFields) -> str:
        """In words."""
        size, batch = sizes_of(run)
        return f"batches of {batch:,} of {size:,} records, drawn anew without replacement"

    def analyze(self, run: RunFields) -> Analysis:
        """One pair where a record is added or removed; else the worst of either order, and an attack."""
        shift, steps, description = 1.0 / run.noise_multiplier, run.total_steps, displacement_description(run)
        if run.records_per_unit > 1:
            return several_places(run, _counts(*sizes_of(run), run.records_per_unit, shift))
        proof, attacked = _pairs(run.rate, shift, run.adjacency)
        if run.adjacency == "add-remove" or run.rate == 1.0:
            return closed(proof, steps, "calipers:fixed-size", CLOSED, description)
        attack = Attack(attacked, steps, "calipers:fixed-size", description, one_sided=True)
        return Analysis((Proof(proof, steps, "calipers:fixed-size", PROVEN),), attack)

    def draw(self, sums: AuditedSums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """Whether the record is among the B of N: a uniform place among all, below B."""
        return (rng.integers(sums.others + 1, size=shape) < sums.batch_size).astype(np.float64)

    def configurations(self, sums: AuditedSums, member: bool) -> Configurations:
        """In the batch, or not."""
        rate = sums.batch_size / (sums.others + 1.0)
        included = np.array([[0.0], [1.0]])
        with np.errstate(divide="ignore"):
            log_weight = np.log(np.array([1.0 - rate, rate]))
        possible = np.isfinite(log_weight)
        return log_weight[possible], (sums.batch_size - included)[possible], included[possible]


@functools.lru_cache(maxsize=64)
def _pairs(rate: float, shift: float, adjacency: str) -> tuple[Pair, Pair]:
    """One object per kind, so that equal phases are counted together."""
    return fixed_size_proof(rate, shift, adjacency), fixed_size_attack(rate, shift, adjacency)


@functools.lru_cache(maxsize=64)
def _counts(dataset_size: int, batch_size: int, records: int, shift: float) -> Shifts:
    chances, rounding = hypergeometric(dataset_size, records, batch_size)
    return Shifts.of([shift * j for j in range(records + 1)], [float(chance) for chance in chances], rounding)


class WithReplacementScheme(FixedSizeScheme):
    """B places, each with a record of its own draw."""

    name = "with-replacement"
    summary = "B draws, anew every step"
    drawn_with: ClassVar[Mapping[str, object]] = {"replacement": True}

    def check(self, run: RunFields) -> None:
        """Both sizes, and a neighbor that has records."""
        size, _ = sizes_of(run)
        if run.adjacency == "add-remove" and size <= run.records_per_unit:
            raise InputError(
                f"Without one {run.unit_name} there are no records left to draw; use adjacency 'zero-out' or "
                "'substitute'."
            )

    def batches(self, run: RunFields) -> str:
        """In words."""
        size, batch = sizes_of(run)
        return f"batches of {batch:,} places, each filled anew with one of {size:,} records (with replacement)"

    def analyze(self, run: RunFields) -> Analysis:
        """One pair where a record is added or removed; else the worst of either order, and an attack."""
        size, batch = sizes_of(run)
        return several_places(run, binomial_shifts(batch, run.records_per_unit / size, 1.0 / run.noise_multiplier))

    def hides_batches(self, run: RunFields) -> bool:
        """Places are drawn, also where there are as many as records."""
        return True

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What displacement costs, and that a record may come several times."""
        (displaced,) = super().notes(run)
        return (f"A record may fill several places of one batch. {displaced}",)

    def draw(self, sums: AuditedSums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """How often the record is among the B draws."""
        drawn = rng.integers(sums.others + 1, size=(*shape, sums.batch_size)) == 0
        return np.asarray(drawn.sum(axis=-1), dtype=np.float64)
