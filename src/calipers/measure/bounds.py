"""What a measurement is made of: upper bounds and lower bounds, one interface for both.

A `Bound` answers one side of every question: epsilon, delta, Renyi divergence, trade-off curve, mu. An upper bound is a
proof, and its numbers hold; a lower bound is an attack, and its numbers are what it shows. Each answer carries its own
evidence, so whoever picks the best of several bounds picks the evidence with it. `Bounds` are one of either side;
everything that is measured becomes such a pair:

- here: Gaussians in closed form, known trade-off curves;
- the minimum of proofs, the maximum of attacks or of neighbors (`calipers.measure.competing`);
- products of privacy loss distributions (`calipers.measure.composed`);
- what follows from other bounds (`units`, `selection`), and pairs of datasets whose divisor moves (`divided`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gaussian_curve, gdp_mu
from calipers.curves.renyi import rdp_of_curve, rdp_of_gdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon_bounds,
    normal_tail,
    normal_tail_quantile,
)
from calipers.pld.composition.product import SMALLEST_DELTA

if TYPE_CHECKING:
    from calipers.run import Run

_SHIFT_ERROR = 8.0 * 2.0**-53
"""Relative error of a shift: 1/sigma, squares, a sum and a root, each correctly rounded."""
_IN_EVERY_STEP = "The record's clipped gradient is the same unit vector in every step, and all others are zero."


class BoundValue(NamedTuple):
    """One side of a number, and the proof or attack behind it."""

    value: float
    evidence: Evidence


def in_doubles(below: BoundValue, above: BoundValue, runs: Sequence[Run]) -> tuple[BoundValue, BoundValue]:
    """Two bounds on a delta. That of a run is above 0, however small, and below 1e-300 doubles run out of digits.

    Args:
        below: the lower bound.
        above: the upper bound, which may have been rounded to 0.
        runs: what is measured; none for a guarantee that is only stated, whose delta may be 0.

    Returns:
        Both; of runs 0 for a smaller lower bound, and 1e-300 for a smaller upper bound.
    """
    if not runs:
        return below, above
    shown = below if below.value >= SMALLEST_DELTA else below._replace(value=0.0)
    return shown, above._replace(value=max(above.value, SMALLEST_DELTA))


def applied_to(evidence: Evidence, of_what: Evidence) -> Evidence:
    """The evidence of a theorem about what other evidence stands behind, with the sources of both.

    Args:
        evidence: of the theorem.
        of_what: the evidence behind what the theorem starts from.

    Returns:
        The first, which names the source of the second too.
    """
    return replace(evidence, source=f"{evidence.source}, applied to {of_what.source}")


def composed_pairs(count: int) -> str:
    """That so many dominating pairs are composed, and by which theorem.

    Args:
        count: at least 1.

    Returns:
        A clause of a sentence.
    """
    if count == 1:
        return "one dominating pair"
    return f"{count:,} dominating pairs are composed (Zhu, Dong, Wang 2022, Theorem 10)"


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

    def leading(self, shown: Callable[[Bound], float]) -> Bound:
        """Of bounds that compete the one behind a number that is read off curves.

        Args:
            shown: the number as a bound by itself has it, the larger the more is shown of a record.

        Returns:
            A bound whose own curve has the number; of combined proofs, the one that is nearest to it.
        """
        return self

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


def one_gaussian(shift: float, reason: str, statement: str, attained: str = _IN_EVERY_STEP) -> Bounds:
    """Both bounds of N(shift, 1) against N(0, 1); `attained` is a sentence that says where that pair occurs."""
    proof = Evidence.of(Kind.THEOREM, statement, f"{reason} It is mu-GDP with mu = {shift:.12g}.")
    test = f"The likelihood ratio test of N(0, 1) against N(mu, 1). {attained}"
    attack = Evidence.of(Kind.TEST, statement, test)
    return Bounds(GaussianBound(Side.UPPER, shift, proof), GaussianBound(Side.LOWER, shift, attack), closes=True)


def gaussians(
    shifts: Sequence[tuple[float, int]], reason: str, attained: str = _IN_EVERY_STEP, statement: str = ""
) -> Bounds:
    """So many Gaussian releases of each shift are one, of the root of the sum of their squares.

    Args:
        shifts: mu of a release, and how many there are of it.
        reason: why no more is shown.
        attained: as for `one_gaussian`.
        statement: its key in `calipers/citations.json`, where it is another one than that Gaussian releases compose.

    Returns:
        Both bounds.
    """
    statement = statement or (ONE_RELEASE if sum(count for _, count in shifts) == 1 else RELEASES)
    mu = math.sqrt(math.fsum(count * shift * shift for shift, count in shifts))
    return one_gaussian(mu, reason, statement, attained)


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
