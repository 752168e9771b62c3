"""Which datasets a divided run is measured on: both neighbors of one size, or all sizes of a range.

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
from calipers.measure.divisors import (
    REMEDY,
    check_divided,
    check_moving_rate,
    divisor_of,
    is_divided,
    moves,
    moving_pairs,
    public_because,
    rate_moves,
)
from calipers.measure.jaw import Evaluation
from calipers.run import DATA_DEPENDENT, Run
from calipers.schemes import scheme_of

if TYPE_CHECKING:
    # Most runs divide by nothing; the laws of those that do are a twentieth of a second of imports.
    from calipers.measure.divided import CollinearAttack
    from calipers.measure.neighbors import NeighborPair

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


def divided_evaluation(phases: tuple[Run, ...]) -> Evaluation:
    """The largest over both neighbors of a dataset."""
    from calipers.measure.divided import divided

    return Evaluation(*divided(divided_pairs(phases)))


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


def sized(phases: tuple[Run, ...], sizes: tuple[int, int]) -> Evaluation:
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
    return Evaluation(*divided(pairs))


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
