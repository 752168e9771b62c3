"""Where to cut the smooth part of a pair into cells, and the quadrature points of every cell.

Masses are integrals of entire functions by Gauss-Legendre quadrature, whose error on a cell of half width r is at most
(64/15) M rho^(-2m) / (1 - rho^(-2)) with m nodes, M the maximum of the integrand on the Bernstein ellipse of parameter
rho (Trefethen, Approximation Theory and Approximation Practice, Theorem 19.3). Cells are so narrow that it is
negligible, and beyond that as the resolution asks: of equal width, or placed for a tilt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from calipers.errors import CertificationError
from calipers.numerics.types import FloatArray
from calipers.pld.core.smooth_part import SmoothPart

_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (6, 12, 24)}
"""Gauss-Legendre rules: six nodes for narrow cells, twelve where few wide cells will do, more for steep densities."""
_RHO = 2.0 ** np.arange(1.5, 12.1, 0.5)
"""Ellipses on which the integrand is bounded, for the error of a Gauss-Legendre rule: their radii."""
_LOG_RHO = np.log(_RHO)
_MOST_CELLS = 60_000
"""Cells of a step, at most; of more, wide ones are made wider."""
_ALLOWED_CELLS = 500_000
"""More are refused. A step whose means are 4000 deviations apart, an epsilon of millions, needs so many."""
_MANY_CELLS = {6: 4_000, 12: 400}
"""With more cells than this the next rule is tried, in case it is the rule that wants them so narrow."""
CELL_ERROR = 2e-14
"""Relative error of a cell mass: quadrature (half of it), a dozen additions; that of the exponentials comes on top."""


@dataclass(frozen=True)
class Cells:
    """Cell ends, quadrature points (cells x nodes), logs of their weights."""

    ends: FloatArray
    points: FloatArray
    log_weights: FloatArray


def _log_quadrature_error(part: SmoothPart, low: float, high: float, half_width: float, nodes: int) -> float:
    """Log of the relative error bound of cell integrals with the given half width, best over a few ellipses.

    On the ellipse around a cell, at most half_width rho away from it, the densities grow as `growth` says; the hat
    function adds a factor rho. A factor 64 covers the smallest ratio of a hat integral to the maximum of
    its integrand.
    """
    log_decay = (2.0 * nodes - 1.0) * _LOG_RHO
    return math.log(64.0) + float(np.min(part.growth(low, high, half_width * _RHO) - log_decay))


@lru_cache(maxsize=64)
def _widest_cell(part: SmoothPart, low: float, high: float, nodes: int) -> float:
    """The largest cell width whose quadrature error is negligible."""
    width = min(0.25 * part.scale, high - low)
    while _log_quadrature_error(part, low, high, 0.5 * width, nodes) > math.log(0.5 * CELL_ERROR):
        width *= 0.8
        if width < 1e-6 * part.scale:
            raise CertificationError(
                "The quadrature error of a cell cannot be made negligible: densities vary too fast."
            )
    return width


def is_crowded(part: SmoothPart, resolution: float, log_tail: float, tilt: float | None) -> bool:
    """Whether masses alone want so many cells that they lie evenly, whatever resolution and tilt they are cut for."""
    low, high = part.range_for(log_tail)
    widest = _widest_cell(part, low, high, max(_RULES))
    if tilt is None and resolution * part.scale < widest:
        return False
    return (high - low) / widest > _MOST_CELLS


def cells_of(part: SmoothPart, resolution: float, log_tail: float, tilt: float | None) -> Cells:
    """The cells of a part: as fine as the resolution asks, with few points for the accuracy of their masses."""
    low, high = part.range_for(log_tail)
    rule = 12 if resolution > 0.02 else 6
    wanted = max(resolution * part.scale, (high - low) / _ALLOWED_CELLS) if tilt is None else math.inf
    width = min(wanted, _widest_cell(part, low, high, rule))
    while rule in _MANY_CELLS and (high - low) / width > _MANY_CELLS[rule]:
        wider = min(wanted, _widest_cell(part, low, high, 2 * rule))
        if wider <= 2.0 * width:
            break
        rule, width = 2 * rule, wider
    if (high - low) / width > 1.001 * _ALLOWED_CELLS:
        raise CertificationError(
            f"The likelihood ratios reach so far that {(high - low) / width:,.0f} cells would be needed, of which "
            f"{_ALLOWED_CELLS:,} are computed at most: so little noise hides nothing. Use a larger noise_multiplier."
        )
    if tilt is None:
        ends = np.linspace(low, high, max(8, math.ceil((high - low) / width)) + 1)
    else:
        ends = _placed_ends(part, low, high, width, resolution, tilt)
    nodes, weights = _RULES[rule]
    half = 0.5 * np.diff(ends)[:, None]
    points = 0.5 * (ends[:-1] + ends[1:])[:, None] + half * nodes
    return Cells(ends, points, np.log(weights) + np.log(half))


class _Tilted(NamedTuple):
    """A part tilted by L^tilt on a rough grid: ends; masses and slopes of log L of cells; variance."""

    grid: FloatArray
    w: FloatArray
    slope: FloatArray
    variance: float


@lru_cache(maxsize=64)
def _rough_grid(part: SmoothPart, low: float, high: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A rough grid, log L there, and the density of Q between: the same for every tilt."""
    grid = np.linspace(low, high, max(64, math.ceil(4.0 * (high - low) / part.scale)) + 1)
    return grid, part.log_ratio(grid), part.log_q(0.5 * (grid[:-1] + grid[1:]))


def _tilted(part: SmoothPart, low: float, high: float, tilt: float) -> _Tilted:
    grid, x, log_q = _rough_grid(part, low, high)
    middle = 0.5 * (x[:-1] + x[1:])
    log_w = log_q + tilt * middle
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = float(np.sum(w * middle))
    variance = float(np.sum(w * (middle - mean) ** 2)) + float(np.sum(w * np.diff(x) ** 2)) / 12.0
    return _Tilted(grid, w, np.diff(x) / float(grid[1] - grid[0]), variance)


def _placed_ends(
    part: SmoothPart, low: float, high: float, widest: float, resolution: float, tilt: float
) -> FloatArray:
    """Cell ends for which the tilted mean square cell width in log L is (resolution * deviation)^2.

    Among all placements with n(z) cells per unit length the cost is the integral of w (dx/dz)^2 / n^2,
    w the tilted density and x = log L; for a given number of cells it is least when n is
    proportional to (w (dx/dz)^2)^(1/3).
    """
    grid, w, slope, variance = _tilted(part, low, high, tilt)
    spacing = grid[1] - grid[0]
    shape = np.cbrt(w * slope * slope / spacing)
    # With n = a shape the cost is the sum of w slope^2 / (a shape)^2, and w slope^2 = spacing shape^3.
    # Where the tilt leaves no variance, the widest cells are as good as any.
    amount = math.sqrt(spacing * float(np.sum(shape)) / (resolution * resolution * variance)) if variance > 0 else 0.0
    fewest = np.full(len(grid) - 1, 1.0 / widest)
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
