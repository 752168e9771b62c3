"""Three ways to look at how well two datasets are distinguished: error rates, low error rates, the privacy profile.

A view knows its axes, at which places curves are drawn and listed, what is read off a curve there and off the Gaussian
fit, and which of proof and attack lies below. Every reading is a bound at its place. For the false negative rate
beta(alpha) the proof gives "at least" and the attack "at most"; for the true positive rate 1 - beta and for
delta(epsilon) it is the other way round. The Gaussian fit is the curve that (mu, delta0) alone would promise,

    beta(alpha) = (1 - delta0) G_mu(alpha/(1 - delta0)),     delta(eps) = delta0 + (1 - delta0) delta_mu(eps),

with the proven mu as it is printed, rounded up, so it never promises more than the proof. It bounds in the direction in
which the proof does, and is rounded that way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.numerics.decimals import ceil_digits, setting
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_power,
    gaussian_tradeoff,
    normal_tail,
)
from calipers.reports.answers import Answers
from calipers.reports.chart import Axis, Chart, Line
from calipers.reports.document import AT_LEAST, AT_MOST, Figure, Number, Table, at_least, at_most, nearest

if TYPE_CHECKING:
    from calipers.numerics.types import FloatArray

PROOF, ATTACK = "proof", "attack"
LOWEST_RATE = 1e-5
RATE_POINTS = 101
TABLE_RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
LOW_RATES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)
TABLE_POINTS = 9
_FIT_ERROR = 2.0 * GAUSSIAN_RELATIVE_ERROR
"""Of the closed forms, and of adding delta0."""

Values = Callable[["FloatArray"], "FloatArray"]
Column = tuple[str, list[Number]]


@dataclass(frozen=True)
class View:
    """What is drawn and listed of curves, and how."""

    name: str
    caption: str
    across: Axis
    up: Axis
    drawn: FloatArray
    listed: FloatArray
    read: Callable[[Any], Values]
    fitted: Callable[[float, float, FloatArray], FloatArray]
    proof_below: bool = False
    guess: tuple[Line, ...] = ()

    def line(self, label: str, role: str, values: Values) -> Line:
        """What is read where it is drawn."""
        return Line(label, role, tuple(map(float, self.drawn)), tuple(map(float, values(self.drawn))))

    def column(self, name: str, values: Values, rounded: Callable[[float], Number]) -> Column:
        """What is read where it is listed."""
        return name, [rounded(float(value)) for value in values(self.listed)]

    def says(self, which: str) -> str:
        """Which way a "proof" or an "attack" bounds what is read, in words."""
        return AT_LEAST if (which == "proof") is self.proof_below else AT_MOST

    def bound(self, which: str, name: str, values: Values) -> Column:
        """The column of a "proof" or an "attack"."""
        return self.column(name, values, at_least if self.says(which) == AT_LEAST else at_most)

    def fit(self, answers: Answers) -> Values | None:
        """What (mu, delta0) alone would promise; None where no finite mu is proven."""
        mu, delta0 = printed_mu(answers), answers.delta0
        outward = 1.0 + (-_FIT_ERROR if self.says("proof") == AT_LEAST else _FIT_ERROR)
        if not math.isfinite(mu):
            return None
        return lambda places: np.minimum(self.fitted(mu, delta0, places) * outward, 1.0)

    def both(self, proof: Column, attack: Column) -> list[Column]:
        """Both, "at least" first."""
        return [proof, attack] if self.proof_below else [attack, proof]

    def figure(
        self,
        title: str,
        description: str,
        lines: Sequence[Line],
        columns: Sequence[Column],
        between: tuple[int, int] | None = None,
    ) -> Figure:
        """The picture with the table that says the same."""
        shown = (*lines, *self.guess)
        chart = Chart(self.name, title, description, self.across, self.up, shown, between=between)
        return Figure(chart, self.table(self.caption, columns))

    def table(self, caption: str, columns: Sequence[Column]) -> Table:
        """Places, then the columns."""
        cells = zip(*(values for _, values in columns), strict=True)
        rows = tuple((nearest(float(place)), *row) for place, row in zip(self.listed, cells, strict=True))
        return Table(caption, (self.across.label, *(name for name, _ in columns)), rows)


def tradeoff_view() -> View:
    """False negative against false positive rates, on even axes.

    Drawn at normal quantiles, evenly spaced: dense where the curve bends.
    """
    return View(
        "tradeoff",
        "False negative rate",
        Axis("false positive rate", 0.0, 1.0),
        Axis("false negative rate", 0.0, 1.0),
        np.concatenate(([0.0], normal_tail(np.linspace(4.5, -4.5, RATE_POINTS)), [1.0])),
        np.array(TABLE_RATES),
        lambda curve: curve,
        _fitted_misses,
        proof_below=True,
        guess=(Line("perfect privacy", "guess", (0.0, 1.0), (1.0, 0.0)),),
    )


def low_rates_view() -> View:
    """The same where privacy is lost or kept: true positive rates at small false positive rates, both in logs."""
    return View(
        "low-rates",
        "True positive rate",
        Axis("false positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        Axis("true positive rate", LOWEST_RATE, 1.0, logarithmic=True),
        np.logspace(math.log10(LOWEST_RATE), 0.0, RATE_POINTS),
        np.array(LOW_RATES),
        lambda curve: lambda rates: np.maximum(curve.rates(rates)[1], rates),  # guessing is an attack
        _fitted_power,
        guess=(Line("guessing", "guess", (LOWEST_RATE, 1.0), (LOWEST_RATE, 1.0)),),
    )


def profile_view(grid: FloatArray, smallest: float) -> View:
    """delta against the epsilons of the grid, logarithmic down to the smallest."""
    return View(
        "profile",
        "delta",
        Axis("epsilon", 0.0, float(grid[-1])),
        Axis("delta", smallest, 1.0, logarithmic=True),
        grid,
        grid[:: (len(grid) - 1) // (TABLE_POINTS - 1)],
        lambda curve: curve.delta,
        _fitted_delta,
    )


def fit_label(answers: Answers) -> str:
    """What the line of the Gaussian fit is called."""
    return f"mu-GDP bound (delta0 = {setting(answers.delta0)})"


def printed_mu(answers: Answers) -> float:
    """At least the proven mu as a page prints it, rounded up; a stated mu is printed as it was stated."""
    mu = answers.mu.upper
    if math.isinf(mu) or (answers.stated is not None and answers.stated.number("mu") is not None):
        return mu
    return math.nextafter(float(ceil_digits(mu)), math.inf)


def _fitted_misses(mu: float, delta0: float, rates: FloatArray) -> FloatArray:
    """False negative rates that (mu, delta0) alone would promise."""
    return (1.0 - delta0) * gaussian_tradeoff(mu, np.minimum(rates / (1.0 - delta0), 1.0))


def _fitted_power(mu: float, delta0: float, rates: FloatArray) -> FloatArray:
    """True positive rates that (mu, delta0) alone would allow."""
    return delta0 + (1.0 - delta0) * gaussian_power(mu, np.minimum(rates / (1.0 - delta0), 1.0))


def _fitted_delta(mu: float, delta0: float, epsilons: FloatArray) -> FloatArray:
    """Deltas that (mu, delta0) alone would allow."""
    return delta0 + (1.0 - delta0) * gaussian_delta(mu, epsilons)
