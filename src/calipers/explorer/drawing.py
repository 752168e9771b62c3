"""Numbers and curves as the page shows them.

The page prints and draws; it computes nothing that is a bound. So the rounding is done here, lower ends down and upper
ends up, next to the exact double that the page shows on request. A curve is drawn through points at which both bounds
are read off the certified curves: at those points, and only there, the page gives exact values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.reports.answers import Answers
from calipers.reports.comparison import SMALLEST_SHOWN
from calipers.reports.document import Number, at_most, ends
from calipers.reports.evidence import evidence_rows
from calipers.reports.paragraph import printed_regret, report_this
from calipers.reports.readings import Reading
from calipers.reports.records import measurement_record
from calipers.reports.sections import run_file
from calipers.reports.standing import verdict
from calipers.reports.words import describe_phases

if TYPE_CHECKING:
    from collections.abc import Callable

    from calipers.measure import Measurement
    from calipers.numerics.types import FloatArray

DrawnRecord = dict[str, object]

# False positive rates at which trade-off curves are read: even ones for the eye, small ones for what matters.
EVEN_POINTS = 161
SMALL_POINTS = 80
PROFILE_POINTS = 161
SMALLEST_RATE = 1e-6
LOW_POINTS = 97
TIP_DIGITS = 3


def page_record(measurement: Measurement, answers: Answers) -> DrawnRecord:
    """Everything the page needs about one run: the record of the command line, and how to show it."""
    return {
        "measurement": measurement_record(answers),
        "verdict": verdict(answers, measurement.tolerance),
        "report_this": report_this(answers),
        "words": describe_phases(answers.runs),
        "toml": run_file(answers.runs),
        "rows": rows(answers),
        "evidence": licenses(answers),
        "curves": {
            "tradeoff": tradeoff(measurement),
            "low_rates": low_rates(measurement),
            "profile": profile(measurement),
        },
    }


def rows(answers: Answers) -> list[DrawnRecord]:
    """One row per reading: shown ends are rounded outward, exact ones are the doubles themselves."""
    found = [_row(reading) for reading in answers.readings]
    found.append({"kind": "regret", "quantity": "regret of that mu", "upper": _end(at_most(printed_regret(answers)))})
    return found


def _row(reading: Reading) -> DrawnRecord:
    """A reading; refuted only where the claim is about the same neighbors as the run."""
    lower, upper = map(_end, ends(reading.bracket))
    row: DrawnRecord = {"kind": reading.quantity, "quantity": reading.name, "lower": lower, "upper": upper}
    if reading.claim is None:
        return row
    return {**row, "claim": _end(at_most(reading.claim)), "refuted": reading.refuted}


def _end(number: Number) -> DrawnRecord:
    return {"shown": number.text, "exact": number.exact}


def licenses(answers: Answers) -> list[DrawnRecord]:
    """Each piece of evidence once, with the ends it proves or shows."""
    return [row._asdict() for row in evidence_rows(answers.evidence().items())]


def tradeoff(measurement: Measurement) -> DrawnRecord:
    """beta at common values of alpha: the true curve lies nowhere below "upper" and nowhere above "lower"."""
    even = np.linspace(0.0, 1.0, EVEN_POINTS)
    small = np.geomspace(SMALLEST_RATE, even[1], SMALL_POINTS)
    alpha: FloatArray = np.unique(np.concatenate([even, small]))
    return _drawn("alpha", alpha, lambda side: measurement.envelope(side)(alpha), Side.UPPER)


def low_rates(measurement: Measurement) -> DrawnRecord:
    """True positive rates where false alarms are rare: the attack reaches "lower", no attack exceeds "upper"."""
    rates: FloatArray = np.geomspace(SMALLEST_RATE, 1.0, LOW_POINTS)
    return _drawn("fpr", rates, lambda side: measurement.envelope(side).rates(rates)[1], Side.LOWER)


def _drawn(name: str, places: FloatArray, read: Callable[[Side], FloatArray], at_least: Side) -> DrawnRecord:
    """A curve, with its values as a tooltip prints them: those of the side `at_least` rounded down, the others up."""
    found = {side: [float(value) for value in read(side)] for side in Side}
    rounded = {side: floor_digits if side is at_least else ceil_digits for side in Side}
    shown = {side.value: [rounded[side](value, TIP_DIGITS) for value in values] for side, values in found.items()}
    sides = {side.value: values for side, values in found.items()}
    return {name: [float(place) for place in places], **sides, "shown": shown}


def profile(measurement: Measurement) -> DrawnRecord:
    """delta at common values of epsilon, lower <= delta(epsilon) <= upper, down to `SMALLEST_SHOWN`.

    Where no finite epsilon is proven at that delta, the attack alone says how far to look.
    """
    curves = {side: measurement.curve(side) for side in Side}
    ends = [curves[side].epsilon(SMALLEST_SHOWN) for side in (Side.UPPER, Side.LOWER)]
    last = next((end for end in ends if 0.0 < end < math.inf), 1.0)
    # Denser towards 0: the profile of a well hidden record is over long before that of a known one.
    grid: FloatArray = last * np.linspace(0.0, 1.0, PROFILE_POINTS) ** 1.5
    return _drawn("epsilon", grid, lambda side: curves[side].delta(grid), Side.LOWER)
