"""Every choice that an adversary has in one round, and variables that dominate a whole cell of choices.

Relative to a run in which the record is nowhere, round t contributes X = A - k B with

    A = exp(<a, z> - |a|^2/2),      B = exp(<b, z> - |b|^2/2),      z standard normal,

and the adversary chooses the shifts a, b within bounds (`calipers.pld.allocation.worst_case_term`). Section 8 of
docs/theory/shuffling.md shows that with a record zeroed out, in convex order, every X lies below one on a curve with a
single parameter, the *control* tau = |a|^2 - |b|^2 (replaced records: `calipers.pld.allocation.triangles`):

    |a - b| = rho,      |a|^2 = min(a_max^2, b_max^2 + tau),      |b|^2 = |a|^2 - tau,

and that along it E[(X - c)+] grows with tau for c >= 0 and falls for c <= 0. So a *cell* of controls [tau_1, tau_2] is
dominated by the variable that is distributed as X at tau_2 on (0, inf), as X at tau_1 on (-inf, 0), and is 0 else.

In coordinates along a - b and across it X is a product of independent factors,

    X = Y W,      W = e^(p x - p^2/2) - k e^(q x - q^2/2),      Y = e^(s y - s^2/2),

p = (tau + rho^2) / (2 rho), q = p - rho, s^2 = |a|^2 - p^2. `placed` puts a cell on a grid from above and
without quadrature: between two points at which its ends are known each factor is split onto these points, mean
preserved, and masses and means are differences of normal distribution functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

_REACH = 9.0
"""Observations beyond it, counted from the farthest mean, are added to the upper bound: they hold 1e-18 of E[A]."""
_ROUNDING = 2e-14
"""Of one term's first moment, in units of 1 + k. E[(W - v)+] at a point v telescopes to three normal distribution
functions there, and three more where tails change, for each sign, and twice where W turns: 16 (1 + k) at most, and 4 of
Y; each errs by 3e-16. The points themselves err by 64 roundings of their factors."""
_SLACK = 1.0 + 1e-9
"""Covers the rounding of a sum of non-negative numbers, one for every atom."""
_ACROSS = 12
"""Points across are so many times fewer than those along. Atoms are summed in as many parts as there are points across:
a sum of n non-negative numbers errs by a share of n roundings at most."""
_CENTERED = 3.0
"""Points across are sinh-spaced: 3.3 times as dense at 0, where most of the mass is, as equally spaced ones."""


@dataclass(frozen=True)
class GridTerm:
    """Masses at low, low + 1, ... steps of a grid.

    `excess`: at least the mean of what exceeds the last place, where its mass is. `error_term`: what every use of them
    adds to an increasing function of slope at most one.
    """

    low: int
    masses: FloatArray
    excess: float
    error_term: float


@dataclass(frozen=True)
class Cell:
    """A set of choices, by lengths (|a|, |b|) that are the worst for c >= 0 (right) and for c <= 0 (left).

    `width`: the largest |a - b|, with which both are taken.
    """

    right: tuple[float, float]
    left: tuple[float, float]
    width: float


def control_range(term: WorstCaseTerm) -> tuple[float, float]:
    """The least and the largest control: the worst ones for c <= 0 and for c >= 0."""
    (right_a, right_b), (left_a, left_b) = term.right, term.left
    return left_a**2 - left_b**2, right_a**2 - right_b**2


def cell_on_grid(
    term: WorstCaseTerm, controls: tuple[float, float], offset: float, step: float, ends: tuple[int, int], points: int
) -> GridTerm:
    """As `placed`, for the controls of a zeroed-out record between two."""
    low, high = (_lengths(term, tau) for tau in controls)
    return placed(Cell(high, low, term.width), term.epsilon, offset, step, ends, points)


def _lengths(term: WorstCaseTerm, tau: float) -> tuple[float, float]:
    """|a| and |b| of a control."""
    a_max, b_max = max(term.right[0], term.left[0]), max(term.right[1], term.left[1])
    square = min(a_max**2, b_max**2 + tau)
    return math.sqrt(max(0.0, square)), math.sqrt(max(0.0, square - tau))


def placed(cell: Cell, epsilon: float, offset: float, step: float, ends: tuple[int, int], points: int) -> GridTerm:
    """X + offset on a grid, for a variable X above all terms of the cell.

    Args:
        cell: The choices to lie above.
        epsilon: Of k = e^epsilon.
        offset: Added to the term.
        step: Of the grid.
        ends: The first and the last place. What is below the first is raised to it; of what exceeds the last the
            mean is known.
        points: Along a - b; across it a twelfth as many are used.

    Returns:
        Masses whose convex increasing functions of slope at most one have, with the excess and the error term, at least
        the mean of every term of the cell.
    """
    losses, loss_masses, clipped = _atoms(cell.left, cell.width, epsilon, -1.0, points)
    gains, gain_masses, clipped_too = _atoms(cell.right, cell.width, epsilon, 1.0, points)
    others = max(0.0, 1.0 - float(loss_masses.sum()) - float(gain_masses.sum()))
    values = (np.concatenate((losses, gains, [0.0])) + offset) / step
    masses = np.concatenate((loss_masses, gain_masses, [others]))
    low, high = ends
    excess = _SLACK * step * float(masses @ np.maximum(values - high, 0.0))
    values = np.clip(values, low, high)
    index = np.minimum(np.floor(values).astype(np.intp), high - 1)
    up, size, parts = masses * (values - index), high - low + 1, points // _ACROSS
    index += np.arange(len(index)) % parts * size - low
    split = np.bincount(index, masses - up, parts * size)
    split[1:] += np.bincount(index, up, parts * size)[:-1]
    out, most = split.reshape(parts, size).sum(axis=0), int(np.bincount(index).max())
    # Masses add up to one below, so a share of each that rounding takes moves means by that share of E|X + offset|.
    spread = 4.0 * UNIT_ROUNDOFF * (most + parts) * (step * float(masses @ np.abs(values)) + abs(offset) / parts)
    beyond = 2.0 * float(ndtr(-_REACH))  # E[A] beyond either reach, as the other factor's mean is 1
    error_term = beyond + clipped + clipped_too + spread + _ROUNDING * (1.0 + math.exp(epsilon))
    return GridTerm(low, np.maximum(out, 0.0) / math.fsum(out), excess, error_term)


def _atoms(
    lengths: tuple[float, float], rho: float, epsilon: float, sign: float, points: int
) -> tuple[FloatArray, FloatArray, float]:
    """Atoms above the positive (sign 1) or negative part of a term, and what rounding clipped of it."""
    a, b = lengths
    p = (a * a - b * b + rho * rho) / (2.0 * rho)
    s = math.sqrt(max(0.0, a * a - p * p))
    along, along_masses, clipped = _along(p, p - rho, epsilon, sign, points)
    across, across_masses, clipped_too = _across(s, points // _ACROSS)
    clipped += (1.0 + math.exp(epsilon)) * clipped_too
    return np.outer(along, across).ravel(), np.outer(along_masses, across_masses).ravel(), clipped


def _along(p: float, q: float, epsilon: float, sign: float, points: int) -> tuple[FloatArray, FloatArray, float]:
    """W where it has this sign: between points where it is monotone, split onto its values there."""
    root = (epsilon + 0.5 * (p * p - q * q)) / (p - q)
    marks = [root] if p * q <= 0.0 else [root, root + math.log(q / p) / (p - q)]
    ends = min(q, 0.0) - _REACH, max(p, 0.0) + _REACH
    marks = [mark for mark in marks if ends[0] < mark < ends[1]]
    x = np.unique(np.concatenate((np.linspace(*ends, points + 1), marks)))
    x = x[x >= root] if sign > 0 else x[x <= root]
    if len(x) < 2:
        return np.zeros(1), np.zeros(1), 0.0
    with_a, with_b = np.exp(p * x - 0.5 * p * p), np.exp(q * x - 0.5 * q * q + epsilon)
    values = np.where(x == root, 0.0, with_a - with_b)
    moments = _between(x - p) - math.exp(epsilon) * _between(x - q)
    return values, *_split(values, _between(x), moments)


def _across(s: float, points: int) -> tuple[FloatArray, FloatArray, float]:
    """Y, split onto points from 0 to where it is cut."""
    if s < 1e-6:
        return np.ones(1), np.ones(1), 0.0
    t = np.linspace(-_CENTERED, _CENTERED, points + 1)
    end = s + _REACH
    y = np.concatenate(([-np.inf], end / math.sinh(_CENTERED) * np.sinh(t)))
    values = np.concatenate(([0.0], np.exp(s * y[1:] - 0.5 * s * s)))
    masses, clipped = _split(values, _between(y), _between(y - s))
    masses[-1] += float(ndtr(-end))
    return values, masses, clipped


def _between(points: FloatArray) -> FloatArray:
    """Normal probabilities between consecutive points, taken in the tail that is small."""
    low, high = points[:-1], points[1:]
    return np.asarray(np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


def _split(values: FloatArray, masses: FloatArray, moments: FloatArray) -> tuple[FloatArray, float]:
    """Masses at the points, for which each interval keeps its mass and its mean, and what this moves means by."""
    gaps = np.diff(values)
    exact = np.where(gaps == 0.0, 0.0, (moments - values[:-1] * masses) / np.where(gaps == 0.0, 1.0, gaps))
    up = np.clip(exact, 0.0, masses)
    found = np.zeros(len(values))
    found[1:] += up
    found[:-1] += masses - up
    return found, float(np.abs(gaps) @ np.abs(exact - up))
