"""What one Gaussian release pays, in closed forms: stop-loss transforms of one record's term, and convex hulls."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from calipers.numerics.types import FloatArray
from calipers.pld.allocation.worst_case_term import WorstCaseTerm

Vertices = tuple[FloatArray, FloatArray]
"""Places and values of a convex function, linear between them."""


def _substituted(term: WorstCaseTerm) -> bool:
    return term.farthest_shift <= 1.5 * term.width


def gradient_width(term: WorstCaseTerm) -> float:
    """The largest norm of a gradient, in units of the noise."""
    return 0.5 * term.width if _substituted(term) else term.width


def stop_losses_of_release(term: WorstCaseTerm, per: FloatArray) -> Vertices:
    """At least E[(X - c)+] and E[(-X - c)+] for every c > 0, X the record's term where nobody else makes room."""
    k, width = math.exp(term.epsilon), gradient_width(term)
    if _substituted(term):
        below, above = opposed(width, 1.0, k, per), opposed(width, k, 1.0, per)
    elif term.left[1] > term.right[0]:  # zeroed out against present: A is the ratio without the record
        below, above = exchanged(width, 1.0 - per, k), exchanged(width, k, 1.0 + per)
    else:
        below, above = exchanged(width, 1.0, k + per), exchanged(width, k - per, 1.0)
    return below, above


def opposed(width: float, first: float, second: float, thresholds: FloatArray) -> FloatArray:
    """At least E[(first A - second B - c)+] for c > 0 and ratios of two opposite shifts of this size."""
    half = 0.5 * thresholds * math.exp(0.5 * width * width) / first
    z = np.log(half + np.sqrt(half * half + second / first)) / width
    part = first * ndtr(width - z)
    found = part - second * ndtr(-width - z) - thresholds * ndtr(-z) + 1e-13 * part
    return np.asarray(np.maximum(found, 0.0))


def exchanged(width: float, first: FloatArray | float, second: FloatArray | float) -> FloatArray:
    """At least E[(first A - second B)+] for ratios A, B of a Gaussian release of this shift; 0 where first <= 0."""
    some = np.maximum(first, 1e-300)
    middle = (np.log(some) - np.log(second)) / width
    part = some * ndtr(0.5 * width + middle)
    found = part - second * ndtr(middle - 0.5 * width) + 1e-13 * part
    return np.asarray(np.where(np.asarray(first) > 0.0, np.maximum(found, 0.0), 0.0))


def lower_hull(places: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The points below which no convex function through lower values at all places can rise."""
    kept: list[tuple[float, float]] = []
    for x, y in zip(places.tolist(), values.tolist(), strict=True):
        while len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2], kept[-1]
            if (by - ay) * (x - ax) < (y - ay) * (bx - ax):
                break
            kept.pop()
        kept.append((x, y))
    found = np.array(kept)
    return found[:, 0], found[:, 1]
