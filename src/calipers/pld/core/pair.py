"""Exact pairs of distributions, and how they become PLDs with a side.

A `Pair` describes (P, Q) without approximation: smooth parts given by densities of a scalar
observation z whose likelihood ratio increases with z, exact atoms, and the masses where one of
the two vanishes. A pair cuts the z axis into cells and turns each cell into atoms:

- split (`Pair.upper`): the content of a cell with end ratios a < b is moved to a and b so that its
  Q-mass and its P-mass stay what they are. That is a mean preserving spread of L, so the
  result dominates. These are the slope differences of the "connect the dots" interpolation of
  the call function, computed without differences:

      mass at b = integral over the cell of (L - e^a) / (e^b - e^a) dQ  >= 0.

- condense (`Pair.lower`): a cell becomes one atom with its Q-mass and its P-mass. The observer
  who learns only the cell sees exactly this, so the result is dominated.

Both errors are second order in the cell width. Uniform cells in z are the natural choice: by
the Gaussian Poincare inequality Var(log L) <= E[(d log L / dz)^2], so a cell width of `w`
standard deviations of z adds a share of about w^2/6 to the variance of log L, whatever the
sampling rate and the noise.

How cells are cut, and how accurate their masses are, is said in `calipers.pld.core.discretize`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.domains import POSITIVE_PROBABILITY
from calipers.errors import CertificationError
from calipers.memoize import memoize
from calipers.numerics.elementary import row_logsumexp
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.core.discretize import CELL_ERROR, Cells, cells_of, is_crowded
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf, in_order
from calipers.pld.core.smooth_part import SmoothPart
from calipers.pld.core.source import TwoSidedPair

_NODES_AT_ONCE = 65_536
"""Bounds the memory that cells take while they are split."""


@dataclass(frozen=True)
class Pair(TwoSidedPair):
    """An exact pair (P, Q). `symmetric` says that (P, Q) and (Q, P) have the same PLD."""

    name: str
    smooth: tuple[SmoothPart, ...] = ()
    atom_log_p: tuple[float, ...] = ()
    atom_log_q: tuple[float, ...] = ()
    p_inf: float = 0.0
    q_zero: float = 0.0
    symmetric: bool = False
    span: float | None = None
    """Every log ratio is a multiple of this, if set: compositions on that lattice round nothing."""
    beyond: float = 0.0
    """Mass of either dataset that the parts leave out: a pessimistic PLD counts it as infinite, and no moment is
    known.
    """
    moment_depth: ClassVar[float] = -math.inf
    """PLDs for moments are as deep as it takes."""

    @property
    def words(self) -> str:
        """Its name."""
        return self.name

    @property
    def slope(self) -> float:
        """The steepest slope of log L."""
        return max((part.slope for part in self.smooth), default=0.0)

    @property
    def cell_slope(self) -> float:  # type: ignore[override]  # what others say once and for all
        """The steepest slope in units of the observation's scale."""
        return max((part.slope * part.scale for part in self.smooth), default=0.0)

    def log_beyond(self, order: float, log_tail: float, reverse: bool) -> list[float] | None:
        """With `slope` a bound on d log L / dz, L(z)^t <= L(end)^t e^(t slope (z - end)), of known expectation."""
        if self.p_inf > 0 or self.q_zero > 0 or self.beyond > 0:
            return None
        beyond = []
        for part in self.smooth:
            low, high = part.range_for(log_tail)
            end = float(part.log_ratio(np.array([low if reverse else high]))[0])
            growth = part.log_growth_below if reverse else part.log_growth_above
            beyond.append(order * abs(end) + growth(order * part.slope, low if reverse else high))
        return beyond

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD that dominates the pair, with cells of equal width."""
        return self.upper_for(resolution, log_tail, None)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD that is dominated by the pair, with cells of equal width."""
        return self.lower_for(resolution, log_tail, None)

    def upper_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """Cells are split, what lies beyond them is added to mass at infinity and at zero."""
        return self._cut(Side.UPPER, resolution, log_tail, tilt)

    def lower_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """Cells are condensed, what lies beyond them becomes one cell."""
        return self._cut(Side.LOWER, resolution, log_tail, tilt)

    @implements("doroshenko2022:ctd")
    def _cut(self, side: Side, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """The pair as a PLD on `side`.

        `resolution`: cell width in units of the observation's scale, or, where a `tilt` is given, the
        root mean square width of a cell in log L in units of its deviation, both under the PLD
        tilted by L^tilt: cells are then placed where that PLD needs them. `log_tail`: natural log of
        the tail mass below which a cell may be unbounded.
        """
        POSITIVE_PROBABILITY.check("resolution", resolution)
        if self.smooth and all(is_crowded(part, resolution, log_tail, tilt) for part in self.smooth):
            return self._cut_evenly(side, log_tail)
        return self._built(side, resolution, log_tail, tilt)

    @memoize
    def _cut_evenly(self, side: Side, log_tail: float) -> PrivacyLossPmf:
        """Cells as wide as their masses allow: very many, cut once for every resolution and tilt."""
        return self._built(side, math.inf, log_tail, None)

    def _built(self, side: Side, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        build = _split if side is Side.UPPER else _condense
        cells = [cells_of(part, resolution, log_tail, tilt) for part in self.smooth]
        pieces = [build(part, cut) for part, cut in zip(self.smooth, cells, strict=True)]
        columns = [(piece.log_ratio, piece.log_p, piece.log_q) for piece in pieces]
        if self.atom_log_p:
            atoms_p, atoms_q = np.array(self.atom_log_p), np.array(self.atom_log_q)
            columns.append((atoms_p - atoms_q, atoms_p, atoms_q))
        ratio, log_p, log_q = (np.concatenate(column) for column in zip(*columns, strict=True))
        biggest, *deep = (float(np.max(np.abs(column), initial=0.0)) for column in (ratio, log_p, log_q))
        beyond = self.beyond if side is Side.UPPER else 0.0
        return PrivacyLossPmf(
            *in_order(ratio, log_p, log_q),
            side,
            p_inf=min(1.0, self.p_inf + beyond + math.fsum(piece.p_inf for piece in pieces)),
            q_zero=min(1.0, self.q_zero + beyond + math.fsum(piece.q_zero for piece in pieces)),
            # A log density of size m went through three roundings of 1.1e-16 m, a log mass through one.
            mass_error=max([ATOM_ROUNDING] + [piece.mass_error for piece in pieces]) + 4.5e-16 * max(deep),
            shift_error=self._shift_error(biggest, log_tail) if self.smooth or side is Side.UPPER else 0.0,
        )

    def _shift_error(self, biggest: float, log_tail: float) -> float:
        """log L may be a difference of two logs that are larger than it: of weights, down to 1e-12."""
        known = [part.ratio_error(*part.range_for(log_tail)) for part in self.smooth if part.ratio_error is not None]
        every = len(known) == len(self.smooth) > 0 and not self.atom_log_p
        usual = 8e-16 * (30.0 + biggest)
        return min(usual, max(known)) if every else usual


def _distinct(values: FloatArray) -> IntArray:
    """Indices of values that differ visibly: where log L saturates, neighbors merge into one node.

    A small rate saturates near log(1 - rate), and high-noise steps are revealed by what happens there: so visibility is
    measured by that value, not by the farthest one.
    """
    spread = float(values[-1] - values[0])
    smallest = max(1e-9 * min(spread, 100.0 * float(np.min(np.abs(values[[0, -1]])))), 1e-300)
    # Steps of 1 in this number are steps of about smallest + 1e-13 |value| in the value.
    numbers = np.sign(values) * np.log1p(1e-13 * np.abs(values) / smallest) / 1e-13
    keep = np.flatnonzero(np.diff(np.floor(numbers), prepend=-np.inf) > 0)
    if not spread > 0.0 or len(keep) < 2:
        raise CertificationError("The likelihood ratio is constant to working precision: nothing to discretize.")
    keep[-1] = len(values) - 1
    return keep.astype(np.intp)


def _split(part: SmoothPart, cells: Cells) -> PrivacyLossPmf:
    """The UPPER atoms of a smooth part: cells split onto their ends, tails onto 0 and infinity."""
    at_ends = part.log_ratio(cells.ends)
    if np.any(np.diff(at_ends) < -1e-12 * (1.0 + np.abs(at_ends[1:]))):
        raise CertificationError("The likelihood ratio of a smooth part does not increase with its observation.")
    at_ends = np.maximum.accumulate(at_ends)
    keep = _distinct(at_ends)
    nodes = at_ends[keep]
    log_q = np.full(len(nodes), -np.inf)
    for first in range(0, len(nodes) - 1, _NODES_AT_ONCE):
        last = min(first + _NODES_AT_ONCE, len(nodes) - 1)
        up, down = _split_between(part, cells, nodes[first : last + 1], keep[first : last + 1])
        log_q[first + 1 : last + 1] = up
        log_q[first:last] = np.logaddexp(log_q[first:last], down)
    # Beyond the last end Q-mass stays at the end node and P-mass is added to infinity; mirrored below.
    p_below, q_below = part.log_below(float(cells.ends[0]))
    p_above, q_above = part.log_above(float(cells.ends[-1]))
    log_q[-1] = np.logaddexp(log_q[-1], q_above)
    log_q[0] = np.logaddexp(log_q[0], p_below - nodes[0])
    return PrivacyLossPmf.dominating(
        nodes, log_q, p_inf=math.exp(p_above), q_zero=math.exp(q_below), mass_error=CELL_ERROR
    )


def _split_between(part: SmoothPart, cells: Cells, nodes: FloatArray, keep: IntArray) -> tuple[FloatArray, FloatArray]:
    """Log masses of Q that go to the upper and to the lower one of every two nodes: cells keep[i] .. keep[i+1]-1 lie
    between nodes i and i+1.
    """
    rows, starts = slice(int(keep[0]), int(keep[-1])), keep[:-1] - keep[0]
    below = np.searchsorted(keep, np.arange(rows.start, rows.stop), side="right") - 1
    a, b = nodes[below][:, None], nodes[below + 1][:, None]
    points = cells.points[rows]
    ratio = np.clip(part.log_ratio(points), a, b)  # equal up to rounding, which shift_error covers
    log_mass = part.log_q(points) + cells.log_weights[rows]
    peak = np.maximum.reduceat(log_mass.max(axis=1), starts)
    up, down = _up_and_down(ratio, a, b, np.exp(log_mass - peak[below][:, None]))
    with np.errstate(divide="ignore"):
        return peak + np.log(np.add.reduceat(up, starts)), peak + np.log(np.add.reduceat(down, starts))


def _up_and_down(ratio: FloatArray, a: FloatArray, b: FloatArray, mass: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What goes to the upper and to the lower end of every cell, by its log ratios, its ends and its masses."""
    width = -np.expm1(a - b)
    short = -np.expm1(ratio - b)  # (e^b - e^x) / e^b
    share_down = short / width
    # (e^x - e^a) / (e^b - e^a), where e^(x - b) = 1 - short keeps its digits unless the cell is very wide
    relative = 1.0 - short if float(np.max(b - a)) < 1.0 else np.exp(ratio - b)
    share_up = relative * -np.expm1(a - ratio) / width
    return (mass * share_up).sum(axis=1), (mass * share_down).sum(axis=1)


def _condense(part: SmoothPart, cells: Cells) -> PrivacyLossPmf:
    """The LOWER atoms of a smooth part: one per cell, the two tails included as cells."""
    ends, points, log_weights = cells.ends, cells.points, cells.log_weights
    log_p, log_q = (row_logsumexp(density(points) + log_weights) for density in (part.log_p, part.log_q))
    below, above = part.log_below(float(ends[0])), part.log_above(float(ends[-1]))
    log_p = np.concatenate((below[:1], log_p, above[:1]))
    log_q = np.concatenate((below[1:], log_q, above[1:]))
    return PrivacyLossPmf.observed(log_p, log_q, CELL_ERROR)
