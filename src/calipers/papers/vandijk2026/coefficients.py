"""Figure 2: the GDP coefficients of shuffling and of Poisson sampling, and whose they are.

The paper compares shuffling with Dong et al.'s Corollary 5.4, whose coefficient belongs to the symmetrized Poisson
curve min(f, f^-1)**. The Poisson pair itself has sqrt(e^(1/sigma^2) - 1) per unit of c = q sqrt(T) = sqrt(E/M), the
coefficient of shuffling: one step's ratio 1 + q (Y - 1) has variance q^2 (e^(1/sigma^2) - 1), one epoch of M = 1/q
rounds has mean(Y), with variance (e^(1/sigma^2) - 1)/M = M q^2 (e^(1/sigma^2) - 1), the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.laws.composed.product import Product
from calipers.mechanisms import poisson_gaussian
from calipers.numerics.elementary import halved
from calipers.papers.items import Cell, Data, Outcome, Picture, Progress, Published, Row
from calipers.papers.vandijk2026 import drawing, published
from calipers.papers.vandijk2026.exact import advantage, limit_advantage
from calipers.papers.vandijk2026.tables import QUICK_TOLERANCE, closed
from calipers.theorems.shuffle_limits import gdp_coefficients

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FAR = 1e4
_SETTINGS = ((0.5, 10**4, 10), (0.5, 10**5, 100), (1.0, 10**4, 100))
"""Noise multiplier, rounds, epochs; the first two have the same limit."""


def _limit(quantity: str, text: str, limit: float, value: float, slack: float) -> Row:
    """A value near a limit that the paper states, with how near it has to be."""
    return Row.of(quantity, Published(text, limit - slack, limit + slack, limit), value, "closed form")


def midpoint_noise() -> float:
    """The sigma at which the drawn ratio is (1 + sqrt 2)/2, by bisection of a decreasing function."""
    target = 0.5 * (1.0 + math.sqrt(2.0))
    return halved(0.1, 100.0, lambda sigma: gdp_coefficients(sigma).ratio > target, 48)[0]


def _poisson_rows(sigma: float, rounds: int, epochs: int) -> list[Row]:
    """The same number of records, batches and epochs: Poisson sampling beside random allocation."""
    steps = Product([(poisson_gaussian(1.0 / rounds, sigma), rounds * epochs)])
    jaws = steps.delta(0.0, QUICK_TOLERANCE)
    low, high = advantage(sigma, rounds, epochs, QUICK_TOLERANCE)
    name = f"σ = {sigma:g}, M = {rounds:g}, E = {epochs}"
    drawn = gdp_coefficients(sigma).ratio
    claim = Published(f"{drawn:.2f} (drawn)", drawn - 0.01, drawn + 0.01, drawn)
    note = "small advantages are proportional to μ; the drawn curve says how many times larger Poisson's is"
    return [
        Row.of(f"{name}: advantage, Poisson", None, jaws),
        Row.of(f"{name}: advantage, shuffling", None, (low, high), note="isolated view"),
        Row.of(f"{name}: Poisson over shuffling", claim, (jaws.lower / high, jaws.upper / low), note=note),
        closed(f"{name}: limit of both", None, limit_advantage(sigma, rounds, epochs), "no bound"),
    ]


def figure_2(progress: Progress) -> Outcome:
    """The two GDP coefficients, their ratio, and what the two samplers do at finite M."""
    sigma = np.geomspace(0.35, 6.0, 180)
    found = [gdp_coefficients(float(s)) for s in sigma]
    ratio = np.array([entry.ratio for entry in found])
    midpoint = midpoint_noise()
    rising = float(np.max(np.diff(ratio)))
    root = math.sqrt(2.0)
    rows = [
        closed("σ where the ratio is (1 + √2)/2", published.MIDPOINT_NOISE, midpoint),
        closed("(1 + √2)/2", published.MIDPOINT_RATIO, 0.5 * (1.0 + root)),
        _limit("ratio at σ = 0.1", "√2", root, gdp_coefficients(0.1).ratio, 1e-9),
        _limit("ratio at σ = 10,000", "1", 1.0, gdp_coefficients(_FAR).ratio, 1e-3),
        _limit(
            "σ times the coefficient of shuffling at σ = 10,000", "1", 1.0, _FAR * gdp_coefficients(_FAR).shuffle, 1e-6
        ),
        Row.of("largest step of the ratio along σ", "< 0", rising, "estimate", "over a grid of σ from 0.35 to 6"),
    ]
    progress(1, 1 + len(_SETTINGS))
    for done, setting in enumerate(_SETTINGS):
        rows += _poisson_rows(*setting)
        progress(done + 2, 1 + len(_SETTINGS))
    columns: dict[str, Sequence[Cell]] = {
        "noise_multiplier": sigma.tolist(),
        "shuffle": [entry.shuffle for entry in found],
        "symmetrized_poisson": [entry.symmetrized_poisson for entry in found],
        "ratio": ratio.tolist(),
    }

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        shuffle, symmetrized = (np.array(columns[name]) for name in ("shuffle", "symmetrized_poisson"))
        drawing.draw_coefficients(left, sigma, shuffle, symmetrized)
        drawing.draw_ratio(right, sigma, ratio, midpoint)

    return Outcome(rows, data=(Data.of_columns("coefficients", columns),), picture=Picture(draw, (10.4, 4.6)))
