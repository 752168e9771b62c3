"""Poisson batches with a largest size: what exceeds it is dropped at random.

Compiled training wants batches of at most B records: every record joins with probability q, and if more than B have
joined, B of them are kept, uniformly at random. The differing unit has g records (g = 1: one record); m of the n other
records join.

**Proof.** Reveal how many of the others are used without the unit, min(m, B), and which (given the number, a uniformly
random choice, whatever m is). With the unit, j of its records join, j binomial(g, q).

- m + j <= B: nobody is dropped, and the sum moves by at most j, in units of the clipping norm.
- otherwise B of the m + j are kept, k of them of the unit, k hypergeometric; those k are there and k - (B - m)+ of the
  others have gone, so the sum moves by at most k + k - (B - min(m, B)).

The number min(m, B) has the same law on both datasets, and which of the others go depends on nothing. So the step is
dominated by a mixture, its index min(m, B) revealed, of pairs with a drawn shift (`calipers.laws.core.drawn_shift`).
Where min(m, B) = B the number m itself need not be revealed, because a random choice of B out of a random m is a random
choice of B: the probabilities of k are averages over m >= B. For one record: with probability 1 - tau the Poisson pair
of rate q, with probability tau = P(m >= B) the pair of rate q' = q B E[1/(m + 1) | m >= B] and *twice* the
sensitivity, as under batches of fixed size, which a truncated batch is. Zeroed out or replaced: the pairs of
`calipers.laws.drawn.fixed_size` at rate q' in that case, the Poisson pairs in the other.

**Attacks.** All others zero: truncation then only makes the record rarer. All others -v u, the record u: where batches
are truncated, it displaces one that opposes it, as the proof has it. The gap between both jaws is of the order of tau.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE, POSITIVE_PROBABILITY
from calipers.errors import UnsupportedError
from calipers.laws.core.drawn_shift import Shifts, drawn_shift
from calipers.laws.core.law import Law
from calipers.laws.core.pair import Pair
from calipers.laws.core.part_algebra import RoundedPair, revealed
from calipers.laws.core.source import LowerSource
from calipers.laws.divided.collinear import Components, cell_masses, log_cell_masses, lower_law, span
from calipers.laws.divided.folded import WIDEST, cell_width
from calipers.laws.drawn.fixed_size import fixed_size_proof
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window, log_binomial
from calipers.numerics.hypergeometric import hypergeometric, hypergeometric_rows
from calipers.numerics.types import FloatArray

_DEEPEST = -690.0
_SPARE, _DEEP = 30.0, 300.0
"""How far below e^log_tail the probability of sizes left out lies: where they are many, and where they are few."""
_MOST_TERMS, _MOST_FAR_TERMS = 4_000_000, 300_000
_FINEST = 0.01


@dataclass(frozen=True)
class Case:
    """`used` others are in the batch of the dataset without the unit, with this probability.

    `moves`: (records of the unit, others displaced, probability) with the unit.
    """

    used: float
    probability: float
    moves: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Truncation:
    """n `others`, `rate` q, batches of at most `largest`, a unit of `unit` records."""

    others: int
    rate: float
    largest: int
    unit: int = 1

    def __post_init__(self) -> None:
        POSITIVE_PROBABILITY.check("rate", self.rate)
        COUNT.check_int("max_batch_size", self.largest)
        COUNT.check_int("records_per_unit", self.unit)

    @cached_property
    def rounding(self) -> float:
        """At least the relative error of every probability below."""
        return 4.0 * BINOMIAL_RELATIVE_ERROR + 1e-13 * self.unit

    @cached_property
    def _joining(self) -> FloatArray:
        return np.exp(log_binomial(np.arange(self.unit + 1.0), self.unit, self.rate))

    def _sizes(self, low: int) -> tuple[FloatArray, FloatArray]:
        """m >= low that matter, with their probabilities; what lies beyond them is counted at the last."""
        window = binomial_window(self.others, self.rate, _DEEPEST)
        kept = window.values >= low
        if not np.any(kept):
            return np.array([float(low)]), np.array([window.outside])
        values, weights = window.values[kept], window.weights[kept].copy()
        if values[-1] < self.others:
            weights[-1] += window.outside
        return values, weights

    @cached_property
    def truncated(self) -> float:
        """tau = P(m >= B): the dataset without the unit fills its batch by itself."""
        if self.largest > self.others:
            return 0.0
        # At most one is true, and nearer to the truth than a sum that rounding, which is charged, carries beyond it.
        return min(1.0, float(np.sum(self._sizes(self.largest)[1])))

    @cached_property
    def full(self) -> Case:
        """The case of a full batch."""
        sizes, weights = self._sizes(self.largest)
        shares = weights / np.sum(weights)
        if self.unit == 1:
            kept = self.rate * self.largest * float(np.sum(shares / (sizes + 1.0)))
            return Case(float(self.largest), self.truncated, ((0.0, 0.0, 1.0 - kept), (1.0, 1.0, kept)))
        chances = np.zeros(self.unit + 1)
        for joined, chance in enumerate(self._joining):
            # `sizes` fill the batch by themselves, so whoever joins competes with all of them.
            rows = hypergeometric_rows(sizes.astype(np.int64) + joined, joined, self.largest)[0]
            chances[: joined + 1] += chance * (shares @ rows)
        moves = tuple((float(k), float(k), float(chance)) for k, chance in enumerate(chances))
        return Case(float(self.largest), self.truncated, moves)

    def partly(self, size: int) -> Case:
        """`size` < B others joined: the unit may fill the batch, and then displaces others or itself."""
        chances = np.zeros((self.unit + 1, self.unit + 1))
        free = self.largest - size
        for joined, chance in enumerate(self._joining):
            if joined <= free:
                chances[joined, 0] += chance
                continue
            kept = hypergeometric(size + joined, joined, self.largest)[0]
            for k in range(free, joined + 1):
                chances[k, k - free] += chance * kept[k]
        moves = tuple((float(k), float(d), float(chances[k, d])) for k, d in zip(*np.nonzero(chances), strict=True))
        probability = float(np.exp(log_binomial(np.array([float(size)]), self.others, self.rate))[0])
        return Case(float(size), probability, moves)

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Plain Poisson batches first (`used` is then not one number), then those that truncation touches."""
        low = max(0, self.largest - self.unit + 1)
        touched = [self.partly(size) for size in range(low, min(self.largest, self.others + 1))]
        touched = [case for case in touched if case.probability > 0.0]
        if self.truncated > 0.0:
            touched.append(self.full)
        plain = 1.0 - math.fsum(case.probability for case in touched)
        if plain < 0.5:  # without cancellation
            window = binomial_window(self.others, self.rate, _DEEPEST)
            plain = float(np.sum(window.weights[window.values < low])) + window.outside
        moves = tuple((float(k), 0.0, float(chance)) for k, chance in enumerate(self._joining))
        return (Case(math.nan, plain, moves), *touched)


def _shifts(case: Case, shift: float, displaced: bool = True) -> Shifts:
    lengths = [shift * (k + d if displaced else k) for k, d, _ in case.moves]
    return Shifts.of(lengths, [chance for _, _, chance in case.moves])


@implements("calipers:truncated")
def truncated_proof(truncation: Truncation, shift: float, adjacency: str) -> RoundedPair:
    """A pair that dominates one step; `shift` is 1/sigma."""
    shift = POSITIVE.check("shift", shift)
    name = f"Poisson, q = {truncation.rate:g}, at most {truncation.largest}, {adjacency}"
    if adjacency == "add-remove":
        found = [(drawn_shift(_shifts(case, shift)), case.probability) for case in truncation.cases]
        return revealed(name, found, truncation.rounding)
    if truncation.unit > 1:
        raise UnsupportedError("Truncated batches with several records to a unit are known for add-remove only.")
    plain, *touched = truncation.cases
    parts: list[tuple[Pair, float]] = [
        (drawn_shift(_shifts(plain, shift), opposite=adjacency == "substitute"), plain.probability)
    ]
    for case in touched:
        chance = next(chance for k, _, chance in case.moves if k == 1.0)
        parts.append((fixed_size_proof(chance, shift, adjacency), case.probability))
    return revealed(name, parts, truncation.rounding)


@dataclass(frozen=True)
class TruncatedAttack(LowerSource):
    """All others v u, the unit's records u, in one step; LOWER only.

    `instead`: the gradient along u that a record of the unit has on the other dataset (0 if it is zeroed out, -1 if it
    is replaced); None if the unit is not there at all.
    """

    truncation: Truncation
    shift: float
    direction: float = 0.0
    instead: float | None = None
    symmetric: ClassVar[bool] = False
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    @property
    def slope(self) -> float:
        """Of one gradient."""
        return self.shift

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The law on Side.LOWER: what the sum along u shows, told by the cell of a grid."""
        return _attack_law(self, max(_FINEST, resolution), log_tail)

    def mixtures(self, log_outside: float) -> tuple[Components, Components, bool]:
        """What the other dataset and the one with the unit show along u, and whether all sizes are there."""
        rows: list[tuple[float, float, float, float]] = []
        plain, *touched = self.truncation.cases
        low = self.truncation.largest - self.truncation.unit + 1
        window = binomial_window(self.truncation.others, self.truncation.rate, log_outside)
        for size, weight in zip(window.values, window.weights, strict=True):
            if size < low:
                rows += [(weight * chance, size, k, 0.0) for k, _, chance in plain.moves]
        for case in touched:
            rows += [(case.probability * chance, case.used, k, d) for k, d, chance in case.moves]
        weights, used, own, displaced = (np.array(column) for column in zip(*rows, strict=True))
        others = self.direction * (used - displaced)
        absent = self.direction * used if self.instead is None else others + self.instead * own
        complete = bool(window.values[0] == 0.0)
        return self._components(weights, absent), self._components(weights, others + own), complete

    def _components(self, weights: FloatArray, means: FloatArray) -> Components:
        places, index = np.unique(means, return_inverse=True)
        return Components(np.bincount(index, weights=weights).astype(np.float64), self.shift * places, 1.0)

    def alone(self) -> Pair:
        """The pair where all others are zero: only how many of the unit's records are kept shows."""
        total: dict[float, float] = {}
        for case in self.truncation.cases:
            for k, _, chance in case.moves:
                total[k] = total.get(k, 0.0) + case.probability * chance
        kept = math.fsum(total.values())
        chances = [chance / kept for chance in total.values()]
        rounding = self.truncation.rounding + abs(kept - 1.0)
        shifts = Shifts.of([self.shift * k for k in total], chances, rounding)
        return drawn_shift(shifts, opposite=self.instead == -1.0)


@lru_cache(maxsize=16)
def _attack_law(attack: TruncatedAttack, resolution: float, log_tail: float) -> Law:
    radius = math.sqrt(2.0 * (_SPARE - log_tail))
    error = 1e-13 + attack.truncation.rounding
    log_outside = log_tail - _DEEP
    absent, present, complete = attack.mixtures(log_outside)
    start, length = span(absent, present, radius)
    step = cell_width(resolution, length)
    if len(present.means) * length / step <= _MOST_FAR_TERMS:
        edges = start + step * np.arange(math.ceil(length / step) + 1, dtype=np.float64)
        log_p, log_q = log_cell_masses(present, edges), log_cell_masses(absent, edges)
        # What is rare on both datasets only burdens the composition; what sizes left out may add is not known.
        least = -math.inf if complete else log_outside + 1.5 * _SPARE
        known = (np.maximum(log_p, log_q) > log_tail) & (np.minimum(log_p, log_q) > least)
        return lower_law(log_p[known], log_q[known], error)
    absent, present, _ = attack.mixtures(log_tail - _SPARE)
    start, length = span(absent, present, radius)
    step = min(max(resolution, 2.0 * radius * len(present.means) / _MOST_TERMS), WIDEST)
    count = math.ceil(length / step) + 1
    q = cell_masses(absent, start, step, count, radius)
    p = cell_masses(present, start, step, count, radius)
    kept = (p > math.exp(log_tail)) & (q > math.exp(log_tail))
    return lower_law(np.log(p[kept]), np.log(q[kept]), error + 2.0 * math.exp(-_SPARE))
