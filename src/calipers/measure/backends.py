"""Where the numbers of a measurement come from: a closed form, or a product of laws.

A backend answers with `Jaws` and says what licenses them: a proof has an upper jaw, an attack a lower one, and what is
both is a `Backend`. `GaussianBackend` is exact up to rounding; `ProductBackend` composes; `SplitBackend` takes the
upper jaw from one statement and the lower jaw from another, where no single pair is known to be both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gaussian_curve, gdp_mu
from calipers.curves.renyi import rdp_of_gdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.composed.direction import Jaws
from calipers.laws.composed.product import SMALLEST_DELTA, Product
from calipers.laws.composed.renyi import renyi
from calipers.laws.composed.sweep import directed_sweep
from calipers.numerics.normal import (
    GAUSSIAN_RELATIVE_ERROR,
    gaussian_delta,
    gaussian_epsilon_bounds,
    normal_tail,
    normal_tail_quantile,
)


class _Numbers(Protocol):
    """What every backend answers; a side of which nothing is known is trivial: 0, or infinite."""

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Jaws of the smallest epsilon >= 0 at delta."""
        ...

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """Jaws of delta at epsilon >= 0."""
        ...

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """Symmetric trade-off curves on the sides that are known."""
        ...

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed trade-off curves of every pair of neighbors, on the sides that are known."""
        ...

    def renyi(self, order: float) -> Jaws:
        """Jaws of the Renyi divergence of the given order."""
        ...

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """(lower, upper) of the smallest mu that holds up to delta0."""
        ...


class UpperJaw(_Numbers, Protocol):
    """Numbers that are proven: the upper ones count."""

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """What proves the upper jaw."""
        ...


class LowerJaw(_Numbers, Protocol):
    """Numbers that an attack shows: the lower ones count."""

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Which test shows the lower jaw."""
        ...


class Backend(UpperJaw, LowerJaw, Protocol):
    """Certified numbers of one symmetric guarantee, and the evidence behind them."""

    @property
    def closes(self) -> bool:
        """Whether one pair is both proven and attained."""
        ...


_SHIFT_ERROR = 8.0 * 2.0**-53
"""Relative error of a shift: 1/sigma, squares, a sum and a root, each correctly rounded."""


def _widened(lower: float, upper: float) -> Jaws:
    """Two values of an increasing closed form, at a shift rounded down and up, with their own rounding charged."""
    slack = 4.0 * GAUSSIAN_RELATIVE_ERROR
    return Jaws(lower * (1.0 - slack), upper * (1.0 + slack), math.inf, False)


@dataclass(frozen=True)
class GaussianBackend:
    """Exactly mu-GDP with mu = shift: everything is closed form."""

    shift: float
    reason: str
    closes: ClassVar[bool] = True

    @property
    def _shifts(self) -> tuple[float, float]:
        return self.shift * (1.0 - _SHIFT_ERROR), self.shift * (1.0 + _SHIFT_ERROR)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Exact up to rounding, which is charged."""
        del tolerance
        return Jaws(*gaussian_epsilon_bounds(self.shift, delta, _SHIFT_ERROR), math.inf, False)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """Exact up to rounding, which is charged."""
        del tolerance
        jaws = _widened(*(float(gaussian_delta(shift, epsilon)) for shift in self._shifts))
        # Below this a double has lost its relative accuracy, and may be 0 where delta is not.
        lower = jaws.lower if jaws.lower >= SMALLEST_DELTA else 0.0
        return Jaws(lower, min(1.0, max(jaws.upper, SMALLEST_DELTA)), jaws.threshold, jaws.reversed)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """G_mu from below and above."""
        del smallest_delta, tolerance
        return {side: gaussian_curve(self.shift, side) for side in Side}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """G_mu is the same in both orders."""
        return {side: Envelope((curve,)) for side, curve in self.curves(smallest_delta, tolerance).items()}

    def renyi(self, order: float) -> Jaws:
        """t mu^2 / 2."""
        return _widened(*(rdp_of_gdp(shift, order) for shift in self._shifts))

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """The shift itself from above; from below what the test with equal error rates demands."""
        del tolerance
        rate = float(normal_tail(0.5 * self.shift)) * (1.0 + GAUSSIAN_RELATIVE_ERROR) / (1.0 - delta0)
        needed = 2.0 * float(normal_tail_quantile(rate)) if 0.0 < rate < 0.5 else 0.0
        return needed * (1.0 - 4.0 * GAUSSIAN_RELATIVE_ERROR), self.shift * (1.0 + GAUSSIAN_RELATIVE_ERROR)

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The closed form."""
        del jaws
        return Evidence.of(Kind.THEOREM, "dong2022:cor2.13", f"{self.reason} It is mu-GDP with mu = {self.shift:.12g}.")

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The likelihood ratio test of two Gaussians attains it."""
        del jaws
        return Evidence.of(
            Kind.TEST,
            "dong2022:cor2.13",
            "The likelihood ratio test of N(0, 1) against N(mu, 1), reached when the record's clipped gradient is the "
            "same unit vector in every step and all others are zero.",
        )


@dataclass(frozen=True)
class ProductBackend:
    """A composition whose factors are both dominating and attained."""

    product: Product
    reason: str
    statement: str
    attack: str
    ways: tuple[str, str] = ("record present against absent", "record absent against present")
    fineness: float = 1.0
    _swept: dict[tuple[float, float], dict[Side, Envelope]] = field(default_factory=dict, repr=False)
    _solved: dict[tuple[float, float], Jaws] = field(default_factory=dict, repr=False)

    @property
    def closes(self) -> bool:
        """Whether every factor is proven and attained."""
        return all(source.exact for source, _ in self.product.factors)

    @property
    def coarse(self) -> bool:
        """Whether some factor's laws end at a resolution of their own."""
        return any(source.coarse for source, _ in self.product.factors)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """See `Product.epsilon`; computed once: the usual claim of a Poisson run asks for the same."""
        key = (delta, tolerance)
        if key not in self._solved:
            self._solved[key] = self.product.epsilon(delta, tolerance * self.fineness)
        return self._solved[key]

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """See `Product.delta`."""
        return self.product.delta(epsilon, tolerance * self.fineness)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The symmetric hulls of the directed curves."""
        return {side: found.hull() for side, found in self.envelopes(smallest_delta, tolerance).items()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """See `calipers.laws.composed.sweep`; computed once for each depth."""
        key = (smallest_delta, tolerance)
        if key not in self._swept:
            directed = directed_sweep(self.product, smallest_delta, tolerance)
            self._swept[key] = {side: Envelope((curve,)) for side, curve in directed.items()}
        return self._swept[key]

    def renyi(self, order: float) -> Jaws:
        """See `calipers.laws.composed.renyi`."""
        return renyi(self.product, order)

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the two curves."""
        return _curve_mu(self.curves(depth_for(delta0), tolerance), delta0)

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The dominating product, discretized by splitting."""
        del jaws
        text = (
            f"{self.reason} Each step's likelihood ratio is split onto a lattice (which dominates it) and composed by "
            "tilted FFT; truncation, aliasing and rounding are charged upward."
        )
        return Evidence.of(Kind.NUMERICAL, self.statement, text)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The explicit test."""
        rule = "reject when the sum of the steps' rounded log likelihood ratios exceeds a threshold"
        if jaws is not None and math.isfinite(jaws.threshold):
            order = self.ways[jaws.reversed]
            rule = f"{rule}, {jaws.threshold:.10g} here ({order})"
        text = f"{self.attack} The test: {rule}; its error rates are computed exactly, rounding charged downward."
        return Evidence.of(Kind.TEST, self.statement, text)


@dataclass(frozen=True)
class SplitBackend:
    """The upper jaw of one backend, the lower jaw of another."""

    above: UpperJaw
    below: LowerJaw
    closes: bool = False
    """Whether both are the same statement, rounded up and down."""

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Upper from `above`, lower from `below`."""
        return _joined(self.above.epsilon(delta, tolerance), self.below.epsilon(delta, tolerance))

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """Upper from `above`, lower from `below`."""
        return _joined(self.above.delta(epsilon, tolerance), self.below.delta(epsilon, tolerance))

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The guarantee of `above`, the attack of `below`."""
        return {
            Side.UPPER: self.above.curves(smallest_delta, tolerance)[Side.UPPER],
            Side.LOWER: self.below.curves(smallest_delta, tolerance)[Side.LOWER],
        }

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed guarantee of `above`, the directed attack of `below`."""
        return {
            Side.UPPER: self.above.envelopes(smallest_delta, tolerance)[Side.UPPER],
            Side.LOWER: self.below.envelopes(smallest_delta, tolerance)[Side.LOWER],
        }

    def renyi(self, order: float) -> Jaws:
        """Upper from `above`, lower from `below`."""
        return _joined(self.above.renyi(order), self.below.renyi(order))

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Upper from `above`, lower from `below`."""
        return self.below.mu(delta0, tolerance)[0], self.above.mu(delta0, tolerance)[1]

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """What proves the upper jaw."""
        return self.above.upper_evidence(jaws)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Which test shows the lower jaw."""
        return self.below.lower_evidence(jaws)


def gaussians(shifts: Iterable[tuple[float, int]], reason: str) -> GaussianBackend:
    """So many Gaussian releases of each shift are one, of the root of the sum of their squares."""
    return GaussianBackend(math.sqrt(math.fsum(count * shift * shift for shift, count in shifts)), reason)


def depth_for(delta0: float) -> float:
    """How small a delta the curves must resolve for what they say at delta0, mu included."""
    return max(1e-280, min(1e-12, 1e-2 * delta0))


def _curve_mu(curves: dict[Side, TradeoffCurve], delta0: float) -> tuple[float, float]:
    return gdp_mu(curves[Side.LOWER], delta0), gdp_mu(curves[Side.UPPER], delta0)


def _joined(above: Jaws, below: Jaws) -> Jaws:
    return Jaws(below.lower, above.upper, below.threshold, below.reversed, above.proof, below.attack)
