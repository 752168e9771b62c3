"""Figures 1, 2 and 5 to 8. (Figure 3 is a listing; Figure 4 has its own module.)

The drawn curve of a mechanism is its attack, the upper end of the bracket of f; the guarantee would be
indistinguishable on paper, and the CSV files hold both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calipers.curves import adp_tradeoff, delta_divergence
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon, gaussian_mu, gaussian_power, gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.gomez2025 import published, settings
from calipers.papers.gomez2025.representations import dpsgd_regrets, laplace_regrets
from calipers.papers.items import ItemProgress, watched
from calipers.papers.sheets import Column, Computed, Sheet
from calipers.theorems.lognormal_ratio import gdp_of_pure_dp

ALPHA: FloatArray = np.unique(np.concatenate((np.geomspace(1e-6, 1.0, 241), np.linspace(0.0, 1.0, 201))))
"""Where curves are drawn and listed."""


def _curve_table(name: str, curves: settings.Curves, mu: float, **others: FloatArray) -> Sheet:
    columns = {"alpha": ALPHA, "beta_lower": curves.guarantee(ALPHA), "beta_upper": curves.attack(ALPHA)}
    columns |= {"beta_gdp": gaussian_tradeoff(mu, ALPHA)} | others
    return Sheet.of_columns(name, {key: np.asarray(values) for key, values in columns.items()})


def figure_1() -> Computed:
    """The Laplace mechanism under pure DP, DP-SGD under GDP, and the regret of every representation."""
    laplace, dpsgd = settings.laplace_curves(), settings.dpsgd_curves(settings.HEADLINE)
    pure, fitted = adp_tradeoff(1.0), settings.fit(dpsgd)
    epsilon = settings.measured(settings.HEADLINE).epsilon(published.DELTA).upper
    regrets, values = Sheet("c"), Sheet().unlisted(gdp=fitted.regret)
    regrets.add(mechanism="laplace", **laplace_regrets()).unlisted(name="Laplace")
    regrets.add(mechanism="dp-sgd", **dpsgd_regrets(settings.HEADLINE)).unlisted(name="DP-SGD")
    values.unlisted(pure=(delta_divergence(laplace.guarantee, pure), laplace_regrets()["pure"]))
    pair = adp_tradeoff(epsilon, published.DELTA)(ALPHA)
    tables = (
        _curve_table("a", laplace, settings.fit(laplace).mu[1], beta_pure_dp=pure(ALPHA)),
        _curve_table("b", dpsgd, fitted.mu[1], beta_epsilon_delta=pair),
        regrets,
        values,
    )
    return Computed(tables, {"mu": fitted.mu[1], "epsilon": epsilon})


def figure_2() -> Computed:
    """The regret as a shift: DP-SGD reported by its (epsilon, 1e-5) guarantee."""
    run = settings.run_of(published.TABLE_4[1])
    curves = settings.dpsgd_curves(run)
    reported = adp_tradeoff(settings.measured(run).epsilon(published.DELTA).upper, published.DELTA)
    least, kappa = (delta_divergence(curve, reported) for curve in (curves.guarantee, curves.attack))
    shifted = np.where(ALPHA + kappa <= 1.0, curves.attack(np.minimum(ALPHA + kappa, 1.0)) - kappa, np.nan)
    table = _curve_table(
        "curves", curves, settings.fit(curves).mu[1], beta_reported=reported(ALPHA), beta_shifted=shifted
    )
    shift, height = Sheet("shift", listed=False), float(curves.attack(0.15 + kappa))
    shift.add(alpha=0.15 + kappa, beta=height).add(alpha=0.15, beta=height - kappa)
    return Computed([table, shift, Sheet().unlisted(regret=(least, kappa))], {"kappa": kappa})


def figure_5() -> Computed:
    """TopDown, which GDP fits, and randomized response, which it does not."""
    census, response = settings.topdown_curves(published.TOPDOWN_RHO_ROUNDED), settings.response_curves()
    of_census, of_response = settings.fit(census), settings.fit(response)
    closed = gdp_of_pure_dp(published.RANDOMIZED_RESPONSE_EPSILON)
    values = Sheet().unlisted(census_mu=of_census.mu, census_regret=of_census.regret, closed=closed)
    values.unlisted(mu=of_response.mu, regret=of_response.regret)
    tables = _curve_table("a", census, of_census.mu[1]), _curve_table("b", response, closed), values
    return Computed(tables, {"mu": of_census.mu[1], "closed": closed})


def figure_6() -> Computed:
    """The profile of a Gaussian mechanism, and what each of its points says about attacks."""
    budget = published.FIGURE_6_EPSILON, published.FIGURE_6_DELTA
    mu = gaussian_mu(*budget)
    epsilon, fpr = np.linspace(0.0, 10.0, 201), np.geomspace(1e-7, 1.0, 281)
    pairs, bounds, powers = Sheet("pairs"), Sheet("bounds", listed=False), Sheet("powers", listed=False)
    pairs.add(epsilon=budget[0], delta=budget[1]).unlisted(calibrated=True)
    for delta in (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.3):
        pairs.add(epsilon=gaussian_epsilon(mu, delta), delta=delta).unlisted(calibrated=False)
    for pair in pairs.records:
        growth, room = np.exp(pair["epsilon"]), 1.0 - pair["delta"]
        bound = np.minimum(np.minimum(1.0 - room + growth * fpr, 1.0 - (room - fpr) / growth), 1.0)
        bounds.records += [{**pair, "fpr": rate, "tpr": power} for rate, power in zip(fpr, bound, strict=True)]
    for rate in (1e-5, 1e-3, 1e-1):
        powers.add(rate=rate, power=float(gaussian_power(mu, rate)))
    profile = Sheet.of_columns("profile", {"epsilon": epsilon, "delta": gaussian_delta(mu, epsilon)})
    attacks = Sheet.of_columns("attacks", {"fpr": fpr, "tpr": gaussian_power(mu, fpr)})
    return Computed([profile, attacks, pairs, bounds, powers], {"mu": mu})


def fits(progress: ItemProgress, table: str, epsilons: Sequence[str], claimed: bool) -> Computed:
    """Curves, their GDP guarantees, and the gap between the two; `claimed`: Appendix F speaks about these gaps."""
    columns: dict[str, Column] = {"alpha": ALPHA}
    rows, lines = Sheet("gaps", listed=False), Sheet("lines", listed=False)
    chosen: list[Any] = [column for column in getattr(published, table) if column.epsilon in epsilons]
    for column in watched(chosen, progress):
        found = settings.dpsgd_curves(settings.run_of(column), 1e-5)
        entry, beta = settings.fit(found), found.attack(ALPHA)
        # f - G_mu lies between these two at every alpha; the largest is taken over the grid of alpha.
        low = found.guarantee(ALPHA) - gaussian_tradeoff(entry.mu[0], ALPHA)
        high = beta - gaussian_tradeoff(entry.mu[1], ALPHA)
        least, most = float(np.max(low)), float(np.max(high))
        label = f"ε = {column.epsilon[0]}, σ = {column.noise_multiplier:g}, T = {column.steps}"
        relation = "> 1" if column.noise_multiplier == published.APPENDIX_F_EXCEPTION else "<= 1"
        ratio = least / (2.0 * entry.regret[1]), most / (2.0 * entry.regret[0])
        rows.add(label=label, gap=(least, most), ratio=ratio, relation=relation if claimed else "")
        columns |= {f"beta, {label}": beta, f"gap_lower, {label}": low, f"gap_upper, {label}": high}
        drawn = {"alpha": ALPHA, "beta": beta, "gdp": beta - high, "low": low, "high": high}
        drawn["middle"] = 0.5 * (low + high)
        lines.records += [record | {"label": label} for record in Sheet.of_columns("", drawn).records]
    return Computed([Sheet.of_columns("curves", columns), rows, lines])
