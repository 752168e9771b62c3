"""Renyi differential privacy and zCDP: numbers to and from trade-off curves.

(t, e)-RDP bounds the Renyi divergence of order t by e, in both directions; rho-zCDP is (t, rho t)-RDP at every t > 1.

From RDP to (epsilon, delta), Canonne, Kamath and Steinke (Proposition 12, v4): for t > 1

    delta = exp((t - 1)(e - epsilon)) / (t - 1) * (1 - 1/t)^t,

an upper bound for each order, so the smallest over orders is one. The best conversion of a single order (Asoodeh et
al.) is the profile of the curve in `calipers.curves.rdp_curve`; `optimal_delta_from_rdp` reads it there.

From a curve to RDP: the segments of a piecewise linear curve are the atoms of a pair, and Renyi divergence respects the
Blackwell order. So the divergence of an UPPER curve's atoms is an upper bound of the truth, of a LOWER curve's a lower
bound. A curve with f(0) < 1 has infinite divergence at every order t >= 1 in the direction P against Q.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves.points import TINY, UNIT
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, POSITIVE, POSITIVE_PROBABILITY, Domain
from calipers.errors import InputError
from calipers.numerics.elementary import checked
from calipers.numerics.types import FloatArray

_ROUNDING = 1e-13
"""Relative rounding of the closed forms below, added to the upper bound."""
_FARTHEST = 1e100
_ORDERS = Domain(1.0, math.inf, low_open=True)


def paired(
    orders: ArrayLike, rdp: ArrayLike, domain: Domain = _ORDERS, remedy: str = "Orders up to 1 go through rdp_tradeoff."
) -> tuple[FloatArray, FloatArray]:
    """The orders, checked, and as many values of at least 0, which may be infinite."""
    t, e = np.atleast_1d(checked(domain, "orders", orders, remedy)), np.array(rdp, dtype=np.float64, ndmin=1)
    if t.shape != e.shape or t.ndim != 1 or t.size == 0:
        raise InputError(f"Expected one rdp value per order, got {t.size} orders and {e.size} values.")
    if not np.all(e >= 0.0):
        raise InputError(f"Expected rdp in [0, inf], got rdp={rdp!r}.")
    return t, e


@implements("canonne2020:prop12")
def delta_from_rdp(orders: ArrayLike, rdp: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """A delta for which every mechanism with these RDP values is (epsilon, delta)-DP, at each epsilon >= 0.

    Post-condition: returned >= the true delta(epsilon), rounding included; the best of the given orders.
    """
    t, e = paired(orders, rdp)
    # Delta falls as epsilon grows: what holds at the farthest epsilon that can be computed with holds beyond it.
    column = np.minimum(checked(NON_NEGATIVE, "epsilon", epsilon), _FARTHEST)[..., None]
    constant = t * np.log1p(-1.0 / t) - np.log(t - 1.0)
    log_delta = (t - 1.0) * (e - column) + constant
    size = (t - 1.0) * (e + column) + np.abs(np.log(t - 1.0)) - t * np.log1p(-1.0 / t) + 1.0
    best = np.min(log_delta + _ROUNDING * size, axis=-1)
    # A probability is at most 1; below the smallest float the bound stops there instead of claiming 0.
    return np.asarray(np.maximum(np.exp(np.minimum(best, 0.0)), TINY), dtype=np.float64)


@implements("canonne2020:prop12")
def epsilon_from_rdp(orders: ArrayLike, rdp: ArrayLike, delta: float) -> float:
    """An eps >= 0 for which every mechanism with these RDP values is (epsilon, delta)-DP; inf if no order is finite.

    Post-condition: returned >= the true epsilon(delta), rounding included.
    """
    t, e = paired(orders, rdp)
    delta = POSITIVE_PROBABILITY.check("delta", delta)
    shift = -(math.log(delta) + np.log(t)) / (t - 1.0)
    epsilon = e + np.log1p(-1.0 / t) + shift
    size = e - np.log1p(-1.0 / t) + (abs(math.log(delta)) + np.log(t)) / (t - 1.0)
    return max(float(np.min(epsilon + _ROUNDING * size)), 0.0)


@implements("gomez2025:eq25")
def zcdp_rho(orders: ArrayLike, rdp: ArrayLike) -> float:
    """max over the given orders of rdp/t, the rho* of these orders.

    Post-condition: no rho below the returned one is consistent with these divergences if they are exact. It is a
    guarantee only if no order outside the list needs more, which a grid of orders does not prove.
    """
    t, e = paired(orders, rdp)
    return float(np.max(e / t))


@implements("bun2016:prop1.6")
def rdp_of_gdp(mu: float, order: float) -> float:
    """order mu^2/2, the Renyi divergence of N(mu, 1) and N(0, 1) at any order > 0.

    So mu-GDP implies rho-zCDP with rho = mu^2/2, that of order 1, and no smaller rho holds for the Gaussian mechanism.
    """
    return 0.5 * POSITIVE.check("order", order) * POSITIVE.check("mu", mu) ** 2


def _divergence(p: FloatArray, q: FloatArray, p_inf: float, order: float) -> tuple[float, float]:
    """Renyi divergence of (p, q) and an absolute bound of its rounding."""
    if p.size == 0 or (p_inf > 0.0 and order >= 1.0):
        return math.inf, 0.0
    log_p, log_q = np.log(p), np.log(q)
    if order == 1.0:
        # With r = q/p - 1, sum p log(p/q) = sum p (r - log(1 + r)) as the masses agree: terms >= 0, no cancellation.
        ratio = np.expm1(log_q - log_p)
        terms = p * (ratio - (log_q - log_p))
        return max(float(np.sum(terms)), 0.0), 16.0 * UNIT * float(np.sum(np.abs(p * ratio) + q + p))
    exponent = (order - 1.0) * (log_p - log_q)
    if float(np.max(np.abs(exponent))) < 1.0:
        # sum p e^x = 1 - p_inf + sum p (e^x - 1), the masses of P being 1 in all: digits survive near order 1.
        growth = p * np.expm1(exponent)
        total = float(np.sum(growth)) - p_inf
        slack = 16.0 * UNIT * (p_inf + math.sqrt(p.size) * float(np.sum(np.abs(growth)))) / (1.0 + min(total, 0.0))
        return math.log1p(total) / (order - 1.0), (slack + 4.0 * UNIT * abs(total)) / abs(order - 1.0)
    log_sum = float(special.logsumexp(order * log_p + (1.0 - order) * log_q))
    size = 1.0 + float(np.max(np.abs(order * log_p) + np.abs((1.0 - order) * log_q)))
    slack = 16.0 * UNIT * (size + math.sqrt(p.size)) / abs(order - 1.0)
    return log_sum / (order - 1.0), slack


def rdp_of_curve(curve: TradeoffCurve, order: float) -> float:
    """The larger of the two Renyi divergences of order > 0 between the pair of the curve.

    Post-condition: at least that of the true pair (UPPER), at most (LOWER), rounding included.
    """
    order = POSITIVE.check("order", order)
    p, q, p_inf, q_zero = curve.atoms
    pairs = ((p, q, p_inf), (q, p, q_zero))
    sign = 1.0 if curve.side is Side.UPPER else -1.0
    values = [value + sign * slack for value, slack in (_divergence(*pair, order) for pair in pairs)]
    return max(*values, 0.0)
