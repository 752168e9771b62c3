"""Pictures as data: axes, lines and intervals, before anything is drawn.

Two kinds of picture are enough. A `Chart` has two axes, linear or logarithmic, and broken lines through points that
are bounds at their own abscissa (between two points the line is only a line). `Intervals` are brackets on one
logarithmic or linear axis, one row each, with the attack at the left end, the proof at the right, and marks for claims
and targets.

A role says what a line is, never how it looks: "proof", "attack", "fit", "claim", "guess", or "run-1" to "run-6".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.errors import InputError
from calipers.numerics.decimals import setting

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
# Ends closer to 0 than this are 0 to every reader, and to the arithmetic of a scale.
SMALLEST_SPAN = 1e-280


@dataclass(frozen=True)
class Axis:
    """A scale from `low` to `high`; `logarithmic` needs low > 0."""

    label: str
    low: float
    high: float
    logarithmic: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(f"Expected a finite axis with low < high, got {self.low} and {self.high}.")
        if self.logarithmic and self.low <= 0:
            raise InputError(f"Expected a logarithmic axis above 0, got low={self.low}.")

    def place(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high end; outside for values beyond them."""
        if not self.logarithmic:
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)

    def holds(self, value: float) -> bool:
        """Whether the value has a place on this axis at all."""
        return math.isfinite(value) and (value > 0 or not self.logarithmic)

    def share(self, value: float) -> float:
        """The same for every value; beyond the ends of the axis, the end."""
        share = self.place(value) if self.holds(value) else (1.0 if value > 0 else 0.0)
        return min(max(share, 0.0), 1.0)

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """At most `most` + 1 round values with their labels."""
        return _decades(self.low, self.high, most) if self.logarithmic else _even(self.low, self.high, most)


def _decades(low: float, high: float, most: int) -> list[tuple[float, str]]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first <= 2:
        # Few powers of ten: 1, 2 and 5 times them, or 1 and 5 times where those are too many.
        for digits in ((1, 2, 5), (1, 5)):
            values = [m * 10.0**e for e in range(first - 1, last + 1) for m in digits]
            inside = [(v, setting(v)) for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
            if len(inside) <= most + 1:
                return inside
    stride = math.ceil((last - first) / most)
    return [(10.0**e, setting(10.0**e)) for e in range(last, first - 1, -stride)][::-1]


def _even(low: float, high: float, most: int) -> list[tuple[float, str]]:
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * s for s in _STEPS if unit * s >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(i * step, setting(i * step)) for i in range(first, last + 1)]


@dataclass(frozen=True)
class Line:
    """A broken line with a name for the legend."""

    label: str
    role: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Lines on two axes. `between` names the two lines (by index) that enclose the truth."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    between: tuple[int, int] | None = None


@dataclass(frozen=True)
class Interval:
    """One bracket; at an infinite upper end, off the axis, stands `unbounded`. `marks` are (label, role, value).

    An end that is what somebody stated is written as `stated`.
    """

    label: str
    lower: float
    upper: float
    marks: tuple[tuple[str, str, float], ...] = ()
    unbounded: str = "no finite upper bound"
    stated: float | None = None


@dataclass(frozen=True)
class Intervals:
    """Brackets on a common axis, one row each."""

    name: str
    title: str
    description: str
    axis: Axis
    rows: tuple[Interval, ...]


def axis_for(label: str, rows: tuple[Interval, ...]) -> Axis:
    """An axis that holds every finite end and mark: logarithmic where they differ by more than a factor of 4.

    It spans twelve powers of ten at most; what is smaller lies at its left end.
    """
    values = [v for row in rows for v in (row.lower, row.upper, *(m[2] for m in row.marks)) if math.isfinite(v)]
    largest, smallest = max(values, default=0.0), min(values, default=0.0)
    if largest <= SMALLEST_SPAN:
        return Axis(label, 0.0, 1.0)
    if 0 < smallest < largest / 4:
        low = max(smallest * 0.8, largest * 1e-12)
        return Axis(label, _below(low), _above(largest * 1.25), logarithmic=True)
    return Axis(label, 0.0, 1.15 * largest)


def _below(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is at most value."""
    unit = 10.0 ** math.floor(math.log10(value))
    return max(m * unit for m in (0.5, 1.0, 2.0, 5.0) if m * unit <= value * (1 + 1e-12))


def _above(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return min(m * unit for m in (1.0, 2.0, 5.0, 10.0) if m * unit >= value * (1 - 1e-12))
