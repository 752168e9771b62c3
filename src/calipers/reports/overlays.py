"""The curves of several runs in one picture: a color each, the proof drawn through, the attack dashed.

Every value is a bound at its own place, as in the figures of a single run; see `calipers.reports.figures`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.reports.chart import Axis, Chart, Line
from calipers.reports.comparison import SMALLEST_SHOWN, profiles
from calipers.reports.document import Figure, Number, at_least, at_most
from calipers.reports.figures import (
    LOW_RATES,
    LOWEST_RATE,
    TABLE_POINTS,
    TABLE_RATES,
    even_rates,
    line_of,
    low_rates,
    power_of,
    rounded_values,
    table_of,
)

if TYPE_CHECKING:
    from calipers.curves.envelope import Envelope
    from calipers.measure import Measurement
    from calipers.numerics.types import FloatArray
    from calipers.reports.figures import Values

PROOF_FIRST = ((Side.UPPER, at_least), (Side.LOWER, at_most))
"""False negative rates: the proof is below, the attack above."""
ATTACK_FIRST = ((Side.LOWER, at_least), (Side.UPPER, at_most))
"""True positive rates and delta: the attack is below, the proof above."""
# A profile is computed on a finer grid than a picture needs.
EVERY = 4


def tradeoff_overlay(names: Sequence[str], measurements: Sequence[Measurement]) -> Figure:
    """The trade-off curves on even axes."""
    lines, table = _read(names, measurements, even_rates(), np.array(TABLE_RATES), PROOF_FIRST, lambda curve: curve)
    chart = Chart(
        "tradeoff",
        "Trade-off curves",
        "The smallest false negative rate of any attack at each false positive rate, for every run: its proof, below, "
        "and its attack, above. A run whose proof lies above another run's attack is certainly more private.",
        Axis("false positive rate", 0.0, 1.0),
        Axis("false negative rate", 0.0, 1.0),
        (*lines, Line("perfect privacy", "guess", (0.0, 1.0), (1.0, 0.0))),
    )
    return Figure(chart, table_of("False negative rate", "false positive rate", np.array(TABLE_RATES), *table, None))


def low_rates_overlay(names: Sequence[str], measurements: Sequence[Measurement]) -> Figure:
    """The same curves where privacy is lost or kept, both axes logarithmic."""
    lines, table = _read(names, measurements, low_rates(), np.array(LOW_RATES), ATTACK_FIRST, power_of)
    chart = Chart(
        "low-rates",
        "Low false positive rates",
        "The largest true positive rate of any attack on each run, both axes logarithmic: its attack, below, and its "
        "proof, above. The closer to guessing, the more private.",
        Axis("false positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        Axis("true positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        (*lines, Line("guessing", "guess", (LOWEST_RATE, 1.0), (LOWEST_RATE, 1.0))),
    )
    return Figure(chart, table_of("True positive rate", "false positive rate", np.array(LOW_RATES), *table, None))


def profile_overlay(names: Sequence[str], measurements: Sequence[Measurement]) -> Figure:
    """delta against epsilon, as far as the loosest finite proof reaches."""
    found = profiles(names, measurements)
    grid = np.array(found[0].epsilon[::EVERY])
    step = (len(grid) - 1) // (TABLE_POINTS - 1)
    lines, columns, headings = [], [], []
    for number, one in enumerate(found, start=1):
        low, high = one.lower[::EVERY], one.upper[::EVERY]
        lines.append(Line(f"{one.name}, proof", f"run-{number}", tuple(map(float, grid)), high))
        lines.append(Line(f"{one.name}, attack", f"run-{number} dashed", tuple(map(float, grid)), low))
        columns += [rounded_values(np.array(low[::step]), at_least), rounded_values(np.array(high[::step]), at_most)]
        headings += [f"{one.name}, at least", f"{one.name}, at most"]
    chart = Chart(
        "profile",
        "Privacy profiles",
        "delta at each epsilon, logarithmic, for every run: its attack, below, and its proof, above. The lower, the "
        "more private.",
        Axis("epsilon", 0.0, float(grid[-1])),
        Axis("delta", SMALLEST_SHOWN, 1.0, logarithmic=True),
        tuple(lines),
    )
    return Figure(chart, table_of("delta", "epsilon", grid[::step], headings, columns, None))


def _read(
    names: Sequence[str],
    measurements: Sequence[Measurement],
    drawn: FloatArray,
    listed: FloatArray,
    sides: Sequence[tuple[Side, Callable[[float], Number]]],
    values: Callable[[Envelope], Values],
) -> tuple[list[Line], tuple[list[str], list[list[Number]]]]:
    """Two lines for each run, the proof first, and headings and columns of the table, "at least" first."""
    lines, headings, columns = [], [], []
    for number, (name, measurement) in enumerate(zip(names, measurements, strict=True), start=1):
        upper, lower = (values(measurement.envelope(side)) for side in (Side.UPPER, Side.LOWER))
        lines.append(line_of(f"{name}, proof", f"run-{number}", drawn, upper))
        lines.append(line_of(f"{name}, attack", f"run-{number} dashed", drawn, lower))
        for side, rounded in sides:
            columns.append(rounded_values((upper if side is Side.UPPER else lower)(listed), rounded))
        headings += [f"{name}, at least", f"{name}, at most"]
    return lines, (headings, columns)
