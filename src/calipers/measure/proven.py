"""Upper jaws that several proofs compete for.

A `ProofBackend` answers from above alone: a product of laws that dominate, or, for a lone epoch, the epoch's own bound,
which is sharper than its law. `LeastBackend` takes the least that any of several backends proves; as trade-off curves
guarantees combine by the pointwise best, because all of them hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gdp_mu
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.composed.direction import Jaws
from calipers.laws.composed.one_sided import delta_above, epsilon_above
from calipers.laws.composed.proof_product import ProofProduct
from calipers.laws.composed.renyi import renyi_above
from calipers.laws.composed.sweep import directed_sweep
from calipers.laws.core.source import LoneProof
from calipers.measure.backends import ProductBackend, SplitBackend, UpperJaw, depth_for
from calipers.numerics.types import FloatArray


@dataclass(frozen=True)
class ProofBackend:
    """An upper jaw only; its lower values are trivial. `single` is the lone epoch, where there is just one."""

    product: ProofProduct
    reason: str
    statement: str
    single: LoneProof | None = None
    _swept: dict[float, TradeoffCurve] = field(default_factory=dict, repr=False)

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """At least the true epsilon."""
        del tolerance
        found = self.product.epsilon(delta) if self.single is None else self.single.epsilon(delta)
        return Jaws(0.0, found, math.inf, False, self.statement)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """At least the true delta."""
        del tolerance
        found = self.product.delta(epsilon) if self.single is None else self.single.delta(epsilon)
        return Jaws(0.0, found, math.inf, False, self.statement)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The symmetric guarantee."""
        return {Side.UPPER: self.envelopes(smallest_delta, tolerance)[Side.UPPER].hull()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed guarantee; computed once for each depth."""
        del tolerance
        if smallest_delta not in self._swept:
            self._swept[smallest_delta] = self.product.curve(smallest_delta)
        return {Side.UPPER: Envelope((self._swept[smallest_delta],))}

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the guarantee."""
        curve = self.curves(depth_for(delta0), tolerance)[Side.UPPER]
        return 0.0, gdp_mu(curve, delta0)

    def renyi(self, order: float) -> Jaws:
        """See `calipers.laws.composed.renyi`."""
        ways = [direction.reverse for direction in self.product.directions]
        return Jaws(0.0, renyi_above(self.product.factors, order, ways), math.inf, False, self.statement)

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The theorem, and how its bound is computed."""
        del jaws
        text = (
            f"{self.reason} The bound is computed at many e^epsilon, between which the divergence is convex; epochs "
            "are composed by tilted FFT. Truncation, aliasing and rounding are charged upward."
        )
        return Evidence.of(Kind.NUMERICAL, self.statement, text)


@dataclass(frozen=True)
class AboveBackend(ProductBackend):
    """A product of pairs that have both sides, of which the upper one alone is asked: the attack is another."""

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """See `calipers.laws.composed.one_sided`."""
        return Jaws(0.0, epsilon_above(self.product, delta, tolerance * self.fineness), math.inf, False)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """See `calipers.laws.composed.one_sided`."""
        return Jaws(0.0, delta_above(self.product, epsilon, tolerance * self.fineness), math.inf, False)

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed guarantee; computed once for each depth."""
        key = (smallest_delta, tolerance)
        if key not in self._swept:
            directed = directed_sweep(self.product, smallest_delta, tolerance, (Side.UPPER,))
            self._swept[key] = {side: Envelope((curve,)) for side, curve in directed.items()}
        return self._swept[key]

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the guarantee."""
        return 0.0, gdp_mu(self.curves(depth_for(delta0), tolerance)[Side.UPPER], delta0)

    def renyi(self, order: float) -> Jaws:
        """See `calipers.laws.composed.renyi`."""
        ways = [direction.reverse for direction in self.product.directions]
        return Jaws(0.0, renyi_above(self.product.factors, order, ways), math.inf, False)


def upper_half(backend: UpperJaw) -> UpperJaw:
    """What answers the same from above, without spending anything on the lower jaw."""
    if isinstance(backend, SplitBackend):
        return upper_half(backend.above)
    if type(backend) is ProductBackend:
        return AboveBackend(
            backend.product, backend.reason, backend.statement, backend.attack, backend.ways, backend.fineness
        )
    return backend


@dataclass(frozen=True)
class LeastBackend:
    """The least that any of the `parts` proves."""

    parts: Sequence[tuple[str, UpperJaw]]

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """The least upper jaw."""
        return self._least({name: part.epsilon(delta, tolerance) for name, part in self.parts})

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """The least upper jaw."""
        return self._least({name: part.delta(epsilon, tolerance) for name, part in self.parts})

    def _least(self, found: dict[str, Jaws]) -> Jaws:
        name = min(found, key=lambda name: found[name].upper)
        return Jaws(0.0, found[name].upper, math.inf, False, name)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The symmetric guarantee that follows from all of them."""
        return {Side.UPPER: self.envelopes(smallest_delta, tolerance)[Side.UPPER].hull()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """The directed guarantee that follows from all of them."""
        found = [part.envelopes(smallest_delta, tolerance)[Side.UPPER] for _, part in self.parts]
        return {Side.UPPER: Envelope((best_guarantee([curve for one in found for curve in one.absent]),))}

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """The least upper jaw."""
        return 0.0, min(part.mu(delta0, tolerance)[1] for _, part in self.parts)

    def renyi(self, order: float) -> Jaws:
        """The least upper jaw."""
        return self._least({name: part.renyi(order) for name, part in self.parts})

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """Of the proof that gave the value; of the last one, the sharpest as a rule, for whole curves."""
        won = jaws.proof if jaws is not None else ""
        return dict(self.parts).get(won, self.parts[-1][1]).upper_evidence(jaws)


def best_guarantee(curves: Sequence[TradeoffCurve]) -> TradeoffCurve:
    """The directed guarantee whose profile, either way, is at every node of any of the curves the least of theirs."""
    if len(curves) == 1:
        return curves[0]
    forward, backward = (_least_profile(way) for way in (curves, [curve.inverse() for curve in curves]))
    return TradeoffCurve.from_profile(*forward, side=Side.UPPER, reverse=backward)


def _least_profile(curves: Sequence[TradeoffCurve]) -> tuple[FloatArray, FloatArray]:
    odds = np.unique(np.concatenate([curve.odds for curve in curves]))
    nodes = np.unique(np.append(np.log(odds[(odds >= 1.0) & np.isfinite(odds)]), 0.0))
    return nodes, np.min([curve.delta(nodes) for curve in curves], axis=0)
