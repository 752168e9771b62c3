"""What a measurement is made of: a proof above, an attack below, and one interface for both.

A `Jaw` answers one side of every question: a proof (UPPER) with numbers that hold, an attack (LOWER) with numbers that
it shows. Each answer carries its own evidence, so whoever picks the best of several jaws picks the evidence with it.
An `Evaluation` is one jaw above and one below; everything that is measured becomes one:

- Gaussians at known times in closed form, and nothing at all as perfect privacy (`calipers.measure.closed`);
- products of laws, of pairs that are proven and attained or of either side alone (`calipers.measure.composed`);
- the least of proofs that compete, the greatest of attacks or of neighbors (`calipers.measure.choice`);
- what follows from curves: stated guarantees, units of several records, the best of several runs;
- pairs of datasets whose divisor moves (`calipers.measure.divided`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from calipers.bracket import Evidence, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gdp_mu
from calipers.curves.tradeoff import TradeoffCurve


class Found(NamedTuple):
    """One side of a number, and what licenses it."""

    value: float
    evidence: Evidence


class Jaw(ABC):
    """One side of a symmetric guarantee, on every scale that privacy is measured in."""

    side: Side

    @abstractmethod
    def epsilon(self, delta: float, tolerance: float) -> Found:
        """Of the smallest epsilon >= 0 at delta."""

    @abstractmethod
    def delta(self, epsilon: float, tolerance: float) -> Found:
        """Of delta at epsilon >= 0."""

    @abstractmethod
    def renyi(self, order: float) -> Found:
        """Of the Renyi divergence of the given order, the larger of both directions."""

    @abstractmethod
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The directed trade-off curves of every pair of neighbors."""

    @abstractmethod
    def evidence(self) -> Evidence:
        """What licenses whole curves, and all that is read off them."""

    @property
    def curves_add(self) -> bool:
        """Whether a curve may know more about a number than the answer to a question about it."""
        return True

    @property
    def alone(self) -> Jaw:
        """The same jaw, for whoever does not ask what stands on the other side."""
        return self

    def sharing(self, other: Jaw) -> Jaw:
        """The same jaw, with what the other one has computed already, where that is the same."""
        return other if self == other else self

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The symmetric trade-off curve."""
        return self.envelope(smallest_delta, tolerance).hull()

    def mu(self, delta0: float, tolerance: float) -> float:
        """Of the smallest mu that holds up to delta0."""
        return gdp_mu(self.curve(depth_for(delta0), tolerance), delta0)


@dataclass(frozen=True)
class Evaluation:
    """The best proof and the best attack; `closes`: both are of one pair, which is proven and attained."""

    above: Jaw
    below: Jaw
    closes: bool = False

    def __post_init__(self) -> None:
        assert self.above.side is Side.UPPER
        assert self.below.side is Side.LOWER

    def jaw(self, side: Side) -> Jaw:
        """The bound of one side."""
        return self.above if side is Side.UPPER else self.below


def depth_for(delta0: float) -> float:
    """How small a delta the curves must resolve for what they say at delta0, mu included."""
    return max(1e-280, min(1e-12, 1e-2 * delta0))
