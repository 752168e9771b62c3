"""The bounds of a guarantee that somebody states, without a word about the mechanism behind it.

**(epsilon, delta)-DP** has a worst mechanism, randomized response with a mass delta that gives the dataset away
(Kairouz, Oh, Viswanath): one pair is proven and attained, and everything is closed form. Its trade-off curve has three
straight pieces. **mu-GDP** is the Gaussian mechanism. **rho-zCDP** has no single worst mechanism: what it implies and
what some rho-zCDP mechanism attains are two curves (`calipers.mechanisms.concentrated`).

The lower bound is about the guarantee, not about the mechanism that earned it: it is what *some* mechanism with this
guarantee leaks. The one behind it may leak less, which no statement of this kind can show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.rdp_curve import adp_tradeoff
from calipers.curves.renyi import epsilon_from_rdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.measure.closed import CurveJaw, KnownCurve, one_gaussian
from calipers.measure.jaw import Evaluation, Found
from calipers.mechanisms.concentrated import attained_curve, guarantee_curve
from calipers.numerics.decimals import setting
from calipers.stated import Guarantee

_SLACK = 1e-13
_ORDERS = 1.0 + np.geomspace(1e-3, 1e5, 4001)
SOME = "The lower bound is what some mechanism with this guarantee leaks; the one behind the statement may leak less."


@implements("calipers:stated-pair")
def stated_pair(epsilon: float, delta: float) -> Evaluation:
    """(epsilon, delta)-DP and nothing else: three straight pieces, closed forms."""
    proof = Evidence.of(
        Kind.THEOREM,
        "calipers:stated-pair",
        f"The mechanism is said to be ({setting(epsilon)}, {setting(delta)})-DP. Randomized response with a mass delta "
        "in the clear dominates every such mechanism.",
    )
    attack = Evidence.of(
        Kind.TEST,
        "calipers:stated-pair",
        f"{SOME} Randomized response that answers truly with odds e^epsilon, and with probability delta shows the "
        "record itself, attains it: claim the record where the answer is yes.",
    )
    above = StatedPair(adp_tradeoff(epsilon, delta), proof, epsilon, delta)
    return Evaluation(above, StatedPair(_response(epsilon, delta), attack, epsilon, delta), closes=True)


def _response(epsilon: float, delta: float) -> TradeoffCurve:
    """The tests on randomized response with a mass delta in the clear."""
    kept = 1.0 - delta
    # The chance to answer wrongly, rounded up: that of both errors when the answer is believed.
    wrong = kept / (1.0 + math.exp(epsilon)) * (1.0 + 8e-16)
    alphas, misses = np.array([0.0, wrong, kept]), np.array([kept, wrong, 0.0])
    return TradeoffCurve.from_tests(alphas, 1.0 - misses, 1.0 - alphas, misses, side=Side.LOWER)


@dataclass(frozen=True, eq=False)
class StatedPair(KnownCurve):
    """Either side of (stated_epsilon, stated_delta)-DP, exact at what is stated."""

    stated_epsilon: float
    stated_delta: float

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """At the stated delta exactly the stated epsilon; below it none."""
        if delta < self.stated_delta:
            return Found(math.inf, self.said)
        if delta == self.stated_delta:
            return Found(self.stated_epsilon, self.said)
        return Found(min(super().epsilon(delta, tolerance).value, self.stated_epsilon), self.said)

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """From the stated epsilon on exactly the stated delta."""
        if epsilon >= self.stated_epsilon:
            return Found(self.stated_delta, self.said)
        return super().delta(epsilon, tolerance)

    def renyi(self, order: float) -> Found:
        """Infinite where a mass delta may be in the clear."""
        if self.stated_delta > 0.0:
            raise UnsupportedError(
                f"An ({setting(self.stated_epsilon)}, {setting(self.stated_delta)})-DP guarantee allows outcomes "
                f"that only one dataset can produce, so the Renyi divergence of order {order:g} is infinite."
            )
        return super().renyi(order)


@dataclass(frozen=True)
class ConcentratedProof(CurveJaw):
    """What follows from Renyi divergences of at most xi + rho t."""

    rho: float
    xi: float = 0.0
    side = Side.UPPER

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """What the orders imply."""
        return guarantee_curve(self.rho, self.xi)

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """The curve, or the conversion of single orders where that is sharper."""
        orders = _ORDERS
        for _ in range(3):  # ever closer around the best order
            values = (
                self.xi
                + self.rho * orders
                - (math.log(delta) + np.log(orders)) / (orders - 1.0)
                + np.log1p(-1 / orders)
            )
            best = int(np.argmin(values))
            orders = np.linspace(orders[max(best - 1, 0)], orders[min(best + 1, len(orders) - 1)], 1001)
        single = epsilon_from_rdp(orders, self.xi + self.rho * orders, delta)
        read = super().epsilon(delta, tolerance)
        return Found(min(read.value, single), read.evidence)

    def renyi(self, order: float) -> Found:
        """xi + rho t: the guarantee."""
        return Found((self.xi + self.rho * order) * (1.0 + _SLACK), self.evidence())

    def evidence(self) -> Evidence:
        """The Renyi bounds as a trade-off curve."""
        allowed = "rho t" if self.xi == 0.0 else f"{self.xi:g} + rho t"
        text = (
            f"The mechanism is said to be {self.rho:.12g}-zCDP: its Renyi divergence of every order t > 1 is at most "
            f"{allowed}, and each order excludes error rates whose coins would exceed it."
        )
        return Evidence.of(Kind.THEOREM, "gomez2025:a6", text)


@dataclass(frozen=True)
class ConcentratedAttack(CurveJaw):
    """What some rho-zCDP mechanisms attain."""

    rho: float
    xi: float = 0.0
    side = Side.LOWER

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """What Gaussian noise and biased coins attain."""
        return attained_curve(self.rho, self.xi)

    def renyi(self, order: float) -> Found:
        """rho t is attained by the Gaussian mechanism."""
        return Found(self.rho * order * (1.0 - _SLACK), self.evidence())

    def evidence(self) -> Evidence:
        """A mechanism that has the guarantee."""
        text = (
            f"{SOME} Shown by the Gaussian mechanism with mu = sqrt(2 rho) and by biased coins whose Renyi "
            "divergences are at most rho t at every order: claim the record when the coin shows heads."
        )
        return Evidence.of(Kind.TEST, "calipers:zcdp-coins", text)


def stated_concentrated(rho: float, xi: float = 0.0) -> Evaluation:
    """(xi, rho)-zCDP and nothing else."""
    return Evaluation(ConcentratedProof(rho, xi), ConcentratedAttack(rho, xi))


def stated_guarantee(guarantee: Guarantee) -> Evaluation:
    """The bounds of a stated guarantee."""
    if guarantee.mu is not None:
        return one_gaussian(guarantee.mu, f"The mechanism is said to be {guarantee.mu:.12g}-GDP.")
    if guarantee.rho is not None:
        return stated_concentrated(guarantee.rho)
    assert guarantee.epsilon is not None
    assert guarantee.delta is not None
    return stated_pair(guarantee.epsilon, guarantee.delta)


def no_release() -> Evaluation:
    """An empty composition is (0, 0)-DP, perfect privacy: both datasets give the same (empty) output."""
    nothing = Evidence.of(Kind.THEOREM, "dong2022:cor2.13", "Nothing was released that could tell two datasets apart.")
    guess = Evidence.of(Kind.TEST, "dong2022:cor2.13", "Nothing was released: guessing is all that is left.")
    above, below = (
        StatedPair(TradeoffCurve.perfect_privacy(side), said, 0.0, 0.0)
        for side, said in ((Side.UPPER, nothing), (Side.LOWER, guess))
    )
    return Evaluation(above, below, closes=True)
