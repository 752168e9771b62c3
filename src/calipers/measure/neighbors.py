"""One pair of neighboring datasets of a divided run, or a range of them: its proof and its attacks.

Divisor K against K + 1: the batch is revealed, membership hidden. (Revealing membership too, as the published guarantee
does, can only be worse: there each branch may choose its own alpha, here both share one.) Realized batch size: size and
sum are revealed. A rate that moves: the batch of the common records is revealed, on either side at its own rate.

**Sizes.** Which datasets a divided run is measured on: both neighbors of one size, or all sizes of a range.

A guarantee of the mechanism has to hold for every dataset, hence for every size N, and with a divisor that moves with
the data it differs from size to size. A measurement is about the user's own N and its two neighbors, or about a range
that the user names.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from calipers.errors import UnsupportedError
from calipers.measure.divisors import check_divided, check_moving_rate, is_divided, moves, rate_moves
from calipers.pld.composition.one_sided import AttackProduct, ProofProduct
from calipers.pld.core.source import TwoSidedPair
from calipers.pld.division.collinear import best_direction
from calipers.pld.division.length_tests import BEYOND_DOUBT, LengthTest, deviations, scale_tests
from calipers.pld.division.pairs import DividedPair, MovingRatePair, RealizedPair, ScaleFactor
from calipers.run import Run
from calipers.run_fields import divisor_of
from calipers.samplers import scheme_of

_FIRST_BLOCK, _MOST_BLOCKS = 0.01, 6
_COARSE = 0.05
_MOST_TERMS = 2e6
_WORTH_WHILE = 1.05

LineGradients = tuple[float, float]
"""(v, w): all other gradients are v e, the record's is w e."""


@dataclass(frozen=True)
class NeighborPair:
    """Datasets with `size` and `size` + 1 records; with `upto`, also every larger pair up to (`upto`, `upto` + 1).

    The proof holds for all pairs of the range, the attacks are made on the first.
    """

    phases: tuple[Run, ...]
    size: int
    upto: int | None = None

    @functools.cached_property
    def statement(self) -> str:
        """What proves the upper bound."""
        kinds = {self._kind(run) for run in self.phases}
        if "realized" in kinds:
            return "calipers:size-and-sum"
        return "calipers:moving-rate" if kinds == {"moving"} else "calipers:hidden-bit"

    @functools.cached_property
    def attacks(self) -> tuple[LineGradients, ...]:
        """The attacks worth trying: against the realized size opposite gradients, elsewhere others near zero.

        Where batches are large, their sizes drown the signal unless the other gradients are nearly zero.
        """
        found: list[LineGradients] = []
        for run in self.phases:
            kind = self._kind(run)
            if kind == "realized":
                found += [(-1.0, 1.0)]
            elif kind == "moving":
                best, _ = best_direction(run.noise_multiplier, run.rate, self.size, self.size)
                found += [(best, 1.0), (0.0, 1.0)]
            elif kind == "fixed":
                found += [(0.0, 1.0)]
                sigma, divisor = run.noise_multiplier, self._divisor(run)
                best, gain = best_direction(sigma, run.rate, self.size, divisor)
                pair = DividedPair(sigma, run.rate, self.size, divisor, best)
                if gain > _WORTH_WHILE and pair.attack.terms(_COARSE) <= _MOST_TERMS:
                    found += [(best, 1.0)]
        return tuple(dict.fromkeys(found)) or ((0.0, 1.0),)

    @property
    def is_divided(self) -> bool:
        """Whether any phase's divisor differs between the two datasets."""
        return any(self._kind(run) != "plain" for run in self.phases)

    def _kind(self, run: Run) -> str:
        """plain, moving (the rate), fixed (K against K + 1), or realized; at rate 1 that is the dataset size."""
        if rate_moves(run):
            return "moving"
        if not moves(run, self.size):
            return "plain"
        return "realized" if run.normalization == "realized" and run.rate < 1.0 else "fixed"

    def _divisor(self, run: Run, size: int | None = None) -> int:
        size = self.size if size is None else size
        return divisor_of(run, size) if run.normalization == "floor" else size

    def factors(self, attack: LineGradients) -> list[tuple[TwoSidedPair, int]]:
        """Of all phases: the upper side by the proof, the lower by this attack."""
        direction, record = attack
        counts: dict[TwoSidedPair, int] = {}
        degrees: dict[int, int] = {}
        for run in self.phases:
            kind, divisor, steps = self._kind(run), self._divisor(run), run.total_steps
            sigma, rate, dimension = run.noise_multiplier, run.rate, run.dimension or 1
            pair: TwoSidedPair | None
            if kind == "plain":
                pair = scheme_of(run).analyze(run).attack.source.both
                assert pair is not None  # Poisson steps are proven and attained
            elif kind == "moving":
                assert run.batch_size is not None
                pair = MovingRatePair(sigma, self.size, run.batch_size, direction, record)
            elif kind == "realized":
                pair = RealizedPair(sigma, rate, self.size, dimension, direction, record)
            else:
                covers = None if self.upto is None else (self.upto, self._divisor(run, self.upto))
                pair = DividedPair(sigma, rate, self.size, divisor, direction, record, covers)
                degrees[divisor] = degrees.get(divisor, 0) + steps * (dimension - 1)
            counts[pair] = counts.get(pair, 0) + steps
        for divisor, count in degrees.items():
            if count:
                counts[ScaleFactor(count, divisor)] = 1
        return list(counts.items())

    @functools.cached_property
    def proven(self) -> ProofProduct:
        """The composition of all phases from above."""
        return ProofProduct(self.factors(self.attacks[0]))

    @functools.cache  # noqa: B019  # a measurement lives shortly and holds few pairs
    def attacked(self, attack: LineGradients) -> AttackProduct:
        """The composition of all phases from below, by one attack."""
        return AttackProduct(self.factors(attack))

    def length_tests(self, smallest: float) -> list[LengthTest]:
        """Tests of the length of the noise, everybody's gradient being zero, for one phase each."""
        found: list[LengthTest] = []
        for run in self.phases:
            if self._kind(run) == "fixed":
                found += scale_tests(run.total_steps * (run.dimension or 1), self._divisor(run), smallest)
        return found

    @functools.cached_property
    def is_distinguished(self) -> bool:
        """Whether the length of the noise alone leaves no doubt which dataset was used."""
        fixed = [run for run in self.phases if self._kind(run) == "fixed"]
        return any(
            deviations(run.total_steps * (run.dimension or 1), self._divisor(run)) > BEYOND_DOUBT for run in fixed
        )

    @property
    def finite_orders(self) -> float:
        """Below which order Renyi divergences of noise over K against noise over K + 1 are finite: 1/(1 - s^2)."""
        divisors = [float(self._divisor(run)) for run in self.phases if self._kind(run) == "fixed"]
        return min(((divisor + 1.0) ** 2 / (2.0 * divisor + 1.0) for divisor in divisors), default=math.inf)


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


def both_neighbors(phases: tuple[Run, ...], size: int) -> tuple[NeighborPair, ...]:
    """Pairs that stand for (N - 1, N) and (N, N + 1)."""
    apart = tuple(NeighborPair(phases, smaller) for smaller in (size - 1, size))
    realized = all(run.normalization == "realized" and run.rate < 1.0 for run in phases if is_divided(run))
    # Whoever sees size and sum without one of the records can add it: a larger dataset shows less.
    return apart[:1] if realized and not any(map(rate_moves, phases)) else apart


def range_of_neighbors(phases: tuple[Run, ...], low: int, high: int) -> tuple[NeighborPair, ...]:
    """Pairs that stand for all neighbors of datasets of `low` to `high` records of a run with one phase.

    One proof covers a block of sizes; blocks are short where datasets are small, since that is where the worst lies.
    """
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
