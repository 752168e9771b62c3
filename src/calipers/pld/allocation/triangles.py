"""Replaced records: every triangle that an adversary can make of the record, its replacement and the displaced record.

x, x' and the displaced y lie in one ball of radius r (in units of the noise), and a round contributes X = A - k B of
the shifts a = x - y and b = x' - y. docs/theory/shuffling.md (section 8) shows that in convex order every such
X lies below one whose three points lie on a great circle and whose triangle contains the center: with two angles
0 <= phi <= psi <= pi/2,

    |a| = 2 r cos phi,      |b| = 2 r sin psi,      |a - b| = 2 r cos(psi - phi).

All others may share y, so every one of them is a real adversary's. phi = psi is the edge on which x' is opposite to x;
the best choices lie at or near its two ends, at which y agrees with x' or with x.

`cells` covers the triangle of angles by rectangles that grow with the distance from that edge. A rectangle
[phi_0, phi_1] x [psi_0, psi_1] lies, with width = 2 r cos(max(psi_0 - phi_1, 0)), below the lengths

    |a| = 2 r cos phi_0,  |b| = max(2 r sin psi_0, ||a| - width|)   for c >= 0,
    |b| = 2 r sin psi_1,  |a| = max(2 r cos phi_1, ||b| - width|)   for c <= 0.
"""

from __future__ import annotations

import math

from calipers.pld.allocation.frontier import Cell

_DENSER = 1.2
"""Angles are this power of equally spaced ones, from either end: denser there, where the best choices lie."""

Rectangle = tuple[int, int, int, int]
"""First and last phi, first and last psi, by number."""


def cells(largest: float, angles: int) -> list[Cell]:
    """Cells that cover all triangles.

    Args:
        largest: The diameter of the ball, 2 r.
        angles: How many intervals of either angle there are next to the edge.

    Returns:
        Every triple in the ball has a term that lies below one of them.
    """
    half = [0.25 * math.pi * (2.0 * i / angles) ** _DENSER for i in range(angles // 2 + 1)]
    places = half + [0.5 * math.pi - angle for angle in reversed(half[: (angles + 1) // 2])]
    return [_cell(largest, [places[end] for end in rectangle]) for rectangle in _triangle(0, angles)]


def _cell(largest: float, ends: list[float]) -> Cell:
    phi_0, phi_1, psi_0, psi_1 = ends
    width = largest * math.cos(max(0.0, psi_0 - phi_1))
    far_a, far_b = largest * math.cos(phi_0), largest * math.sin(psi_1)
    near_b = max(largest * math.sin(psi_0), abs(far_a - width))
    near_a = max(largest * math.cos(phi_1), abs(far_b - width))
    return Cell((far_a, near_b), (near_a, far_b), width)


def _triangle(first: int, last: int) -> list[Rectangle]:
    """phi <= psi between two ends: both halves, and what is phi in the first and psi in the second one."""
    if last - first == 1:
        return [(first, last, first, last)]
    middle = (first + last) // 2
    return _triangle(first, middle) + _triangle(middle, last) + _corner(first, middle, last)


def _corner(first: int, middle: int, last: int) -> list[Rectangle]:
    """phi before and psi after the middle: a smaller one next to the edge, and what is left in parts."""
    if last - first == 2:
        return [(first, middle, middle, last)]
    low, high = (first + middle) // 2, -(-(middle + last) // 2)
    left, right = _halves(first, low), _halves(high, last)
    found = _corner(low, middle, high)
    for phis, psis in ((left, _halves(middle, high)), (_halves(low, middle), right), (left, right)):
        found += [(*phi, *psi) for phi in phis for psi in psis]
    return found


def _halves(first: int, last: int) -> list[tuple[int, int]]:
    """An interval in two parts, or in as many as it has."""
    middle = (first + last) // 2
    return [(low, high) for low, high in ((first, middle), (middle, last)) if low < high]
