"""What a measurement is made of: upper bounds and lower bounds, one interface for both.

A `Bound` answers one side of every question: epsilon, delta, Renyi divergence, trade-off curve, mu. An upper bound is a
proof, and its numbers hold; a lower bound is an attack, and its numbers are what it shows. Each answer carries its own
evidence, so whoever picks the best of several bounds picks the evidence with it. `Bounds` are one of either side;
everything that is measured becomes such a pair:

- here: Gaussians in closed form, known trade-off curves, the minimum of proofs, the maximum of attacks or of neighbors;
- products of privacy loss distributions (`calipers.measure.composed`);
- what follows from other bounds (`units`, `selection`), and pairs of datasets whose divisor moves (`divided`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope, best_guarantee
from calipers.curves.gdp import gaussian_curve, gdp_mu
from calipers.curves.renyi import rdp_of_curve, rdp_of_gdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CertificationError, UnsupportedError
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon_bounds,
    normal_tail,
    normal_tail_quantile,
)
from calipers.pld.composition.product import SMALLEST_DELTA

_SHIFT_ERROR = 8.0 * 2.0**-53
"""Relative error of a shift: 1/sigma, squares, a sum and a root, each correctly rounded."""
_ATTAINED = (
    "The likelihood ratio test of N(0, 1) against N(mu, 1), reached when the record's clipped gradient is the same "
    "unit vector in every step and all others are zero."
)


class BoundValue(NamedTuple):
    """One side of a number, and the proof or attack behind it."""

    value: float
    evidence: Evidence


class Bound(ABC):
    """One side of a symmetric guarantee, on every scale that privacy is measured in."""

    side: Side

    @abstractmethod
    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """The smallest epsilon >= 0 at delta.

        Args:
            delta: In (0, 1).
            tolerance: The relative width that the bracket of both sides aims for.

        Returns:
            UPPER: at least epsilon(delta). LOWER: at most epsilon(delta). With the evidence for it.

        Raises:
            CertificationError, UnsupportedError: Nothing can be certified here.
        """

    @abstractmethod
    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """The hockey-stick divergence at e^epsilon, the larger of both directions.

        Args:
            epsilon: At least 0.
            tolerance: As for `epsilon`.

        Returns:
            UPPER: at least delta(epsilon). LOWER: at most delta(epsilon). With the evidence for it.

        Raises:
            CertificationError, UnsupportedError: Nothing can be certified here.
        """

    @abstractmethod
    def renyi(self, order: float) -> BoundValue:
        """The Renyi divergence, the larger of both directions.

        Args:
            order: Above 1.

        Returns:
            UPPER: at least the divergence. LOWER: at most the divergence. With the evidence for it.

        Raises:
            UnsupportedError: It is infinite, or no finite bound is proven.
        """

    @abstractmethod
    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The directed trade-off curves of every pair of neighbors.

        Args:
            smallest_delta: How far down the curves are resolved.
            tolerance: As for `epsilon`.

        Returns:
            UPPER: at or below the trade-off of every attack. LOWER: attained at every false positive rate.
        """

    @abstractmethod
    def evidence(self) -> Evidence:
        """The evidence behind whole curves, and all that is read off them."""

    @property
    def curves_add(self) -> bool:
        """Whether a curve may know more about a number than the answer to a question about it."""
        return True

    @property
    def alone(self) -> Bound:
        """The same bound, for whoever does not ask what stands on the other side."""
        return self

    @property
    def rough(self) -> Bound:
        """A bound of the same side that may be wider and takes less time: a hint for whoever looks for a place."""
        return self

    def sharing(self, other: Bound) -> Bound:
        """The same bound, with what the other one has computed already, where that is the same."""
        return other if self == other else self

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The symmetric trade-off curve."""
        return self.envelope(smallest_delta, tolerance).hull()

    def mu(self, delta0: float, tolerance: float) -> float:
        """Of the smallest mu that holds up to delta0."""
        return gdp_mu(self.curve(depth_for(delta0), tolerance), delta0)


@dataclass(frozen=True)
class Bounds:
    """The best proof and the best attack; `closes`: both are of one pair, which is proven and attained.

    `notes`: what a reader must know about these bounds.
    """

    upper: Bound
    lower: Bound
    closes: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.upper.side is Side.UPPER
        assert self.lower.side is Side.LOWER

    def bound(self, side: Side) -> Bound:
        """The bound of one side."""
        return self.upper if side is Side.UPPER else self.lower


def depth_for(delta0: float) -> float:
    """How small a delta the curves must resolve for what they say at delta0, mu included."""
    return max(1e-280, min(1e-12, 1e-2 * delta0))


class TradeoffBound(Bound):
    """Numbers read off a symmetric trade-off curve; subclasses say which, and sharpen single numbers."""

    @abstractmethod
    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The curve, resolved down to `smallest_delta`."""

    def depth_at(self, delta: float) -> float:
        """How deep the curve must be for epsilon at `delta`."""
        return delta

    shallow = 1e-15
    """How deep it is for delta at any epsilon."""

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Read off the curve."""
        return BoundValue(self.curve(self.depth_at(delta), tolerance).epsilon(delta), self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """Read off the curve."""
        return BoundValue(min(1.0, float(self.curve(self.shallow, tolerance).delta(epsilon))), self.evidence())

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The same in both orders."""
        return Envelope((self.curve(smallest_delta, tolerance),))


@dataclass(frozen=True)
class GaussianBound(TradeoffBound):
    """Exactly mu-GDP with mu = shift, rounded to one side."""

    side: Side
    shift: float
    explanation: Evidence

    def _rounded(self, increasing: Callable[[float], float]) -> float:
        """The value of an increasing closed form at the shift, whose rounding is added as its own is."""
        up = 1.0 if self.side is Side.UPPER else -1.0
        return increasing(self.shift * (1.0 + up * _SHIFT_ERROR)) * (1.0 + up * 4.0 * GAUSSIAN_RELATIVE_ERROR)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Exact up to rounding, which is added."""
        lower, upper = gaussian_epsilon_bounds(self.shift, delta, _SHIFT_ERROR)
        return BoundValue(upper if self.side is Side.UPPER else lower, self.explanation)

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """Exact up to rounding, which is added."""
        found = self._rounded(lambda mu: float(gaussian_delta(mu, epsilon)))
        # Below this a double has lost its relative accuracy, and may be 0 where delta is not.
        if self.side is Side.UPPER:
            return BoundValue(min(1.0, max(found, SMALLEST_DELTA)), self.explanation)
        return BoundValue(found if found >= SMALLEST_DELTA else 0.0, self.explanation)

    def renyi(self, order: float) -> BoundValue:
        """t mu^2 / 2."""
        return BoundValue(self._rounded(lambda mu: rdp_of_gdp(mu, order)), self.explanation)

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """G_mu."""
        return gaussian_curve(self.shift, self.side)

    def mu(self, delta0: float, tolerance: float) -> float:
        """The shift itself from above; from below what the test with equal error rates demands."""
        if self.side is Side.UPPER:
            return self.shift * (1.0 + GAUSSIAN_RELATIVE_ERROR)
        rate = float(normal_tail(0.5 * self.shift)) * (1.0 + GAUSSIAN_RELATIVE_ERROR) / (1.0 - delta0)
        needed = 2.0 * float(normal_tail_quantile(rate)) if 0.0 < rate < 0.5 else 0.0
        return needed * (1.0 - 4.0 * GAUSSIAN_RELATIVE_ERROR)

    def evidence(self) -> Evidence:
        """As for every number."""
        return self.explanation


ONE_RELEASE, RELEASES = "dong2022:thm2.7+cor2.13", "dong2022:cor3.3+cor2.13"


def one_gaussian(shift: float, reason: str, statement: str) -> Bounds:
    """Both bounds of N(shift, 1) against N(0, 1)."""
    proof = Evidence.of(Kind.THEOREM, statement, f"{reason} It is mu-GDP with mu = {shift:.12g}.")
    attack = Evidence.of(Kind.TEST, statement, _ATTAINED)
    return Bounds(GaussianBound(Side.UPPER, shift, proof), GaussianBound(Side.LOWER, shift, attack), closes=True)


def gaussians(shifts: Sequence[tuple[float, int]], reason: str) -> Bounds:
    """So many Gaussian releases of each shift are one, of the root of the sum of their squares."""
    statement = ONE_RELEASE if sum(count for _, count in shifts) == 1 else RELEASES
    return one_gaussian(math.sqrt(math.fsum(count * shift * shift for shift, count in shifts)), reason, statement)


@dataclass(frozen=True, eq=False)
class KnownCurve(TradeoffBound):
    """A curve that is known once and for all."""

    known: TradeoffCurve
    explanation: Evidence

    @property
    def side(self) -> Side:  # type: ignore[override]
        """That of the curve."""
        return self.known.side

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """As it is."""
        return self.known

    def renyi(self, order: float) -> BoundValue:
        """Of the atoms of the curve."""
        return BoundValue(rdp_of_curve(self.known, order), self.explanation)

    def evidence(self) -> Evidence:
        """As for every number."""
        return self.explanation


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
