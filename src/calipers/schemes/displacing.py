"""What samplers share whose batches have a fixed size and are drawn anew every step: a record displaces others."""

from __future__ import annotations

import functools

from calipers.errors import InputError
from calipers.laws.core.drawn_shift import Shifts, drawn_shift
from calipers.laws.core.gaussian_part import gaussian_mixture_part
from calipers.laws.core.pair import Pair
from calipers.laws.core.part_algebra import RoundedPair
from calipers.run_fields import RunFields
from calipers.schemes.units import all_of

CLOSED = (
    "A record in a batch of fixed size displaces another one, and adding or removing it moves the sum by up to twice "
    "the clipping norm"
)
PROVEN = (
    "A record in a batch of fixed size displaces another one; the worst case of either order of the datasets, joined "
    "where their ratio is 1, dominates every step"
)


def sizes_of(run: RunFields) -> tuple[int, int]:
    """(dataset size, batch size), or `InputError` where one of them is not said."""
    if run.sizes is None:
        raise InputError(f"sampler={run.sampler!r} draws batches of a given size; give dataset_size and batch_size.")
    return run.sizes


def displaced_scene(run: RunFields) -> str:
    """Everybody's gradients."""
    instead = {"add-remove": "", "zero-out": ", zero once zeroed out", "substitute": ", -u once replaced"}
    return (
        f"{all_of(run)}{instead[run.adjacency]}, all others are -u (or all of them, the record too, -u: the better "
        "counts), so a batch sums to -B along u except where the record has displaced another one; the score of a step "
        "is its log likelihood ratio."
    )


def displaced_notes(run: RunFields) -> tuple[str, ...]:
    """What an honest reader must know."""
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


@functools.lru_cache(maxsize=64)
def counted_attacks(counts: Shifts, adjacency: str) -> tuple[Pair, ...]:
    """What single choices of gradients show in one step, the record in j places with the given probabilities."""
    doubled = Shifts(tuple(2.0 * s for s in counts.lengths), counts.weights, counts.rounding, counts.beyond)
    if adjacency == "substitute":
        return (drawn_shift(doubled),)
    weights = (*counts.weights[:-1], counts.weights[-1] + counts.beyond)
    opposed = gaussian_mixture_part(weights, doubled.lengths, weights, counts.lengths)
    return RoundedPair("several places", smooth=(opposed,), rounding=counts.rounding), drawn_shift(counts)
