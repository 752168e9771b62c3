"""A rho-zCDP guarantee taken as a mechanism: what it proves, and what some rho-zCDP mechanism attains.

rho-zCDP bounds the Renyi divergence of every order t > 1 by rho t, in both directions. Unlike an (epsilon, delta)
guarantee it has no single worst mechanism, so the two bounds are different objects:

**Above**, every rho-zCDP mechanism lies above the curve that the orders imply (`calipers.curves.rdp_curve`).

**Below**, two families of mechanisms that *are* rho-zCDP. The Gaussian mechanism with mu = sqrt(2 rho) has
divergence exactly rho t. A biased coin, heads with probability 1 - b on one dataset and a on the other, shows nothing
but one bit; if its divergences stay below rho t at every order in both directions, it is rho-zCDP and attains the
point (a, b) of the trade-off region. By data processing no rho-zCDP mechanism passes a point whose coin is not
rho-zCDP, so coins are the worst case at every point, and mixing mechanisms with a coin that everybody sees (which is
rho-zCDP again, exp((t - 1) D_t) being an average) attains the convex hull.

**A coin is checked at every order, not on a grid.** g(t) = (t - 1) D_t is convex, so between two grid points it
lies below its chord, and the chord of rho t (t - 1) lies above that parabola by at most rho h^2 / 4. So
g(t_i) <= rho t_i (t_i - 1) - rho h^2 / 4 at all grid points settles the orders between them; D_t <= D_(t_1) <= rho
those from 1 to the first; and D_t <= log of the largest ratio <= rho t those beyond the last.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves.gdp import gaussian_curve
from calipers.curves.rdp_curve import rdp_tradeoff, zcdp_tradeoff
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, Domain
from calipers.mechanisms.gaussian import gaussian
from calipers.numerics.types import BoolArray, FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.profile_pmf import pmf_of_curve
from calipers.pld.core.source import TwoSidedPair

RHO = Domain(1e-8, 200.0)
ORDERS = 1.0 + np.geomspace(1e-2, 1e4, 61)
_FIRST_STEP, _ORDERS = 1e-3, 600
_SHARES = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
"""How far a coin is moved from the edge of the region towards guessing before it is checked."""


@dataclass(frozen=True)
class Concentrated(TwoSidedPair):
    """Everything that is (xi, rho)-zCDP: pessimistic PLDs dominate it, optimistic PLDs are those of a Gaussian
    mechanism.
    """

    rho: float
    xi: float = 0.0
    symmetric: ClassVar[bool] = True
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0
    exact: ClassVar[bool] = False
    """No single mechanism attains all that the guarantee allows."""

    def __post_init__(self) -> None:
        RHO.check("rho", self.rho)
        NON_NEGATIVE.check("xi", self.xi)

    @property
    def concentrated(self) -> tuple[float, float]:  # type: ignore[override]
        """The guarantee."""
        return self.rho, self.xi

    @property
    def words(self) -> str:
        """The guarantee in words."""
        return f"({self.xi:.12g}, {self.rho:.12g})-zCDP" if self.xi else f"{self.rho:.12g}-zCDP"

    @property
    def shift(self) -> float:
        """mu = sqrt(2 rho) of the Gaussian mechanism that is rho-zCDP and no better, rounded down."""
        return math.sqrt(2.0 * self.rho) * (1.0 - 4e-16)

    @property
    def slope(self) -> float:
        """That of the Gaussian mechanism."""
        return self.shift

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD of the curve that the guarantee implies."""
        return pmf_of_curve(guarantee_curve(self.rho, self.xi))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD of the Gaussian mechanism."""
        return gaussian(self.shift).lower(resolution, log_tail)

    def log_moment_bound(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^t] for t > 1: (t - 1)(xi + t rho), which is what the guarantee says."""
        return (order - 1.0) * (self.xi + order * self.rho)


@functools.lru_cache(maxsize=32)
def guarantee_curve(rho: float, xi: float = 0.0) -> TradeoffCurve:
    """The UPPER curve that (xi, rho)-zCDP implies: Renyi divergences of at most xi + rho t."""
    return zcdp_tradeoff(rho, 200) if xi == 0.0 else rdp_tradeoff(ORDERS, xi + rho * ORDERS, 200)


@implements("calipers:zcdp-coins")
@functools.lru_cache(maxsize=32)
def attained_curve(rho: float, xi: float = 0.0) -> TradeoffCurve:
    """A LOWER curve: every point of it is attained by some (xi, rho)-zCDP mechanism."""
    edge = guarantee_curve(rho, xi)
    alpha, beta, _, power = edge.points
    proper = (alpha > 1e-290) & (alpha < 0.5) & (beta > 0.0) & (power > alpha)
    alpha, beta, power = alpha[proper], beta[proper], power[proper]
    normal = gaussian_curve(math.sqrt(2.0 * rho) * (1.0 - 4e-16), Side.LOWER)
    tests: list[tuple[FloatArray, ...]] = [tuple(normal.points)]
    for share in _SHARES:
        # Towards guessing: all but `share` of the gain is kept.
        kept_power, kept_miss = power - share * (power - alpha), beta + share * (power - alpha)
        passes = coins_hold(rho, alpha, kept_power, kept_miss, xi)
        tests.append((alpha[passes], kept_miss[passes], 1.0 - alpha[passes], kept_power[passes]))
        alpha, beta, power = alpha[~passes], beta[~passes], power[~passes]
    alphas, misses, complements, powers = (np.concatenate(column) for column in zip(*tests, strict=True))
    return TradeoffCurve.from_tests(alphas, powers, complements, misses, side=Side.LOWER).symmetrized()


def coins_hold(rho: float, alpha: FloatArray, power: FloatArray, miss: FloatArray, xi: float = 0.0) -> BoolArray:
    """Which coins (heads with probability alpha, or power = 1 - miss) are proven to be (xi, rho)-zCDP."""
    if len(alpha) == 0:
        return np.zeros(0, dtype=bool)
    log_up, log_down = np.log(power / alpha), np.log(miss / (1.0 - alpha))
    far = float(np.max(np.maximum(np.abs(log_up), np.abs(log_down)))) / rho * (1.0 + 1e-9)
    order = 1.0 + np.geomspace(_FIRST_STEP, max(far, 2.0), _ORDERS)
    gaps = np.diff(order, prepend=order[0], append=order[-1])
    holds = np.ones(len(alpha), dtype=bool)
    for position, t in enumerate(order):
        # Up to the first order the divergence is compared with what order 1 allows.
        allowed = (t - 1.0) * (xi + rho * (t if position else 1.0)) - 0.25 * rho * max(
            gaps[position : position + 2]
        ) ** 2
        for heads, tails, up, down in ((power, miss, log_up, log_down), (alpha, 1.0 - alpha, -log_up, -log_down)):
            moment = np.logaddexp(np.log(heads) + (t - 1.0) * up, np.log(tails) + (t - 1.0) * down)
            rounding = 1e-14 * (2.0 + t * (np.abs(up) + np.abs(down)) + np.abs(np.log(alpha)))
            holds &= moment + rounding <= allowed
    return holds
