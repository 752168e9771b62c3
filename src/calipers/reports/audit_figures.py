"""The curve that an audit found, beside the proof about the run that the target is said to be.

The attack's curve holds as a whole with the confidence of the audit; what is read off it at one place (an error rate, a
delta) holds there. The proof is about the run described: where the attack crosses it, the target is another run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.reports.chart import Axis, Chart, Line
from calipers.reports.document import Cell, Figure, Number, Table, at_least, at_most, nearest
from calipers.reports.figures import (
    ATTACK,
    LOW_RATES,
    LOWEST_RATE,
    PROOF,
    TABLE_POINTS,
    TABLE_RATES,
    even_rates,
    fit_label,
    fitted_delta,
    fitted_misses,
    fitted_power,
    line_of,
    low_rates,
    power_of,
    rounded_values,
)
from calipers.reports.format import setting
from calipers.reports.points import PROFILE_POINTS

if TYPE_CHECKING:
    from calipers.auditing.audit import AuditResult
    from calipers.curves.tradeoff import TradeoffCurve
    from calipers.measure import Measurement
    from calipers.numerics.types import FloatArray
    from calipers.reports.answers import Answers
    from calipers.reports.figures import Values

Rounded = Callable[[float], Number]
Described = tuple["Measurement", "Answers"] | None
"""The measurement of the run described and its answers, where a run was described."""

SMALLEST_DELTA = 1e-6
LARGEST_EPSILON = 50.0


def tradeoff_figure(result: AuditResult, described: Described) -> Figure:
    """False negative against false positive rate, on even axes."""
    lines, names, columns = _read(
        result, described, even_rates(), np.array(TABLE_RATES), (lambda curve: curve, fitted_misses), at_most, at_least
    )
    chart = Chart(
        "tradeoff",
        "Trade-off curve of the attack",
        "The false negative rate that the attack is shown to reach, at most, at each false positive rate; the whole "
        "curve holds at once. The true curve of the implementation lies on or below it.",
        Axis("false positive rate", 0.0, 1.0),
        Axis("false negative rate", 0.0, 1.0),
        (*lines, Line("perfect privacy", "guess", (0.0, 1.0), (1.0, 0.0))),
    )
    return Figure(chart, _table("False negative rate", "false positive rate", np.array(TABLE_RATES), names, columns))


def low_rates_figure(result: AuditResult, described: Described) -> Figure:
    """The same where false alarms are rare: true positive rates, both axes logarithmic."""
    lines, names, columns = _read(
        result, described, low_rates(), np.array(LOW_RATES), (power_of, fitted_power), at_least, at_most
    )
    chart = Chart(
        "low-rates",
        "Low false positive rates",
        "The true positive rate that the attack is shown to reach, at least, both axes logarithmic. Far below one "
        "false alarm in all trials that were played an audit has nothing to count.",
        Axis("false positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        Axis("true positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        (*lines, Line("guessing", "guess", (LOWEST_RATE, 1.0), (LOWEST_RATE, 1.0))),
    )
    return Figure(chart, _table("True positive rate", "false positive rate", np.array(LOW_RATES), names, columns))


def profile_figure(result: AuditResult, described: Described) -> Figure:
    """delta against epsilon, as far as the proof or the attack reaches down."""
    curves = [result.band.curve] if described is None else [described[0].curve(Side.UPPER), result.band.curve]
    ends = [curve.epsilon(SMALLEST_DELTA) for curve in curves]
    last = max([end for end in ends if 0.0 < end < math.inf], default=1.0)
    grid = np.linspace(0.0, min(last, LARGEST_EPSILON), PROFILE_POINTS)
    at = grid[:: (PROFILE_POINTS - 1) // (TABLE_POINTS - 1)]
    read = (lambda curve: curve.delta, fitted_delta)
    lines, names, columns = _read(result, described, grid, at, read, at_least, at_most)
    chart = Chart(
        "profile",
        "Privacy profile",
        "delta at each epsilon, logarithmic: what the attack shows, at least.",
        Axis("epsilon", 0.0, float(grid[-1])),
        Axis("delta", SMALLEST_DELTA, 1.0, logarithmic=True),
        tuple(lines),
    )
    return Figure(chart, _table("delta", "epsilon", at, names, columns))


def attacker_table(result: AuditResult, described: Described) -> Table:
    """True positive rates at the usual false positive rates: what the attack reaches, what the proof allows."""
    at = np.array(LOW_RATES)
    sure = f"the attack finds at least (confidence {setting(result.confidence)})"
    names, columns = [sure], [rounded_values(power_of(result.band.curve)(at), at_least)]
    if described is not None:
        names.append("the proof of the run described allows")
        columns.append(rounded_values(power_of(described[0].curve(Side.UPPER))(at), at_most))
    return _table("True positive rate of an attacker", "false positive rate", at, names, columns)


def _read(
    result: AuditResult,
    described: Described,
    drawn: FloatArray,
    listed: FloatArray,
    values: tuple[Callable[[TradeoffCurve], Values], Callable[[Answers], Values | None]],
    of_attack: Rounded,
    of_proof: Rounded,
) -> tuple[list[Line], list[str], list[list[Number]]]:
    """Proof and attack and the Gaussian fit of the proof, as lines and as columns; without a run the attack alone."""
    read, fitted = values
    attack = read(result.band.curve)
    confidence = f"confidence {setting(result.confidence)}"
    lines = [line_of(f"{ATTACK}, {confidence}", "attack", drawn, attack)]
    names = [f"{of_attack(0.0).direction} (attack, {confidence})"]
    columns = [rounded_values(attack(listed), of_attack)]
    if described is None:
        return lines, names, columns
    measurement, answers = described
    proof, fit = read(measurement.curve(Side.UPPER)), fitted(answers)
    lines.insert(0, line_of(f"{PROOF} of the run described", "proof", drawn, proof))
    names.append(f"{of_proof(0.0).direction} (proof of the run described)")
    columns.append(rounded_values(proof(listed), of_proof))
    if fit is not None:
        lines.append(line_of(f"{fit_label(answers)} of that proof", "fit", drawn, fit))
    return lines, names, columns


def _table(caption: str, first: str, at: FloatArray, names: list[str], columns: list[list[Number]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (nearest(float(place)), *row) for place, row in zip(at, zip(*columns, strict=True), strict=True)
    ]
    return Table(caption, (first, *names), tuple(rows))
