"""The explicit attack on divisors K against K + 1: all gradients on one line.

The differing record's gradient is w e, e a unit vector, every other one is v e, with v and w in [-1, 1]. In the n - 1
directions without signal the datasets show the scale PLD (`calipers.pld.division.scale`); along e, in units where D
shows noise of variance 1,

    D:              sum over k of b_k N(v k / sigma, 1),
    D + w e:        sum over k of b_k [(1 - q) N(s v k / sigma, s^2) + q N(s (v k + w) / sigma, s^2)],     s = K/(K+1),

b_k the binomial probabilities of a batch of k other records. This is what the mechanism does to two real datasets, so
whatever a test gains here it gains in earnest. The test sees the cell of a grid into which the observation falls; its
exact PLD is an optimistic PLD.

Which v and w. The means differ by about q (w - v N/(K+1))/sigma, and the sizes of batches blur them by v^2 c, c =
N q (1 - q) / sigma^2, on top of the noise: v = -min(1, N/((K+1) c)) makes the most of it (`best_direction`). Where the
scale says more than the mean, gradients only blur it, and v = w = 0 is best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.citations import implements
from calipers.domains import Domain
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window, log_binomial
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair
from calipers.pld.division.folded import RAREST, WIDEST, cell_width, interval_mass, log_interval_mass

DIRECTION = Domain(-1.0, 1.0)
"""Cosines."""
RATIO_ERROR = 2e-15
"""Of the difference of two logarithms."""
_SPARE, _DEEP = 30.0, 300.0
"""How far below e^log_tail the probability of batch sizes left out lies: where sizes are many, and where they are few.
"""
_MOST_TERMS = 4_000_000
"""Components times cells of an attack, at most: then cells are wider."""
_MOST_FAR_TERMS = 300_000
"""Up to so many, masses are computed as logarithms, which keep their digits far out."""
_CHUNK = 250_000
"""Numbers that are held together, which bounds memory."""


@dataclass(frozen=True)
class Components:
    """A mixture of Gaussians with one deviation: weights and means."""

    weights: FloatArray
    means: FloatArray
    deviation: float


def cell_masses(mixture: Components, start: float, step: float, count: int, radius: float) -> FloatArray:
    """Probability of each cell [start + j step, start + (j+1) step); components are cut off at `radius` deviations.

    Post-condition: a cell lacks at most the mass that all components have beyond `radius`.
    """
    reach = radius * mixture.deviation
    width = math.ceil(2.0 * reach / step) + 2
    rows = max(1, _CHUNK // width)
    total = np.zeros(count)
    for begin in range(0, len(mixture.means), rows):
        means, weights = mixture.means[begin : begin + rows, None], mixture.weights[begin : begin + rows, None]
        index = np.floor((means - reach - start) / step) + np.arange(width)
        low = (start + index * step - means) / mixture.deviation
        masses = weights * interval_mass(low, np.full_like(low, step / mixture.deviation))
        inside = (index >= 0) & (index < count)
        total += np.bincount(index[inside].astype(np.intp), weights=masses[inside], minlength=count)
    return total


def log_cell_masses(mixture: Components, edges: FloatArray) -> FloatArray:
    """log of the probability of every cell between consecutive edges, all components counted, however far away."""
    total = np.full(len(edges) - 1, -np.inf)
    width = np.diff(edges) / mixture.deviation
    for weight, mean in zip(mixture.weights, mixture.means, strict=True):
        if weight > 0.0:
            low = (edges[:-1] - mean) / mixture.deviation
            total = np.logaddexp(total, math.log(weight) + log_interval_mass(low, width))
    return total


def best_direction(sigma: float, rate: float, others: int, divisor: int) -> tuple[float, float]:
    """The common gradient of all other records that shows the differing one best.

    Args:
        sigma: The noise multiplier.
        rate: The sampling rate q.
        others: How many other records there are.
        divisor: K on the smaller dataset, K + 1 on the larger one.

    Returns:
        v in [-1, 0], and by what factor it beats v = 0 (in mu^2) to a test of many rounds. A choice, not a bound: the
        attack is valid for every v.
    """
    blur = others * rate * (1.0 - rate) / (sigma * sigma)
    moved = others / (divisor + 1.0)  # the mean of D moves by v times this, the record by 1, in units of q/sigma
    v = 1.0 if blur <= moved else moved / blur
    return -v, (1.0 + v * moved) ** 2 / (1.0 + v * v * blur)


@implements("calipers:collinear-attack")
@dataclass(frozen=True)
class CollinearPair(AttainedPair):
    """One round along the line, LOWER only: N `others`, `rate` q, divisor K on D and K + 1 on D + w e, others v e.

    With a `joined_rate` nothing is divided, and D + w e is sampled at that rate instead.
    """

    sigma: float
    rate: float
    others: int
    divisor: int
    direction: float = 0.0
    record: float = 1.0
    joined_rate: float | None = None
    finest: ClassVar[float] = 0.01
    """Cells of twice this width show 0.2 % less epsilon where it is .05, next to nothing less where it is 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", DIRECTION.check("direction", self.direction))
        object.__setattr__(self, "record", DIRECTION.check("record", self.record))

    @property
    def scale(self) -> float:
        """s, by which D + w e shows less noise."""
        return 1.0 if self.joined_rate is not None else self.divisor / (self.divisor + 1.0)

    def _sizes(self, log_outside: float) -> tuple[FloatArray, bool]:
        """Batch sizes, and whether these are all there are."""
        if self.direction == 0.0:  # batch sizes do not show
            return np.array([0.0]), True
        windows = [
            binomial_window(self.others, rate, log_outside) for rate in {self.rate, self.joined_rate or self.rate}
        ]
        low, high = min(w.values[0] for w in windows), max(w.values[-1] for w in windows)
        return np.arange(low, high + 1.0), self.rate == 1.0 or high - low == self.others

    def terms(self, resolution: float = 0.05, log_tail: float = -40.0) -> int:
        """How many cell masses the PLD needs: what it costs."""
        sizes, _ = self._sizes(log_tail - _SPARE)
        return round(len(sizes) * 2.0 * math.sqrt(2.0 * (_SPARE - log_tail)) / resolution)

    def mixtures(self, log_outside: float) -> tuple[Components, Components, bool]:
        """What D and D + w e show along the line, and whether all batch sizes are there."""
        sizes, complete = self._sizes(log_outside)
        means, scale, rate = self.direction * sizes / self.sigma, self.scale, self.joined_rate or self.rate
        weights, joined = (self._weights(sizes, q) for q in (self.rate, rate))
        both = np.concatenate((scale * means, scale * (means + self.record / self.sigma)))
        present = Components(np.concatenate(((1.0 - rate) * joined, rate * joined)), both, scale)
        return Components(weights, means, 1.0), present, complete

    def _weights(self, sizes: FloatArray, rate: float) -> FloatArray:
        return np.ones(1) if self.direction == 0.0 else np.exp(log_binomial(sizes, self.others, rate))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.LOWER; with many batch sizes, cells rarer than e^log_tail are never rejected."""
        resolution, error = max(resolution, self.finest), 1e-13 + BINOMIAL_RELATIVE_ERROR
        radius, log_outside = math.sqrt(2.0 * (_SPARE - log_tail)), log_tail - _DEEP
        absent, present, complete = self.mixtures(log_outside)
        start, length = span(absent, present, radius)
        scale = present.deviation
        step = scale * cell_width(resolution, length / scale)
        if len(present.means) * length / step <= _MOST_FAR_TERMS:
            edges = start + step * np.arange(math.ceil(length / step) + 1, dtype=np.float64)
            log_p, log_q = log_cell_masses(present, edges), log_cell_masses(absent, edges)
            # What is rare on both datasets only burdens the composition; what may be made of sizes left out is not
            # known.
            often = np.maximum(log_p, log_q) > log_tail
            known = np.minimum(log_p, log_q) > (-math.inf if complete else log_outside + 1.5 * _SPARE)
            error += _misplaced(start, length, step, scale, radius)
            return PrivacyLossPmf.observed(log_p[often & known], log_q[often & known], error, RATIO_ERROR)
        absent, present, _ = self.mixtures(log_tail - _SPARE)
        start, length = span(absent, present, radius)
        step = scale * min(max(resolution, 2.0 * radius * len(absent.means) / _MOST_TERMS), WIDEST)
        count = math.ceil(length / step) + 1
        error += _misplaced(start, length, step, scale, radius)
        p, q = (cell_masses(mixture, start, step, count, radius) for mixture in (present, absent))
        # A cell lacks at most e^(log_tail - _SPARE), and as much of sizes left out; the rarer ones are never rejected.
        rarest = math.exp(max(log_tail, RAREST))
        kept = (p > rarest) & (q > rarest)
        return PrivacyLossPmf.observed(np.log(p[kept]), np.log(q[kept]), error + 2.0 * math.exp(-_SPARE), RATIO_ERROR)


def _misplaced(start: float, length: float, step: float, scale: float, radius: float) -> float:
    """The share of a cell's mass that the rounding of its edges moves: next to the mean, and to the next cell."""
    return 2.3e-16 * (abs(start) + length) / scale * (radius + scale / step)


def span(absent: Components, present: Components, radius: float) -> tuple[float, float]:
    """Start and length of the interval that reaches `radius` beyond every mean."""
    low = min(float(absent.means.min()), float(present.means.min())) - radius
    return low, max(float(absent.means.max()), float(present.means.max())) + radius - low
