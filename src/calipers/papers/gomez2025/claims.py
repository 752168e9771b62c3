"""Numbers quoted in the text: the headline, the two true positive rates, TopDown, and the minimum of Appendix A.6."""

from __future__ import annotations

import math

from calipers.curves import adp_tradeoff, rdp_tradeoff, regret, tpr
from calipers.measure.bounds import depth_for
from calipers.papers.gomez2025 import published, settings
from calipers.papers.gomez2025.settings import HEADLINE
from calipers.papers.items import ItemProgress, NumberPair, watched
from calipers.papers.sheets import Computed, Sheet

_DEPTHS = (1e-3, 1e-5, 1e-10, 1e-15, 1e-30)
_FPR = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)


def headline(progress: ItemProgress) -> Computed:
    """mu and regret of sigma = 9.4, p = 16384/50000, T = 2000, and how they move with delta0."""
    found, table = settings.measured(HEADLINE), Sheet("depth")
    for delta0 in watched(_DEPTHS, progress):
        entry = settings.fit(settings.Curves.of(found, depth_for(delta0)), delta0)
        table.add(delta0=delta0, mu=entry.mu, regret=entry.regret)
    everywhere, curves = settings.mu_over_all_alpha(HEADLINE), settings.dpsgd_curves(HEADLINE)
    overstated = regret(curves.guarantee, everywhere), regret(curves.attack, everywhere)
    return Computed([table, Sheet().unlisted(mu=everywhere, regret=overstated)], {"everywhere": everywhere})


def quoted_tpr(progress: ItemProgress) -> Computed:
    """The largest true positive rate at FPR = 10 %: of the run, and of its (epsilon, 1e-5) guarantee alone."""
    epsilon, curves = settings.measured(HEADLINE).epsilon(published.DELTA), settings.dpsgd_curves(HEADLINE)
    reported = [adp_tradeoff(value, published.DELTA) for value in (epsilon.lower, epsilon.upper)]

    def rates(fpr: float, unit: float = 1.0) -> dict[str, NumberPair]:
        """Both bounds of the true positive rate, of the run and of its pair."""
        a, b, c, d = (unit * float(tpr(curve, fpr)) for curve in (curves.attack, curves.guarantee, *reported))
        return {"tpr": (a, b), "tpr_of_epsilon": (c, d)}

    table = Sheet("rates")
    for fpr in watched(_FPR, progress):
        table.add(fpr=fpr, **rates(fpr))
    return Computed([table, Sheet().unlisted(**rates(published.QUOTED_FPR, 100.0))], {"epsilon": epsilon.upper})


def topdown(progress: ItemProgress) -> Computed:
    """mu of the 2020 Census TopDown algorithm, for the rounded and for the production value of rho."""
    table = Sheet()
    budgets = {"ρ = 3.65": published.TOPDOWN_RHO_ROUNDED, "ρ = (485/254)²": settings.TOPDOWN_RHO_PRODUCTION}
    for name, rho in watched(budgets.items(), progress):
        entry = settings.fit(settings.topdown_curves(rho))
        table.add(rho=rho, mu=entry.mu, mu_continuous=math.sqrt(2.0 * rho), regret=entry.regret).unlisted(name=name)
    return Computed([table])


def renyi_minimum(progress: ItemProgress) -> Computed:
    """Appendix A.6 with the minimum over orders as printed, and with the maximum, which is what the orders imply."""
    values, curves, table = settings.rdp_values(HEADLINE), settings.dpsgd_curves(HEADLINE), Sheet("rates")
    orders = watched(zip(settings.ORDERS, values, strict=True), progress)
    singles = [rdp_tradeoff(float(order), float(value)) for order, value in orders]
    together = rdp_tradeoff(settings.ORDERS, values)
    for alpha in (0.01, 0.1, 0.3):
        betas = [float(curve(alpha)) for curve in singles]
        true = float(curves.guarantee(alpha)), float(curves.attack(alpha))
        table.add(alpha=alpha, beta=true, implied=float(together(alpha)), maximum=max(betas), minimum=min(betas))
    return Computed([table])
