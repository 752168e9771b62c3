"""The best of several jaws: proofs that compete, attacks that compete, neighbors that all count."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

import numpy as np

from calipers.bracket import Evidence, Side
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CertificationError, UnsupportedError
from calipers.measure.jaw import Evaluation, Found, Jaw
from calipers.numerics.types import FloatArray

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Choice(Jaw):
    """One of several jaws of the same side, anew for every number; its evidence comes with it."""

    parts: Sequence[Jaw]

    @property
    def side(self) -> Side:  # type: ignore[override]
        """That of the parts."""
        return self.parts[0].side

    @property
    def covers(self) -> bool:
        """Whether every part has to answer. Elsewhere one that cannot leaves the question to the others."""
        return False

    @abstractmethod
    def best(self, found: Sequence[Found]) -> Found:
        """The one that counts."""

    def asked(self, question: Callable[[Jaw], Answer]) -> list[Answer]:
        """What those answer that can; the refusal of the last where none does. What has to cover all refuses as one."""
        found: list[Answer] = []
        for place, part in enumerate(self.parts, start=1):
            try:
                found.append(question(part))
            except (CertificationError, UnsupportedError):
                if self.covers or (place == len(self.parts) and not found):
                    raise
        return found

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """The best of the parts' own."""
        return self.best(self.asked(lambda part: part.epsilon(delta, tolerance)))

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """The best of the parts' own."""
        return self.best(self.asked(lambda part: part.delta(epsilon, tolerance)))

    def renyi(self, order: float) -> Found:
        """The best of the parts' own."""
        return self.best(self.asked(lambda part: part.renyi(order)))

    def mu(self, delta0: float, tolerance: float) -> float:
        """The best of the parts' own."""
        return self.best(self.asked(lambda part: Found(part.mu(delta0, tolerance), part.evidence()))).value

    def _curves(self, smallest_delta: float, tolerance: float) -> list[TradeoffCurve]:
        envelopes = self.asked(lambda part: part.envelope(smallest_delta, tolerance))
        return [curve for envelope in envelopes for curve in envelope.absent]


class Least(Choice):
    """Proofs that compete: all of them hold, so the least counts; of whole curves the pointwise best."""

    def best(self, found: Sequence[Found]) -> Found:
        """The least."""
        return min(found, key=attrgetter("value"))

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The directed guarantee that follows from all of them."""
        return Envelope((best_guarantee(self._curves(smallest_delta, tolerance)),))

    def evidence(self) -> Evidence:
        """Of the last one, the sharpest as a rule."""
        return self.parts[-1].evidence()


class Greatest(Choice):
    """Attacks that compete, or neighbors of a dataset that expose a record differently and must all be covered."""

    @property
    def covers(self) -> bool:
        """Proofs about neighbors."""
        return self.side is Side.UPPER

    def best(self, found: Sequence[Found]) -> Found:
        """The greatest."""
        return max(found, key=attrgetter("value"))

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """All directed curves."""
        return Envelope(tuple(self._curves(smallest_delta, tolerance)))

    def evidence(self) -> Evidence:
        """Of the first one."""
        return self.parts[0].evidence()


@dataclass(frozen=True)
class Covered(Greatest):
    """Neighbors with one proof that covers them all, hardly larger than the largest of theirs: curves are its own."""

    covering: Jaw

    def mu(self, delta0: float, tolerance: float) -> float:
        """That of the one proof."""
        return self.covering.mu(delta0, tolerance)

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """That of the one proof."""
        return self.covering.envelope(smallest_delta, tolerance)


def least(proofs: Sequence[Jaw]) -> Jaw:
    """The best proof."""
    return proofs[0] if len(proofs) == 1 else Least(proofs)


def greatest(parts: Sequence[Jaw]) -> Jaw:
    """The best attack, or the worst neighbor."""
    return parts[0] if len(parts) == 1 else Greatest(parts)


def worst(neighbors: Sequence[Evaluation]) -> Evaluation:
    """A guarantee holds for all neighbors, so the largest proof counts, and the largest attack."""
    if len(neighbors) == 1:
        return neighbors[0]
    above: list[Jaw] = []
    below: list[Jaw] = []
    for one in neighbors:  # one proof may serve them all, or one attack
        above += [] if one.above in above else [one.above]
        below += [] if one.below in below else [one.below]
    return Evaluation(greatest(above), greatest(below))


def best_guarantee(curves: Sequence[TradeoffCurve]) -> TradeoffCurve:
    """The directed guarantee whose profile, either way, is at every node of any of the curves the least of theirs."""
    if len(curves) == 1:
        return curves[0]
    forward, backward = (_least_profile(way) for way in (curves, [curve.inverse() for curve in curves]))
    return TradeoffCurve.from_profile(*forward, side=Side.UPPER, reverse=backward)


def profile_nodes(odds: FloatArray) -> FloatArray:
    """The epsilons >= 0 at which a profile of segments with these odds has its kinks, 0 among them."""
    return np.unique(np.append(np.log(odds[(odds >= 1.0) & np.isfinite(odds)]), 0.0))


def _least_profile(curves: Sequence[TradeoffCurve]) -> tuple[FloatArray, FloatArray]:
    nodes = profile_nodes(np.unique(np.concatenate([curve.odds for curve in curves])))
    return nodes, np.min([curve.delta(nodes) for curve in curves], axis=0)
