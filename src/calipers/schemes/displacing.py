"""What samplers share whose batches have a fixed size and are drawn anew every step: a record displaces others."""

from __future__ import annotations

import functools
from dataclasses import replace

from calipers.laws.core.drawn_shift import Shifts, drawn_shift
from calipers.laws.core.gaussian_part import gaussian_mixture_part
from calipers.laws.core.pair import Pair
from calipers.laws.core.part_algebra import RoundedPair
from calipers.laws.drawn.counted import CountedPair
from calipers.run_fields import RunFields
from calipers.schemes.exposure import Attack, Exposure, Proof, closed
from calipers.schemes.scheme import Scheme, read_as_public
from calipers.schemes.units import all_of

CLOSED = (
    "A record in a batch of fixed size displaces another one, and adding or removing it moves the sum by up to twice "
    "the clipping norm"
)
PROVEN = (
    "A record in a batch of fixed size displaces another one; the worst case of either order of the datasets, joined "
    "where their ratio is 1, dominates every step"
)


def displaced_scene(run: RunFields) -> str:
    """Everybody's gradients."""
    instead = {"add-remove": "", "zero-out": ", zero once zeroed out", "substitute": ", -u once replaced"}
    return (
        f"{all_of(run)}{instead[run.adjacency]}, all others are -u (or all of them, the record too, -u: the better "
        "counts), so a batch sums to -B along u except where the record has displaced another one; the score of a step "
        "is its log likelihood ratio."
    )


class DisplacingScheme(Scheme):
    """Batches of B records in every step, whatever the step before drew."""

    whole_epochs = False
    equal_batches = True
    stepwise = True
    counts_units = ("add-remove", "zero-out", "substitute")
    isolates = False
    drawn_by = "FixedSize"

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

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Coins."""
        text = "Let every record enter every step by its own coin (sampler = 'poisson'): then it displaces nobody."
        return ((text, {"sampler": "poisson"}),)


def _doubled(counts: Shifts) -> Shifts:
    return replace(counts, lengths=tuple(2.0 * s for s in counts.lengths))


@functools.lru_cache(maxsize=64)
def counted_attacks(counts: Shifts, adjacency: str) -> tuple[Pair, ...]:
    """What single choices of gradients show in one step, the record in j places with the given probabilities."""
    doubled = _doubled(counts)
    if adjacency != "zero-out":
        return (drawn_shift(doubled),)
    weights = (*counts.weights[:-1], counts.weights[-1] + counts.beyond)
    opposed = gaussian_mixture_part(weights, doubled.lengths, weights, counts.lengths)
    return RoundedPair("several places", smooth=(opposed,), rounding=counts.rounding), drawn_shift(counts)


def several_places(run: RunFields, counts: Shifts) -> Exposure:
    """A unit of which j records (or copies) are in a batch, j drawn with the given law, each displacing another."""
    steps, scene, statement = run.total_steps, displaced_scene(run), "calipers:counted"
    pairs = counted_attacks(counts, run.adjacency)
    if run.adjacency == "add-remove":
        return closed(pairs[0], steps, "calipers:drawn-shift", CLOSED, scene, _doubled(counts))
    attacks = [Attack(pair, steps, statement, scene, one_sided=True) for pair in pairs]
    told = counts if run.adjacency == "zero-out" else _doubled(counts)
    proof = Proof(CountedPair(counts, run.adjacency), steps, statement, f"{PROVEN}.", lengths=told)
    return Exposure((proof,), attacks[0], tuple(attacks[1:]))
