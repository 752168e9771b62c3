"""From a measurement to its figures: trade-off curve, low false positive rates, profile, bracket.

The curves are read at fixed places, and every reading is a bound there. For the false negative rate beta(alpha) the
proof gives "at least" and the attack "at most"; for the true positive rate 1 - beta and for delta(epsilon) it is the
other way round. The Gaussian fit is the curve that (mu, delta0) alone would promise,

    beta(alpha) = (1 - delta0) G_mu(alpha/(1 - delta0)),     delta(eps) = delta0 + (1 - delta0) delta_mu(eps),

with the proven mu, so it never promises more than the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Bracket, Side
from calipers.errors import UnsupportedError
from calipers.numerics.normal import gaussian_delta, gaussian_power, gaussian_tradeoff, normal_tail
from calipers.reports.answers import Answers
from calipers.reports.chart import Axis, Chart, Interval, Intervals, Line, axis_for
from calipers.reports.document import Cell, Figure, Number, Table, at_least, at_most, ends, nearest
from calipers.reports.format import setting
from calipers.reports.points import PROFILE_DEPTHS, PROFILE_POINTS, profile_grid
from calipers.reports.readings import Reading, comparable

if TYPE_CHECKING:
    from calipers.curves.envelope import Envelope
    from calipers.curves.tradeoff import TradeoffCurve
    from calipers.measure import Measurement
    from calipers.numerics.types import FloatArray

PROOF, ATTACK = "upper jaw (proof)", "lower jaw (attack)"
ENDS = ("at least (attack)", "at most (proof)")
LOWEST_RATE = 1e-5
RATE_POINTS = 101
TABLE_RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
LOW_RATES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)
TABLE_POINTS = 9

Values = Callable[["FloatArray"], "FloatArray"]


def even_rates() -> FloatArray:
    """False positive rates for even axes: normal quantiles, evenly spaced, dense where the curve bends."""
    return np.concatenate(([0.0], normal_tail(np.linspace(4.5, -4.5, RATE_POINTS)), [1.0]))


def low_rates() -> FloatArray:
    """False positive rates for logarithmic axes."""
    return np.logspace(math.log10(LOWEST_RATE), 0.0, RATE_POINTS)


def tradeoff_figure(measurement: Measurement, answers: Answers) -> Figure:
    """The trade-off curve on even axes: false negative against false positive rate."""
    upper, lower = (measurement.envelope(side) for side in (Side.UPPER, Side.LOWER))
    rates = even_rates()
    fit = fitted_misses(answers)
    lines = [line_of(PROOF, "proof", rates, upper), line_of(ATTACK, "attack", rates, lower)]
    if fit is not None:
        lines.append(line_of(fit_label(answers), "fit", rates, fit))
    lines.append(Line("perfect privacy", "guess", (0.0, 1.0), (1.0, 0.0)))
    chart = Chart(
        "tradeoff",
        "Trade-off curve",
        "The smallest false negative rate of any attack at each false positive rate. The true curve lies between the "
        "proof, below, and the attack, above. The closer to the diagonal, the more private.",
        Axis("false positive rate", 0.0, 1.0),
        Axis("false negative rate", 0.0, 1.0),
        tuple(lines),
        between=(0, 1),
    )
    at = np.array(TABLE_RATES)
    columns = [rounded_values(upper(at), at_least), rounded_values(lower(at), at_most)]
    names = ["at least (proof)", "at most (attack)"]
    return Figure(chart, table_of("False negative rate", "false positive rate", at, names, columns, fit))


def low_rates_figure(measurement: Measurement, answers: Answers) -> Figure:
    """The same curve where privacy is lost or kept: true positive rate at small false positive rates, both in logs."""
    upper, lower = (power_of(measurement.envelope(side)) for side in (Side.UPPER, Side.LOWER))
    rates = low_rates()
    fit = fitted_power(answers)
    lines = [line_of(PROOF, "proof", rates, upper), line_of(ATTACK, "attack", rates, lower)]
    if fit is not None:
        lines.append(line_of(fit_label(answers), "fit", rates, fit))
    lines.append(Line("guessing", "guess", (LOWEST_RATE, 1.0), (LOWEST_RATE, 1.0)))
    chart = Chart(
        "low-rates",
        "Low false positive rates",
        "The largest true positive rate of any attack, both axes logarithmic. The truth lies between the attack, "
        "below, and the proof, above. The closer to guessing, the more private.",
        Axis("false positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        Axis("true positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        tuple(lines),
        between=(0, 1),
    )
    at = np.array(LOW_RATES)
    columns = [rounded_values(lower(at), at_least), rounded_values(upper(at), at_most)]
    names = ["at least (attack)", "at most (proof)"]
    return Figure(chart, table_of("True positive rate", "false positive rate", at, names, columns, fit))


def profile_figure(measurement: Measurement, answers: Answers, *, with_claim: bool = True) -> Figure | None:
    """delta against epsilon down to the smallest depth with a finite proof; None where there is none.

    The claim is a measurement of its own; whoever needs the two jaws alone leaves it out.
    """
    upper, lower = (measurement.curve(side).delta for side in (Side.UPPER, Side.LOWER))
    try:
        grid, depth = profile_grid(measurement)
    except UnsupportedError:
        return None
    fit = fitted_delta(answers)
    lines = [line_of(PROOF, "proof", grid, upper), line_of(ATTACK, "attack", grid, lower)]
    if fit is not None:
        lines.append(line_of(fit_label(answers), "fit", grid, fit))
    if with_claim and comparable(answers.runs):
        claimed = measurement.claim.proof.curve(min(PROFILE_DEPTHS) * 0.01, measurement.tolerance)
        lines.append(line_of("usual claim (Poisson, undivided sum)", "claim", grid, claimed.delta))
    chart = Chart(
        "profile",
        "Privacy profile",
        "delta at each epsilon, logarithmic. The true profile lies between the attack, below, and the proof, above. "
        "The lower, the more private.",
        Axis("epsilon", 0.0, float(grid[-1])),
        Axis("delta", depth, 1.0, logarithmic=True),
        tuple(lines),
        between=(0, 1),
    )
    at = grid[:: (PROFILE_POINTS - 1) // (TABLE_POINTS - 1)]
    columns = [rounded_values(lower(at), at_least), rounded_values(upper(at), at_most)]
    names = ["at least (attack)", "at most (proof)"]
    return Figure(chart, table_of("delta", "epsilon", at, names, columns, fit))


def bracket_figure(answers: Answers) -> Figure:
    """Epsilon at every delta asked for, or mu, as a pair of jaws with the usual claim as a diamond."""
    readings: tuple[Reading, ...] = answers.epsilon or (answers.leading,)
    shown = comparable(answers.runs)
    rows = tuple(
        Interval(
            reading.name,
            reading.bracket.lower,
            reading.bracket.upper,
            (("usual claim", "claim", reading.claim),) if shown and reading.claim is not None else (),
        )
        for reading in readings
    )
    title = readings[0].name if len(readings) == 1 else "epsilon"
    cells = tuple((r.name, *ends(r.bracket), "" if r.claim is None else at_most(r.claim)) for r in readings)
    return interval_figure("bracket", title, rows, cells, ("quantity", *ENDS, "usual claim"))


def target_figure(quantity: str, achieved: Bracket, target: float) -> Figure:
    """What a calibration achieves beside its target."""
    rows = (Interval(quantity, achieved.lower, achieved.upper, (("target", "claim", target),)),)
    return interval_figure("target", quantity, rows, ((quantity, *ends(achieved)),), ("quantity", *ENDS))


def comparison_figure(names: Sequence[str], answers: Sequence[Answers], position: int) -> Figure:
    """Epsilon of several runs at one delta, one pair of jaws each."""
    compared = [found.epsilon[position] for found in answers]
    rows = tuple(
        Interval(name, row.bracket.lower, row.bracket.upper) for name, row in zip(names, compared, strict=True)
    )
    cells = tuple((name, *ends(row.bracket)) for name, row in zip(names, compared, strict=True))
    title = compared[0].name
    return interval_figure(f"epsilon-{position + 1}", title, rows, cells, ("run", *ENDS))


def interval_figure(
    name: str, title: str, rows: tuple[Interval, ...], cells: tuple[tuple[Cell, ...], ...], columns: tuple[str, ...]
) -> Figure:
    """Pairs of jaws on one axis, with the table that says the same."""
    description = (
        "The left jaw is what an explicit attack shows, the right jaw what is proven; the truth lies between them."
    )
    picture = Intervals(name, title, description, axis_for(title.partition(" at ")[0], rows), rows)
    return Figure(picture, Table(title, columns, cells))


def power_of(curve: TradeoffCurve | Envelope) -> Values:
    """True positive rate against false positive rate."""
    return lambda rates: curve.rates(rates)[1]


def fit_label(answers: Answers) -> str:
    """What the line of the Gaussian fit is called."""
    return f"mu-GDP fit (delta0 = {setting(answers.delta0)})"


def fitted_misses(answers: Answers) -> Values | None:
    """False negative rates that (mu, delta0) alone would promise; None where no finite mu is proven."""
    mu, kept = answers.mu.upper, 1.0 - answers.delta0
    if not math.isfinite(mu):
        return None
    return lambda rates: kept * gaussian_tradeoff(mu, np.minimum(rates / kept, 1.0))


def fitted_power(answers: Answers) -> Values | None:
    """True positive rates that (mu, delta0) alone would allow."""
    mu, kept = answers.mu.upper, 1.0 - answers.delta0
    if not math.isfinite(mu):
        return None
    return lambda rates: answers.delta0 + kept * gaussian_power(mu, np.minimum(rates / kept, 1.0))


def fitted_delta(answers: Answers) -> Values | None:
    """Deltas that (mu, delta0) alone would allow."""
    mu = answers.mu.upper
    if not math.isfinite(mu) or mu <= 0:
        return None
    return lambda epsilons: answers.delta0 + (1.0 - answers.delta0) * gaussian_delta(mu, epsilons)


def line_of(label: str, role: str, at: FloatArray, values: Values) -> Line:
    """The values read at the places given."""
    return Line(label, role, tuple(map(float, at)), tuple(map(float, values(at))))


def rounded_values(values: FloatArray, rounded: Callable[[float], Number]) -> list[Number]:
    """A column of a table."""
    return [rounded(float(value)) for value in values]


def table_of(
    caption: str, first: str, at: FloatArray, names: list[str], columns: list[list[Number]], fit: Values | None
) -> Table:
    """The table beside a curve: places, then a column for each line."""
    if fit is not None:
        names, columns = [*names, "mu-GDP fit"], [*columns, rounded_values(fit(at), nearest)]
    rows = tuple((nearest(float(place)), *row) for place, row in zip(at, zip(*columns, strict=True), strict=True))
    return Table(caption, (first, *names), rows)
