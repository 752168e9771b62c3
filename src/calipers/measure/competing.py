"""Bounds of the same side that compete: the minimum of proofs, the maximum of attacks or of neighbors.

Every number has the evidence of the part that gave it. A number that is read off the curves of all parts together has
that of the part whose own curve gives the most of it (`Bound.leading`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from calipers.bracket import Evidence, Side
from calipers.curves.envelope import Envelope, best_guarantee
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CertificationError, UnsupportedError
from calipers.measure.bounds import Bound, Bounds, BoundValue


@dataclass(frozen=True)
class Choice(Bound):
    """One of several bounds of the same side, anew for every number; its evidence comes with it."""

    parts: Sequence[Bound]

    @property
    def side(self) -> Side:  # type: ignore[override]
        """That of the parts."""
        return self.parts[0].side

    @property
    def covers(self) -> bool:
        """Whether every part has to answer. Elsewhere one that cannot leaves the question to the others."""
        return False

    @abstractmethod
    def best(self, found: Sequence[BoundValue]) -> BoundValue:
        """The one that counts."""

    def leading(self, shown: Callable[[Bound], float]) -> Bound:
        """The part that counts; of parts that show the same, the first."""
        found: list[tuple[float, Bound]] = []
        for part in self.parts:
            try:
                found.append((shown(part), part))
            except (CertificationError, UnsupportedError):
                continue
        if not found:
            return self
        nothing = self.evidence()
        best = self.best([BoundValue(value, nothing) for value, _ in found]).value
        return next(part for value, part in found if value == best).leading(shown)

    def asked(self, quantity: str, *at: float) -> list[Any]:
        """What those answer that can; the refusal of the last where none does. What has to cover all refuses as one."""
        found: list[Any] = []
        for place, part in enumerate(self.parts, start=1):
            try:
                found.append(getattr(part, quantity)(*at))
            except (CertificationError, UnsupportedError):
                if self.covers or (place == len(self.parts) and not found):
                    raise
        return found

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """The best of the parts' own."""
        return self.best(self.asked("epsilon", delta, tolerance))

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """The best of the parts' own."""
        return self.best(self.asked("delta", epsilon, tolerance))

    def renyi(self, order: float) -> BoundValue:
        """The best of the parts' own."""
        return self.best(self.asked("renyi", order))

    def mu(self, delta0: float, tolerance: float) -> float:
        """The best of the parts' own."""
        return self.best([BoundValue(mu, self.evidence()) for mu in self.asked("mu", delta0, tolerance)]).value

    def _curves(self, smallest_delta: float, tolerance: float) -> list[TradeoffCurve]:
        return [curve for part in self.asked("envelope", smallest_delta, tolerance) for curve in part.absent]


class MinimumBound(Choice):
    """Proofs that compete: all of them hold, so the least counts; of whole curves the pointwise best."""

    @property
    def rough(self) -> Bound:
        """The parts' own."""
        parts = [part.rough for part in self.parts]
        return self if all(new is old for new, old in zip(parts, self.parts, strict=True)) else MinimumBound(parts)

    def best(self, found: Sequence[BoundValue]) -> BoundValue:
        """The least."""
        return min(found, key=attrgetter("value"))

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The directed guarantee that follows from all of them."""
        return Envelope((best_guarantee(self._curves(smallest_delta, tolerance)),))

    def evidence(self) -> Evidence:
        """Of the last one, the sharpest as a rule."""
        return self.parts[-1].evidence()


class MaximumBound(Choice):
    """Attacks that compete, or neighbors of a dataset that expose a record differently and must all be covered."""

    @property
    def covers(self) -> bool:
        """Proofs about neighbors."""
        return self.side is Side.UPPER

    def best(self, found: Sequence[BoundValue]) -> BoundValue:
        """The greatest."""
        return max(found, key=attrgetter("value"))

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """All directed curves."""
        return Envelope(tuple(self._curves(smallest_delta, tolerance)))

    def evidence(self) -> Evidence:
        """Of the first one."""
        return self.parts[0].evidence()


def minimum(proofs: Sequence[Bound]) -> Bound:
    """The best proof."""
    return proofs[0] if len(proofs) == 1 else MinimumBound(proofs)


def maximum(parts: Sequence[Bound]) -> Bound:
    """The best attack, or the worst neighbor."""
    return parts[0] if len(parts) == 1 else MaximumBound(parts)


def worst(neighbors: Sequence[Bounds]) -> Bounds:
    """A guarantee holds for all neighbors: the largest proof counts (one may serve all), and the largest attack."""
    if len(neighbors) == 1:
        return neighbors[0]
    above, below = [one.upper for one in neighbors], [one.lower for one in neighbors]
    return Bounds(maximum(_different(above)), maximum(_different(below)))


def _different(parts: Sequence[Bound]) -> list[Bound]:
    return [part for place, part in enumerate(parts) if part not in parts[:place]]
