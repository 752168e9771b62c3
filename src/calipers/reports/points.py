"""Trade-off curve and privacy profile of a measurement as points, and the points as CSV.

Two sides, the same everywhere. For the trade-off curve beta(alpha), the smallest type II error at
type I error alpha:

    side "upper" (proof):   the true curve lies nowhere below these points,
    side "lower" (attack):  the true curve lies nowhere above them,

and for the profile delta(epsilon) the other way round: the true delta is at most the "upper" and at
least the "lower" one. In both, "upper" bounds the leakage from above.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.errors import UnsupportedError
from calipers.numerics.types import FloatArray

if TYPE_CHECKING:
    from calipers.curves.envelope import Envelope
    from calipers.measure import Measurement

PROFILE_POINTS = 81
# The profile is drawn down to the first of these at which epsilon has a finite upper bound.
PROFILE_DEPTHS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)


@dataclass(frozen=True)
class PlottedSide:
    """One side of one curve, from left to right."""

    side: Side
    x: tuple[float, ...]
    y: tuple[float, ...]


def tradeoff_points(measurement: Measurement, sides: Sequence[Side]) -> list[PlottedSide]:
    """Points (alpha, beta) between which the best attack in either order is linear, for each side up to alpha = 1."""
    return [_breakpoints(side, measurement.envelope(side)) for side in sides]


def _breakpoints(side: Side, envelope: Envelope) -> PlottedSide:
    places, rates = envelope.breakpoints()
    # Rounding may let beta rise in its last digit: lowered (UPPER) or raised (LOWER) to what a curve can be.
    falling = np.minimum.accumulate(rates) if side is Side.UPPER else np.maximum.accumulate(rates[::-1])[::-1]
    alpha, beta = places.tolist(), falling.tolist()
    if alpha[-1] < 1:
        # The curve has reached beta = 0 and stays there.
        alpha.append(1.0)
        beta.append(0.0)
    return PlottedSide(side, tuple(alpha), tuple(beta))


def profile_points(
    measurement: Measurement, sides: Sequence[Side], epsilons: Sequence[float] = ()
) -> list[PlottedSide]:
    """(epsilon, delta) of each side at the epsilons given, or on an even grid from 0.

    Epsilons that are given are measured one by one. The grid is read off the two trade-off curves, which hold just
    as well and are a little wider: a curve costs what a few such measurements cost.
    """
    if epsilons:
        given = tuple(sorted(epsilons))
        brackets = [measurement.delta(epsilon) for epsilon in given]
        ends = {Side.UPPER: [b.upper for b in brackets], Side.LOWER: [b.lower for b in brackets]}
        return [PlottedSide(side, given, tuple(ends[side])) for side in sides]
    grid, _ = profile_grid(measurement)
    values = ((side, measurement.curve(side).delta(grid)) for side in sides)
    return [PlottedSide(side, tuple(map(float, grid)), tuple(map(float, delta))) for side, delta in values]


def profile_grid(measurement: Measurement) -> tuple[FloatArray, float]:
    """Even steps from 0 to the upper epsilon at the smallest depth where that is finite, and that depth."""
    proven = measurement.curve(Side.UPPER)
    for depth in PROFILE_DEPTHS:
        last = proven.epsilon(depth)
        if math.isfinite(last):
            # An epsilon of 0 at that depth still leaves a profile worth seeing near 0.
            return np.linspace(0.0, last if last > 0 else 1.0, PROFILE_POINTS), depth
    raise UnsupportedError("No finite epsilon is proven at any delta up to 0.01; name the epsilons to evaluate.")


def to_csv(points: Sequence[PlottedSide], x_name: str, y_name: str) -> str:
    """One row per point, the doubles written so that reading them back gives the same doubles."""
    rows = ((curve.side.value, x, y) for curve in points for x, y in zip(curve.x, curve.y, strict=True))
    return csv_text(("side", x_name, y_name), rows)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated text; numbers with all their digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()
