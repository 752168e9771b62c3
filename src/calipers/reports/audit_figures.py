"""The curve that an audit found, next to the proof about the run that the target is said to be.

The attack's curve holds as a whole with the confidence of the audit; what is read off it at one place (an error rate, a
delta) holds there. The proof is about the run described: where the attack crosses it, the target is another run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.numerics.decimals import ceil_digits, setting
from calipers.reports.document import Figure, Table
from calipers.reports.points import PROFILE_POINTS
from calipers.reports.views import ATTACK, PROOF, Values, View, fit_label, low_rates_view, profile_view, tradeoff_view

if TYPE_CHECKING:
    from calipers.auditing.audit import AuditResult
    from calipers.measure import Measurement
    from calipers.reports.answers import Answers

Described = tuple["Measurement", "Answers"] | None
"""The measurement of the run described and its answers, where a run was described."""

SMALLEST_DELTA = 1e-6
LARGEST_EPSILON = 50.0


_WORDS = (
    (
        "Trade-off curve of the attack",
        "The false negative rate that the attack is shown to reach, at most, at each false positive rate; the whole "
        "curve holds at once: with the audit's confidence the true one of the implementation is nowhere larger. ",
    ),
    (
        "Low false positive rates",
        "The true positive rate that the attack is shown to reach, at least, at each false positive rate. ",
    ),
    (
        "Privacy profile",
        "delta at each epsilon: what the attack shows, at least. The whole curve holds at once, so at one epsilon it "
        "may show less than the row of 'What it shows', whose confidence is its own. A proof is read off one curve "
        "here, and computed for the epsilon of the row there, so the two may differ in the last digits; both hold.",
    ),
)
"""Title of each view, and how to read it; what is listed by false positive rates ends with `lowest_counted`."""


def curve_figures(result: AuditResult, described: Described) -> tuple[Figure, ...]:
    """Error rates on even axes, low rates, and the profile as far as the proof or the attack reaches down."""
    curves = [result.band.curve] if described is None else [described[0].curve(Side.UPPER), result.band.curve]
    ends = [curve.epsilon(SMALLEST_DELTA) for curve in curves]
    last = max([end for end in ends if 0.0 < end < math.inf], default=1.0)
    grid = np.linspace(0.0, min(last, LARGEST_EPSILON), PROFILE_POINTS)
    views = (tradeoff_view(), low_rates_view(), profile_view(grid, SMALLEST_DELTA))
    return tuple(
        _figure(view, result, described, title, how if view.name == "profile" else how + lowest_counted(result))
        for view, (title, how) in zip(views, _WORDS, strict=True)
    )


def lowest_counted(result: AuditResult) -> str:
    """From which false positive rate on the attack's curve rests on a threshold, and what it is below."""
    curve = result.band.curve
    counted = curve.alpha[(curve.alpha > 0.0) & (curve.alpha + curve.beta < 1.0)]
    if not counted.size:
        return "No threshold was shown to do better than guessing, so each row is what guessing reaches."
    return (
        "The lowest false positive rate at which this curve rests on a threshold of its own is "
        f"{ceil_digits(float(counted.min()), 2)}; a row below it lies on the straight line from there to 0, where a "
        "coin decides whether that threshold is used."
    )


def attacker_table(result: AuditResult, described: Described) -> Table:
    """True positive rates at the usual false positive rates: what the attack reaches, what the proof allows."""
    view = low_rates_view()
    sure = f"the attack finds {view.says('attack')} (confidence {setting(result.confidence)})"
    columns = [view.bound("attack", sure, view.read(result.band.curve))]
    if described is not None:
        proof = view.read(described[0].curve(Side.UPPER))
        columns.append(view.bound("proof", "the proof of the run described allows", proof))
    return view.table("True positive rate of an attacker", columns)


def _attack(view: View, result: AuditResult) -> Values:
    """What is read off the attack's curve; its false negative rates are at most those of guessing."""
    read = view.read(result.band.curve)
    if view.name != "tradeoff":
        return read
    # 1 - rate, as printed: the double next to it may lie above (1 - 0.1), and be rounded up.
    return lambda rates: np.minimum(read(rates), np.nextafter(1.0 - rates, 0.0))


def _figure(view: View, result: AuditResult, described: Described, title: str, description: str) -> Figure:
    """Proof and attack and the Gaussian fit of the proof, as lines and as columns; without a run the attack alone."""
    attack, confidence = _attack(view, result), f"confidence {setting(result.confidence)}"
    lines = [view.line(f"{ATTACK}, {confidence}", "attack", attack)]
    columns = [view.bound("attack", f"{view.says('attack')} (attack, {confidence})", attack)]
    if described is not None:
        measurement, answers = described
        proof, fit = view.read(measurement.curve(Side.UPPER)), view.fit(answers)
        lines.insert(0, view.line(f"{PROOF} of the run described", "proof", proof))
        columns.append(view.bound("proof", f"{view.says('proof')} (proof of the run described)", proof))
        if fit is not None:
            lines.append(view.line(f"{fit_label(answers)} of that proof", "fit", fit))
    return view.figure(title, description, lines, columns)
