"""What is not proven: guessing from below, and nothing from above."""

from __future__ import annotations

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.measure.closed import KnownCurve
from calipers.measure.jaw import Evaluation

_SOURCE = "true of every mechanism"


def unproven(reason: str) -> Evaluation:
    """Epsilon between 0 and infinity; `reason` says why no more is known."""
    nothing = Evidence(Kind.THEOREM, f"No finite number is proven. {reason}", _SOURCE)
    guess = Evidence(Kind.TEST, f"Guessing: no attack is claimed. {reason}", _SOURCE)
    perfect = TradeoffCurve.from_tests([0.0], [1.0], side=Side.UPPER)
    return Evaluation(KnownCurve(perfect, nothing), KnownCurve(TradeoffCurve.perfect_privacy(Side.LOWER), guess))
