"""How much each concise way to report privacy overstates the leakage of a mechanism (Figure 1c, Table 1).

Every representation implies a trade-off curve at or below the true one, and its regret is the Delta-divergence from the
true curve to the implied one. We put the attack in the place of the true curve, so every regret here is an upper
bound; the attack is so close that the difference is below 1e-4.

- (epsilon, delta): the two lines of Equation 2 at delta = 1e-5, with the upper bound of epsilon.
- RDP: all orders of a grid at once. "Proposition 12" converts each order to a profile as the paper does (Canonne et
  al.); "optimal" takes the region of Appendix A.6, whose curve is the best that these orders imply.
- zCDP: rho must hold at *every* order t > 1. For subsampled Gaussians that is rho = T/(2 sigma^2), as if there were no
  subsampling. A grid of orders, which the paper uses, gives a smaller rho that is no zCDP guarantee; "orders up to 64"
  shows it.
- GDP: mu up to delta0 = 1e-10.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from calipers.bracket import Side
from calipers.curves import (
    TradeoffCurve,
    adp_tradeoff,
    delta_divergence,
    delta_from_rdp,
    rdp_tradeoff,
    zcdp_rho,
    zcdp_tradeoff,
)
from calipers.mechanisms import compose, laplace
from calipers.numerics.types import FloatArray
from calipers.papers.gomez2025 import published, settings
from calipers.pld.composition.renyi import renyi
from calipers.run import Run

_PROFILE_POINTS = 1500


Regrets = dict[str, float]
"""Upper bounds of the regret of each representation of one mechanism.

`curve`, from the attack to the guarantee, is what is left when the whole curve is reported.
"""


def _converted(orders: FloatArray, values: FloatArray) -> TradeoffCurve:
    """The curve of the profile that Proposition 12 (v4) of Canonne et al. gives, best order at each epsilon."""
    farthest = float(np.min(values + 60.0 / (orders - 1.0)))
    epsilon = np.linspace(0.0, farthest, _PROFILE_POINTS)
    return TradeoffCurve.from_profile(epsilon, delta_from_rdp(orders, values, epsilon), Side.UPPER, symmetric=True)


def _regrets(curves: settings.Curves, pure: TradeoffCurve, epsilon: float, values: FloatArray, rho: float) -> Regrets:
    implied = {
        "pure": pure,
        "epsilon_delta": adp_tradeoff(epsilon, published.DELTA),
        "rdp_as_published": _converted(settings.ORDERS, values),
        "rdp_optimal": rdp_tradeoff(settings.ORDERS, values),
        "zcdp": zcdp_tradeoff(rho),
        "zcdp_on_grid": zcdp_tradeoff(zcdp_rho(settings.ORDERS, values)),
    }
    found = {name: delta_divergence(curves.attack, curve) for name, curve in implied.items()}
    return found | {"gdp": settings.fit(curves).regret[1], "curve": delta_divergence(curves.attack, curves.guarantee)}


@cache
def dpsgd_regrets(run: Run) -> Regrets:
    """The regrets of a DP-SGD run. Pure DP has no finite epsilon here: its curve is zero everywhere."""
    epsilon, rho = settings.measured(run).epsilon(published.DELTA).upper, settings.rho_over_all_orders(run)
    return _regrets(settings.dpsgd_curves(run), adp_tradeoff(0.0, 1.0), epsilon, settings.rdp_values(run), rho)


@cache
def laplace_regrets() -> Regrets:
    """The regrets of the Laplace mechanism with scale 1.

    It is 1-DP, and every 1-DP mechanism is 1/2-zCDP (Bun and Steinke, Proposition 1.4): that is `zcdp`. The largest
    D_t/t on the grid, near t = 1, is smaller and no proof.
    """
    curves = settings.laplace_curves()
    values = np.array([renyi(compose(laplace(1.0)), float(order)).upper for order in settings.ORDERS])
    return _regrets(curves, adp_tradeoff(1.0), curves.guarantee.epsilon(published.DELTA), values, 0.5)
