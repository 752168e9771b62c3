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

import numpy as np

from calipers.bracket import Side
from calipers.numerics.types import FloatArray
from calipers.papers.ertan2026 import published
from calipers.papers.ertan2026.settings import ROUNDING, epoch, isolated, poisson, poisson_ceiling
from calipers.papers.items import ItemProgress, Published, watched
from calipers.papers.sheets import Column, Computed, Sheet
from calipers.theorems import separation as theorem

DRAWN_ROUNDS = 20
"""Few enough rounds for the three separations of Figure 2 to be distinguished."""

ALPHA: FloatArray = np.unique(np.concatenate((np.geomspace(1e-4, 1.0, 81), np.linspace(0.0, 1.0, 201))))
SCHEDULES = {"0.5": 0.5, "1/√2": math.sqrt(0.5), "0.8": 0.8, "0.9": 0.9, "0.95": 0.95}
FIGURE_3_ROUNDS = tuple(round(count) for count in np.geomspace(10, 10**6, 61))
MEASURED_ROUNDS = (2, 4, 10, 30, 100, 1_000, 10_000, 100_000, 1_000_000)
FIGURE_4_ROUNDS = tuple(dict.fromkeys(round(count) for count in np.geomspace(2, 10**6, 81)))
_MAXIMUM = 1.0 / math.sqrt(2.0)


def _best_fpr(sigma: float, rounds: int) -> float:
    """The false positive rate of the grid at which f_sub is farthest from the line."""
    grid = np.linspace(0.0, 1.0, 4001)
    return float(grid[np.argmax([1.0 - a - theorem.max_test_tradeoff(float(a), sigma, rounds) for a in grid])])


def _segment(table: Sheet, name: str, fpr: float, distance: float) -> None:
    """The perpendicular from the point at `fpr`, `distance` below the line 1 - a, up to that line."""
    fnr, step = 1.0 - fpr - distance * math.sqrt(2.0), distance * _MAXIMUM
    table.add(name=name, distance=distance, fpr=fpr, fnr=fnr)
    table.add(name=name, distance=distance, fpr=fpr + step, fnr=fnr + step)


def figure_1() -> Computed:
    """The separation of the curve of one shuffled epoch, drawn on the curve."""
    found = isolated(epoch(DRAWN_ROUNDS))
    kappa = found.separation()
    guarantee, attack = found.curve(Side.UPPER)(ALPHA), found.curve(Side.LOWER)(ALPHA)
    table = Sheet.of_columns("curve", {"alpha": ALPHA, "beta_lower": guarantee, "beta_upper": attack})
    segments, fixed = Sheet("segments", listed=False), 0.5 - kappa.lower * _MAXIMUM
    _segment(segments, "κ", fixed, kappa.lower)
    for fnr in (fixed, 1.0 - fixed):
        segments.add(name="√2 κ", distance=math.sqrt(2.0) * kappa.lower, fpr=fixed, fnr=fnr)
    return Computed([table, segments, Sheet().unlisted(kappa=kappa)], {"drawn_rounds": DRAWN_ROUNDS})


def figure_2() -> Computed:
    """f_sub, the true curve, and x' <= kappa_sub <= kappa_shuf."""
    rounds, sigma, found = DRAWN_ROUNDS, theorem.noise_threshold(DRAWN_ROUNDS), isolated(epoch(DRAWN_ROUNDS))
    point, kappa = theorem.tractable_point(sigma, rounds), found.separation()
    by_largest = theorem.max_test_separation(sigma, rounds)
    most, gap = by_largest * (1.0 + 2.0 * ROUNDING), by_largest - point.separation
    sub = np.array([theorem.max_test_tradeoff(float(a), sigma, rounds) for a in ALPHA])
    table = Sheet.of_columns("curves", {"alpha": ALPHA, "f_sub": sub, "f_shuf_upper": found.curve(Side.LOWER)(ALPHA)})
    values = Sheet().unlisted(bound=theorem.shuffle_separation_lower(sigma, rounds))
    values.unlisted(point=point, fpr=point.fpr, x=point.separation)
    values.unlisted(sub=(by_largest, most), shuf=kappa, first=(gap, gap + 1e-10))
    values.unlisted(second=(kappa.lower - most, kappa.upper - by_largest))
    segments = Sheet("segments", listed=False)
    _segment(segments, "x'", point.fpr, point.separation)
    _segment(segments, "κ_sub", _best_fpr(sigma, rounds), by_largest)
    _segment(segments, "κ_shuf", 0.5 - kappa.lower * _MAXIMUM, kappa.lower)
    return Computed([table, values, segments], {"sigma": sigma})


def figure_3(progress: ItemProgress) -> Computed:
    """Equation (52) over M for several s, next to the separation of one Poisson epoch."""
    measured, places, limits = Sheet("measured"), Sheet("places", listed=False), Sheet("limits", listed=False)
    columns: dict[str, Column] = {"rounds": FIGURE_3_ROUNDS}
    for label, s in SCHEDULES.items():
        columns[f"equation_52, s = {label}"] = [theorem.scaled_noise_separation_lower(m, s) for m in FIGURE_3_ROUNDS]
        for count in (100, 10_000, 1_000_000):
            places.add(label=label, rounds=count, bound=theorem.scaled_noise_separation_lower(count, s))
    for count in watched([count for count in MEASURED_ROUNDS if count >= 10], progress):
        found = poisson(epoch(count)).separation()
        predicted = theorem.poisson_limit_separation(count, 1, theorem.noise_threshold(count))
        measured.add(rounds=count, separation=found, ceiling=poisson_ceiling(count), predicted=predicted)
    # What the prediction tends to as M grows, for s below, at and above 1.
    claim = Published(published.FIGURE_3_CLAIM, _MAXIMUM * (1.0 - ROUNDING), _MAXIMUM, None)
    for name, value in (("s < 1", _MAXIMUM), ("s = 1", math.erf(0.5) * _MAXIMUM), ("s > 1", 0.0)):
        limits.add(name=name, predicted=value).unlisted(claim=claim)
    return Computed([Sheet.of_columns("bounds", columns), measured, places, limits])


def figure_4(progress: ItemProgress) -> Computed:
    """Equation (47) at the threshold for several E, next to the separation of the runs it is meant to predict."""
    measured, columns = Sheet("measured"), {"rounds": np.array(FIGURE_4_ROUNDS)}
    for epochs in watched(published.EPOCHS, progress):
        line = [theorem.poisson_limit_separation(m, epochs, theorem.noise_threshold(m)) for m in FIGURE_4_ROUNDS]
        columns[f"predicted, E = {epochs}"] = np.array(line)
        for count in MEASURED_ROUNDS:
            predicted = theorem.poisson_limit_separation(count, epochs, theorem.noise_threshold(count))
            found, ceiling = poisson(epoch(count, epochs=epochs)).separation(), poisson_ceiling(count, epochs)
            measured.add(epochs=epochs, rounds=count, separation=found, predicted=predicted, ceiling=ceiling)
    return Computed([Sheet.of_columns("predicted", columns), measured])
