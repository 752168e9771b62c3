"""Which neighbors a run has whose batches have a fixed size, in whole numbers.

Cut N records into batches of B, and drop or keep a last, shorter batch. With or without one record the same theorem
holds only if there are as many batches, so write

    dropped:  N = M B + R,  0 <= R < B:   removing a record needs R >= 1, adding one R <= B - 2;
    kept:     N = M B + R,  1 <= R <= B:  removing a record needs R >= 2, adding one R <= B - 1.

**A record is really added or removed** (add-remove; the larger dataset has n records, so n = N or N + 1). In a random
order the record takes, with probability B/n for each of the M batches, the place of another one there: one batch sum,
nobody knows which, moves by at most 2. Dropped, the other record is seen nowhere else, and with probability 1 - MB/n
nothing moves at all: an epoch is the pair of a record hidden in one of M rounds at the noise sigma/2, participation
MB/n. Kept, the record or the other one joins the last batch, whose sum moves by at most 1: that pair times one
Gaussian. More participation shows more, so that n = N, removing, counts where both neighbors exist. In a fixed order
all later records move up by a place: M sums move by at most 2, a last batch that is kept by 1. All of it is attained
(the record's gradient is u, the others' -u; in the last batch everybody's is the same).

**A record is zeroed out or replaced**: everybody else keeps their place, whatever N and B are.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from calipers_verify.reading import Refused

CUT = ("shuffle", "deterministic")
"""Samplers whose batches have a fixed size."""
SIZED = (*CUT, "poisson-realized", "poisson-moving")
"""Samplers that state dataset_size, behind sampler and noise_multiplier."""


class Cut(NamedTuple):
    """M full batches before the last, R records in the last batch or dropped; sizes of neighbors with as many."""

    rounds: int
    rest: int
    neighbors: frozenset[int]


def cut(size: int, batch: int, last: str) -> Cut:
    """How N records are cut for a record that is really added or removed."""
    kept = last == "keep"
    rounds, rest = divmod(size - kept, batch)
    found = {size - 1: rest >= 1, size + 1: rest <= batch - 2}  # kept: R - 1 is the rest here
    return Cut(rounds, rest + kept, frozenset(n for n, exists in found.items() if exists))


class Neighbors(NamedTuple):
    """What a run is proven for: N where it is stated, and the sizes of the datasets it is compared with."""

    adjacency: str
    size: int | None
    others: frozenset[int]

    @property
    def larger(self) -> int:
        """n: the records of the larger of both datasets, for the worse of two neighbors."""
        assert self.size is not None  # only asked for batches of a fixed size, which state it
        return self.size if self.adjacency != "add-remove" or self.size - 1 in self.others else self.size + 1

    def participation(self, used: int) -> Fraction:
        """The share of the larger dataset that an epoch uses."""
        return Fraction(used, self.larger)


def neighbors_of(adjacency: str, phases: tuple[tuple[Any, ...], ...]) -> Neighbors:
    """The neighbors that all phases have in common, or `Refused` where there is none."""
    sizes = {phase[2] for phase in phases if phase[0] in SIZED}
    if len(sizes) > 1:
        raise Refused("dataset_size differs between phases; a certificate is about one dataset")
    if not sizes:
        return Neighbors(adjacency, None, frozenset())
    (size,) = sizes
    others = frozenset((size - 1, size + 1))
    for sampler, _, _, batch, *own in phases:
        if sampler in CUT and batch > size:
            raise Refused(f"batch_size {batch} is more than dataset_size {size}")
        if sampler in CUT:
            others &= cut(size, batch, own[0]).neighbors
    if adjacency != "add-remove":
        return Neighbors(adjacency, size, frozenset((size,)))
    if not others:
        raise Refused(
            "adjacency is add-remove, but no dataset with one record more or less has as many batches in every phase: "
            "certify zero-out or substitute, or take another batch_size"
        )
    return Neighbors(adjacency, size, others)
