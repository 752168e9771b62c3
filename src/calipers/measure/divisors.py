"""When a divisor is post-processing, and what it is where it is not.

Dividing the noisy sum by a public number changes nothing. "expected" (N q) and "floor" (floor(N q)) are public where
the dataset size is, that is under zero-out and substitution; "realized" is public where all batches have one fixed
size. Under add-remove the neighbors have N - 1, N and N + 1 records, and the divisor tells them apart: nothing is
proven but what `calipers.measure.divided` states for Poisson sampling.

**Sizes.** Which datasets a divided run is measured on: both neighbors of one size, or all sizes of a range.

A guarantee of the mechanism has to hold for every dataset, hence for every size N, and with a divisor that moves with
the data it differs from size to size. A measurement is about the user's own N and its two neighbors, or about a range
that the user names.

Two pairs of nearly equal size cost twice as much as one and say the same. From `_MANY` records on, one proof is made to
cover both, at the price of a shift that is larger by a share of 1/(2N), and the attack is made on the smaller pair.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from calipers.domains import Domain
from calipers.errors import InputError, UnsupportedError
from calipers.measure.bounds import Bounds
from calipers.run import DATA_DEPENDENT, Run
from calipers.samplers import scheme_of

if TYPE_CHECKING:
    # Most runs divide by nothing; the laws of those that do are a twentieth of a second of imports.
    from calipers.measure.divided import CollinearAttack
    from calipers.measure.neighbors import NeighborPair

REMEDY = (
    "Divide by a public constant, or not at all (in Opacus: loss_reduction='sum', with a criterion that sums too, "
    "reduction='sum': else gradients are divided before they are clipped), and scale the learning rate instead: the "
    "plain guarantee comes back at no cost in accuracy."
)
_MANY = 2000
_FIRST_BLOCK, _MOST_BLOCKS = 0.01, 6
SIZE = Domain(2, 2**53, integer=True)
_ONE_SIZE = (
    "These numbers are about datasets of your size and its neighbors. A guarantee of the mechanism has to hold for "
    "every dataset size, and smaller datasets usually leak more; if yours is known only to within a range, name it "
    "(--dataset-size-range, or dataset_sizes in Python) and the numbers hold for all of it."
)
_NOTHING_HIDDEN = (
    "Nothing is hidden: the length of the noise alone, over all coordinates and steps, tells beyond doubt whether the "
    "record is there, and no gradient is needed for it."
)


def divisor_of(run: Run, size: int) -> int:
    """floor(size * q), computed as a training loop computes it."""
    if size == run.dataset_size and run.batch_size is not None:
        return run.batch_size
    return math.floor(size * run.rate)


def moves(run: Run, size: int) -> bool:
    """Whether the divisor of a run differs, in a way that shows, between datasets of `size` and `size` + 1 records."""
    if run.normalization not in DATA_DEPENDENT or not scheme_of(run).independent or run.adjacency != "add-remove":
        return False
    if rate_moves(run):
        return False
    return run.normalization != "floor" or divisor_of(run, size) != divisor_of(run, size + 1)


def rate_moves(run: Run) -> bool:
    """Whether one record changes the rate at which all others are drawn."""
    return run.derived_rate == "moving" and run.adjacency == "add-remove"


def moving_pairs(run: Run) -> tuple[int, ...]:
    """Sizes N of the smaller dataset of every neighboring pair whose divisors differ: of N - 1 and N, those that
    count.
    """
    assert run.dataset_size is not None
    return tuple(size for size in (run.dataset_size - 1, run.dataset_size) if moves(run, size))


def public_because(run: Run) -> str | None:
    """Why the divisor of a run is post-processing, or None where it is not. Raises where nothing is proven."""
    if run.normalization not in DATA_DEPENDENT:
        return None
    if rate_moves(run):
        if run.normalization == "realized":
            raise UnsupportedError(
                "Nothing is proven for dividing by the realized batch size when the rate moves with the dataset too "
                f"(derived_rate = 'moving'): use a public rate. {REMEDY}"
            )
        return f"N q = N (B/N) is the batch size {run.batch_size} whatever N is: dividing by it is post-processing."
    if scheme_of(run).equal_batches:
        return (
            "Every batch has the same public number of records, so dividing by it is post-processing: the plain "
            "guarantee holds."
        )
    if run.normalization != "realized" and run.adjacency != "add-remove":
        return (
            f"Under {run.adjacency} adjacency the dataset size is public, so dividing by it (times the rate) is "
            "post-processing: the plain guarantee holds. It does not under add-remove adjacency."
        )
    if not scheme_of(run).independent or run.adjacency != "add-remove":
        what = "the realized batch size" if run.normalization == "realized" else "a multiple of the dataset size"
        raise UnsupportedError(
            f"Nothing is proven for dividing by {what} with sampler={run.sampler!r} under {run.adjacency} adjacency: "
            f"the divisor tells something about the record. {REMEDY}"
        )
    if run.normalization == "floor" and not moving_pairs(run):
        assert run.dataset_size is not None
        return (
            f"floor(N q) = {divisor_of(run, run.dataset_size)} is the same for {run.dataset_size - 1}, "
            f"{run.dataset_size} and {run.dataset_size + 1} records, so here the plain guarantee holds; it does not "
            "for every dataset size."
        )
    return None


def is_divided(run: Run) -> bool:
    """Whether the divisor of a run depends on the data in a way that shows."""
    return run.normalization in DATA_DEPENDENT and public_because(run) is None


def check_moving_rate(run: Run) -> None:
    """Refuse a run whose number of steps, counted in epochs, gives the record away."""
    assert run.dataset_size is not None
    assert run.batch_size is not None
    if run.epochs is None:
        return
    size, batch = run.dataset_size, run.batch_size
    counts = [max(1, near // batch) for near in (size - 1, size, size + 1)]
    if len(set(counts)) > 1:
        raise InputError(
            f"An epoch of floor(N/B) steps has {counts[0]}, {counts[1]} and {counts[2]} of them for N = {size - 1}, "
            f"{size} and {size + 1}: whoever counts the steps knows whether the record is there, and no epsilon is "
            "finite. Give the number of steps, if it is public."
        )


def check_divided(run: Run) -> None:
    """Refuse what a divided run must have and lacks: a dimension, and divisors that are not 0."""
    if run.dimension is None:
        raise InputError(
            f"normalization={run.normalization!r} scales the noise of every coordinate, so dimension is needed: add "
            "the number of trained parameters."
        )
    assert run.dataset_size is not None
    smallest = run.dataset_size - 1
    if run.normalization == "expected" and smallest < 1:
        raise InputError(
            "Expected dataset_size >= 2 with normalization='expected', got dataset_size=1: its neighbor is empty and "
            "divides by 0."
        )
    if run.normalization == "floor" and divisor_of(run, smallest) < 1:
        raise InputError(
            f"normalization='floor' divides by floor({smallest} * {run.rate:g}) = 0 on a neighbor with {smallest} "
            "records: in practice the update is infinite or not a number. Raise sample_rate or dataset_size."
        )
    if run.normalization == "realized" and smallest < 1:
        raise InputError("Expected dataset_size >= 2 with normalization='realized', got dataset_size=1.")


def divided_evaluation(phases: tuple[Run, ...]) -> Bounds:
    """The largest over both neighbors of a dataset."""
    from calipers.measure.divided import divided

    return Bounds(*divided(divided_pairs(phases)))


def divided_attack(run: Run) -> CollinearAttack:
    """The lower bound of a divided run, which can be looked at roughly."""
    from calipers.measure.divided import divided

    return divided(divided_pairs((run,)))[1]


def divided_pairs(phases: tuple[Run, ...]) -> tuple[NeighborPair, ...]:
    """Every phase Poisson sampled, at least one of them divided by a number that moves with the data."""
    for run in phases:
        if not scheme_of(run).independent:
            raise UnsupportedError(
                "Phases that divide by a data-dependent number cannot be mixed with phases of other samplers than "
                "Poisson: measure them one by one."
            )
        if is_divided(run):
            check_divided(run)
        if rate_moves(run):
            check_moving_rate(run)
    size = phases[0].dataset_size
    assert size is not None
    return both_neighbors(phases, size)


def sized(phases: tuple[Run, ...], sizes: tuple[int, int]) -> Bounds:
    """The worst over all datasets of low to high records of a run with one phase."""
    from calipers.measure.divided import divided

    low, high = (SIZE.check_int("dataset_sizes", size) for size in sizes)
    if low > high:
        raise InputError(f"Expected dataset_sizes = (low, high) with low <= high, got {low} and {high}.")
    run = phases[0]
    moving = run.normalization in DATA_DEPENDENT and scheme_of(run).independent and run.adjacency == "add-remove"
    if len(phases) > 1 or not moving:
        raise InputError(
            "A range of dataset sizes matters to one phase whose divisor moves with the size: normalization "
            "'expected', 'floor' or 'realized', sampler 'poisson', adjacency 'add-remove'; leave the range out."
        )
    check_divided(run.replace(dataset_size=low, sample_rate=run.rate, steps=run.total_steps))
    pairs = range_of_neighbors(phases, low, high)
    if not any(pair.is_divided for pair in pairs):
        raise InputError(
            f"floor(N q) is {divisor_of(run, low)} for every size from {low - 1} to {high + 1}: the divisor is the "
            "same public number for all of them; leave the range out."
        )
    return Bounds(*divided(pairs))


def both_neighbors(phases: tuple[Run, ...], size: int) -> tuple[NeighborPair, ...]:
    """Pairs that stand for (N - 1, N) and (N, N + 1)."""
    from calipers.measure.neighbors import NeighborPair

    apart = tuple(NeighborPair(phases, smaller) for smaller in (size - 1, size))
    divided = [run for run in phases if is_divided(run)]
    if any(run.normalization == "floor" for run in divided) or any(rate_moves(run) for run in phases):
        return apart
    if all(run.normalization == "realized" and run.rate < 1.0 for run in divided):
        # Whoever sees size and sum without one of the records can add it: a larger dataset shows less.
        return apart[:1] if apart[0].proofs == ("calipers:size-and-sum",) else apart
    if any(run.normalization == "realized" for run in divided):
        return apart
    return (NeighborPair(phases, size - 1, size),) if size > _MANY else apart


def range_of_neighbors(phases: tuple[Run, ...], low: int, high: int) -> tuple[NeighborPair, ...]:
    """Pairs that stand for all neighbors of datasets of `low` to `high` records of a run with one phase.

    One proof covers a block of sizes; blocks are short where datasets are small, since that is where the worst lies.
    """
    from calipers.measure.neighbors import NeighborPair

    run, first = phases[0], low - 1
    if run.normalization == "realized" and run.rate < 1.0:
        return (NeighborPair(phases, first, high),) if high > first else (NeighborPair(phases, first),)
    pairs = []
    for start, end in _blocks(first, high):
        begin, last = start, end
        if run.normalization == "floor":
            begin, last = _first_jump(run, start, end), _last_jump(run, start, end)
        if begin <= last:
            pairs.append(NeighborPair(phases, begin, last if last > begin else None))
    still = next((size for size in range(first, min(high, first + 2) + 1) if not moves(run, size)), None)
    return tuple(pairs) if still is None else (*pairs, NeighborPair(phases, still))


def _blocks(first: int, last: int) -> list[tuple[int, int]]:
    """The sizes from first to last in at most `_MOST_BLOCKS` blocks, relative lengths doubling from one to the next."""
    share = _FIRST_BLOCK
    while True:
        blocks, start, longer = [], first, share
        while start <= last:
            end = min(last, math.floor(start * (1.0 + longer)))
            blocks.append((start, end))
            start, longer = end + 1, 2.0 * longer
        if len(blocks) <= _MOST_BLOCKS:
            return blocks
        share *= 1.5


def _first_jump(run: Run, low: int, high: int) -> int:
    """The first size in [low, high] at which floor(N q) moves with one more record, else high + 1."""
    size = max(low, math.ceil((divisor_of(run, low) + 1) / run.rate) - 3)
    return next((found for found in range(size, min(high, size + 5) + 1) if moves(run, found)), high + 1)


def _last_jump(run: Run, low: int, high: int) -> int:
    """The last size in [low, high] at which floor(N q) moves with one more record, else low - 1."""
    if moves(run, high):
        return high
    size = min(high, math.ceil(divisor_of(run, high) / run.rate) + 2)
    return next((found for found in range(size, max(low, size - 5) - 1, -1) if moves(run, found)), low - 1)


def divisor_notes(phases: tuple[Run, ...], sizes: tuple[int, int] | None = None) -> list[str]:
    """What a reader must know about the divisors of the phases."""
    if sizes is not None:
        said = (
            f"The dataset size is known to lie between {sizes[0]} and {sizes[1]}: every number is about the worst of "
        )
        return [f"{said}these sizes, its neighbors included. The divisor depends on the data. {REMEDY}"]
    derived = [run for run in phases if run.batch_size is not None and run.adjacency == "add-remove"]
    notes = [note for run in derived for note in scheme_of(run).derived(run)]  # where the rate comes from
    for run in phases:
        reason = public_because(run)
        if reason is not None:
            notes.append(reason)
        elif is_divided(run):
            notes.extend(_moving_notes(run))
    if any(is_divided(run) for run in phases):
        if any(pair.is_told_apart for pair in divided_pairs(phases)):
            notes.append(_NOTHING_HIDDEN)
        notes.append(
            f"Standard accounting (Poisson) is about another mechanism: here the divisor depends on the data. {REMEDY}"
        )
    return list(dict.fromkeys(notes))


def _moving_notes(run: Run) -> list[str]:
    if run.normalization == "realized":
        return [
            "The noisy sum is divided by the number of records in the batch; an empty batch is read as divided by 1. "
            "A loop that skips empty batches says how many it skipped: of the proofs only the one that reveals size "
            "and sum covers it.",
            _ONE_SIZE,
        ]
    if run.normalization == "floor":
        moving = moving_pairs(run)
        sizes = " and ".join(f"{size} to {size + 1}" for size in moving)
        return [
            f"floor(N q) changes from {sizes} records, so one record changes the scale of all noise. For other dataset "
            "sizes it may not, or may matter more: a guarantee of the mechanism has to hold for every N (see "
            "worst_dataset_size)."
        ]
    return ["N q changes with every record, so one record changes the scale of all noise.", _ONE_SIZE]
