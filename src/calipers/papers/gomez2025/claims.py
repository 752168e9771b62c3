"""Numbers quoted in the text: the headline, the two true positive rates, TopDown, and the minimum of Appendix A.6."""

from __future__ import annotations

import math

import numpy as np

from calipers.bracket import Side
from calipers.curves import adp_tradeoff, rdp_tradeoff, regret, tpr
from calipers.papers.gomez2025 import published
from calipers.papers.gomez2025.settings import (
    ORDERS,
    TOPDOWN_RHO_PRODUCTION,
    Curves,
    dpsgd_curves,
    fit,
    measured,
    mu_over_all_alpha,
    rdp_values,
    run_of,
    topdown_curves,
)
from calipers.papers.items import Interval, Outcome, Progress, Row, Table, watched

_DEPTHS = (1e-3, 1e-5, 1e-10, 1e-15, 1e-30)
_FPR = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)


def headline(progress: Progress) -> Outcome:
    """mu and regret of sigma = 9.4, p = 16384/50000, T = 2000, and how they move with delta0."""
    run = run_of(published.TABLE_4[-1])
    found = measured(run)
    rows, table = [], Table("depth")
    for delta0 in watched(_DEPTHS, progress):
        depth = 1e-2 * min(delta0, 1e-10)
        entry = fit(Curves(found.curve(Side.UPPER, depth), found.curve(Side.LOWER, depth)), delta0)
        rows += [
            Row.of(f"μ up to δ0 = {delta0:g}", published.HEADLINE_MU, entry.mu),
            Row.of(f"regret up to δ0 = {delta0:g}", published.HEADLINE_REGRET, entry.regret),
        ]
        table.add(delta0=delta0, mu=entry.mu, regret=entry.regret)
    everywhere = mu_over_all_alpha(run)
    curves = dpsgd_curves(run)
    overstated = regret(curves.guarantee, everywhere), regret(curves.attack, everywhere)
    rows += [
        Row.of("μ at every α: √T/σ", published.HEADLINE_MU, everywhere, "closed form"),
        Row.of("regret of that μ", published.HEADLINE_REGRET, overstated),
    ]
    return Outcome(rows, data=(table.data,), facts={"everywhere": everywhere})


def quoted_tpr(progress: Progress) -> Outcome:
    """The largest true positive rate at FPR = 10 %: of the run, and of its (epsilon, 1e-5) guarantee alone."""
    run = run_of(published.TABLE_4[-1])
    found = measured(run)
    epsilon = found.epsilon(published.DELTA)
    reported = [adp_tradeoff(value, published.DELTA) for value in (epsilon.lower, epsilon.upper)]
    curves = dpsgd_curves(run)

    def rates(fpr: float, unit: float = 1.0) -> tuple[Interval, Interval]:
        """Both jaws of the true positive rate, of the run and of its pair."""
        a, b, c, d = (unit * float(tpr(curve, fpr)) for curve in (curves.attack, curves.guarantee, *reported))
        return (a, b), (c, d)

    of_run, of_pair = rates(published.QUOTED_FPR, 100.0)
    rows = (
        Row.of("TPR at FPR 10 %, the run (%)", published.QUOTED_TPR_CURVE, of_run),
        Row.of("TPR at FPR 10 %, (ε, 1e-5) alone (%)", published.QUOTED_TPR_EPSILON_DELTA, of_pair),
    )
    table = Table("rates")
    for fpr in _FPR:
        of_run, of_pair = rates(fpr)
        table.add(fpr=fpr, tpr=of_run, tpr_of_epsilon=of_pair)
    progress(1, 1)
    return Outcome(rows, data=(table.data,), facts={"epsilon": epsilon.upper})


def topdown(progress: Progress) -> Outcome:
    """mu of the 2020 Census TopDown algorithm, for the rounded and for the production value of rho."""
    rows, table = [], Table()
    budgets = {"ρ = 3.65": published.TOPDOWN_RHO_ROUNDED, "ρ = (485/254)²": TOPDOWN_RHO_PRODUCTION}
    for name, rho in watched(budgets.items(), progress):
        entry = fit(topdown_curves(rho))
        continuous = math.sqrt(2.0 * rho)
        note = "80 discrete Gaussians; up to δ0 = 1e-10"
        rows += [
            Row.of(f"μ, {name}", published.TOPDOWN_MU, entry.mu, note=note),
            Row.of(f"μ if the noise were continuous, √(2ρ), {name}", None, continuous, "closed form"),
            Row.of(f"regret, {name}", None, entry.regret),
        ]
        table.add(rho=rho, mu=entry.mu, mu_continuous=continuous, regret=entry.regret)
    return Outcome(rows, data=(table.data,))


def renyi_minimum(progress: Progress) -> Outcome:
    """Appendix A.6 with the minimum over orders as printed, and with the maximum, which is what the orders imply."""
    run = run_of(published.TABLE_4[-1])
    values = rdp_values(run)
    curves = dpsgd_curves(run)
    orders = watched(zip(ORDERS, values, strict=True), progress)
    singles = [rdp_tradeoff(float(order), float(value)) for order, value in orders]
    together = rdp_tradeoff(ORDERS, values)
    rows, table = [], Table("rates")
    for alpha in (0.01, 0.1, 0.3):
        betas = [float(curve(alpha)) for curve in singles]
        true = float(curves.guarantee(alpha)), float(curves.attack(alpha))
        joint = float(together(alpha))
        note = "orders up to 64; at most the β that the orders imply"
        rows += [
            Row.of(f"β at α = {alpha:g}: the run", None, true),
            Row.of(f"β at α = {alpha:g}: maximum over orders", None, joint, "estimate", note),
            Row.of(f"β at α = {alpha:g}: minimum over orders", None, min(betas), "estimate", note),
        ]
        table.add(alpha=alpha, beta=true, implied=joint, maximum=float(np.max(betas)), minimum=min(betas))
    return Outcome(rows, data=(table.data,))
