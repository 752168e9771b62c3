"""The explicit attack on division by the realized batch size: gradients on one line, two numbers observed.

The differing record's gradient is w e, every other one v e. Given a batch of c records the quotient is a mean plus
noise of deviation sigma/c in each of n coordinates, so its coordinate along e and the length of the rest are
sufficient, and the length tells the size:

    D:        size c with probability b_c,            mean v,
    D + w e:  size c with probability (1 - q) b_c,    mean v;       with probability q b_(c-1),   mean v + (w - v)/c.

An empty batch is divided by 1: it shows plain noise. In units of sigma/c0, c0 the usual batch size, the coordinate
relative to v has deviation c0/c, and the squared length of the rest is (c0/c)^2 times a chi-square variable with n -
1 degrees.

The test sees the cell of a two-dimensional grid. Its probabilities are sums over c of products: one matrix product.
The exact PLD of the cell, merged where likelihood ratios are nearly equal (a coarser observation), is an optimistic
PLD.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.citations import implements
from calipers.domains import OPEN_UNIT, Domain
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window
from calipers.numerics.gamma import log_gamma_tail
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair
from calipers.pld.division.collinear import DIRECTION, RATIO_ERROR
from calipers.pld.division.folded import RAREST, WIDEST, interval_mass

_SPARE = 30.0
"""How far below e^log_tail the probability of batch sizes left out lies."""
_MOST_SIZES_WITH_LENGTH, _MOST_LENGTHS = 2_000, 96
"""Where sizes are more, lengths are not observed; and into so many cells they are put."""
_MOST_CELLS = 3_000
"""Of the coordinate."""
_MOST_TERMS = 1_000_000
"""Batch sizes times cells, at most: then cells are wider."""
_MOST_ATOMS = 4_000
"""Batch sizes that are distinguished, at most: more are put together."""
_MOST_REVEALED = 300.0
"""Logs of ratios beyond which a batch size counts as telling the datasets apart."""


@implements("calipers:collinear-attack")
@dataclass(frozen=True)
class RealizedAttack(AttainedPair):
    """One round, LOWER only: N `others`, `rate` q, n `dimension`, other gradients v e, the record's w e, w >= v."""

    sigma: float
    rate: float
    others: int
    dimension: int
    direction: float = -1.0
    record: float = 1.0
    finest: ClassVar[float] = 0.03
    """Finer cells than this change epsilon by less than 1e-4 of itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", DIRECTION.check("direction", self.direction))
        object.__setattr__(self, "record", Domain(self.direction, 1.0).check("record", self.record))
        OPEN_UNIT.check("rate", self.rate, "At rate 1 the divisor is the dataset size.")

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.LOWER; cells rarer than e^log_tail are never rejected."""
        window = binomial_window(self.others, self.rate, log_tail - _SPARE)
        sizes = np.append(window.values, window.values[-1] + 1.0)
        stay, join = np.append(window.weights, 0.0), self.rate * np.append(0.0, window.weights)
        unit = max(1.0, round(self.others * self.rate))
        deviation = unit / np.maximum(sizes, 1.0)
        base = np.where(sizes > 0, 0.0, -self.direction * unit / self.sigma)
        shift = (self.record - self.direction) / np.maximum(sizes, 1.0) * unit / self.sigma
        mass_stay, mass_join = self._coordinates(base, base + shift, deviation, resolution, log_tail)
        q = stay[:, None] * mass_stay
        p = (1.0 - self.rate) * q + join[:, None] * mass_join
        # Sums of products in one matrix product each; sizes left out leave a relative error in rare cells.
        lengths = np.exp(_length_cells(self.dimension - 1, unit, int(sizes[0]), len(sizes)))
        with np.errstate(divide="ignore"):
            log_p, log_q = np.log(lengths @ p).ravel(), np.log(lengths @ q).ravel()
        # A cell that all but tells the dataset is never rejected: no lattice holds it next to the others.
        with np.errstate(invalid="ignore"):
            kept = (np.minimum(log_p, log_q) > max(log_tail, RAREST)) & (np.abs(log_p - log_q) < _MOST_REVEALED)
        return PrivacyLossPmf.observed(
            *merged_cells(log_p[kept], log_q[kept]), 1e-11 + BINOMIAL_RELATIVE_ERROR, RATIO_ERROR
        )

    def _coordinates(
        self, base: FloatArray, moved: FloatArray, deviation: FloatArray, resolution: float, log_tail: float
    ) -> tuple[FloatArray, FloatArray]:
        """The probability of every cell of the coordinate for every size, without and with the record."""
        radius = math.sqrt(2.0 * (_SPARE - log_tail))
        usual = (np.abs(base) < 1e-300) & (deviation < 4.0)
        if not np.any(usual):
            usual = np.ones(len(base), dtype=bool)
        start = float(np.min((base - radius * deviation)[usual]))
        end = float(np.max((moved + radius * deviation)[usual]))
        finest = max(resolution, self.finest, (end - start) * len(base) / _MOST_TERMS, (end - start) / _MOST_CELLS)
        step = min(finest, WIDEST * float(deviation.min()))
        x = start + step * np.arange(math.ceil((end - start) / step) + 1)
        width = np.full((1, len(x) - 1), step) / deviation[:, None]
        without, record = ((x[None, :-1] - mean[:, None]) / deviation[:, None] for mean in (base, moved))
        return interval_mass(without, width), interval_mass(record, width)


@functools.lru_cache(maxsize=4)
def _length_cells(degrees: int, unit: float, first: int, count: int) -> FloatArray:
    """log of the probability of every cell of the length (rows) for sizes first, first + 1, ...; one row if unused."""
    if degrees == 0 or count > _MOST_SIZES_WITH_LENGTH:
        return np.zeros((1, count))
    shape = 0.5 * degrees
    # log of the squared length over its degrees, in units of sigma/unit, is 2 log(unit/c) plus log(gamma/shape).
    places = 2.0 * np.log(unit / np.maximum(first + np.arange(count), 1.0))
    spread = 1.0 / math.sqrt(shape)
    if np.min(np.abs(np.diff(places)), initial=math.inf) > 12.0 * spread:
        edges = np.sort(0.5 * (places[1:] + places[:-1]))  # every size is recognised: one cell each
    else:
        low, high = float(places.min()) - 4.0 * spread, float(places.max()) + 4.0 * spread
        edges = np.arange(low, high, max((high - low) / _MOST_LENGTHS, 0.25 * spread))
    return log_interval_probabilities(shape, edges[:, None] - places[None, :])


def log_interval_probabilities(shape: float, edges: FloatArray) -> FloatArray:
    """log P(log(G/shape) between consecutive rows of `edges`), outer intervals included; relative accuracy 1e-11.

    G is a gamma variable. Each interval is a difference of the two tails on its own side of the mean, where they are
    far apart on a log scale, or one minus both tails when it contains the mean.
    """
    low, high = (log_gamma_tail(shape, edges, lower) for lower in (True, False))
    with np.errstate(divide="ignore", invalid="ignore"):
        below = low[1:] + np.log(-np.expm1(np.minimum(low[:-1] - low[1:], 0.0)))
        above = high[:-1] + np.log(-np.expm1(np.minimum(high[1:] - high[:-1], 0.0)))
        across = np.log1p(-np.exp(low[:-1]) - np.exp(high[1:]))
    inner = np.where(edges[1:] <= 0.0, below, np.where(edges[:-1] >= 0.0, above, across))
    return np.concatenate((low[:1], inner, high[-1:]))


def merged_cells(log_p: FloatArray, log_q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Cells of nearly equal likelihood ratio as one outcome, so that a few thousand are left: a coarser observation."""
    if len(log_p) <= _MOST_ATOMS:
        return log_p, log_q
    ratio = log_p - log_q
    order = np.argsort(ratio)
    # Half of the groups have equal width, half equal mass: a few extreme cells must not blur the bulk.
    spaced = np.searchsorted(ratio[order], np.linspace(ratio.min(), ratio.max(), _MOST_ATOMS // 2))
    crowd = np.cumsum(np.exp(log_p[order]) + np.exp(log_q[order]))
    massed = np.searchsorted(crowd, crowd[-1] * np.linspace(0.0, 1.0, _MOST_ATOMS // 2))
    starts = np.unique(np.minimum(np.concatenate(([0], spaced, massed)), len(ratio) - 1))
    return np.logaddexp.reduceat(log_p[order], starts), np.logaddexp.reduceat(log_q[order], starts)
