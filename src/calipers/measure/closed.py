"""Jaws that need no composition: a Gaussian in closed form, and whatever is known as a trade-off curve."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gaussian_curve
from calipers.curves.renyi import rdp_of_curve, rdp_of_gdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.composed.product import SMALLEST_DELTA
from calipers.measure.jaw import Evaluation, Found, Jaw
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon_bounds,
    normal_tail,
    normal_tail_quantile,
)

_SHIFT_ERROR = 8.0 * 2.0**-53
"""Relative error of a shift: 1/sigma, squares, a sum and a root, each correctly rounded."""
_ATTAINED = (
    "The likelihood ratio test of N(0, 1) against N(mu, 1), reached when the record's clipped gradient is the same "
    "unit vector in every step and all others are zero."
)


class CurveJaw(Jaw):
    """Numbers read off a symmetric trade-off curve; subclasses say which, and sharpen single numbers."""

    @abstractmethod
    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The curve, resolved down to `smallest_delta`."""

    def depth_at(self, delta: float) -> float:
        """How deep the curve must be for epsilon at `delta`."""
        return delta

    shallow = 1e-15
    """How deep it is for delta at any epsilon."""

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """Read off the curve."""
        return Found(self.curve(self.depth_at(delta), tolerance).epsilon(delta), self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """Read off the curve."""
        return Found(min(1.0, float(self.curve(self.shallow, tolerance).delta(epsilon))), self.evidence())

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The same in both orders."""
        return Envelope((self.curve(smallest_delta, tolerance),))


@dataclass(frozen=True)
class GaussianJaw(CurveJaw):
    """Exactly mu-GDP with mu = shift, rounded to one side."""

    side: Side
    shift: float
    said: Evidence

    def _rounded(self, increasing: Callable[[float], float]) -> float:
        """The value of an increasing closed form at the shift, whose rounding is charged as its own is."""
        up = 1.0 if self.side is Side.UPPER else -1.0
        return increasing(self.shift * (1.0 + up * _SHIFT_ERROR)) * (1.0 + up * 4.0 * GAUSSIAN_RELATIVE_ERROR)

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """Exact up to rounding, which is charged."""
        lower, upper = gaussian_epsilon_bounds(self.shift, delta, _SHIFT_ERROR)
        return Found(upper if self.side is Side.UPPER else lower, self.said)

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """Exact up to rounding, which is charged."""
        found = self._rounded(lambda mu: float(gaussian_delta(mu, epsilon)))
        # Below this a double has lost its relative accuracy, and may be 0 where delta is not.
        if self.side is Side.UPPER:
            return Found(min(1.0, max(found, SMALLEST_DELTA)), self.said)
        return Found(found if found >= SMALLEST_DELTA else 0.0, self.said)

    def renyi(self, order: float) -> Found:
        """t mu^2 / 2."""
        return Found(self._rounded(lambda mu: rdp_of_gdp(mu, order)), self.said)

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
        return self.said


def one_gaussian(shift: float, reason: str) -> Evaluation:
    """Both bounds of N(shift, 1) against N(0, 1)."""
    proof = Evidence.of(Kind.THEOREM, "dong2022:cor2.13", f"{reason} It is mu-GDP with mu = {shift:.12g}.")
    attack = Evidence.of(Kind.TEST, "dong2022:cor2.13", _ATTAINED)
    return Evaluation(GaussianJaw(Side.UPPER, shift, proof), GaussianJaw(Side.LOWER, shift, attack), closes=True)


def gaussians(shifts: Iterable[tuple[float, int]], reason: str) -> Evaluation:
    """So many Gaussian releases of each shift are one, of the root of the sum of their squares."""
    return one_gaussian(math.sqrt(math.fsum(count * shift * shift for shift, count in shifts)), reason)


@dataclass(frozen=True, eq=False)
class KnownCurve(CurveJaw):
    """A curve that is known once and for all."""

    known: TradeoffCurve
    said: Evidence

    @property
    def side(self) -> Side:  # type: ignore[override]
        """That of the curve."""
        return self.known.side

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """As it is."""
        return self.known

    def renyi(self, order: float) -> Found:
        """Of the atoms of the curve."""
        return Found(rdp_of_curve(self.known, order), self.said)

    def evidence(self) -> Evidence:
        """As for every number."""
        return self.said
