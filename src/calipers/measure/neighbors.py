"""One pair of neighboring datasets of a divided run, or a range of them: its proofs and its attacks.

Which proofs compete. Divisor K against K + 1: the batch is revealed, membership hidden. (Revealing membership too, as
the published guarantee does, can only be worse: there each branch may choose its own alpha, here both share one.)
Realized batch size: size and sum revealed, the same with full batches compared by their noise, or batch revealed and
membership hidden. A rate that moves: the batch of the common records is revealed, on either side at its own rate.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from calipers.laws.composed.product import Product
from calipers.laws.core.source import LawSource
from calipers.laws.divided.collinear import best_direction
from calipers.laws.divided.moving_rate import MovingRatePair
from calipers.laws.divided.pairs import DividedPair, RealizedPair, ScaleFactor
from calipers.laws.divided.told_apart import (
    BEYOND_DOUBT,
    LengthTest,
    Rounds,
    deviations,
    full_batch_tests,
    scale_tests,
    told_round,
)
from calipers.measure.divisors import divisor_of, moves, rate_moves
from calipers.numerics.binomial import binomial_window
from calipers.run import Run
from calipers.samplers import scheme_of

_COARSE = 0.05
_MOST_TERMS = 2e6
_WORTH_WHILE = 1.05
_MOST_SIZES = 40
_SEEN, _FEW = 1e-15, 6
_VISIBLE, _EMPTY = 8.0, 1e-3

LineGradients = tuple[float, float]
"""(v, w): all other gradients are v e, the record's is w e."""


@dataclass(frozen=True)
class NeighborPair:
    """Datasets with `size` and `size` + 1 records; with `upto`, also every larger pair up to (`upto`, `upto` + 1).

    The proofs hold for all pairs of the range, the attacks are made on the first.
    """

    phases: tuple[Run, ...]
    size: int
    upto: int | None = None

    @functools.cached_property
    def proofs(self) -> tuple[str, ...]:
        """Statements that may prove the upper bound."""
        realized = [run for run in self.phases if self._kind(run) == "realized"]
        if not realized:
            moving = all(self._kind(run) == "moving" for run in self.phases)
            return ("calipers:moving-rate",) if moving else ("calipers:hidden-bit",)
        if self.upto is not None:  # only what size and sum say is known to fall as datasets grow
            return ("calipers:size-and-sum",)
        # Sizes tell too much where a batch may well hold every record, or where there are few of them.
        full = any(run.total_steps * run.rate ** (self.size + 1) > _SEEN for run in realized)
        windows = [binomial_window(self.size, run.rate, -60.0) for run in realized]
        few = all(len(window.values) <= _MOST_SIZES for window in windows) and (full or self.size <= _FEW)
        # Revealing the batch tells the scale of the noise: useless where that tells the size in a few rounds.
        few = few and all(deviations(run.dimension or 1, max(1, self.size)) < _VISIBLE for run in realized)
        empty = any((1.0 - run.rate) ** self.size > _EMPTY for run in realized)
        names = ("calipers:size-and-sum", "calipers:full-batch", "calipers:batch-revealed")
        return tuple(name for name, useful in zip(names, (True, full or empty, few), strict=True) if useful)

    @functools.cached_property
    def attacks(self) -> tuple[LineGradients, ...]:
        """The attacks worth trying.

        Where batches are large, their sizes cost the most and tell the least. Against a fixed divisor they drown the
        signal unless the other gradients are zero or nearly so; against the realized size opposite gradients are best
        by far.
        """
        found: list[LineGradients] = []
        for run in self.phases:
            kind = self._kind(run)
            if kind == "realized":
                found += [(-1.0, 1.0)]
                if run.rate * self.size <= _MOST_SIZES:
                    found += [(0.0, 1.0), (0.0, 0.0), (1.0, 1.0)]
            elif kind == "moving":
                best, _ = best_direction(run.noise_multiplier, run.rate, self.size, self.size)
                found += [(best, 1.0), (0.0, 1.0)]
            elif kind == "fixed":
                found += [(0.0, 1.0), (0.0, 0.0)]
                sigma, divisor = run.noise_multiplier, self._divisor(run)
                best, gain = best_direction(sigma, run.rate, self.size, divisor)
                pair = DividedPair(sigma, run.rate, self.size, divisor, best)
                if gain > _WORTH_WHILE and pair.attack.terms(_COARSE) <= _MOST_TERMS:
                    found += [(best, 1.0)] + ([(1.0, 1.0)] if self.size <= _MOST_SIZES else [])
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

    @functools.cache  # noqa: B019  # a measurement lives shortly and holds few pairs
    def product(self, proof: str, attack: LineGradients) -> Product:
        """The composition of all phases: the upper side by this proof, the lower by this attack."""
        direction, record = attack
        counts: dict[LawSource, int] = {}
        degrees: dict[int, int] = {}
        for run in self.phases:
            kind, divisor, steps = self._kind(run), self._divisor(run), run.total_steps
            sigma, rate, dimension = run.noise_multiplier, run.rate, run.dimension or 1
            pair: LawSource | None
            if kind == "plain":
                pair = scheme_of(run).analyze(run).attack.source.both
                assert pair is not None  # Poisson steps are proven and attained
            elif kind == "moving":
                assert run.batch_size is not None
                pair = MovingRatePair(sigma, self.size, run.batch_size, direction, record)
            elif kind == "realized":
                pair = RealizedPair(sigma, rate, self.size, dimension, direction, record, proof)
            else:
                covers = None if self.upto is None else (self.upto, self._divisor(run, self.upto))
                pair = DividedPair(sigma, rate, self.size, divisor, direction, record, covers)
                degrees[divisor] = degrees.get(divisor, 0) + steps * (dimension - 1)
            counts[pair] = counts.get(pair, 0) + steps
        for divisor, count in degrees.items():
            if count:
                counts[ScaleFactor(count, divisor)] = 1
        return Product(list(counts.items()))

    def proven(self, proof: str) -> Product:
        """The same for whoever asks for its upper side alone: any attack will do."""
        return self.product(proof, self.attacks[0])

    def length_tests(self, smallest: float) -> list[LengthTest]:
        """Tests of the length of the noise, everybody's gradient being zero, for one phase each."""
        found: list[LengthTest] = []
        for run in self.phases:
            dimension, steps = run.dimension or 1, run.total_steps
            if self._kind(run) == "fixed":
                found += scale_tests(steps * dimension, self._divisor(run), smallest)
            elif self._kind(run) == "realized" and steps * run.rate ** (self.size + 1.0) > smallest:
                found += full_batch_tests(steps, dimension, self.size, run.rate, smallest)
        return found

    @functools.cached_property
    def is_told_apart(self) -> bool:
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

    def rounds(self) -> list[Rounds] | None:
        """Isotropic pairs that dominate all rounds when batches and memberships are revealed; None if some do not."""
        found = []
        for run in self.phases:
            sigma, steps, dimension = run.noise_multiplier, run.total_steps, run.dimension or 1
            kind, divisor = self._kind(run), float(self._divisor(run))
            if kind in ("realized", "moving"):
                return None
            if kind == "plain":
                found.append(Rounds(steps, 1, 1.0 / sigma, probability=run.rate))
            else:
                largest = self.size if self.upto is None else self.upto
                found.append(told_round(sigma, self.size, largest, divisor, dimension, steps))
        return found
