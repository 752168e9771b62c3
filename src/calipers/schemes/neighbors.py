"""Datasets with one record (or unit) fewer or more, for loaders that cut batches of a fixed size.

A loader cuts N records into batches of B. It drops the remainder R, or keeps it as a shorter last batch. One unit of g
records fewer or more leaves the number of batches as it is, or changes it; then whoever counts the steps knows which
dataset it was, and no epsilon is finite. So a neighbor exists under these conditions:

| last batch | N = M B + R | removing g records | adding g records |
|---|---|---|---|
| dropped | 0 <= R < B | R >= g | R + g <= B - 1 |
| kept | 1 <= R <= B | R >= g + 1 | R + g <= B |

A run whose number of steps was given and that ends inside its first epoch asks for less: that its steps fit into the
smaller dataset. The pair of N + g and
N records is the pair that removing g of N + g makes, so one theorem serves both (docs/mathematics, "Adding or removing
a record from shuffled batches"); its participation M B / N falls with N, and so removing counts where both exist.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.errors import UnsupportedError
from calipers.laws.allocated.average import LITTLE, AllocationPair
from calipers.laws.core.source import LawSource
from calipers.run_fields import RunFields
from calipers.schemes.exposure import Attack, Exposure, Proof, closed, release

ADD_REMOVE = "calipers:add-remove"
_HIDDEN = (
    "Adding or removing a record changes one hidden batch of an epoch: the record takes the place of a random member, "
    "which goes to the dropped remainder, so this one sum moves by up to twice the clipping norm"
)
_KEPT = (
    "Adding or removing a record changes one hidden batch of an epoch, whose sum moves by up to twice the clipping "
    "norm as the record takes a member's place, and it changes the size of the last batch, whose sum moves by up to "
    "the clipping norm"
)
_OPPOSED = (
    "The record's clipped gradient is u, a unit vector, and all others are -u, so a batch sums to -B along u, or to "
    "-B + 2 where the record took another one's place"
)
_LAST = "; in the last batch every gradient is v, so its sum tells how many records it has"


@dataclass(frozen=True)
class SizeNeighbors:
    """Whether datasets of `size` records have neighbors with `records` fewer or more in the same number of steps."""

    size: int
    records: int
    removing: bool
    adding: bool

    @property
    def larger(self) -> int:
        """The larger dataset of the pair that counts: one's own, or, where only adding is possible, the other."""
        return self.size if self.removing else self.size + self.records

    @property
    def both(self) -> bool:
        """Whether "adding or removing" is what a guarantee is about."""
        return self.removing and self.adding


def batches_of(size: int, batch_size: int, keep: bool) -> int:
    """Batches in an epoch of `size` records."""
    return -(-size // batch_size) if keep else size // batch_size


def size_neighbors(run: RunFields) -> SizeNeighbors | None:
    """The neighbors of a run whose batches are cut from an order, or None where its sizes are not known."""
    if run.sizes is None:
        return None
    (size, batch), records, keep = run.sizes, run.records_per_unit, run.last_batch == "keep"
    here = batches_of(size, batch, keep)

    def alike(other: int) -> bool:
        fits = run.steps is not None and run.steps <= min(size, other) // batch
        return batches_of(other, batch, keep) == here or fits

    return SizeNeighbors(size, records, size > records and alike(size - records), alike(size + records))


def unchanged_steps(run: RunFields) -> SizeNeighbors:
    """The neighbors of a run, or `UnsupportedError` where adding and removing both change its number of steps."""
    found = size_neighbors(run)
    if found is None:
        raise UnsupportedError(
            "Whether one record more or fewer leaves the number of batches as it is depends on dataset_size and "
            "batch_size; give both, or name adjacency 'zero-out' or 'substitute'."
        )
    if not found.removing and not found.adding:
        unit = "record" if found.records == 1 else f"{run.unit_name} of {found.records} records"
        raise UnsupportedError(
            f"Adding or removing a {unit} changes the number of batches of {run.batch_size} that {found.size} records "
            "fill, and whoever counts the steps sees it: no epsilon is finite. Name adjacency 'zero-out' or "
            "'substitute'."
        )
    if run.last_batch == "keep" and run.normalization == "realized":
        raise UnsupportedError(
            "One record more or fewer changes the size of the last batch, so dividing that batch by its own size "
            "rescales its noise, and nothing is proven for it: divide by a public constant, drop the last batch "
            "(last_batch='drop'), or name adjacency 'zero-out' or 'substitute'."
        )
    return found


def neighbor_words(run: RunFields, found: SizeNeighbors, unit: str) -> str:
    """What neighbors differ by, where it is not both adding and removing."""
    size, records = found.size, found.records
    if found.removing:
        return (
            f"removing {unit} ({size:,} records against {size - records:,}; adding one changes the number of batches, "
            "and no epsilon is finite for that)"
        )
    return (
        f"adding {unit} ({size:,} records against {size + records:,}; removing one changes the number of batches, and "
        "no epsilon is finite for that)"
    )


def added_or_removed(run: RunFields) -> Exposure:
    """A record that is really added to, or removed from, a dataset whose shuffled order is cut into batches.

    Args:
        run: shuffled batches under add-remove adjacency, seen by the worst-case adversary.

    Returns:
        Per epoch the allocation pair with a shift of 2/sigma (participation M B / N), times, where a last batch is
        kept, one Gaussian of shift 1/sigma: proven and attained (`calipers:add-remove`). One order for all epochs is
        one epoch at noise sigma / sqrt(E).

    Raises:
        UnsupportedError: where neither neighbor takes the same number of steps, or the unit has several records.
    """
    if run.records_per_unit > 1:
        raise UnsupportedError(
            f"This pair is about one record, not about a {run.unit_name} of {run.records_per_unit}; measure the run, "
            "which goes from one record to the next."
        )
    found, once = unchanged_steps(run), run.reshuffle == "once"
    assert run.sizes is not None
    batch, keep, shift = run.sizes[1], run.last_batch == "keep", 1.0 / run.noise_multiplier
    full = batches_of(found.larger, batch, keep) - keep
    epochs, least = 0, 2.0 * LITTLE.low
    hidden: list[tuple[LawSource, int]] = []
    for steps, count in run.epoch_parts:
        rounds, times = min(steps, full), 1 if once else count
        # One order: more noise than there is can only weaken the attack, and below that the proof is another one.
        noise = max(run.noise_multiplier / math.sqrt(count), least) if once else run.noise_multiplier
        epochs += count if steps > full else 0
        if rounds:
            share = rounds * batch / found.larger
            hidden.append((AllocationPair(0.5 * noise, rounds, share), times))
    last = release(shift * math.sqrt(epochs)) if epochs else None
    if not hidden:
        assert last is not None
        return closed(last, 1, "dong2022:cor2.13", f"{_KEPT}; here it is the only one. It is", f"{_OPPOSED}{_LAST}.")
    more = (*hidden[1:], *(((last, 1),) if last is not None else ()))
    scene = f"{_OPPOSED}{_LAST if epochs else ''}."
    attack = Attack(*hidden[0], ADD_REMOVE, scene, beside=more)
    if once and run.noise_multiplier < least * math.sqrt(run.begun_epochs):
        moved = shift * math.sqrt(4.0 * run.begun_epochs + epochs)
        known = Proof(release(moved), 1, "dong2022:cor2.13", f"{_KEPT if epochs else _HIDDEN}; revealed, it is")
        return Exposure((known,), attack)
    return Exposure((Proof(*hidden[0], ADD_REMOVE, _KEPT if epochs else _HIDDEN, beside=more),), attack)
