"""Figure 4 and the rule of thumb: the regret of mu-GDP over sampling rates.

The rule of thumb says: sigma >= 2 and T >= 400 give a regret below 0.01. It is about infinitely many runs, and we look
at a grid. A regret found on the grid is a certified bracket for that run, so the grid can refute the rule, which it
does: at sigma = 2, T = 400 the *lower* jaw of the regret exceeds 0.01 for rates between about 0.07 and 0.31. It cannot
prove a rule; what it suggests is labeled an estimate.

Where an attacker wins almost surely no mu is fitted (`settings.fit_run`) and the regret is below 0.001 anyway.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from calipers.curves import regret
from calipers.papers.gomez2025 import published
from calipers.papers.gomez2025.settings import DELTA0, Fit, dpsgd, dpsgd_curves, fit_run, mu_over_all_alpha
from calipers.papers.items import Cell, Interval, Outcome, Picture, Progress, Row, Table, watched
from calipers.papers.style import CYCLE, GRAY, tidy, tinted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE_NOISE = (1.0, 2.0, 4.0, 8.0)
FIGURE_RATES = tuple(float(rate) for rate in np.geomspace(0.003, 0.95, 15).round(4))
RULE_NOISE = (2.0, 3.0, 5.0)
RULE_STEPS = (400, 1000, 2000)
RULE_RATES = (0.01, 0.03, 0.06, 0.1, 0.14, 0.18, 0.22, 0.26, 0.32, 0.4, 0.5, 0.7)
RULE_DEPTHS = (1e-5, 1e-10, 1e-15)


def _grid(runs: Iterable[tuple[float, int, float, float]], progress: Progress) -> Table:
    """Noise multiplier, steps, rate and delta0 of every run with mu and its regret.

    Where the attacker wins almost surely no mu is fitted and the regret has an upper bound only.
    """
    table = Table("grid")
    for noise, steps, rate, delta0 in watched(runs, progress):
        found = fit_run(dpsgd(noise, steps, rate), delta0)
        if isinstance(found, float):
            found = Fit((math.nan, math.inf), (0.0, found), delta0)
        run = {"noise_multiplier": noise, "steps": steps, "sample_rate": rate, "delta0": delta0}
        table.add(**run, mu=found.mu, regret=found.regret)
    return table


def _worst(table: Table, **shared: Cell) -> dict[str, Cell]:
    """The record with the largest regret among those that share these cells."""
    return max(table.where(**shared), key=itemgetter("regret_upper"))


def figure_4(progress: Progress) -> Outcome:
    """The regret against the sampling rate, for several noise multipliers and three lengths."""
    table = _grid(itertools.product(FIGURE_NOISE, published.FIGURE_4_STEPS, FIGURE_RATES, (DELTA0,)), progress)
    rows = []
    for noise in FIGURE_NOISE:
        worst = _worst(table, noise_multiplier=noise)
        where = f"at T = {worst['steps']}, rate {worst['sample_rate']:g}"
        rows.append(Row.of(f"largest regret on the grid, σ = {noise:g}", None, _regret(worst), "estimate", where))
    return Outcome(rows, data=(table.data,), picture=Picture.on_axes((7.6, 4.8), draw_regrets, table))


def _regret(record: dict[str, Cell]) -> Interval:
    return float(record["regret_lower"]), float(record["regret_upper"])


def draw_regrets(ax: Axes, table: Table) -> Axes:
    """Upper jaw of the regret against the rate; one color per noise multiplier, darker for more steps."""
    strengths = dict(zip(published.FIGURE_4_STEPS, (0.4, 0.7, 1.0), strict=True))
    for color, noise in zip(CYCLE, FIGURE_NOISE, strict=False):
        for steps, strength in strengths.items():
            line = table.where(noise_multiplier=noise, steps=steps)
            shown = [
                (run["sample_rate"], run["regret_upper"]) for run in line if not math.isnan(float(run["mu_lower"]))
            ]
            places, heights = ([point[axis] for point in shown] for axis in (0, 1))
            (drawn,) = ax.plot(places, heights, "o-", label=f"σ = {noise:g}, T = {steps}", markersize=3, linewidth=1.4)
            drawn.set_color(tinted(color, strength))
    ax.axhline(published.ACCURATE, color=GRAY, linestyle="--", linewidth=1, label="regret 0.01")
    ax.set(xscale="log", yscale="log")
    tidy(ax, xlabel="sampling rate", ylabel=f"regret of μ-GDP (δ0 = {DELTA0:g})", title="How well μ-GDP fits DP-SGD")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize="small")
    return ax


def rule_of_thumb(progress: Progress) -> Outcome:
    """The worst regret on a grid with sigma >= 2 and T >= 400, and at the corner of the rule for three depths."""
    corner = published.RULE_NOISE_MULTIPLIER, published.RULE_STEPS
    lines = [(noise, steps, DELTA0) for noise in RULE_NOISE for steps in RULE_STEPS]
    lines += [(*corner, depth) for depth in RULE_DEPTHS if depth != DELTA0]
    table = _grid([(noise, steps, rate, depth) for noise, steps, depth in lines for rate in RULE_RATES], progress)
    rows = []
    for noise, steps, delta0 in lines:
        worst = _worst(table, noise_multiplier=noise, steps=steps, delta0=delta0)
        name = f"σ = {noise:g}, T = {steps}, δ0 = {delta0:g}: worst regret"
        note = f"largest of {len(RULE_RATES)} rates, at {worst['sample_rate']:g}"
        rows.append(Row.of(name, published.RULE_REGRET, _regret(worst), "estimate", note))
    literal = dpsgd(*corner, 0.01)
    curves, mu = dpsgd_curves(literal, 1e-3), mu_over_all_alpha(literal)
    overstated = regret(curves.guarantee, mu), regret(curves.attack, mu)
    rows.append(Row.of(f"σ = 2, T = 400, rate 0.01, every α: μ = √T/σ = {mu:g}", published.RULE_REGRET, overstated))
    return Outcome(rows, data=(table.data,))
