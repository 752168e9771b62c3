"""Balls-and-bins: every record is thrown into one of the epoch's batches independently of all others.

What the others do says nothing about the differing record, so the pair of a hidden record is proven and attained.

**Drawing.** Balls-and-bins: every record is thrown into one of M batches, independently of the others.

A compromise between the two classical samplers: each record is used exactly once in an epoch, as
with shuffling, but the records are independent of each other, as with Poisson sampling, so a tight
and proven analysis exists (Chua et al., "Balls-and-Bins Sampling for DP-SGD", 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from calipers.citations import implements
from calipers.domains import COUNT, Domain, choice
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.core.allocated_unit import AllocatedUnit
from calipers.run_fields import RunFields
from calipers.samplers.allocated import (
    allocated_unit,
    at_places,
    epochs_of,
    hidden_alone,
    kept_noise,
    refuse_many,
    summed_unit,
    weighed_unit,
    whole_epochs_of,
)
from calipers.samplers.analysis import (
    Analysis,
    Attack,
    AuditedSums,
    Configurations,
    Scheme,
    batches_of_neighbors,
    known_times,
)
from calipers.samplers.draws import permuted, sliced, throw
from calipers.samplers.law import Sampler, SamplerLaw
from calipers.samplers.units import binomial_shifts


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


_MOST_THROWS = 2**22


class BallsAndBinsScheme(Scheme):
    """Independent throws, one per record and epoch."""

    name = "balls-and-bins"
    summary = "random batch"
    others_zero = True
    drawn_by = BallsAndBins

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """The number of bins is a choice somebody made."""
        if not run.left_over:
            return ()
        return (f"An epoch is read as {run.steps_per_epoch:,} batches, into one of which each record is drawn.",)

    def batches(self, run: RunFields) -> str:
        """In words."""
        if run.reshuffle == "once":
            return (
                "balls-and-bins batches of varying size (each record is drawn into one of {per_epoch}, independently "
                "of all others, the same in every epoch)"
            )
        return (
            "balls-and-bins batches of varying size (each record is drawn into one of the {per_epoch} of an epoch, "
            "independently of all others and anew in every epoch)"
        )

    def analyze(self, run: RunFields) -> Analysis:
        """A record hidden in one of M batches; with one batch there is nothing to hide."""
        return known_times(run, epochs_of(run)) if run.steps_per_epoch == 1 else hidden_alone(run, 1.0)

    def revealed_allocation(self, run: RunFields) -> tuple[AllocatedUnit, int]:
        """Into bins."""
        return allocated_unit(run, run.steps_per_epoch)

    def unit_attacks(self, run: RunFields) -> tuple[Attack, ...]:
        """An epoch that ends early leaves records out that would have come later."""
        records, share = run.records_per_unit, 1.0 / run.steps_per_epoch
        summed = summed_unit(run, lambda steps: binomial_shifts(records, min(1.0, steps * share), 1.0))
        return (summed, *weighed_unit(run, lambda steps: (steps, None, max(0.0, 1.0 - steps * share)), 0))

    def noise_range(self, run: RunFields) -> Domain:
        """Of a hidden record."""
        return kept_noise(run)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """Independence is what makes the pair exact."""
        if run.reshuffle == "once":
            return (
                "Every record is drawn into one batch once and sits in it in every epoch: all epochs together show "
                "what a single one at noise sigma / sqrt(epochs) does. Thrown anew every epoch (reshuffle = "
                "'every-epoch') records are hidden far better.",
            )
        attained = run.adjacency != "substitute" and run.records_per_unit == 1
        reached = ", so the bounds agree: the attack reaches what is proven" if attained else ""
        return (
            f"Every record is drawn into one batch of the epoch independently of all others{reached}. A loader that "
            "shuffles and cuts equal batches is not this sampler.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The number of batches follows from the dataset size."""
        if run.sizes is None:
            return ()
        (size, batch), (fewer, now, more) = run.sizes, batches_of_neighbors(run)
        records = "one record" if run.records_per_unit == 1 else f"{run.records_per_unit:,} records"
        if fewer == now == more:
            return (
                f"The number of batches floor(N/B) = {now:,} is the same with {records} fewer or more, also in a loop "
                "that computes it from its dataset.",
            )
        parts = f"{size:,} = {now:,} x {batch:,}" if size % batch == 0 else f"{size:,} records make {now:,} batches"
        changed = [f"{other:,} with {records} {word}" for other, word in ((fewer, "fewer"), (more, "more"))]
        moved = " and ".join(text for text, other in zip(changed, (fewer, more), strict=True) if other != now)
        return (
            f"The number of batches, {now:,}, is taken to be a fixed public number, the same for both neighbors. Here "
            f"{parts}: a loop that computes it from its dataset takes {moved}, which anybody can "
            "count, and of that neighbor nothing is proven.",
        )

    def taken_as_public(self, run: RunFields) -> tuple[str, ...]:
        """The number of batches, where one record moves it."""
        moves = run.sizes is not None and len(set(batches_of_neighbors(run))) > 1
        return ("number of batches",) if moves else ()

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Throw anew."""
        if run.reshuffle == "every-epoch" or run.total_epochs == 1:
            return ()
        text = "Throw every record into a new batch in every epoch (reshuffle = 'every-epoch')."
        return ((text, {"reshuffle": "every-epoch"}),)

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """Bins, and whether every epoch throws anew."""
        return {"batches": run.steps_per_epoch, "order": run.reshuffle, "epochs": whole_epochs_of(run)}

    def draw(self, sums: AuditedSums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """A uniform round of every epoch."""
        return at_places(rng.integers(sums.rounds, size=shape[:2]), sums.rounds)

    def crowd(self, sums: AuditedSums, epochs: int, rng: np.random.Generator) -> FloatArray:
        """Every other record thrown into one of the rounds, for every epoch."""
        found = np.empty((epochs, sums.rounds), dtype=np.intp)
        block = max(1, _MOST_THROWS // sums.others)
        for start in range(0, epochs, block):
            rows = min(block, epochs - start)
            thrown = rng.integers(sums.rounds, size=(rows, sums.others))
            thrown += sums.rounds * np.arange(rows)[:, None]
            counted = np.bincount(thrown.ravel().astype(np.intp), minlength=rows * sums.rounds)
            found[start : start + rows] = counted.reshape(rows, sums.rounds)
        return found.astype(np.float64)

    def configurations(self, sums: AuditedSums, member: bool) -> Configurations:
        """Where the record is, and, where that shows, how the others fell."""
        rounds = sums.rounds
        places = np.eye(rounds) if member else np.zeros((1, rounds))
        crowds, log_crowd = np.zeros((1, rounds)), np.zeros(1)
        if sums.crowd_matters:
            ways = math.comb(sums.others + rounds - 1, rounds - 1)
            refuse_many(ways * len(places))
            crowds = np.array(list(_fallen(sums.others, rounds)), dtype=np.float64).reshape(ways, rounds)
            log_crowd = special.gammaln(sums.others + 1.0) - special.gammaln(crowds + 1.0).sum(axis=1)
            log_crowd = log_crowd - sums.others * math.log(rounds)
        refuse_many(len(crowds) * len(places))
        log_weight = np.repeat(log_crowd, len(places)) - math.log(len(places))
        return log_weight, np.repeat(crowds, len(places), axis=0), np.tile(places, (len(crowds), 1))


def _fallen(balls: int, bins: int) -> Iterator[list[int]]:
    """All ways to write `balls` as an ordered sum of `bins` counts: where the bins - 1 bars stand among the balls."""
    for bars in combinations(range(balls + bins - 1), bins - 1):
        edges = (-1, *bars, balls + bins - 1)
        yield [edges[i + 1] - edges[i] - 1 for i in range(bins)]
