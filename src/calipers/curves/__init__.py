"""Trade-off curves and the numbers read off them: profile, GDP and regret, Renyi, risk."""

from __future__ import annotations

from calipers.curves.envelope import Envelope, advantage, bayes_error, separation, tpr
from calipers.curves.gdp import (
    bayes_regret,
    delta_divergence,
    gaussian_curve,
    gdp_mu,
    regret,
    symmetric_divergence,
)
from calipers.curves.rdp_curve import adp_tradeoff, optimal_delta_from_rdp, rdp_tradeoff, zcdp_tradeoff
from calipers.curves.renyi import (
    delta_from_rdp,
    epsilon_from_rdp,
    rdp_of_curve,
    rdp_of_gdp,
    zcdp_rho,
)
from calipers.curves.tradeoff import TradeoffCurve, compare

__all__ = [
    "Envelope",
    "TradeoffCurve",
    "adp_tradeoff",
    "advantage",
    "bayes_error",
    "bayes_regret",
    "compare",
    "delta_divergence",
    "delta_from_rdp",
    "epsilon_from_rdp",
    "gaussian_curve",
    "gdp_mu",
    "optimal_delta_from_rdp",
    "rdp_of_curve",
    "rdp_of_gdp",
    "rdp_tradeoff",
    "regret",
    "separation",
    "symmetric_divergence",
    "tpr",
    "zcdp_rho",
    "zcdp_tradeoff",
]
