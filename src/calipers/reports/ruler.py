"""A ruler in text: one beam per bracket, bounds with their numbers, the claim below, a scale.

    epsilon at delta = 1e-5
                                        at least 11.45 ▶◀ at most 11.801
    ├─────────┼───────────────◇────────────────────────▶◀──────────┤
    1         2     claim 2.3797, refuted                         20

The bounds stand where the numbers are, to a column; when both fall into one column the right one moves by one. Numbers
are rounded outward, like everywhere.
"""

from __future__ import annotations

import math

from calipers.numerics.decimals import claim_digits, end_digits
from calipers.reports.chart import Axis, Interval, Intervals

INDENT = 2


def ruler(picture: Intervals, width: int) -> list[str]:
    """The rows one below the other, then the scale they share."""
    beam = max(width - 2 * INDENT, 30)
    several = len(picture.rows) > 1
    lines = [
        f"{' ' * INDENT}{picture.title}, logarithmic" if picture.axis.logarithmic else " " * INDENT + picture.title
    ]
    for row in picture.rows:
        lines += [f"{' ' * INDENT}{text}" for text in _row(picture.axis, row, beam, named=several)]
    return [*lines, " " * INDENT + _scale(picture.axis, beam)]


def _column(axis: Axis, value: float, beam: int) -> int:
    """The column of a value; beyond the ends of the axis, the end."""
    return round(axis.share(value) * (beam - 1))


def _row(axis: Axis, row: Interval, beam: int, *, named: bool) -> list[str]:
    low = min(_column(axis, row.lower, beam), beam - 2)
    finite = math.isfinite(row.upper)
    high = max(_column(axis, row.upper, beam), low + 1) if finite else beam - 1
    cells = ["─"] * beam
    for value, _ in axis.ticks():
        cells[_column(axis, value, beam)] = "┼"
    cells[low + 1 : high] = "━" * (high - low - 1)
    marks = [(f"{label} {claim_digits(value)}", value) for label, _, value in row.marks if axis.holds(value)]
    for _, value in marks:
        cells[_column(axis, value, beam)] = "◇"
    cells[low], cells[high] = "▶", "◀" if finite else "▷"
    lower, upper = end_digits(row.lower, row.upper, row.stated)
    left = f"at least {lower}" if math.isfinite(row.lower) else "infinite"
    right = f"at most {upper}" if finite else row.unbounded
    lines = [row.label] if named else []
    lines.append(_placed(left, right, low, high, beam))
    lines.append("".join(cells))
    lines += [_pointed(label, _column(axis, value, beam), beam) for label, value in marks]
    return [line.rstrip() for line in lines]


def _placed(left: str, right: str, low: int, high: int, beam: int) -> str:
    """Each number above its bound, outside the bracket where there is room, else both as near as they go."""
    start = max(0, low + 1 - len(left))
    after = max(high, start + len(left) + 1)
    overhang = after + len(right) - beam
    if overhang > 0:
        after -= overhang
        start = max(0, min(start, after - len(left) - 1))
    return " " * start + left + " " * max(1, after - start - len(left)) + right


def _pointed(label: str, column: int, beam: int) -> str:
    """A label below its mark, to the right of it if it fits."""
    if column + 2 + len(label) <= beam:
        return f"{' ' * column}◇ {label}"
    return f"{label} ◇".rjust(column + 1)


def _scale(axis: Axis, beam: int) -> str:
    """The labels of the ticks; those that would touch their neighbor are left out."""
    text = ""
    for value, label in axis.ticks():
        start = max(0, min(_column(axis, value, beam) - len(label) // 2, beam - len(label)))
        if not text or start > len(text):
            text = text.ljust(start) + label
    return text
