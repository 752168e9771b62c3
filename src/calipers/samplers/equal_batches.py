"""Batches cut from an order of the records: M disjoint batches of B in every epoch, the last perhaps shorter.

**Neighbors.** Datasets with one record (or unit) fewer or more, for loaders that cut batches of a fixed size.

A loader cuts N records into batches of B. It drops the remainder R, or keeps it as a shorter last batch. One unit of g
records fewer or more leaves the number of batches as it is, or changes it; then whoever counts the steps knows which
dataset it was, and no epsilon is finite. So a neighbor exists under these conditions:

| last batch | N = M B + R | removing g records | adding g records |
|---|---|---|---|
| dropped | 0 <= R < B | R >= g | R + g <= B - 1 |
| kept | 1 <= R <= B | R >= g + 1 | R + g <= B |

A run whose number of steps was given and that ends inside its first epoch asks for less: that its steps fit into the
smaller dataset. The pair of N + g and N records is the pair that removing g of N + g makes, so one theorem serves both
(docs/theory/shuffling.md, section 5); its participation M B / N falls with N, and so removing counts where both exist.

**Analysis.** `added_or_removed`: what shuffled batches show of a record for such neighbors, proven and attained. (Of
one order for all epochs, at very little noise, less is proven.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.domains import COUNT, Domain, choice
from calipers.errors import InputError, UnsupportedError
from calipers.pld.allocation.average import LITTLE, AllocationPair
from calipers.pld.core.source import TwoSidedPair
from calipers.run_fields import RunFields
from calipers.samplers.allocated import epochs_of
from calipers.samplers.analysis import Analysis, Attack, Proof, Scheme, closed, release
from calipers.samplers.law import Sampler, SamplerLaw


@dataclass(frozen=True, kw_only=True)
class EqualBatches(Sampler):
    """`rounds` batches of `batch_size` records in each of `epochs` epochs; the rest is dropped.

    Left out, `rounds` is floor(N/B), as in a data loader that drops the last partial batch. With `last_batch="keep"`
    what does not fill a batch makes a shorter last one.
    """

    batch_size: int
    epochs: int
    rounds: int | None = None
    last_batch: str = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(batch_size=Domain(1, self.dataset_size, integer=True), epochs=COUNT)
        choice("last_batch", self.last_batch, ("drop", "keep"))
        if self.last_batch == "keep" and self.rounds is not None:
            raise InputError("last_batch='keep' uses every record, so the number of rounds follows; leave rounds out.")
        if self.rounds is not None:
            self._keep(rounds=COUNT)
            if self.batch_size * self.rounds > self.dataset_size:
                raise InputError(
                    f"Expected rounds * batch_size <= dataset_size, got {self.rounds} * {self.batch_size} > "
                    f"{self.dataset_size}. Leave rounds out to use as many full batches as the dataset holds."
                )

    @property
    def steps_per_epoch(self) -> int:
        """The number M of batches in an epoch."""
        if self.rounds is not None:
            return self.rounds
        batches, rest = divmod(self.dataset_size, self.batch_size)
        return batches + 1 if rest and self.last_batch == "keep" else batches

    @property
    def kept(self) -> int:
        """Records used in an epoch: M B, or all of them."""
        return min(self.dataset_size, self.steps_per_epoch * self.batch_size)

    @property
    def sizes(self) -> list[int]:
        """How many records the batches of an epoch hold, in order."""
        full, rest = divmod(self.kept, self.batch_size)
        return [self.batch_size] * full + [rest] * (rest > 0)

    def _law(self, sampler: str, rate: float) -> SamplerLaw:
        return SamplerLaw(
            sampler,
            self.dataset_size,
            rate=rate,
            rounds=self.steps_per_epoch,
            epochs=self.epochs,
            fixed_batch_size=True,
            mean_batch_size=self.kept / self.steps_per_epoch,
            dropped=self.dataset_size - self.kept,
        )


ADD_REMOVE, _WITH_LAST, _ONE_ORDER = "calipers:add-remove", "calipers:add-remove-kept", "calipers:add-remove-once"
_HIDDEN = (
    "In an epoch the record is itself in the dropped remainder, or takes the place of a random member of one hidden "
    "batch, whose sum moves by up to twice the clipping norm"
)
_KEPT = (
    "In an epoch the record is itself in the last batch, or takes a member's place in one hidden batch, whose sum "
    "moves by up to twice the clipping norm; and it changes the size of the last batch, whose sum moves by up to the "
    "clipping norm"
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
    """The neighbors of a run whose batches are cut from an order.

    Args:
        run: of a sampler that cuts batches of a fixed size.

    Returns:
        Which neighboring datasets have as many steps, or None where the run's sizes are not known.
    """
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
            "batch_size; give both, or name adjacency 'zero-out', a weaker promise, or 'substitute'."
        )
    if not found.removing and not found.adding:
        unit = "record" if found.records == 1 else f"{run.unit_name} of {found.records} records"
        raise UnsupportedError(
            f"Adding or removing a {unit} changes the number of batches of {run.batch_size} that {found.size} records "
            "fill, and whoever counts the steps sees it: no epsilon is finite. Name adjacency "
            "'zero-out', a weaker promise, or 'substitute'."
        )
    if run.last_batch == "keep" and run.normalization == "realized":
        raise UnsupportedError(
            "One record more or fewer changes the size of the last batch, so dividing that batch by its own size "
            "rescales its noise, and nothing is proven for it: divide by a public constant, drop the last batch "
            "(last_batch='drop'), or name adjacency 'zero-out', a weaker promise, or 'substitute'."
        )
    _check_divisor(run, found)
    return found


def _check_divisor(run: RunFields, found: SizeNeighbors) -> None:
    """Refuse N q and floor(N q) where they move with N: a loader's rate is one over its number of batches.

    Raises:
        UnsupportedError: the divisor, N over the number of batches (rounded down), differs between neighbors.
    """
    if run.normalization not in ("expected", "floor"):
        return
    sizes = (
        found.size,
        *([found.size - found.records] * found.removing),
        *([found.size + found.records] * found.adding),
    )
    keep = run.last_batch == "keep"
    means = [size / batches_of(size, run.batch_size or 1, keep) for size in sorted(sizes)]
    divisors = [math.floor(mean) if run.normalization == "floor" else mean for mean in means]
    if len(set(divisors)) > 1:
        side = "adding" if found.removing else "removing"
        other = "" if found.both else f" (which leaves epsilon infinite for {side} one, by the number of batches)"
        listed = " and ".join(f"{divisor:.7g}" for divisor in dict.fromkeys(divisors))
        raise UnsupportedError(
            f"The divisor, {'the floor of ' if run.normalization == 'floor' else ''}N over the number of batches, is "
            f"{listed} for neighboring dataset sizes, so that one record changes the scale of all noise, and nothing "
            "is proven for fixed or shuffled batches then. If the loop divides by the batch size "
            f"{run.batch_size} itself, say normalization 'constant'{other}; or name adjacency 'zero-out', a weaker "
            "promise, or 'substitute'."
        )


def neighbor_words(run: RunFields, found: SizeNeighbors, unit: str) -> str:
    """What neighbors differ by, where it is not both adding and removing."""
    size, records = found.size, found.records
    if found.removing:
        return (
            f"removing {unit} ({size:,} records against {size - records:,}; adding one changes the number of batches, "
            "which anybody can count: no finite epsilon holds for that)"
        )
    return (
        f"adding {unit} ({size:,} records against {size + records:,}; removing one changes the number of batches, "
        "which anybody can count: no finite epsilon holds for that)"
    )


def added_or_removed(run: RunFields) -> Analysis:
    """A record that is really added to, or removed from, a dataset whose shuffled order is cut into batches.

    Args:
        run: shuffled batches under add-remove adjacency, seen by the worst-case adversary.

    Returns:
        Per epoch the allocation pair with a shift of 2/sigma (participation M B / N), times, where a last batch is
        kept, one Gaussian of shift 1/sigma: proven and attained (`calipers:add-remove`, `calipers:add-remove-kept`).
        One order for all epochs is one epoch at noise sigma / sqrt(E) (`calipers:add-remove-once`).

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
    hidden: list[tuple[TwoSidedPair, int]] = []
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
        return closed(
            last, 1, "dong2022:cor3.3+cor2.13", f"{_KEPT}; here it is the only one. It is", f"{_OPPOSED}{_LAST}."
        )
    more = (*hidden[1:], *(((last, 1),) if last is not None else ()))
    description = f"{_OPPOSED}{_LAST if epochs else ''}."
    statement = _ONE_ORDER if once else _WITH_LAST if epochs else ADD_REMOVE
    attack = Attack(*hidden[0], statement, description, additional=more)
    if once and run.noise_multiplier < least * math.sqrt(run.begun_epochs):
        moved = shift * math.sqrt(4.0 * run.begun_epochs + epochs)
        known = Proof(release(moved), 1, "dong2022:cor3.3+cor2.13", f"{_KEPT if epochs else _HIDDEN}; revealed, it is")
        return Analysis((known,), attack)
    return Analysis((Proof(*hidden[0], statement, _KEPT if epochs else _HIDDEN, additional=more),), attack)


class CutScheme(Scheme):
    """Consecutive blocks of an order; the last one, if it is shorter, is dropped or kept."""

    equal_batches = True

    def reading(self, run: RunFields) -> tuple[str, ...]:
        """What becomes of the records that do not fill a batch is a choice somebody made."""
        if run.sizes is None:
            return ()
        batches, rest = divmod(run.sizes[0], run.sizes[1])
        if not rest:
            return ()
        if run.last_batch == "keep":
            return (f"An epoch is read as {batches:,} full batches and a last one of {rest:,}.",)
        dropped = f"{rest:,} record{'s' if rest > 1 else ''}"
        return (
            f"An epoch is read as {batches:,} full batches; a remainder of {dropped} is dropped from it. The numbers "
            "are not about a loader that keeps it as a short last batch (PyTorch's default), which can leak far more: "
            "describe that with last_batch = 'keep'.",
        )

    def default_adjacency(self, run: RunFields) -> str:
        """Add-remove where adding and removing both leave the number of batches as it is."""
        found = size_neighbors(run)
        return "add-remove" if found is not None and found.both else "zero-out"

    def neighbors(self, run: RunFields, unit: str) -> str | None:
        """Which of adding and removing it is, where one of them changes the number of batches."""
        if run.adjacency != "add-remove" or run.view == "isolated":
            return None
        found = size_neighbors(run)
        return None if found is None or found.both else neighbor_words(run, found, unit)

    def counted(self, run: RunFields) -> tuple[str, ...]:
        """Known from the sizes; the isolated view does not see how many batches there are."""
        found = size_neighbors(run)
        if found is None or run.view == "isolated":
            return ()
        return (*["adding"] * (not found.adding), *["removing"] * (not found.removing))

    def check_neighbors(self, run: RunFields) -> None:
        """Refuse add-remove where both change the number of steps."""
        if run.adjacency == "add-remove" and run.view != "isolated":
            unchanged_steps(run)


def with_remainder(run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
    """Drop a remainder in every epoch, where all records are used: then far more is proven."""
    if run.reshuffle == "once" or run.sizes is None or run.left_over:
        return ()
    size, batch = run.sizes
    if size % batch:
        text, smaller = "Drop the last, shorter batch (drop_last=True)", batch
    else:
        found = with_some_remainder(size, batch)
        if found is None:
            return ()
        text, smaller = f"Use batches of {found} records and drop the remainder", found
    why = "every epoch then leaves out some records at random, and a smaller epsilon is proven"
    moves = run.normalization in ("expected", "floor")  # the divisor may move although the number of batches does not
    if size % smaller < smaller - 1 and run.adjacency != "substitute" and not moves:
        finite = "one record more or fewer then leaves the number of batches as it is, so epsilon is finite for both"
        both = f"{finite} adding and removing one too (another number than that of {run.adjacency})"
        why = finite if run.adjacency == "add-remove" else f"{why}; {both}"
    return ((f"{text}: {why}.", {"last_batch": "drop", "batch_size": smaller, "epochs": epochs_of(run)}),)


def with_some_remainder(dataset_size: int, batch_size: int) -> int | None:
    """The largest smaller batch size that neither divides the dataset nor would with a record more, or None."""
    return next((size for size in range(batch_size - 1, 2, -1) if 0 < dataset_size % size < size - 1), None)
