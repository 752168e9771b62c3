"""Figure 4 and the rule of thumb: the regret of mu-GDP over sampling rates.

The rule of thumb says: sigma >= 2 and T >= 400 give a regret below 0.01. It is about infinitely many runs, and we look
at a grid. A regret found on the grid is a certified bracket for that run, so the grid can refute the rule, which it
does: at sigma = 2, T = 400 the *lower* jaw of the regret exceeds 0.01 for rates between about 0.07 and 0.31. It cannot
prove a rule; what it suggests is labeled an estimate.

Where an attacker wins almost surely no mu is fitted (`settings.fit_run`) and the regret is below 0.001 anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calipers.curves import regret
from calipers.papers.gomez2025 import published
from calipers.papers.gomez2025.settings import DELTA0, Fit, dpsgd, dpsgd_curves, fit_run, mu_over_all_alpha
from calipers.papers.items import Data, Outcome, Picture, Progress, Row
from calipers.papers.style import CYCLE, GRAY, tidy, tinted
from calipers.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURE_NOISE = (1.0, 2.0, 4.0, 8.0)
FIGURE_RATES = tuple(float(rate) for rate in np.geomspace(0.003, 0.95, 15).round(4))
RULE_NOISE = (2.0, 3.0, 5.0)
RULE_STEPS = (400, 1000, 2000)
RULE_RATES = (0.01, 0.03, 0.06, 0.1, 0.14, 0.18, 0.22, 0.26, 0.32, 0.4, 0.5, 0.7)
RULE_DEPTHS = (1e-5, 1e-10, 1e-15)


@dataclass(frozen=True)
class Point:
    """One run of the grid: a fit, or an upper bound of its regret where the attacker wins almost surely."""

    run: Run
    fit: Fit | float

    @property
    def regret(self) -> tuple[float, float]:
        """lower <= regret <= upper."""
        return (0.0, self.fit) if isinstance(self.fit, float) else self.fit.regret


HEADER = ("noise_multiplier", "steps", "sample_rate", "delta0", "mu_lower", "mu_upper", "regret_lower", "regret_upper")


def _cells(point: Point, delta0: float) -> list[float | int]:
    mu = (math.nan, math.inf) if isinstance(point.fit, float) else point.fit.mu
    run = point.run
    return [run.noise_multiplier, run.total_steps, run.rate, delta0, *mu, *point.regret]


def figure_4(progress: Progress) -> Outcome:
    """The regret against the sampling rate, for several noise multipliers and three lengths."""
    points: list[Point] = []
    total = len(FIGURE_NOISE) * len(published.FIGURE_4_STEPS) * len(FIGURE_RATES)
    for noise in FIGURE_NOISE:
        for steps in published.FIGURE_4_STEPS:
            for rate in FIGURE_RATES:
                run = dpsgd(noise, steps, rate)
                points.append(Point(run, fit_run(run)))
                progress(len(points), total)
    rows = []
    for noise in FIGURE_NOISE:
        worst = max((point for point in points if point.run.noise_multiplier == noise), key=lambda p: p.regret[1])
        where = f"at T = {worst.run.total_steps}, rate {worst.run.rate:g}"
        rows.append(Row.of(f"largest regret on the grid, σ = {noise:g}", None, worst.regret, "estimate", where))
    data = Data("grid", HEADER, [_cells(point, DELTA0) for point in points])

    def draw(figure: Figure) -> None:
        draw_regrets(figure.subplots(), points)

    return Outcome(rows, data=(data,), picture=Picture(draw, (7.6, 4.8)))


def draw_regrets(ax: Axes, points: list[Point]) -> Axes:
    """Upper jaw of the regret against the rate; one color per noise multiplier, darker for more steps."""
    strengths = dict(zip(published.FIGURE_4_STEPS, (0.4, 0.7, 1.0), strict=True))
    for color, noise in zip(CYCLE, FIGURE_NOISE, strict=False):
        for steps, strength in strengths.items():
            line = [p for p in points if (p.run.noise_multiplier, p.run.total_steps) == (noise, steps)]
            shown = [(p.run.rate, p.regret[1]) for p in line if not isinstance(p.fit, float)]
            label = f"σ = {noise:g}, T = {steps}"
            (drawn,) = ax.plot(
                [x for x, _ in shown], [y for _, y in shown], "o-", label=label, markersize=3, linewidth=1.4
            )
            drawn.set_color(tinted(color, strength))
    ax.axhline(published.ACCURATE, color=GRAY, linestyle="--", linewidth=1, label="regret 0.01")
    ax.set(xscale="log", yscale="log")
    tidy(ax, xlabel="sampling rate", ylabel=f"regret of μ-GDP (δ0 = {DELTA0:g})", title="How well μ-GDP fits DP-SGD")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize="small")
    return ax


def rule_of_thumb(progress: Progress) -> Outcome:
    """The worst regret on a grid with sigma >= 2 and T >= 400, and at the corner of the rule for three depths."""
    corner = dpsgd(published.RULE_NOISE_MULTIPLIER, published.RULE_STEPS)
    grid = [(noise, steps, DELTA0) for noise in RULE_NOISE for steps in RULE_STEPS]
    lines = [*grid, *((corner.noise_multiplier, corner.total_steps, depth) for depth in RULE_DEPTHS if depth != DELTA0)]
    found: dict[tuple[float, int, float], list[Point]] = {}
    done = 0
    for noise, steps, delta0 in lines:
        for rate in RULE_RATES:
            run = dpsgd(noise, steps, rate)
            found.setdefault((noise, steps, delta0), []).append(Point(run, fit_run(run, delta0)))
            done += 1
            progress(done, len(lines) * len(RULE_RATES))
    rows = []
    for noise, steps, delta0 in lines:
        worst = max(found[noise, steps, delta0], key=lambda point: point.regret[1])
        name = f"σ = {noise:g}, T = {steps}, δ0 = {delta0:g}: worst regret"
        note = f"largest of {len(RULE_RATES)} rates, at {worst.run.rate:g}"
        rows.append(Row.of(name, published.RULE_REGRET, worst.regret, "estimate", note))
    literal = dpsgd(corner.noise_multiplier, corner.total_steps, 0.01)
    curves, mu = dpsgd_curves(literal, 1e-3), mu_over_all_alpha(literal)
    overstated = regret(curves.guarantee, mu), regret(curves.attack, mu)
    rows.append(Row.of(f"σ = 2, T = 400, rate 0.01, every α: μ = √T/σ = {mu:g}", published.RULE_REGRET, overstated))
    table = [_cells(point, key[2]) for key, line in found.items() for point in line]
    return Outcome(rows, data=(Data("grid", HEADER, table),))
