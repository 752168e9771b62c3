"""An empty composition is perfect privacy: both datasets give the same (empty) output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.composed.direction import Jaws

_ZERO = Jaws(0.0, 0.0, math.inf, False)


@dataclass(frozen=True)
class NoRelease:
    """Perfect privacy: every divergence is exactly 0, and guessing is the best attack."""

    closes: ClassVar[bool] = True

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """0."""
        del delta, tolerance
        return _ZERO

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """0."""
        del epsilon, tolerance
        return _ZERO

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """1 - alpha, from below and from above."""
        del smallest_delta, tolerance
        return {
            Side.UPPER: TradeoffCurve.from_profile([0.0], [0.0], side=Side.UPPER, symmetric=True),
            Side.LOWER: TradeoffCurve.from_tests([0.0, 1.0], [0.0, 1.0], side=Side.LOWER),
        }

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The same in both orders."""
        return {side: Envelope((curve,)) for side, curve in self.curves(smallest_delta, tolerance).items()}

    def renyi(self, order: float) -> Jaws:
        """0."""
        del order
        return _ZERO

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Nothing is released: mu = 0."""
        del delta0, tolerance
        return 0.0, 0.0

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Nothing can be told apart."""
        del jaws
        return Evidence.of(Kind.THEOREM, "dong2022:cor2.13", "Nothing was released that could tell two datasets apart.")

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Guessing."""
        del jaws
        return Evidence.of(Kind.TEST, "dong2022:cor2.13", "Nothing was released: guessing is all that is left.")
