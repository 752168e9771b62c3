"""Pictures as inline SVG: shapes with classes, colored by the style sheet of the page around them.

Every picture has a title and a description for readers who do not see it, ids made from its own name so that several
pictures live on one page, and no color of its own: light, dark and paper are the style sheet's business. Bounds differ
in color, in dash and in the shape at their ends, so no reader depends on color alone.
"""

from __future__ import annotations

import math
from html import escape

from calipers.numerics.decimals import claim_digits, end_digits
from calipers.reports.chart import Axis, Chart, Interval, Intervals, Line

WIDTH, HEIGHT = 420, 330
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 12, 48
ROW, ARROW = 84, 7
# About how wide a letter of the labels is, to keep labels inside the picture.
LETTER = 6.6


def draw(picture: Chart | Intervals) -> str:
    """One <svg> element."""
    return _chart(picture) if isinstance(picture, Chart) else _intervals(picture)


def swatch(role: str) -> str:
    """A short sample of a line for a legend."""
    return _swatch(10, f'<line class="line {escape(role)}" x1="1" y1="5" x2="29" y2="5"/>')


def mark_swatch(role: str) -> str:
    """A sample of a bound, or of a mark, for the legend of intervals."""
    shapes = {"attack": "M19 1V15l-7 -4v-6z", "proof": "M11 1V15l7 -4v-6z"}
    kind = "jaw" if role in shapes else "mark"
    return _swatch(16, f'<path class="{kind} {escape(role)}" d="{shapes.get(role, "M15 0l6 8l-6 8l-6 -8z")}"/>')


def _swatch(height: int, shape: str) -> str:
    """Decoration, since the label next to it says what it is."""
    size = f'viewBox="0 0 30 {height}" width="30" height="{height}"'
    return f'<svg class="swatch" {size} aria-hidden="true">{shape}</svg>'


def _opened(name: str, title: str, description: str, height: float) -> str:
    key = escape(name)
    return (
        f'<svg class="picture" role="img" viewBox="0 0 {WIDTH} {_number(height)}" '
        f'aria-labelledby="{key}-title {key}-desc">'
        f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-desc">{escape(description)}</desc>'
    )


def _chart(chart: Chart) -> str:
    key = escape(chart.name)
    parts = [
        _opened(chart.name, chart.title, chart.description, HEIGHT),
        f'<clipPath id="{key}-clip"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>',
        *_grid(chart),
        f'<g clip-path="url(#{key}-clip)">',
    ]
    if chart.between is not None:
        first, second = (chart.lines[i] for i in chart.between)
        outline = [*_points(chart, first), *reversed(_points(chart, second))]
        parts.append(f'<polygon class="truth" points="{_joined(outline)}"/>')
    for line in chart.lines:
        parts.append(f'<polyline class="line {escape(line.role)}" points="{_joined(_points(chart, line))}"/>')
    parts.append("</g></svg>")
    return "".join(parts)


def _across(axis: Axis, value: float) -> float:
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def _up(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)


def _points(chart: Chart, line: Line) -> list[tuple[float, float]]:
    """Where the line runs; a value with no place on a logarithmic axis has no point."""
    return [
        (_across(chart.x, x), _up(chart.y, y))
        for x, y in zip(line.x, line.y, strict=True)
        if chart.x.holds(x) and chart.y.holds(y)
    ]


def _grid(chart: Chart) -> list[str]:
    bottom, parts = HEIGHT - BOTTOM, []
    for value, label in chart.x.ticks():
        x = _number(_across(chart.x, value))
        parts.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 17}" text-anchor="middle">{label}</text>')
    for value, label in chart.y.ticks():
        y = _up(chart.y, value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{_number(y)}" x2="{WIDTH - RIGHT}" y2="{_number(y)}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{_number(y + 4)}" text-anchor="end">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    height = (TOP + bottom) / 2
    parts += [
        f'<text class="axis" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x.label)}</text>',
        f'<text class="axis" transform="translate(12 {height}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y.label)}</text>",
    ]
    return parts


def _intervals(picture: Intervals) -> str:
    # A single row is named by the caption.
    named = len(picture.rows) > 1
    each = ROW if named else ROW - 22
    top, height = 6, each * len(picture.rows) + 52
    bottom = height - 44
    parts = [_opened(picture.name, picture.title, picture.description, height)]
    for value, label in picture.axis.ticks():
        x = _number(_along(picture.axis, value))
        parts.append(f'<line class="grid" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    for number, row in enumerate(picture.rows):
        parts += _interval(picture.axis, row, top + each * number, named=named)
    parts.append(
        f'<text class="axis" x="{WIDTH / 2}" y="{height - 8}" text-anchor="middle">{escape(picture.axis.label)}</text>'
    )
    return "".join([*parts, "</svg>"])


def _along(axis: Axis, value: float) -> float:
    """The place of a value on the axis of the intervals; beyond its ends, the end."""
    return 16 + axis.share(value) * (WIDTH - 32)


def _interval(axis: Axis, row: Interval, top: float, *, named: bool) -> list[str]:
    """A beam between two bounds, the row's name above it. Bounds open towards each other, like those of calipers."""
    low, high, y = _along(axis, row.lower), _along(axis, row.upper), top + (54 if named else 32)
    upper, lower = _number(y - 11), _number(y + 11)
    parts = [
        f'<line class="beam" x1="{_number(low)}" y1="{_number(y)}" x2="{_number(high)}" y2="{_number(y)}"/>',
        f'<path class="jaw attack" d="M{_number(low)} {upper}V{lower}l{-ARROW} -7v-8z"/>',
    ]
    if math.isfinite(row.upper):
        parts.append(f'<path class="jaw proof" d="M{_number(high)} {upper}V{lower}l{ARROW} -7v-8z"/>')
    if named:
        parts.append(f'<text class="row" x="16" y="{_number(top + 17)}">{escape(_short(row.label))}</text>')
    parts += _bound_numbers(row, low, high, y - 16)
    for _, role, value in row.marks:
        if axis.holds(value):
            x, text = _along(axis, value), claim_digits(value)
            room = len(text) * LETTER / 2
            middle = _number(min(max(x, 16 + room), WIDTH - 16 - room))
            parts.append(f'<path class="mark {escape(role)}" d="M{_number(x)} {_number(y - 8)}l6 8l-6 8l-6 -8z"/>')
            parts.append(f'<text class="tick" x="{middle}" y="{_number(y + 24)}" text-anchor="middle">{text}</text>')
    return parts


def _bound_numbers(row: Interval, low: float, high: float, y: float) -> list[str]:
    """What the bounds say, above them: the attack's number ends at its bound, the proof's begins at its own."""
    lower, upper = end_digits(row.lower, row.upper, row.stated)
    left = f"≥ {lower}"
    right = f"≤ {upper}" if math.isfinite(row.upper) else row.unbounded
    begin = min(max(high, 16 + len(left) * LETTER + 8), WIDTH - 16 - len(right) * LETTER)
    end = max(min(low, begin - 8), 16 + len(left) * LETTER)
    # At the edge it ends there, however wide its letters are.
    edge = begin < high
    place = f'x="{WIDTH - 4}" text-anchor="end"' if edge else f'x="{_number(begin)}"'
    return [
        f'<text class="row attack" x="{_number(end)}" y="{_number(y)}" text-anchor="end">{left}</text>',
        f'<text class="row proof" {place} y="{_number(y)}">{right}</text>',
    ]


def _short(label: str) -> str:
    most = int((WIDTH - 32) / LETTER)
    return label if len(label) <= most else "…" + label[-(most - 1) :]


def _joined(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    """A coordinate with a hundredth of a unit: finer than any screen."""
    rounded = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if rounded in ("-0", "") else rounded
