"""The jaws of a guarantee that somebody states, without a word about the mechanism behind it.

**(epsilon, delta)-DP** has a worst mechanism, randomized response with a mass delta that gives the dataset away
(Kairouz, Oh, Viswanath): one pair is proven and attained, and everything is closed form. Its trade-off curve has three
straight pieces. **mu-GDP** is the Gaussian mechanism. **rho-zCDP** has no single worst mechanism: what it implies and
what some rho-zCDP mechanism attains are two curves (`calipers.mechanisms.concentrated`).

The lower jaw is about the guarantee, not about the mechanism that earned it: it is what *some* mechanism with this
guarantee leaks. The one behind it may leak less, which no statement of this kind can show.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import add_statement, implements
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gdp_mu
from calipers.curves.rdp_curve import adp_tradeoff
from calipers.curves.renyi import epsilon_from_rdp, rdp_of_curve
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.laws.composed.direction import Jaws
from calipers.measure.backends import Backend, GaussianBackend
from calipers.mechanisms.concentrated import attained_curve, guarantee_curve
from calipers.stated import Guarantee

add_statement(
    "calipers:stated-pair",
    "docs/guarantees: an (epsilon, delta) guarantee has a worst mechanism",
    "Randomized response with a mass delta in the clear is (epsilon, delta)-DP, and dominates all that are.",
)
_SLACK = 1e-13
_ORDERS = 1.0 + np.geomspace(1e-3, 1e5, 4001)
SOME = "The lower jaw is what some mechanism with this guarantee leaks; the one behind the statement may leak less."


@dataclass(frozen=True)
class _CurvesBackend(ABC):
    """Both jaws read off two symmetric curves; subclasses say which, and sharpen single numbers."""

    closes: ClassVar[bool] = True

    @abstractmethod
    def curve(self, side: Side) -> TradeoffCurve:
        """The curve of one side."""

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Read off the curves."""
        del tolerance
        return Jaws(self.curve(Side.LOWER).epsilon(delta), self.curve(Side.UPPER).epsilon(delta), math.inf, False)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """Read off the curves."""
        del tolerance
        low, high = (float(self.curve(side).delta(epsilon)) for side in (Side.LOWER, Side.UPPER))
        return Jaws(low, high, math.inf, False)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The two curves."""
        del smallest_delta, tolerance
        return {side: self.curve(side) for side in Side}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The same in both orders."""
        return {side: Envelope((curve,)) for side, curve in self.curves(smallest_delta, tolerance).items()}

    def renyi(self, order: float) -> Jaws:
        """Of the atoms of the two curves."""
        low, high = (rdp_of_curve(self.curve(side), order) for side in (Side.LOWER, Side.UPPER))
        return Jaws(low, high, math.inf, False)

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the two curves."""
        del tolerance
        return gdp_mu(self.curve(Side.LOWER), delta0), gdp_mu(self.curve(Side.UPPER), delta0)


@implements("calipers:stated-pair")
@dataclass(frozen=True)
class ApproximateBackend(_CurvesBackend):
    """(stated_epsilon, stated_delta)-DP and nothing else: three straight pieces, closed forms."""

    stated_epsilon: float
    stated_delta: float

    def curve(self, side: Side) -> TradeoffCurve:
        """UPPER: the guarantee. LOWER: the tests on randomized response with a mass delta in the clear."""
        if side is Side.UPPER:
            return adp_tradeoff(self.stated_epsilon, self.stated_delta)
        kept = 1.0 - self.stated_delta
        # The chance to answer wrongly, rounded up: that of both errors when the answer is believed.
        wrong = kept / (1.0 + math.exp(self.stated_epsilon)) * (1.0 + 8e-16)
        alphas, misses = np.array([0.0, wrong, kept]), np.array([kept, wrong, 0.0])
        return TradeoffCurve.from_tests(alphas, 1.0 - misses, 1.0 - alphas, misses, side=Side.LOWER)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """At the stated delta exactly the stated epsilon; below it none."""
        if delta < self.stated_delta:
            return Jaws(math.inf, math.inf, math.inf, False)
        if delta == self.stated_delta:
            return Jaws(self.stated_epsilon, self.stated_epsilon, self.stated_epsilon, False)
        found = super().epsilon(delta, tolerance)
        return Jaws(min(found.lower, self.stated_epsilon), min(found.upper, self.stated_epsilon), math.inf, False)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """From the stated epsilon on exactly the stated delta."""
        if epsilon >= self.stated_epsilon:
            return Jaws(self.stated_delta, self.stated_delta, epsilon, False)
        return super().delta(epsilon, tolerance)

    def renyi(self, order: float) -> Jaws:
        """Infinite where a mass delta may be in the clear."""
        if self.stated_delta > 0.0:
            raise UnsupportedError(
                f"An ({self.stated_epsilon:g}, {self.stated_delta:g})-DP guarantee allows outcomes that only one "
                f"dataset can produce, so the Renyi divergence of order {order:g} is infinite."
            )
        return super().renyi(order)

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The guarantee itself."""
        del jaws
        text = (
            f"The mechanism is said to be ({self.stated_epsilon:.12g}, {self.stated_delta:.12g})-DP. Randomized "
            "response with a mass delta in the clear dominates every such mechanism."
        )
        return Evidence.of(Kind.THEOREM, "calipers:stated-pair", text)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Randomized response has this guarantee and attains it."""
        del jaws
        text = (
            f"{SOME} Randomized response that answers truly with odds e^epsilon, and with probability delta shows the "
            "record itself, attains it: claim the record where the answer is yes."
        )
        return Evidence.of(Kind.TEST, "calipers:stated-pair", text)


@dataclass(frozen=True)
class ConcentratedBackend(_CurvesBackend):
    """rho-zCDP and nothing else."""

    rho: float
    xi: float = 0.0
    closes: ClassVar[bool] = False

    def curve(self, side: Side) -> TradeoffCurve:
        """UPPER: what the orders imply. LOWER: what Gaussian noise and biased coins attain."""
        make = guarantee_curve if side is Side.UPPER else attained_curve
        return make(self.rho, self.xi)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """The curve, or the conversion of single orders where that is sharper."""
        found = super().epsilon(delta, tolerance)
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
        return Jaws(found.lower, min(found.upper, single), math.inf, False)

    def renyi(self, order: float) -> Jaws:
        """xi + rho t: the guarantee; rho t is attained by the Gaussian mechanism."""
        attained, allowed = self.rho * order, self.xi + self.rho * order
        return Jaws(attained * (1.0 - _SLACK), allowed * (1.0 + _SLACK), math.inf, False)

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The Renyi bounds as a trade-off curve."""
        del jaws
        allowed = "rho t" if self.xi == 0.0 else f"{self.xi:g} + rho t"
        text = (
            f"The mechanism is said to be {self.rho:.12g}-zCDP: its Renyi divergence of every order t > 1 is at most "
            f"{allowed}, and each order excludes error rates whose coins would exceed it."
        )
        return Evidence.of(Kind.THEOREM, "gomez2025:a6", text)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """A mechanism that has the guarantee."""
        del jaws
        text = (
            f"{SOME} Shown by the Gaussian mechanism with mu = sqrt(2 rho) and by biased coins whose Renyi "
            "divergences are at most rho t at every order: claim the record when the coin shows heads."
        )
        return Evidence.of(Kind.TEST, "calipers:zcdp-coins", text)


def guarantee_backend(guarantee: Guarantee) -> Backend:
    """The jaws of a stated guarantee."""
    if guarantee.mu is not None:
        return GaussianBackend(guarantee.mu, f"The mechanism is said to be {guarantee.mu:.12g}-GDP.")
    if guarantee.rho is not None:
        return ConcentratedBackend(guarantee.rho)
    assert guarantee.epsilon is not None
    assert guarantee.delta is not None
    return ApproximateBackend(guarantee.epsilon, guarantee.delta)
