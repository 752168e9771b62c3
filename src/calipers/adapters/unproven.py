"""The backend of what is not proven: guessing from below, and nothing from above."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.composed.direction import Jaws

_ANYTHING = Jaws(0.0, math.inf, math.inf, False)
_SOURCE = "true of every mechanism"


@dataclass(frozen=True)
class Unproven:
    """Epsilon between 0 and infinity; `reason` says why no more is known.

    As the lower half of a `SplitBackend` it states that no attack is claimed.
    """

    reason: str
    closes: ClassVar[bool] = False

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Anything."""
        del delta, tolerance
        return _ANYTHING

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """A probability."""
        del epsilon, tolerance
        return Jaws(0.0, 1.0, math.inf, False)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """A perfect attack on one side, guessing on the other."""
        del smallest_delta, tolerance
        perfect = TradeoffCurve.from_tests([0.0], [1.0], side=Side.UPPER)
        return {Side.UPPER: perfect, Side.LOWER: TradeoffCurve.perfect_privacy(Side.LOWER)}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The same in both orders."""
        return {side: Envelope((curve,)) for side, curve in self.curves(smallest_delta, tolerance).items()}

    def renyi(self, order: float) -> Jaws:
        """Anything."""
        del order
        return _ANYTHING

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Anything."""
        del delta0, tolerance
        return 0.0, math.inf

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """No number is proven."""
        del jaws
        return Evidence(Kind.THEOREM, f"No finite number is proven. {self.reason}", _SOURCE)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Guessing."""
        del jaws
        return Evidence(Kind.TEST, f"Guessing: no attack is claimed. {self.reason}", _SOURCE)
