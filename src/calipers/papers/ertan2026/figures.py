"""Figures 1 to 4.

**Figures 1 and 2** are illustrations without numbers; ours are drawn for a real epoch at the threshold of Theorem 6.1.

**Figures 3 and 4** put the Gaussian limit of Dong et al. (Corollary 5.4) in place of Poisson sampling. The limit needs
sqrt(E/M) -> c > 0 at fixed σ. The figures keep E fixed and let σ fall with M, so that sqrt(E/M) -> 0 and nothing says
that the limit is near. It is not: one epoch never draws the record with probability (1 - 1/M)^M, about 1/e, so its
separation stays below (1 - 1/e)/sqrt 2 = 0.447 whatever the noise, while the limit predicts 0.707.

The prediction itself depends on s: mu^2 is about 2 M^(1/s^2 - 1) at σ = s/sqrt(ln M). It grows for s < 1, tends to 2
for s = 1 (separation erf(1/2)/sqrt 2 = 0.368) and to 0 for s > 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.numerics.types import FloatArray
from calipers.papers.ertan2026 import drawing, published
from calipers.papers.ertan2026.settings import ROUNDING, epoch, leaks, poisson_ceiling
from calipers.papers.items import Column, Data, Outcome, Picture, Progress, Published, Row, Table, watched
from calipers.theorems.separation import (
    max_test_separation,
    max_test_tradeoff,
    noise_threshold,
    shuffle_separation_lower,
    tractable_point,
)
from calipers.theorems.separation_to_epsilon import poisson_limit_separation, scaled_noise_separation_lower

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN_ROUNDS = 20
"""Few enough rounds for the three separations of Figure 2 to be told apart."""

ALPHA: FloatArray = np.unique(np.concatenate((np.geomspace(1e-4, 1.0, 81), np.linspace(0.0, 1.0, 201))))
SCHEDULES = {"0.5": 0.5, "1/√2": math.sqrt(0.5), "0.8": 0.8, "0.9": 0.9, "0.95": 0.95}
FIGURE_3_ROUNDS = tuple(round(count) for count in np.geomspace(10, 10**6, 61))
MEASURED_ROUNDS = (2, 4, 10, 30, 100, 1_000, 10_000, 100_000, 1_000_000)
FIGURE_4_ROUNDS = tuple(dict.fromkeys(round(count) for count in np.geomspace(2, 10**6, 81)))
_MAXIMUM = 1.0 / math.sqrt(2.0)


def _best_fpr(sigma: float, rounds: int) -> float:
    """The false positive rate of the grid at which f_sub is farthest from the line."""
    grid = np.linspace(0.0, 1.0, 4001)
    return float(grid[np.argmax([1.0 - a - max_test_tradeoff(float(a), sigma, rounds) for a in grid])])


def figure_1(progress: Progress) -> Outcome:
    """The separation of the curve of one shuffled epoch, drawn on the curve."""
    found = leaks(epoch(DRAWN_ROUNDS)).isolated
    kappa = found.separation()
    guarantee, attack = found.curve(Side.UPPER)(ALPHA), found.curve(Side.LOWER)(ALPHA)
    progress(1, 1)
    rows = (Row.of(f"κ, M = {DRAWN_ROUNDS}, σ = 1/√(2 ln M)", "< 0.7072", kappa),)
    columns = {"alpha": ALPHA, "beta_lower": guarantee, "beta_upper": attack}

    picture = Picture.on_axes((5.4, 5.2), drawing.draw_separation, ALPHA, attack, kappa.lower)
    return Outcome(rows, data=(Data.of_columns("curve", columns),), picture=picture)


def figure_2(progress: Progress) -> Outcome:
    """f_sub, the true curve, and x' <= kappa_sub <= kappa_shuf."""
    rounds = DRAWN_ROUNDS
    sigma, found = noise_threshold(rounds), leaks(epoch(rounds)).isolated
    point, by_largest = tractable_point(sigma, rounds), max_test_separation(sigma, rounds)
    by_largest_upper = by_largest * (1.0 + 2.0 * ROUNDING)
    kappa = found.separation()
    bound = shuffle_separation_lower(sigma, rounds)
    sub = np.array([max_test_tradeoff(float(a), sigma, rounds) for a in ALPHA])
    true = found.curve(Side.LOWER)(ALPHA)
    progress(1, 1)
    ordered = ">= 0"
    gap = by_largest - point.separation
    rows = (
        Row.of("a*", f"<= {point.fpr_bound:.4f}", point.fpr, "closed form", "Lemma 6.2"),
        Row.of("x'", f">= {bound:.4f}", point.separation, "closed form", "Theorem 6.1"),
        Row.of("κ_sub", None, (by_largest, by_largest_upper), "closed form"),
        Row.of("κ_shuf", None, kappa),
        Row.of("κ_sub − x'", ordered, (gap, gap + 1e-10), "closed form", "Equation (23)"),
        Row.of(
            "κ_shuf − κ_sub", ordered, (kappa.lower - by_largest_upper, kappa.upper - by_largest), note="Equation (23)"
        ),
    )
    columns = {"alpha": ALPHA, "f_sub": sub, "f_shuf_upper": true}
    best = _best_fpr(sigma, rounds)

    def draw(figure: Figure) -> None:
        segments = {
            "x'": (point.fpr, point.separation),
            "κ_sub": (best, by_largest),
            "κ_shuf": (0.5 - kappa.lower / math.sqrt(2.0), kappa.lower),
        }
        drawing.draw_three_separations(figure.subplots(), ALPHA, sub, true, segments)

    picture = Picture(draw, (6.4, 6.0))
    return Outcome(rows, data=(Data.of_columns("curves", columns),), picture=picture, facts={"sigma": sigma})


def _schedule_rows() -> list[Row]:
    """What the prediction tends to as M grows, for s below, at and above 1."""
    claim = Published(published.FIGURE_3_CLAIM, _MAXIMUM * (1.0 - ROUNDING), _MAXIMUM, None)
    note = "limit of Equation (47), E = 1"
    at_one = math.erf(0.5) / math.sqrt(2.0)
    limits = {"s < 1": _MAXIMUM, "s = 1": at_one, "s > 1": 0.0}
    return [
        Row.of(f"predicted separation as M → ∞, {name}", claim, value, "closed form", note)
        for name, value in limits.items()
    ]


def figure_3(progress: Progress) -> Outcome:
    """Equation (52) over M for several s, beside the separation of one Poisson epoch."""
    rows, lines = _schedule_rows(), {}
    table: dict[str, Column] = {"rounds": list(FIGURE_3_ROUNDS)}
    for label, s in SCHEDULES.items():
        lines[label] = [scaled_noise_separation_lower(count, s) for count in FIGURE_3_ROUNDS]
        table[f"equation_52, s = {label}"] = list(lines[label])
        for count in (100, 10_000, 1_000_000):
            value = scaled_noise_separation_lower(count, s)
            rows.append(Row.of(f"Equation (52), s = {label}, M = {count:,}", None, value, "closed form"))
    measured = Table("measured")
    for count in watched([count for count in MEASURED_ROUNDS if count >= 10], progress):
        found = leaks(epoch(count)).poisson.separation()
        rows.append(Row.of(f"true separation, s = 1/√2, M = {count:,}", None, found, note="one epoch"))
        predicted = poisson_limit_separation(count, 1, noise_threshold(count))
        measured.add(rounds=count, separation=found, ceiling=poisson_ceiling(count), predicted=predicted)
    picture = Picture.on_axes((7.6, 4.8), drawing.draw_explicit_bounds, FIGURE_3_ROUNDS, lines, measured)
    return Outcome(rows, data=(Data.of_columns("bounds", table), measured.data), picture=picture)


def figure_4(progress: Progress) -> Outcome:
    """Equation (47) at the threshold for several E, beside the separation of the runs it is meant to predict."""
    rows, measured = [], Table("measured")
    lines = {
        epochs: [poisson_limit_separation(count, epochs, noise_threshold(count)) for count in FIGURE_4_ROUNDS]
        for epochs in published.EPOCHS
    }
    for epochs in watched(published.EPOCHS, progress):
        for count in MEASURED_ROUNDS:
            predicted = poisson_limit_separation(count, epochs, noise_threshold(count))
            found = leaks(epoch(count, epochs=epochs)).poisson.separation()
            ceiling, name = poisson_ceiling(count, epochs), f"E = {epochs}, M = {count:,}"
            rows += [
                Row.of(f"{name}: predicted", None, predicted, "closed form", "Equation (47)"),
                Row.of(f"{name}: true separation", None, found, note=f"at most {ceiling:.5f}"),
            ]
            measured.add(epochs=epochs, rounds=count, separation=found, predicted=predicted, ceiling=ceiling)
    columns: dict[str, Column] = {"rounds": list(FIGURE_4_ROUNDS)}
    columns |= {f"predicted, E = {epochs}": list(line) for epochs, line in lines.items()}
    picture = Picture.on_axes((7.6, 4.8), drawing.draw_predictions, FIGURE_4_ROUNDS, lines, measured)
    return Outcome(rows, data=(Data.of_columns("predicted", columns), measured.data), picture=picture)
