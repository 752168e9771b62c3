"""Numbers quoted in the text: the headline, the two true positive rates, TopDown, and the minimum of Appendix A.6."""

from __future__ import annotations

import math

import numpy as np

from calipers.bracket import Side
from calipers.curves import TradeoffCurve, adp_tradeoff, rdp_tradeoff, regret, tpr
from calipers.papers.gomez2025 import published
from calipers.papers.gomez2025.settings import (
    ORDERS,
    Curves,
    Setting,
    dpsgd_curves,
    fit,
    measured,
    mu_over_all_alpha,
    rdp_values,
    topdown_curves,
)
from calipers.papers.items import Data, Outcome, Progress, Row, printed

_DEPTHS = (1e-3, 1e-5, 1e-10, 1e-15, 1e-30)
_FPR = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)


def headline(progress: Progress) -> Outcome:
    """mu and regret of sigma = 9.4, p = 16384/50000, T = 2000, and how they move with delta0."""
    setting = Setting.of(published.HEADLINE)
    found = measured(setting)
    rows, values = [], []
    for done, delta0 in enumerate(_DEPTHS):
        depth = 1e-2 * min(delta0, 1e-10)
        entry = fit(Curves(found.curve(Side.UPPER, depth), found.curve(Side.LOWER, depth)), delta0)
        rows += [
            Row(f"μ up to δ0 = {delta0:g}", printed(published.HEADLINE_MU), *entry.mu),
            Row(f"regret up to δ0 = {delta0:g}", printed(published.HEADLINE_REGRET), *entry.regret),
        ]
        values.append([delta0, *entry.mu, *entry.regret])
        progress(done + 1, len(_DEPTHS))
    everywhere = mu_over_all_alpha(setting)
    curves = dpsgd_curves(setting)
    overstated = regret(curves.guarantee, everywhere), regret(curves.attack, everywhere)
    rows += [
        Row("μ at every α: √T/σ", printed(published.HEADLINE_MU), everywhere, everywhere, "closed form"),
        Row("regret of that μ", printed(published.HEADLINE_REGRET), *overstated),
    ]
    remarks = (
        "μ depends on how deep the tail is followed. Equation (5) asks for every α, and then μ = √T/σ = "
        f"{everywhere:.4g}: the record may enter every batch, and far enough out nothing else matters. The printed "
        "1.57 is μ up to a δ0 that the paper does not state; of those above, 1e-10 and 1e-15 print as 1.57 with regret "
        "0.001.",
    )
    header = ("delta0", "mu_lower", "mu_upper", "regret_lower", "regret_upper")
    return Outcome(tuple(rows), remarks, (Data("depth", header, values),))


def quoted_tpr(progress: Progress) -> Outcome:
    """The largest true positive rate at FPR = 10 %: of the run, and of its (epsilon, 1e-5) guarantee alone."""
    setting = Setting.of(published.HEADLINE)
    found = measured(setting)
    epsilon = found.epsilon(published.DELTA)
    reported = [adp_tradeoff(value, published.DELTA) for value in (epsilon.lower, epsilon.upper)]
    curves = dpsgd_curves(setting)
    fpr = published.QUOTED_FPR
    low, high, pair_low, pair_high = (
        100.0 * float(tpr(curve, fpr)) for curve in (curves.attack, curves.guarantee, *reported)
    )
    rows = (
        Row("TPR at FPR 10 %, the run (%)", printed(published.QUOTED_TPR_CURVE), low, high),
        Row("TPR at FPR 10 %, (ε, 1e-5) alone (%)", printed(published.QUOTED_TPR_EPSILON_DELTA), pair_low, pair_high),
    )
    values = [
        [rate, *(float(tpr(curve, rate)) for curve in (curves.attack, curves.guarantee, *reported))] for rate in _FPR
    ]
    header = ("fpr", "tpr_lower", "tpr_upper", "tpr_of_epsilon_lower", "tpr_of_epsilon_upper")
    progress(1, 1)
    remark = f"The (ε, δ) guarantee is the tight one of this run, ε = {epsilon.upper:.3f} at δ = 1e-5."
    return Outcome(rows, (remark,), (Data("rates", header, values),))


def topdown(progress: Progress) -> Outcome:
    """mu of the 2020 Census TopDown algorithm, for the rounded and for the production value of rho."""
    rows, values = [], []
    budgets = {"ρ = 3.65": published.TOPDOWN_RHO_ROUNDED, "ρ = (485/254)²": published.TOPDOWN_RHO_PRODUCTION}
    for done, (name, rho) in enumerate(budgets.items()):
        entry = fit(topdown_curves(rho))
        continuous = math.sqrt(2.0 * rho)
        note = "80 discrete Gaussians; up to δ0 = 1e-10"
        rows += [
            Row(f"μ, {name}", printed(published.TOPDOWN_MU), *entry.mu, note=note),
            Row(f"μ if the noise were continuous, √(2ρ), {name}", None, continuous, continuous, "closed form"),
            Row(f"regret, {name}", None, *entry.regret),
        ]
        values.append([rho, *entry.mu, continuous, *entry.regret])
        progress(done + 1, len(budgets))
    remarks = (
        "The printed 2.702 is that of the rounded ρ = 3.65. The production value ρ = (485/254)² = 3.646 gives 2.700.",
        "Every level's share of ρ is split evenly over ten queries; the shares are those released on 25 August 2022.",
    )
    header = ("rho", "mu_lower", "mu_upper", "mu_continuous", "regret_lower", "regret_upper")
    return Outcome(tuple(rows), remarks, (Data("values", header, values),))


def renyi_minimum(progress: Progress) -> Outcome:
    """Appendix A.6 with the minimum over orders as printed, and with the maximum, which is what the orders imply."""
    setting = Setting.of(published.HEADLINE)
    values = rdp_values(setting)
    curves = dpsgd_curves(setting)
    singles: list[TradeoffCurve] = []
    for done, (order, value) in enumerate(zip(ORDERS, values, strict=True)):
        singles.append(rdp_tradeoff(float(order), float(value)))
        progress(done + 1, len(ORDERS))
    together = rdp_tradeoff(ORDERS, values)
    rows, table = [], []
    for alpha in (0.01, 0.1, 0.3):
        betas = [float(curve(alpha)) for curve in singles]
        true = float(curves.guarantee(alpha)), float(curves.attack(alpha))
        joint = float(together(alpha))
        note = "orders up to 64; at most the β that the orders imply"
        rows += [
            Row(f"β at α = {alpha:g}: the run", None, *true),
            Row(f"β at α = {alpha:g}: maximum over orders", None, joint, joint, "estimate", note),
            Row(f"β at α = {alpha:g}: minimum over orders", None, min(betas), min(betas), "estimate", note),
        ]
        table.append([alpha, *true, joint, float(np.max(betas)), min(betas)])
    remark = (
        "Appendix A.6 takes the minimum over the orders' β. Each order forces β to be at least its own value, and all "
        "hold at once, so the implied curve is the maximum; the minimum is valid but throws the best orders away."
    )
    header = ("alpha", "beta_lower", "beta_upper", "implied", "maximum", "minimum")
    return Outcome(tuple(rows), (remark,), (Data("rates", header, table),))
