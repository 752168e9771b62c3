"""Exact pairs of distributions, and how they become laws with a side.

A `Pair` describes (P, Q) without approximation: smooth parts given by densities of a scalar
observation z whose likelihood ratio increases with z, exact atoms, and the masses where one of
the two vanishes. A pair cuts the z axis into cells and turns each cell into atoms:

- split (`Pair.upper`): the content of a cell with end ratios a < b is moved to a and b so that its
  Q-mass and its P-mass stay what they are. That is a mean preserving spread of L, so the
  result dominates. These are the slope differences of the "connect the dots" interpolation of
  the call function, computed without differences:

      mass at b = integral over the cell of (L - e^a) / (e^b - e^a) dQ  >= 0.

- condense (`Pair.lower`): a cell becomes one atom with its Q-mass and its P-mass. The observer
  who is told only the cell sees exactly this, so the result is dominated.

Both errors are second order in the cell width. Uniform cells in z are the natural choice: by
the Gaussian Poincare inequality Var(log L) <= E[(d log L / dz)^2], so a cell width of `w`
standard deviations of z adds a share of about w^2/6 to the variance of log L, whatever the
sampling rate and the noise.

Masses are integrals of entire functions by Gauss-Legendre quadrature, whose error on a cell of
half width r is at most (64/15) M rho^(-2m) / (1 - rho^(-2)) with m nodes, M the maximum of the
integrand on the Bernstein ellipse of parameter rho (Trefethen, Approximation Theory and
Approximation Practice, Theorem 19.3). `_widest_cell` keeps cells so narrow that it is negligible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.errors import CertificationError, InputError
from calipers.laws.core.law import ATOM_ROUNDING, Law
from calipers.laws.core.source import LawSource
from calipers.numerics.elementary import row_logsumexp
from calipers.numerics.types import FloatArray, IntArray

Density = Callable[[FloatArray], FloatArray]

_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (6, 12, 24)}
"""Gauss-Legendre rules: six nodes for narrow cells, twelve where few wide cells will do, more for steep densities."""
_RHO = 2.0 ** np.arange(1.5, 12.1, 0.5)
_MOST_CELLS = 60_000
_MANY_CELLS = {6: 20_000, 12: 3_000}
"""With more cells than this the next rule is tried, in case it is the rule that wants them so narrow."""
_SEGMENT, _NEAR = 4.0, 3.0
"""Lengths of the segments of a wide part, and how far from a cell its slope is looked at."""
_LEAST_SHARE = 1e-9
"""Parts rarer than this are no coarser than parts of this share."""
_CELL_ERROR = 2e-14
"""Relative error of a cell mass: quadrature (half of it), a dozen additions; that of the exponentials comes on top."""


@dataclass(frozen=True)
class SmoothPart:
    """Densities of a scalar observation z on [low, high] with increasing log ratio.

    `log_p_above(z)`, `log_q_below(z)` are log tail masses (for infinite ends); `growth(low, high, reach)`
    bounds how much the log of either density, as an analytic function, can exceed its value on [low, high]
    at each distance `reach` from there in the complex plane; `scale` is the length on which the observation
    varies (1 for unit Gaussians).
    """

    log_p: Density
    log_q: Density
    log_ratio: Density
    range_for: Callable[[float], tuple[float, float]]
    log_p_above: Callable[[float], float]
    log_q_above: Callable[[float], float]
    log_p_below: Callable[[float], float]
    log_q_below: Callable[[float], float]
    growth: Callable[[float, float, FloatArray], FloatArray]
    slope: float
    """At least d log L / dz everywhere."""
    log_growth_above: Callable[[float, float], float]
    """(rate, z) -> log E_Q[e^(rate (Z - z)); Z > z]: with `slope`, what high moments of L may hide beyond z."""
    log_growth_below: Callable[[float, float], float]
    """(rate, z) -> log E_P[e^(rate (z - Z)); Z < z], for the reversed pair."""
    scale: float = 1.0
    ratio_error: Callable[[float, float], float] | None = None
    """(low, high) -> at least the absolute error of `log_ratio` there, where that is known to be small."""
    share_error: float = 0.0
    """What densities may err by beyond a few roundings of their logs."""
    steepest: Callable[[FloatArray, FloatArray], FloatArray] | None = None
    """(low, high) -> at least |d log density/dz| of both between these places; for parts that are wide."""


@dataclass(frozen=True)
class Pair(LawSource):
    """An exact pair (P, Q). `symmetric` says that (P, Q) and (Q, P) have the same law."""

    name: str
    smooth: tuple[SmoothPart, ...] = ()
    atom_log_p: tuple[float, ...] = ()
    atom_log_q: tuple[float, ...] = ()
    p_inf: float = 0.0
    q_zero: float = 0.0
    symmetric: bool = False
    span: float | None = None
    """Every log ratio is a multiple of this, if set: compositions on that lattice round nothing."""

    @property
    def words(self) -> str:
        """Its name."""
        return self.name

    @property
    def slope(self) -> float:
        """The steepest slope of log L."""
        return max((part.slope for part in self.smooth), default=0.0)

    @property
    def cell_slope(self) -> float:
        """The steepest slope in units of the observation's scale."""
        return max((part.slope * part.scale for part in self.smooth), default=0.0)

    @property
    def moment_depth(self) -> float:
        """As deep as it takes."""
        return -math.inf

    @property
    def bounded(self) -> bool:
        """Whether no smooth part has a tail."""
        return all(math.isinf(part.log_p_above(part.range_for(-40.0)[1])) for part in self.smooth)

    @property
    def spread(self) -> bool:
        """Cells are split onto their ends."""
        return True

    def log_beyond(self, order: float, log_tail: float, reverse: bool) -> list[float] | None:
        """With `slope` a bound on d log L / dz, L(z)^t <= L(end)^t e^(t slope (z - end)), of known expectation."""
        if self.p_inf > 0 or self.q_zero > 0:
            return None
        beyond = []
        for part in self.smooth:
            low, high = part.range_for(log_tail)
            end = float(part.log_ratio(np.array([low if reverse else high]))[0])
            growth = part.log_growth_below if reverse else part.log_growth_above
            beyond.append(order * abs(end) + growth(order * part.slope, low if reverse else high))
        return beyond

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The law that dominates the pair, with cells of equal width."""
        return self.upper_for(resolution, log_tail, None)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The law that is dominated by the pair, with cells of equal width."""
        return self.lower_for(resolution, log_tail, None)

    def upper_for(self, resolution: float, log_tail: float, tilt: float | None) -> Law:
        """Cells are split, what lies beyond them is charged to mass at infinity and at zero."""
        return self._cut(Side.UPPER, resolution, log_tail, tilt)

    def lower_for(self, resolution: float, log_tail: float, tilt: float | None) -> Law:
        """Cells are condensed, what lies beyond them becomes one cell."""
        return self._cut(Side.LOWER, resolution, log_tail, tilt)

    @implements("doroshenko2022:ctd")
    def _cut(self, side: Side, resolution: float, log_tail: float, tilt: float | None) -> Law:
        """The pair as a law on `side`.

        `resolution`: cell width in units of the observation's scale, or, where a `tilt` is given, the
        root mean square width of a cell in log L in units of its deviation, both under the law
        tilted by L^tilt: cells are then placed where that law needs them. `log_tail`: natural log of
        the tail mass below which a cell may be unbounded.
        """
        if not 0 < resolution <= 1:
            raise InputError(f"Expected resolution in (0, 1], got resolution={resolution}.")
        build = _split if side is Side.UPPER else _condense
        each = _shared_out(self.smooth, resolution, log_tail, tilt)
        cells = [_cells(part, own, log_tail, tilt) for part, own in zip(self.smooth, each, strict=True)]
        pieces = [build(part, cut) for part, cut in zip(self.smooth, cells, strict=True)]
        ratio = [piece.log_ratio for piece in pieces]
        log_p, log_q = [piece.log_p for piece in pieces], [piece.log_q for piece in pieces]
        if self.atom_log_p:
            atoms_p, atoms_q = np.array(self.atom_log_p), np.array(self.atom_log_q)
            ratio.append(atoms_p - atoms_q)
            log_p.append(atoms_p)
            log_q.append(atoms_q)
        merged = np.concatenate(ratio)
        order = np.argsort(merged, kind="stable")
        biggest = float(np.max(np.abs(merged), initial=0.0))
        deepest = max(float(np.max(np.abs(masses), initial=0.0)) for masses in (*log_p, *log_q))
        share = max((part.share_error for part in self.smooth), default=0.0)
        return Law(
            merged[order],
            np.concatenate(log_p)[order],
            np.concatenate(log_q)[order],
            side,
            p_inf=min(1.0, self.p_inf + math.fsum(piece.p_inf for piece in pieces)),
            q_zero=min(1.0, self.q_zero + math.fsum(piece.q_zero for piece in pieces)),
            # A log density of size m went through three roundings of 1.1e-16 m, a log mass through one.
            mass_error=max([ATOM_ROUNDING] + [piece.mass_error for piece in pieces]) + 4.5e-16 * deepest + share,
            shift_error=self._shift_error(biggest, log_tail) if self.smooth or side is Side.UPPER else 0.0,
            whole=side is Side.LOWER and self._one_smooth_part and pieces[0].size == len(cells[0].ends) + 1,
        )

    @property
    def _one_smooth_part(self) -> bool:
        """Whether one smooth part is all there is; then its cells, the two tails included, hold all mass."""
        return len(self.smooth) == 1 and not self.atom_log_p and self.p_inf == self.q_zero == 0.0

    def _shift_error(self, biggest: float, log_tail: float) -> float:
        """log L may be a difference of two logs that are larger than it: of weights, down to 1e-12."""
        known = [part.ratio_error(*part.range_for(log_tail)) for part in self.smooth if part.ratio_error is not None]
        every = len(known) == len(self.smooth) > 0 and not self.atom_log_p
        usual = 8e-16 * (30.0 + biggest) + 2.0 * max((part.share_error for part in self.smooth), default=0.0)
        return min(usual, max(known)) if every else usual


@dataclass(frozen=True)
class _Cells:
    """Cell ends, quadrature points (cells x nodes), logs of their weights, relative error of the masses."""

    ends: FloatArray
    points: FloatArray
    log_weights: FloatArray
    error: float


def _log_quadrature_error(part: SmoothPart, low: float, high: float, half_width: float, nodes: int) -> float:
    """Log of the relative error bound of cell integrals with the given half width, best over a few ellipses.

    On the ellipse around a cell, at most half_width rho away from it, the densities grow as `growth` says; the hat
    function adds a factor rho. A factor 64 covers the smallest ratio of a hat integral to the maximum of
    its integrand.
    """
    log_decay = (2.0 * nodes - 1.0) * np.log(_RHO)
    return math.log(64.0) + float(np.min(part.growth(low, high, half_width * _RHO) - log_decay))


def _widest_cell(part: SmoothPart, low: float, high: float, nodes: int) -> float:
    """The largest cell width whose quadrature error is negligible."""
    width = min(0.25 * part.scale, high - low)
    while _log_quadrature_error(part, low, high, 0.5 * width, nodes) > math.log(0.5 * _CELL_ERROR):
        width *= 0.8
        if width < 1e-6 * part.scale:
            raise CertificationError(
                "The quadrature error of a cell cannot be made negligible: densities vary too fast."
            )
    return width


def _widest_cells(part: SmoothPart, low: float, high: float, nodes: int) -> _Widest:
    """The largest width at every place whose quadrature error is negligible.

    A wide part is steep as a whole and less so in most places: log |density| at a distance `reach` of a cell, in the
    complex plane, exceeds that in the cell by at most the steepest slope within `reach`, times it, and reach^2.
    """
    widest = _widest_cell(part, low, high, nodes)
    if part.steepest is None:
        return _Widest(np.array([low, high]), np.array([widest]))
    edges = np.linspace(low, high, max(2, math.ceil((high - low) / (_SEGMENT * part.scale))) + 1)
    margin = (_NEAR + 0.25) * part.scale
    slopes = part.steepest(edges[:-1] - margin, edges[1:] + margin)[:, None]
    log_decay, allowed = (2.0 * nodes - 1.0) * np.log(_RHO), math.log(0.5 * _CELL_ERROR) - math.log(64.0)
    widths = np.full(len(slopes), 0.25 * part.scale)
    while True:
        reach = 0.5 * widths[:, None] * _RHO
        grown = np.where(reach <= _NEAR * part.scale, slopes * reach + reach * reach, np.inf) - log_decay
        wide = (np.min(grown, axis=1) > allowed) & (widths > widest)
        if not np.any(wide):
            break
        widths = np.where(wide, np.maximum(0.8 * widths, widest), widths)
    # A cell may lie in two neighboring segments, and is as narrow as either wants it.
    padded = np.concatenate((widths[:1], widths, widths[-1:]))
    return _Widest(edges, np.minimum(np.minimum(padded[:-2], padded[2:]), widths))


class _Widest(NamedTuple):
    """The largest width of a cell in each of several segments."""

    edges: FloatArray
    widths: FloatArray

    def at(self, z: FloatArray) -> FloatArray:
        """The width at each place."""
        index = np.clip(np.searchsorted(self.edges, z, side="right") - 1, 0, len(self.widths) - 1)
        return np.asarray(self.widths[index])


def _ends(part: SmoothPart, resolution: float, log_tail: float, tilt: float | None, nodes: int) -> FloatArray:
    low, high = part.range_for(log_tail)
    widest = _widest_cells(part, low, high, nodes)
    if tilt is not None:
        return _placed_ends(part, low, high, widest, resolution, tilt)
    if len(widest.widths) == 1:
        count = max(8, math.ceil((high - low) / min(resolution * part.scale, float(widest.widths[0]))))
        return np.linspace(low, high, count + 1)
    density = 1.0 / np.minimum(resolution * part.scale, widest.widths)
    total = np.concatenate(([0.0], np.cumsum(density * np.diff(widest.edges))))
    ends = np.interp(np.linspace(0.0, total[-1], math.ceil(total[-1]) + 1), total, widest.edges)
    ends[0], ends[-1] = low, high
    return np.asarray(ends)


def _cells(part: SmoothPart, resolution: float, log_tail: float, tilt: float | None) -> _Cells:
    rule = 12 if resolution > 0.02 else 6
    ends = _ends(part, resolution, log_tail, tilt, rule)
    while rule in _MANY_CELLS and len(ends) > _MANY_CELLS[rule]:
        wider = _ends(part, resolution, log_tail, tilt, 2 * rule)
        if 2 * len(wider) >= len(ends):
            break
        rule, ends = 2 * rule, wider
    nodes, weights = _RULES[rule]
    half = 0.5 * np.diff(ends)[:, None]
    points = 0.5 * (ends[:-1] + ends[1:])[:, None] + half * nodes
    return _Cells(ends, points, np.log(weights * half), _CELL_ERROR)


class _Tilted(NamedTuple):
    """A part tilted by L^tilt on a rough grid: ends; masses and slopes of log L of cells; variance; log of its mass."""

    grid: FloatArray
    w: FloatArray
    slope: FloatArray
    variance: float
    log_mass: float


def _tilted(part: SmoothPart, low: float, high: float, tilt: float) -> _Tilted:
    grid = np.linspace(low, high, max(64, math.ceil(4.0 * (high - low) / part.scale)) + 1)
    x = part.log_ratio(grid)
    middle = 0.5 * (x[:-1] + x[1:])
    log_w = part.log_q(0.5 * (grid[:-1] + grid[1:])) + tilt * middle
    peak, spacing = float(log_w.max()), float(grid[1] - grid[0])
    w = np.exp(log_w - peak)
    total = float(w.sum())
    w /= total
    mean = float(np.sum(w * middle))
    variance = float(np.sum(w * (middle - mean) ** 2)) + float(np.sum(w * np.diff(x) ** 2)) / 12.0
    return _Tilted(grid, w, np.diff(x) / spacing, variance, peak + math.log(total * spacing))


def _shared_out(parts: Sequence[SmoothPart], resolution: float, log_tail: float, tilt: float | None) -> list[float]:
    """A resolution for every part: rare ones are coarser, as much as keeps the mean square width of all cells.

    A part that has a share s of the tilted law gets about s^(1/3) as many cells, as one density of cells over all parts
    would give it.
    """
    if tilt is None or len(parts) < 2:
        return [resolution] * len(parts)
    found = [_tilted(part, *part.range_for(log_tail), tilt) for part in parts]
    logs = np.array([each.log_mass for each in found])
    shares, variances = np.exp(logs - logs.max()), np.array([each.variance for each in found])
    shares = np.maximum(shares / shares.sum(), _LEAST_SHARE)
    scale = math.sqrt(float(shares @ variances) / float(np.cbrt(shares) @ variances))
    return [float(own) for own in np.minimum(1.0, resolution * scale / np.cbrt(shares))]


def _placed_ends(
    part: SmoothPart, low: float, high: float, widest: _Widest, resolution: float, tilt: float
) -> FloatArray:
    """Cell ends for which the tilted mean square cell width in log L is (resolution * deviation)^2.

    Among all placements with n(z) cells per unit length the cost is the integral of w (dx/dz)^2 / n^2,
    w the tilted density and x = log L; for a given number of cells it is least when n is
    proportional to (w (dx/dz)^2)^(1/3).
    """
    grid, w, slope, variance, _ = _tilted(part, low, high, tilt)
    spacing = grid[1] - grid[0]
    shape = np.cbrt(w * slope * slope / spacing)
    # With n = a shape the cost is the sum of w slope^2 / (a shape)^2, and w slope^2 = spacing shape^3.
    amount = math.sqrt(spacing * float(np.sum(shape)) / (resolution * resolution * variance))
    fewest = 1.0 / widest.at(0.5 * (grid[:-1] + grid[1:]))
    density = np.maximum(amount * shape, fewest)
    total = np.concatenate(([0.0], np.cumsum(density) * spacing))
    count = math.ceil(total[-1])
    if count > _MOST_CELLS:  # fewer cells are wider ones: still a bound, only less tight
        share = max(0.0, _MOST_CELLS - float(np.sum(fewest)) * spacing) / count
        density = np.maximum(share * amount * shape, fewest)
        total = np.concatenate(([0.0], np.cumsum(density) * spacing))
        count = math.ceil(total[-1])
    ends = np.interp(np.linspace(0.0, total[-1], count + 1), total, grid)
    ends[0], ends[-1] = low, high
    return ends


def _distinct(values: FloatArray) -> IntArray:
    """Indices of values that differ visibly: where log L saturates, neighbors merge into one node.

    A small rate saturates near log(1 - rate), and faint steps are told by what happens there: so visibility is measured
    by that value, not by the farthest one.
    """
    spread = float(values[-1] - values[0])
    if not spread > 0.0:
        raise CertificationError("The likelihood ratio is constant to working precision: nothing to discretize.")
    smallest = max(1e-9 * min(spread, 100.0 * float(np.min(np.abs(values[[0, -1]])))), 1e-300)
    # Steps of 1 in this number are steps of about smallest + 1e-13 |value| in the value.
    numbers = np.sign(values) * np.log1p(1e-13 * np.abs(values) / smallest) / 1e-13
    keep = np.flatnonzero(np.diff(np.floor(numbers), prepend=-np.inf) > 0)
    if keep[-1] != len(values) - 1:
        keep[-1] = len(values) - 1
    if len(keep) < 2:
        raise CertificationError("The likelihood ratio is constant to working precision: nothing to discretize.")
    return keep.astype(np.int64)


def _split(part: SmoothPart, cells: _Cells) -> Law:
    """The UPPER atoms of a smooth part: cells split onto their ends, tails onto 0 and infinity."""
    ends, points, log_weights = cells.ends, cells.points, cells.log_weights
    at_ends = part.log_ratio(ends)
    if np.any(np.diff(at_ends) < -1e-12 * (1.0 + np.abs(at_ends[1:]))):
        raise CertificationError("The likelihood ratio of a smooth part does not increase with its observation.")
    at_ends = np.maximum.accumulate(at_ends)
    keep = _distinct(at_ends)
    nodes = at_ends[keep]
    cell_low = np.searchsorted(keep, np.arange(len(points)), side="right") - 1
    a, b = nodes[cell_low][:, None], nodes[cell_low + 1][:, None]
    ratio = np.clip(part.log_ratio(points), a, b)  # equal up to rounding, which shift_error covers
    log_mass = part.log_q(points) + log_weights
    peak = log_mass.max(axis=1)
    mass = np.exp(log_mass - peak[:, None])
    width = -np.expm1(a - b)
    short = -np.expm1(ratio - b)  # (e^b - e^x) / e^b
    share_down = short / width
    # (e^x - e^a) / (e^b - e^a), where e^(x - b) = 1 - short keeps its digits unless the cell is very wide
    relative = 1.0 - short if float(np.max(b - a)) < 1.0 else np.exp(ratio - b)
    share_up = relative * -np.expm1(a - ratio) / width
    up, down = (mass * share_up).sum(axis=1), (mass * share_down).sum(axis=1)
    # Cells keep[i] .. keep[i+1]-1 lie between nodes i and i+1.
    group_peak = np.maximum.reduceat(peak, keep[:-1])
    rescale = np.exp(peak - group_peak[cell_low])
    log_q = np.full(len(nodes), -np.inf)
    with np.errstate(divide="ignore"):
        log_q[1:] = group_peak + np.log(np.add.reduceat(up * rescale, keep[:-1]))
        log_q[:-1] = np.logaddexp(log_q[:-1], group_peak + np.log(np.add.reduceat(down * rescale, keep[:-1])))
    # Beyond the last end: Q-mass stays at the end node, P-mass is charged to infinity; mirrored below.
    log_q[-1] = np.logaddexp(log_q[-1], part.log_q_above(float(ends[-1])))
    log_q[0] = np.logaddexp(log_q[0], part.log_p_below(float(ends[0])) - nodes[0])
    return Law.dominating(
        nodes,
        log_q,
        p_inf=math.exp(part.log_p_above(float(ends[-1]))),
        q_zero=math.exp(part.log_q_below(float(ends[0]))),
        mass_error=cells.error,
    )


def _condense(part: SmoothPart, cells: _Cells) -> Law:
    """The LOWER atoms of a smooth part: one per cell, the two tails included as cells."""
    ends, points, log_weights = cells.ends, cells.points, cells.log_weights
    log_q = row_logsumexp(part.log_q(points) + log_weights)
    log_p = row_logsumexp(part.log_p(points) + log_weights)
    tail_p = np.array([part.log_p_below(float(ends[0])), part.log_p_above(float(ends[-1]))])
    tail_q = np.array([part.log_q_below(float(ends[0])), part.log_q_above(float(ends[-1]))])
    log_p = np.concatenate((tail_p[:1], log_p, tail_p[1:]))
    log_q = np.concatenate((tail_q[:1], log_q, tail_q[1:]))
    present = np.isfinite(log_p) & np.isfinite(log_q)
    log_p, log_q = log_p[present], log_q[present]
    order = np.argsort(log_p - log_q, kind="stable")
    return Law((log_p - log_q)[order], log_p[order], log_q[order], Side.LOWER, mass_error=cells.error)
