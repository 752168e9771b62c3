"""The greatest of several backends, on either side.

Attacks that compete: the most that any of them shows. Neighbors of a dataset that expose a record differently: a
guarantee holds for all of them, so the largest proof counts, and the largest attack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from calipers.bracket import Evidence, Side
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.composed.direction import Jaws
from calipers.measure.backends import Backend, LowerJaw

Part = TypeVar("Part", bound=LowerJaw)


@dataclass(frozen=True)
class GreatestAttack(Generic[Part]):
    """The largest lower value of the `parts`, and their largest upper one."""

    parts: tuple[Part, ...]
    _won: dict[Jaws, tuple[tuple[Part, Jaws], tuple[Part, Jaws]]] = field(default_factory=dict, repr=False)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Jaws of the largest epsilon."""
        return self._greatest([(part, part.epsilon(delta, tolerance)) for part in self.parts])

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """Jaws of the largest delta."""
        return self._greatest([(part, part.delta(epsilon, tolerance)) for part in self.parts])

    def _greatest(self, found: list[tuple[Part, Jaws]]) -> Jaws:
        below = max(found, key=lambda item: item[1].lower)
        above = max(found, key=lambda item: item[1].upper)
        low, high = below[1], above[1]
        jaws = Jaws(low.lower, high.upper, low.threshold, low.reversed, high.proof, low.attack)
        self._won[jaws] = (below, above)
        return jaws

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The hulls of all."""
        return {side: found.hull() for side, found in self.envelopes(smallest_delta, tolerance).items()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """All directed curves, on the sides that every part has."""
        found = [part.envelopes(smallest_delta, tolerance) for part in self.parts]
        sides = [side for side in Side if all(side in one for one in found)]
        return {side: Envelope.of([curve for one in found for curve in one[side].absent]) for side in sides}

    def renyi(self, order: float) -> Jaws:
        """Jaws of the largest divergence."""
        return self._greatest([(part, part.renyi(order)) for part in self.parts])

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """The largest on either side."""
        found = [part.mu(delta0, tolerance) for part in self.parts]
        return max(low for low, _ in found), max(high for _, high in found)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Of the part whose lower value was the largest."""
        part, own = self._won[jaws][0] if jaws in self._won else (self.parts[0], None)
        return part.lower_evidence(own)


@dataclass(frozen=True)
class GreatestBackend(GreatestAttack[Backend]):
    """The largest lower and the largest upper value of the `parts`."""

    closes: ClassVar[bool] = False

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Of the part whose upper value was the largest."""
        part, own = self._won[jaws][1] if jaws in self._won else (self.parts[0], None)
        return part.upper_evidence(own)
