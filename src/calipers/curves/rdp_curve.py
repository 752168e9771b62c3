"""The trade-off curves implied by RDP, zCDP and (epsilon, delta)-DP guarantees.

**Region.** A test turns the pair into two coins, with heads probability 1 - beta under P and alpha under Q, and Renyi
divergence does not grow (data processing). So (t, e)-RDP implies

    (1-beta)^t alpha^(1-t) + beta^t (1-alpha)^(1-t)  <= e^((t-1) e)    (t > 1; >= for t < 1; Kullback-Leibler at t = 1)

and the same with alpha and beta swapped. Each left side is jointly convex (concave for t < 1), so the region of
possible (alpha, beta) is convex and its lower boundary is the implied curve (Gomez et al., Appendix A.6; Balle et al.).

**Certificate.** Points on a convex boundary joined by chords would lie above it. Calipers takes supporting lines
instead: if F is convex and x0 violates F <= c, every x with F(x) <= c has grad F(x0) (x - x0) <= 0. So each point found
just outside the region gives one valid line beta >= beta0 - k (alpha - alpha0), that is, a node (log k, delta) of the
profile, and the maximum of lines is a curve at or below the implied one. With r = (1-beta)/alpha, s = beta/(1-alpha),

    k = (t-1)/t (r^t - s^t)/(r^(t-1) - s^(t-1)),   and (r - s)/(log r - log s) at t = 1.

The profile of that curve is the optimal conversion of one order to (eps, delta) in both directions (Asoodeh et al.),
approached from above.

**A difference from the paper.** Appendix A.6 takes, for several orders, "the minimum over the resulting beta". All
orders hold at once and each forces beta >= beta_t, so the implied curve is the *maximum*. The minimum is a valid curve
too, but the weakest of the list. Here all lines of all orders enter one maximum.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves.points import UNIT
from calipers.curves.renyi import delta_from_rdp, epsilon_from_rdp, paired
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import COUNT, NON_NEGATIVE, POSITIVE, PROBABILITY, Domain
from calipers.numerics.elementary import checked
from calipers.numerics.types import FloatArray

_BISECTIONS = 64
_COARSE = 400
_SMALLEST_DELTA = 1e-100
_DEEPEST = 230.0
"""Supporting points reach alpha = e^-(rdp + 230): about 1e-100."""
# Orders for zCDP: dense near 1, where the small epsilon live, and out to where the tail of any sensible rho is decided.
_ZCDP_ORDERS = 1.0 + np.geomspace(1e-2, 1e4, 61)


@implements("gomez2025:a6")
def adp_tradeoff(epsilon: float, delta: float = 0.0) -> TradeoffCurve:
    """max(0, 1 - delta - e^eps alpha, e^-epsilon (1 - delta - alpha)): everything one (epsilon, delta) guarantee says.

    Post-condition: at or below the curve of every (epsilon, delta)-DP mechanism.
    """
    epsilon, delta = NON_NEGATIVE.check("epsilon", epsilon), PROBABILITY.check("delta", delta)
    return TradeoffCurve.from_profile([epsilon], [delta], Side.UPPER, symmetric=True)


def _log_expm1(y: FloatArray) -> FloatArray:
    """log(e^y - 1) for y > 0, without overflow."""
    return np.where(y > 30.0, y, np.log(np.expm1(np.minimum(y, 30.0))))


class _Outside:
    """Points (alpha, beta = e^m (1 - alpha)), m < 0, and the divergence of their coins; everything elementwise."""

    def __init__(self, order: FloatArray, alpha: FloatArray, alpha_c: FloatArray, m: FloatArray) -> None:
        self.alpha, self.alpha_c, self.order, self.m = alpha, alpha_c, order, m
        self.gap = -np.expm1(m) * alpha_c  # 1 - beta - alpha
        self.beta = np.exp(m) * alpha_c
        self.beta_c = alpha + self.gap
        self.log_r = np.log1p(self.gap / alpha)

    def excess(self, bound: FloatArray) -> FloatArray:
        """(order - 1)(divergence - bound) times the sign of order - 1, less its rounding: > 0 proves "outside"."""
        t = self.order - 1.0
        up, down = t * self.log_r, t * self.m
        log_beta, log_beta_c = self.m + np.log(self.alpha_c), np.log(self.beta_c)
        gained = self.beta_c * np.expm1(np.clip(up, -31.0, 31.0))
        lost = self.beta * np.expm1(np.clip(down, -31.0, 31.0))
        large = (np.abs(up) > 30.0) | (np.abs(down) > 30.0) | (gained + lost < -0.5)
        moderate = np.log1p(np.maximum(gained + lost, -0.5))
        size = np.abs(gained) * (1.0 + np.abs(up)) + np.abs(lost) * (1.0 + np.abs(down))
        far = np.logaddexp(log_beta_c + up, log_beta + down)
        far_size = 2.0 + np.abs(up) + np.abs(down) + np.abs(log_beta) + np.abs(log_beta_c)
        log_f = np.where(large, far, moderate)
        # The moderate form may divide its absolute error by 1 + (gained + lost) >= 1/2.
        size = np.where(large, far_size, 2.0 * size)
        kl = self.beta * self.m + self.beta_c * self.log_r
        kl_size = np.abs(self.beta * self.m) + self.beta_c * self.log_r
        unit = t == 0.0
        value = np.where(unit, kl, np.sign(t) * log_f)
        rounding = 32.0 * UNIT * np.where(unit, kl_size, size)
        return np.asarray(value - np.where(unit, 1.0, np.abs(t)) * bound - rounding, dtype=np.float64)

    def log_slope(self) -> tuple[FloatArray, FloatArray]:
        """log k of the supporting line, and a bound of its rounding."""
        t = self.order
        span = self.log_r - self.m
        with np.errstate(divide="ignore", invalid="ignore"):
            side = np.abs(t - 1.0) * span
            # For t < 1 the denominator is s^(t-1) - r^(t-1) = s^(t-1) (1 - e^(-(1-t) span)).
            below = np.where(t > 1.0, _log_expm1(side), np.log(-np.expm1(-side)))
            general = np.log(np.abs(t - 1.0) / t) + self.m + _log_expm1(t * span) - below
            unit = self.m + _log_expm1(span) - np.log(span)
            pieces = np.where(t == 1.0, 0.0, np.abs(np.log(np.abs(t - 1.0) / t)) + np.abs(below))
        value = np.where(t == 1.0, unit, general)
        rounding = 64.0 * UNIT * (2.0 + t * span + np.abs(np.log(span)) + np.abs(self.m) + np.abs(value) + pieces)
        return value, rounding


def _default_depths(count: int) -> FloatArray:
    """How far -log alpha goes beyond the bound e, at which a test without misses becomes possible."""
    eighth = max(count // 8, 2)
    near, bulk = np.geomspace(1e-8, 1e-2, eighth), np.geomspace(1.1e-2, 20.0, 5 * eighth)
    return np.concatenate((near, bulk, np.linspace(21.0, _DEEPEST, 2 * eighth)))


def _supports(order: FloatArray, bound: FloatArray, depth: FloatArray) -> tuple[_Outside, FloatArray, FloatArray]:
    """Points just outside the region, one for each order and depth, with log k and its rounding; NaN if unproven."""
    exponent = (bound[:, None] + depth[None, :]).ravel()
    within = exponent < 700.0  # smaller alpha underflows; leaving a line out only lowers the curve
    exponent = exponent[within]
    t, e = np.repeat(order, depth.size)[within], np.repeat(bound, depth.size)[within]
    alpha, alpha_c = np.exp(-exponent), -np.expm1(-exponent)
    # beta decreases from 1 - alpha (divergence 0) to 0 as v = log(-m) grows; the far end of the bracket is outside.
    inside, outside = np.full(t.size, -740.0), np.full(t.size, 6.5)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (inside + outside)
        proven = _Outside(t, alpha, alpha_c, -np.exp(middle)).excess(e) > 0.0
        inside, outside = np.where(proven, inside, middle), np.where(proven, middle, outside)
    found = _Outside(t, alpha, alpha_c, -np.exp(outside))
    log_k, rounding = found.log_slope()
    return found, np.where((found.excess(e) > 0.0) & np.isfinite(rounding), log_k, np.nan), rounding


def _nodes(order: FloatArray, bound: FloatArray, depth: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Profile nodes (epsilon >= 0, delta), valid in both directions, one supporting line for each order and depth."""
    found, log_k, rounding = _supports(order, bound, depth)
    # On the side alpha <= beta the first inequality binds (t >= 1/2) and its lines have k >= 1; the rest of the
    # boundary is their mirror image, which symmetric=True adds. Lines with k < 1 touch where the mirrored inequality
    # is the stronger one, and are left out.
    steep = log_k >= 0.0  # NaN is not
    alpha, beta_c = found.alpha[steep], found.beta_c[steep]
    # Rounding k up keeps the line valid (alpha >= 0); delta uses k rounded down.
    k_low = np.exp(np.minimum((log_k - rounding)[steep], 700.0))
    # A valid line passes below (0, 1), so its delta is not negative; what rounding makes of it is added.
    delta = np.maximum(found.gap[steep] + (alpha - k_low * alpha), 0.0) + 16.0 * UNIT * beta_c
    return (log_k + rounding)[steep], np.minimum(delta, 1.0)


def _checked(orders: ArrayLike, rdp: ArrayLike) -> tuple[FloatArray, FloatArray]:
    t, e = paired(orders, rdp, Domain(0.5, math.inf), "")
    return t, checked(NON_NEGATIVE, "rdp", e, "Leave out the orders without a finite value.")


@implements("gomez2025:a6")
def rdp_tradeoff(orders: ArrayLike, rdp: ArrayLike, points: int = 200) -> TradeoffCurve:
    """The curve implied by (t, e)-RDP at one or several orders t >= 1/2, all of them holding at once.

    Post-condition: at or below the curve of every mechanism with these guarantees, in both directions, rounding
    included. More `points` (supporting lines per order) bring it closer to the implied curve.
    """
    t, e = _checked(orders, rdp)
    count = COUNT.check_int("points", points)
    epsilon, delta = _nodes(t, e, _default_depths(count))
    large = t > 1.0
    if large.any():
        # The closed form is nearly optimal in the far tail, where supporting points would have to be very dense.
        tail = np.linspace(0.0, epsilon_from_rdp(t[large], e[large], _SMALLEST_DELTA), 4 * count)
        epsilon = np.concatenate((epsilon, tail))
        delta = np.concatenate((delta, delta_from_rdp(t[large], e[large], tail)))
    if epsilon.size == 0:
        # Every line underflowed: the guarantee says nothing a float can hold.
        return TradeoffCurve.from_profile([0.0], [1.0], Side.UPPER, symmetric=True)
    return TradeoffCurve.from_profile(epsilon, delta, Side.UPPER, symmetric=True)


@implements("gomez2025:a6")
def zcdp_tradeoff(rho: float, points: int = 100) -> TradeoffCurve:
    """The curve implied by rho-zCDP, from a grid of orders.

    Post-condition: at or below the curve of every rho-zCDP mechanism (a subset of orders only lowers it).
    """
    rho = POSITIVE.check("rho", rho)
    return rdp_tradeoff(_ZCDP_ORDERS, rho * _ZCDP_ORDERS, points)


def optimal_delta_from_rdp(order: float, rdp: float, epsilon: float) -> float:
    """The optimal conversion of one order, from above: supporting lines gathered around the slope e^epsilon.

    Post-condition: returned >= the delta(eps) of every mechanism that is (order, rdp)-RDP in both directions; and at
    most `delta_from_rdp`.
    """
    t, e = _checked(order, rdp)
    epsilon = NON_NEGATIVE.check("epsilon", epsilon)
    depth = _default_depths(_COARSE)
    eps_nodes, delta_nodes = _nodes(t, e, depth)
    _, log_k, _ = _supports(t, e, depth)
    reached = np.flatnonzero(log_k >= epsilon)
    if reached.size:
        first = int(reached[0])
        close = np.linspace(depth[max(first - 1, 0)], depth[first], _COARSE)
        more_eps, more_delta = _nodes(t, e, close)
        eps_nodes, delta_nodes = np.concatenate((eps_nodes, more_eps)), np.concatenate((delta_nodes, more_delta))
    if eps_nodes.size == 0:
        return 1.0
    value = float(TradeoffCurve.from_profile(eps_nodes, delta_nodes, Side.UPPER, symmetric=True).delta(epsilon))
    return min(value, float(delta_from_rdp(t, e, epsilon))) if t[0] > 1.0 else value
