"""Units of several records, where the sampler does not count them: group privacy, and revealing who takes part.

**Group privacy.** What a guarantee for one record says about a unit of g records. Change the records of the unit one
after the other: D_0, D_1, ..., D_g. If every step of the chain has the trade-off curve f, a test of D_0 against D_g
with false positive rate alpha has false negative rate at least f_g(alpha), where

    1 - f_g = (1 - f) o (1 - f) o ... o (1 - f),     g times

(Dong, Roth, Su 2022, Theorem 2.14; the same direction of every step, so a symmetric f serves both orders). On profiles:
D_(k l)(P||R) <= D_k(P||Q) + k D_l(Q||R), and f_g is the best of all ways to split e^epsilon.

From below, one record of the unit is attacked. Where all other gradients are zero in that attack, those of the unit's
other records are too. Where the others oppose the record, the unit has no other record: the guarantee is about units of
*up to* g. (One that had, of gradient zero, would be missed: each of its records takes the place of one that opposes.)
Where records are allocated, another attack adds up the sums of an epoch, which all of the
unit's records move together (`calipers.samplers.allocated.summed_unit`), and another one weighs its batches by how many
of the records each may hold (`calipers.pld.subsampling.equal_unit`).

**Revealed.** Where records are allocated to batches, reveal which batch gets which of the unit's records. Given that,
every batch is a Gaussian whose mean moves by at most as many clipping norms as it gets records, and Renyi divergences,
averaged over the allocation, add up over epochs (`calipers.pld.core.allocated_unit`). With ten records per unit in
shuffled batches (256 of 60,000, sigma 1.1, three epochs) epsilon at 1e-5 is at most 51, by group privacy 150.
Allocations that are rare count as telling the datasets apart: their probability is added to delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.renyi import delta_from_rdp, epsilon_from_rdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.measure.bounds import Bound, BoundValue, TradeoffBound, applied_to
from calipers.measure.competing import MaximumBound
from calipers.memoize import memoize
from calipers.numerics.types import FloatArray
from calipers.pld.core.allocated_unit import AllocatedUnit

_DEEPEST, _USUAL = 1e-280, 1e-12
"""How small a delta a curve resolves at most, and for what is usually asked."""
_SLACK = 1.0 + 1e-12
_NODES, _FOR_ALL = 1500, 6000
"""Nodes that a curve keeps at least, and how many all curves of a chain may have together before it is no more."""
_LARGEST = 1e280
_ORDERS = 1.0 + np.geomspace(1e-10, 1e5, 601)
_RARE, _SHARE, _CURVE_NODES = (1e-9, 1e-18, 1e-40), 1e-2, 500


@implements("dong2022:thm2.14")
def grouped_curve(curve: TradeoffCurve, records: int) -> TradeoffCurve:
    """The symmetric guarantee for groups, from the symmetric guarantee for one record (UPPER).

    Post-condition: at most the true trade-off curve of the group. 1 - f is concave and piecewise linear, so the
    composition is too, and its profile at any odds is attained at a breakpoint; values are rounded up.
    """
    whole = single = curve.symmetrized()
    nodes = max(_NODES, _FOR_ALL // records)
    # From the left, every binary digit of the number doubles the chain, and a one adds a record: fewer curves are
    # rounded to their nodes than if records were added one by one.
    for digit in f"{records:b}"[1:]:
        whole = _composed(whole, whole, nodes)
        whole = _composed(whole, single, nodes) if digit == "1" else whole
    return whole


def _composed(inner: TradeoffCurve, outer: TradeoffCurve, most: int) -> TradeoffCurve:
    """The guarantee of a chain, on `most` nodes: first `inner`, then `outer`."""
    (first, power), (second, last) = _rising(inner), _rising(outer)
    # Breakpoints: those of the first, and what it maps to those of the second.
    alpha = np.unique(np.concatenate((first, np.interp(second, power, first))))
    # The slack covers the rounding of both interpolations, and of the differences below, which are smaller.
    reached = np.interp(np.interp(alpha, first, power), second, last) * _SLACK
    rise, run = np.diff(reached), np.diff(alpha)
    odds = np.unique(np.divide(rise, run, out=np.ones_like(rise), where=run > 0))
    odds = np.append(1.0, odds[(odds > 1.0) & (odds < _LARGEST)])
    if len(odds) > most:
        places = np.linspace(0.0, 1.0, most)
        odds = np.exp(np.interp(places, np.linspace(0.0, 1.0, len(odds)), np.log(odds)))
    values = np.minimum(1.0, _largest(reached, alpha, odds) * _SLACK)
    return TradeoffCurve.from_profile(np.log(odds) * _SLACK, values, side=Side.UPPER, symmetric=True)


def _largest(reached: FloatArray, alpha: FloatArray, odds: FloatArray) -> FloatArray:
    """The largest reached - odds alpha over all breakpoints, for each of the odds; alpha and odds increase.

    The larger the odds, the further left a best breakpoint is, whatever is reached: so those of a few odds say between
    which ones those of all others are. Where rounding takes one for another, it loses no more than it does anyway.
    """
    step = math.isqrt(len(odds))
    best = [int(np.argmax(reached - some * alpha)) for some in odds[::step]]
    found = []
    for i, (last, first) in enumerate(zip(best, [*best[1:], 0], strict=True)):
        rows = slice(min(first, last), max(first, last) + 1)
        found.append(np.max(reached[rows, None] - odds[i * step : (i + 1) * step] * alpha[rows, None], axis=0))
    return np.concatenate(found)


def _rising(curve: TradeoffCurve) -> tuple[FloatArray, FloatArray]:
    """False positive rates and largest true positive rates at the breakpoints, both increasing."""
    alpha, _, _, power = curve.points
    order = np.argsort(alpha, kind="stable")
    rates, reached = alpha[order], np.maximum.accumulate(power[order])
    kept = np.append(True, np.diff(rates) > 0)
    return rates[kept], np.maximum.reduceat(reached, np.flatnonzero(kept))


@dataclass(frozen=True)
class GroupedProof(TradeoffBound):
    """A unit of `records` records by group privacy on the proof for one of them."""

    single: Bound
    records: int
    unit: str
    side = Side.UPPER

    @memoize
    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The curve of one record, composed with itself."""
        return grouped_curve(self.single.alone.curve(self._deeper(smallest_delta), tolerance), self.records)

    def _deeper(self, smallest_delta: float) -> float:
        """A step of the chain may be needed at a delta that is far smaller than that of the whole."""
        return max(_DEEPEST, min(1e-12, smallest_delta) ** 2 / self.records)

    def depth_at(self, delta: float) -> float:
        """Deeper than for one record."""
        return min(1e-12, 1e-3 * delta)

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """Read off the curve that mu is read off, unless it is as small as that ends."""
        found = min(1.0, float(self.curve(_USUAL, tolerance).delta(epsilon)))
        return BoundValue(found, self.evidence()) if found > 100.0 * _USUAL else super().delta(epsilon, tolerance)

    def renyi(self, order: float) -> BoundValue:
        """Not offered."""
        raise UnsupportedError(
            f"No Renyi divergence of order {order:g} is proven for units by group privacy; ask for epsilon, delta or "
            "the trade-off curve."
        )

    def evidence(self) -> Evidence:
        """Group privacy, and what it starts from."""
        one = self.single.evidence()
        text = (
            f"Group privacy: a {self.unit} of up to {self.records} records is changed one record at a time, and the "
            f"trade-off curve of one record is composed {self.records} times. For one record: "
            f"{one.statement}"
        )
        return applied_to(Evidence.of(Kind.NUMERICAL, "dong2022:thm2.14", text), one)


@dataclass(frozen=True)
class OneOfUnit(MaximumBound):
    """An attack on one record of a unit: `parts` is that attack alone.

    `others_zero`: all other gradients are zero in it, so that the unit may have other records, of gradient zero.
    Elsewhere the unit has one record.
    """

    unit: str
    others_zero: bool

    @memoize
    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Computed once: proofs for the unit ask too."""
        return super().epsilon(delta, tolerance)

    def best(self, found: Sequence[BoundValue]) -> BoundValue:
        """That of one record."""
        value, shown = super().best(found)
        whose = f"All gradients but those of one record of the {self.unit} are zero."
        text = f"{whose if self.others_zero else f'The {self.unit} has one record.'} {shown.statement}"
        return BoundValue(value, replace(shown, statement=text))

    def leading(self, shown: Callable[[Bound], float]) -> Bound:
        """The same of the attack on one record that counts."""
        (one,) = self.parts
        return replace(self, parts=(one.leading(shown),))

    def evidence(self) -> Evidence:
        """The attack on one record, and what the unit's others are."""
        return self.best([BoundValue(0.0, super().evidence())]).evidence


@dataclass(frozen=True)
class RevealedAllocationProof(TradeoffBound):
    """Epochs into which the records of a unit are allocated, the whole allocation being revealed."""

    epochs: tuple[tuple[AllocatedUnit, int], ...]
    side = Side.UPPER

    def _cut(self, rarest: float) -> tuple[FloatArray, float]:
        """Renyi divergences at `_ORDERS` without crowded batches that are rarer, and the probability of these."""
        total = sum(count for _, count in self.epochs)
        logs, beyond = np.zeros(len(_ORDERS)), 0.0
        for unit, count in self.epochs:
            crowd, rare = unit.crowd(rarest / total)
            logs, beyond = logs + count * unit.log_moments(_ORDERS, crowd), beyond + count * rare
        return logs / (_ORDERS - 1.0), beyond * (1.0 + 1e-12)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """The best order, and a hundredth of delta for what is rare."""
        rdp, beyond = self._cut(_SHARE * delta)
        found = epsilon_from_rdp(_ORDERS, rdp, (delta - beyond) * (1.0 - 1e-15)) if beyond < delta else math.inf
        return BoundValue(found, self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """The best of some choices of what is rare."""
        return BoundValue(float(self._deltas(np.array(epsilon), _RARE)), self.evidence())

    def _deltas(self, epsilon: FloatArray, rare: Sequence[float]) -> FloatArray:
        cuts = [self._cut(rarest) for rarest in rare]
        found = [delta_from_rdp(_ORDERS, rdp, epsilon) + beyond for rdp, beyond in cuts]
        return np.asarray(np.minimum(1.0, np.min(found, axis=0) * (1.0 + 1e-15)))

    def renyi(self, order: float) -> BoundValue:
        """Not offered."""
        raise UnsupportedError(f"No finite Renyi divergence of order {order:g} is proven; ask for epsilon at delta.")

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The profile at nodes up to where it is `smallest_delta`."""
        far = self.epsilon(smallest_delta, tolerance).value
        nodes = np.linspace(0.0, far, _CURVE_NODES)
        return TradeoffCurve.from_profile(
            nodes, self._deltas(nodes, (*_RARE, _SHARE * smallest_delta)), Side.UPPER, symmetric=True
        )

    def evidence(self) -> Evidence:
        """What is revealed."""
        revealed = (
            "Which batch gets which of the unit's records is revealed: then every batch is a Gaussian whose mean moves "
            "by at most as many clipping norms as it gets records (twice as many where they are replaced). They mostly "
            "get one; how often records meet is counted."
        )
        return Evidence.of(Kind.THEOREM, "calipers:dealt-units", revealed)
