"""Batches in a fixed order: every record in a batch known beforehand, the same in every epoch. Nothing is hidden.

A record that is zeroed out, or replaced, moves the sum of its own batch. One that is really removed makes every later
record move up by one place: every batch loses one record and gains another, and a kept last batch loses one. With
gradients of alternating sign on the first records of the batches every sum moves by 2, so M batches in E epochs are one
Gaussian of mu = 2 sqrt(M E) / sigma, and mu^2 = (4 M + 1) E / sigma^2 where a last batch is kept
(`calipers:fixed-order`). That is what add-remove means here, and why zero-out is what a run has that names nothing.

**Drawing.** Algorithm D: fixed order, equal batches, the same in every epoch.

No randomness, hence no amplification: the reference against which the other samplers are judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.errors import UnsupportedError
from calipers.numerics.types import FloatArray, IntArray
from calipers.run_fields import RunFields
from calipers.samplers.allocated import at_places, epochs_of, whole_epochs_of
from calipers.samplers.analysis import Analysis, AuditedSums, Configurations, closed, known_times, release
from calipers.samplers.equal_batches import CutScheme, EqualBatches, batches_of, unchanged_steps
from calipers.samplers.law import SamplerLaw
from calipers.samplers.units import known_unit, together


@implements("chua2024:alg2")
@dataclass(frozen=True, kw_only=True)
class Deterministic(EqualBatches):
    """Batch t of every epoch is the t-th block of `batch_size` consecutive records.

    `rounds`, the number M of batches in an epoch, defaults to floor(N/B). The last N - M B records
    of the dataset are never used.

    Formal guarantees:
        - Inclusion: record i is in round floor(i/B) + 1 of every epoch, if i < M B; otherwise nowhere.
        - Participation: exactly once in an epoch (never, for the dropped records).
        - Batch size: always B, but for a last batch that is kept.
        - Every position is public knowledge.
        - Memory: O(batch).
    """

    def law(self) -> SamplerLaw:
        """Fixed positions; `rate` is 1 because some record is certain to be in any given round."""
        return self._law("deterministic", rate=1.0)

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Consecutive blocks; nothing is drawn."""
        for start in range(0, self.kept, self.batch_size):
            yield np.arange(start, min(start + self.batch_size, self.kept), dtype=np.int64)


_MOVED_UP = (
    "Adding or removing a record moves every later record by one place, so every batch of the run changes. A guarantee "
    "for zeroed-out records (adjacency = 'zero-out') is what fixed batches are usually measured for."
)


class DeterministicScheme(CutScheme):
    """No draw at all."""

    name = "deterministic"
    summary = "fixed order"
    counts_units = ("zero-out", "substitute")
    drawn_by = Deterministic

    def why_zero_out(self, run: RunFields) -> str:
        """One batch of all records has no later ones."""
        if run.sizes is not None and run.sizes[0] == run.sizes[1]:
            return super().why_zero_out(run)
        return "in a fixed order one record more or fewer moves all later ones"

    def hides_batches(self, run: RunFields) -> bool:
        """Positions are known."""
        return False

    def batches(self, run: RunFields) -> str:
        """In words."""
        return "batches in a fixed order ({batches})"

    def default_adjacency(self, run: RunFields) -> str:
        """Zeroing out a record leaves all others where they are."""
        return "zero-out"

    def check_neighbors(self, run: RunFields) -> None:
        """Records of a unit that are removed at once move others by several places."""
        super().check_neighbors(run)
        if run.adjacency == "add-remove" and run.records_per_unit > 1:
            raise UnsupportedError(
                f"Nothing is proven for removing a {run.unit_name} of {run.records_per_unit} records from batches in a "
                "fixed order, where all later records move up; name adjacency 'zero-out' or 'substitute'."
            )

    def analyze(self, run: RunFields) -> Analysis:
        """One plain Gaussian per epoch, at a known time."""
        if run.adjacency == "add-remove" and run.view == "worst-case":
            self.check_neighbors(run)
            return _moved_up(run)
        if run.records_per_unit > 1:
            return known_unit(run, together(run.records_per_unit, run.batch_size), epochs_of(run))
        return known_times(run, epochs_of(run))

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """No amplification."""
        sampled = "" if run.rate == 1 else ", unlike in standard accounting, which assumes Poisson batches"
        return (
            f"Fixed batches hide nothing about when a record is used: there is no amplification by sampling{sampled}.",
            *((_MOVED_UP,) if run.adjacency == "add-remove" and run.view == "worst-case" else ()),
        )

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Draw."""
        text = "Draw batches by sampler = 'balls-and-bins': a fixed order does not hide when a record is used."
        return ((text, {"sampler": "balls-and-bins"}),)

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """Nothing but how often."""
        return {"epochs": whole_epochs_of(run)}

    def draw(self, sums: AuditedSums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """The first round of every epoch."""
        return at_places(np.zeros(shape[:2], dtype=np.intp), sums.rounds)

    def configurations(self, sums: AuditedSums, member: bool) -> Configurations:
        """There is one."""
        included = np.zeros((1, sums.rounds))
        included[0, 0] = 1.0
        return np.zeros(1), sums.batch_size - included, included


def _moved_up(run: RunFields) -> Analysis:
    """Every batch after the record's own moves by two clipped gradients, and a kept last one by one."""
    larger = unchanged_steps(run).larger
    assert run.batch_size is not None
    keep = run.last_batch == "keep"
    full = batches_of(larger, run.batch_size, keep) - keep
    squares = sum(count * (4 * min(steps, full) + (steps > full)) for steps, count in run.epoch_parts)
    last, heads = (", and the kept last one by one", "batches") if keep else ("", "batches and of the remainder")
    description = (
        f"The record is the first of all. The clipped gradients of the first records of successive {heads}, "
        "its own first, alternate u, -u, a unit vector, and all others are zero: as the records move up by one place, "
        f"every full batch sum moves by two clipping norms{last}."
    )
    shift = math.sqrt(squares) / run.noise_multiplier
    reason = "All records behind the one that is added or removed move by one place, so that every batch sum changes:"
    return closed(release(shift), 1, "calipers:fixed-order", reason, description)
