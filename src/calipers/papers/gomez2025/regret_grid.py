"""Figure 4 and the rule of thumb: the regret of mu-GDP over sampling rates.

The rule of thumb says: sigma >= 2 and T >= 400 give a regret below 0.01. It is about infinitely many runs, and we look
at a grid. A regret found on the grid is a certified bracket for that run, so the grid can refute the rule, which it
does: at sigma = 2, T = 400 the *lower* bound of the regret exceeds 0.01 for rates between about 0.07 and 0.31. It
cannot prove a rule; what it suggests is labeled an estimate.

Where an attacker wins almost surely no mu is fitted (`settings.fit_run`) and the regret is below 0.001 anyway.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from calipers.curves import regret
from calipers.papers.gomez2025 import published
from calipers.papers.gomez2025.settings import DELTA0, dpsgd, dpsgd_curves, fit_run, mu_over_all_alpha
from calipers.papers.items import Cell, ItemProgress, watched
from calipers.papers.sheets import Computed, Sheet, SheetRecord

FIGURE_NOISE = (1.0, 2.0, 4.0, 8.0)
FIGURE_RATES = tuple(float(rate) for rate in np.geomspace(0.003, 0.95, 15).round(4))
RULE_NOISE = (2.0, 3.0, 5.0)
RULE_STEPS = (400, 1000, 2000)
RULE_RATES = (0.01, 0.03, 0.06, 0.1, 0.14, 0.18, 0.22, 0.26, 0.32, 0.4, 0.5, 0.7)
RULE_DEPTHS = (1e-5, 1e-10, 1e-15)


def _grid(runs: Iterable[tuple[float, int, float, float]], progress: ItemProgress) -> Sheet:
    """Noise multiplier, steps, rate and delta0 of every run with mu and its regret.

    Where the attacker wins almost surely no mu is fitted and the regret has an upper bound only.
    """
    table = Sheet("grid")
    for noise, steps, rate, delta0 in watched(runs, progress):
        found = fit_run(dpsgd(noise, steps, rate), delta0)
        run = {"noise_multiplier": noise, "steps": steps, "sample_rate": rate, "delta0": delta0}
        table.add(**run, mu=found.mu, regret=found.regret)
        table.unlisted(shown=math.nan if math.isnan(found.mu[0]) else found.regret[1])
    return table


def _worst(table: Sheet, **shared: Cell) -> SheetRecord:
    """The record with the largest regret among those that share these cells."""
    return max(table.where(**shared), key=lambda record: float(record["regret"][1]))


def figure_4(progress: ItemProgress) -> Computed:
    """The regret against the sampling rate, for several noise multipliers and three lengths."""
    table = _grid(itertools.product(FIGURE_NOISE, published.FIGURE_4_STEPS, FIGURE_RATES, (DELTA0,)), progress)
    worst = Sheet("worst", listed=False)
    worst.records = [_worst(table, noise_multiplier=noise) for noise in FIGURE_NOISE]
    return Computed([table, worst], {"depth": DELTA0})


def rule_of_thumb(progress: ItemProgress) -> Computed:
    """The worst regret on a grid with sigma >= 2 and T >= 400, and at the corner of the rule for three depths."""
    corner = published.RULE_NOISE_MULTIPLIER, published.RULE_STEPS
    lines = [(noise, steps, DELTA0) for noise in RULE_NOISE for steps in RULE_STEPS]
    lines += [(*corner, depth) for depth in RULE_DEPTHS if depth != DELTA0]
    table = _grid([(noise, steps, rate, depth) for noise, steps, depth in lines for rate in RULE_RATES], progress)
    worst = Sheet("worst", listed=False)
    worst.records = [_worst(table, noise_multiplier=s, steps=steps, delta0=delta0) for s, steps, delta0 in lines]
    literal = dpsgd(*corner, 0.01)
    curves, mu = dpsgd_curves(literal, 1e-3), mu_over_all_alpha(literal)
    overstated = regret(curves.guarantee, mu), regret(curves.attack, mu)
    return Computed([table, worst, Sheet("literal").unlisted(mu=mu, regret=overstated)], {"rates": len(RULE_RATES)})
