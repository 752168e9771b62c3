"""From a measurement to its figures: trade-off curve, low false positive rates, profile, bracket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Bracket, Side
from calipers.errors import UnsupportedError
from calipers.phases import comparable
from calipers.reports.answers import Answers
from calipers.reports.chart import Interval, Intervals, Line, axis_for
from calipers.reports.document import Cell, Figure, Table, at_least, at_most, ends
from calipers.reports.points import PROFILE_DEPTHS, profile_grid
from calipers.reports.readings import Reading
from calipers.reports.views import ATTACK, PROOF, Values, View, fit_label, low_rates_view, profile_view, tradeoff_view

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.numerics.types import FloatArray

ENDS = ("at least (attack)", "at most (proof)")

_BETWEEN = (
    "At least: what an explicit attack shows. At most: what is proven. The best guarantee that holds for all data lies "
    "between the two."
)
_SIDES = (Side.UPPER, Side.LOWER)
_WORDS = {
    "tradeoff": (
        "Trade-off curve",
        "The smallest false negative rate of any attack at each false positive rate. It is at least that of the "
        "proof and at most that of the attack. The closer to guessing (1 minus the false positive rate), the more "
        "private.",
    ),
    "low-rates": (
        "Low false positive rates",
        "The largest true positive rate of any attack at each false positive rate. It is at least that of the "
        "attack and at most that of the proof. The closer to guessing (the false positive rate itself), the more "
        "private.",
    ),
    "profile": (
        "Privacy profile",
        "delta at each epsilon. It is at least that of the attack and at most that of the proof. The smaller, the "
        "more private.",
    ),
}


def rate_figures(measurement: Measurement, answers: Answers) -> tuple[Figure, Figure]:
    """The trade-off curve on even axes, and where privacy is lost or kept: true positive rates, both axes in logs."""
    curves = [measurement.envelope(side) for side in _SIDES]
    even, low = tradeoff_view(), low_rates_view()
    return _figure(even, [*map(even.read, curves)], answers), _figure(low, [*map(low.read, curves)], answers)


def profile_figure(measurement: Measurement, answers: Answers, *, with_claim: bool = True) -> Figure | None:
    """delta against epsilon down to the smallest depth with a finite proof; None where there is none.

    The claim is a measurement of its own; whoever needs the two bounds alone leaves it out.
    """
    try:
        view = profile_view(*profile_grid(measurement))
    except UnsupportedError:
        return None
    claims = []
    if with_claim and comparable(answers.runs):
        claimed = measurement.claim.proof.curve(min(PROFILE_DEPTHS) * 0.01, measurement.tolerance)
        claims.append(view.line("standard accounting (Poisson, undivided sum)", "claim", claimed.delta))
    # delta at epsilon 0 is the advantage, which the table of all numbers has: one quantity, one bracket.
    at_zero = (answers.advantage.upper, answers.advantage.lower)
    bounds = [_from(measurement.curve(side).delta, end) for side, end in zip(_SIDES, at_zero, strict=True)]
    if answers.stated is not None and answers.stated.number("mu") is not None:  # closed forms, at every epsilon
        bounds = [_one_by_one(measurement, side) for side in _SIDES]
    return _figure(view, bounds, answers, claims)


def _from(values: Values, at_zero: float) -> Values:
    """The same from another first value on."""
    return lambda places: np.where(places == 0.0, at_zero, values(places))


def _one_by_one(measurement: Measurement, side: Side) -> Values:
    """delta measured at each epsilon."""

    def read(places: FloatArray) -> FloatArray:
        brackets = [measurement.delta(float(epsilon)) for epsilon in places]
        return np.array([found.upper if side is Side.UPPER else found.lower for found in brackets])

    return read


def _figure(view: View, bounds: Sequence[Values], answers: Answers, others: Sequence[Line] = ()) -> Figure:
    """Proof and attack with what lies between them, the Gaussian fit, and others."""
    proof, attack = bounds
    lines = [view.line(PROOF, "proof", proof), view.line(ATTACK, "attack", attack)]
    named = (("proof", proof), ("attack", attack))
    columns = view.both(*(view.bound(which, f"{view.says(which)} ({which})", values) for which, values in named))
    if (fit := view.fit(answers)) is not None:
        lines.append(view.line(fit_label(answers), "fit", fit))
        sign = "-" if view.proof_below else "+"
        columns.append(view.bound("proof", f"mu-GDP bound ({sign} delta0)", fit))
    return view.figure(*_WORDS[view.name], [*lines, *others], columns, between=(0, 1))


def bracket_figure(answers: Answers) -> Figure:
    """Epsilon at every delta asked for, or mu, as a pair of bounds with the claim of standard accounting as a
    diamond.
    """
    readings: tuple[Reading, ...] = answers.epsilon or (answers.leading,)
    shown = comparable(answers.runs)
    rows = tuple(
        Interval(
            reading.name,
            reading.bracket.lower,
            reading.bracket.upper,
            (("standard accounting", "claim", reading.claim),) if shown and reading.claim is not None else (),
        )
        for reading in readings
    )
    title = readings[0].name if len(readings) == 1 else "epsilon"
    cells = tuple((r.name, *ends(r.bracket), "" if r.claim is None else at_most(r.claim)) for r in readings)
    return interval_figure("bracket", title, rows, cells, ("quantity", *ENDS, "standard accounting"))


def target_figure(quantity: str, achieved: Bracket, target: float) -> Figure:
    """What a calibration achieves next to its target."""
    rows = (Interval(quantity, achieved.lower, achieved.upper, (("target", "claim", target),)),)
    return interval_figure("target", quantity, rows)


def comparison_figure(names: Sequence[str], answers: Sequence[Answers], position: int) -> Figure:
    """Epsilon of several runs at one delta, one pair of bounds each."""
    compared = [found.epsilon[position] for found in answers]
    brackets = zip(names, (row.bracket for row in compared), strict=True)
    rows = tuple(Interval(name, bracket.lower, bracket.upper) for name, bracket in brackets)
    return interval_figure(f"epsilon-{position + 1}", compared[0].name, rows, columns=("run", *ENDS))


def interval_figure(
    name: str,
    title: str,
    rows: tuple[Interval, ...],
    cells: tuple[tuple[Cell, ...], ...] = (),
    columns: tuple[str, ...] = ("quantity", *ENDS),
    description: str = _BETWEEN,
) -> Figure:
    """Pairs of bounds on one axis, with the table that says the same: both ends of each, where no other is given."""
    picture = Intervals(name, title, description, axis_for(title.partition(" at ")[0], rows), rows)
    both = tuple((row.label, at_least(row.lower), at_most(row.upper)) for row in rows)
    return Figure(picture, Table(title, columns, cells or both))
