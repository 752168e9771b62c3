"""Group privacy: what a guarantee for one record says about a unit of g records.

Change the records of the unit one after the other: D_0, D_1, ..., D_g. If every step of the chain has the trade-off
curve f, a test of D_0 against D_g with false positive rate alpha has false negative rate at least f_g(alpha), where

    1 - f_g = (1 - f) o (1 - f) o ... o (1 - f),     g times

(Dong, Roth, Su 2022, Theorem 2.14; the same direction of every step, so a symmetric f serves both orders). On profiles:
D_(k l)(P||R) <= D_k(P||Q) + k D_l(Q||R), and f_g is the best of all ways to split e^epsilon.

From below, all but one of the unit's records do nothing: where they are zeroed out or removed they have gradient zero
before as well, so what is shown is an attack on one record in which all other gradients are zero (others that oppose it
would miss the unit's own). Where records are dealt out, another attack adds up the sums of an epoch, which all of the
unit's records move together (`calipers.schemes.dealt.summed_unit`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.kept import kept
from calipers.measure.choice import Greatest
from calipers.measure.closed import CurveJaw
from calipers.measure.composed import PairProof
from calipers.measure.jaw import Found, Jaw
from calipers.numerics.types import FloatArray

_DEEPEST, _USUAL = 1e-280, 1e-12
"""How small a delta a curve resolves at most, and for what is usually asked."""
_BELOW = 1e-12
"""Laws of pairs end less than this share below the delta asked for."""
_SLACK = 1.0 + 1e-12
_NODES, _FOR_ALL = 1500, 6000
"""Nodes that a curve keeps at least, and how many all curves of a chain may have together before it is no more."""
_LARGEST = 1e280


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
class GroupedProof(CurveJaw):
    """A unit of `records` records by group privacy on the proof for one of them."""

    single: Jaw
    records: int
    unit: str
    side = Side.UPPER

    @kept
    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The curve of one record, composed with itself."""
        return grouped_curve(self.single.alone.curve(self._deeper(smallest_delta), tolerance), self.records)

    def _deeper(self, smallest_delta: float) -> float:
        """A step of the chain may be needed at a delta that is far smaller than that of the whole."""
        return max(_DEEPEST, min(1e-12, smallest_delta) ** 2 / self.records)

    def log_least(self, smallest_delta: float) -> float:
        """About the log of the least power that one record's curve charges at every rate.

        Laws of pairs end not far below what is asked for. Other curves go on to where doubles end.
        """
        share = _BELOW if isinstance(self.single, PairProof) else 0.0
        return math.log(max(share * self._deeper(smallest_delta), _DEEPEST))

    def depth_at(self, delta: float) -> float:
        """Deeper than for one record."""
        return min(1e-12, 1e-3 * delta)

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """Read off the curve that mu is read off, unless it is as small as that ends."""
        found = min(1.0, float(self.curve(_USUAL, tolerance).delta(epsilon)))
        return Found(found, self.evidence()) if found > 100.0 * _USUAL else super().delta(epsilon, tolerance)

    def renyi(self, order: float) -> Found:
        """Not offered."""
        raise UnsupportedError(
            f"No Renyi divergence of order {order:g} is proven for units by group privacy; ask for epsilon, delta or "
            "the trade-off curve."
        )

    def evidence(self) -> Evidence:
        """Group privacy, and what it starts from."""
        text = (
            f"Group privacy: a {self.unit} of up to {self.records} records is changed one record at a time, and the "
            f"trade-off curve of one record is composed {self.records} times. For one record: "
            f"{self.single.evidence().statement}"
        )
        return Evidence.of(Kind.NUMERICAL, "dong2022:thm2.14", text)


@dataclass(frozen=True)
class OneOfUnit(Greatest):
    """An attack on one record of a unit whose other records do nothing: `parts` is that attack alone."""

    unit: str

    @kept
    def epsilon(self, delta: float, tolerance: float) -> Found:
        """Computed once: proofs for the unit ask too."""
        return super().epsilon(delta, tolerance)

    def best(self, found: Sequence[Found]) -> Found:
        """That of one record."""
        value, shown = super().best(found)
        text = f"All records of the {self.unit} but one do nothing. {shown.statement}"
        return Found(value, replace(shown, statement=text))

    def evidence(self) -> Evidence:
        """The attack on one record, the others doing nothing."""
        return self.best([Found(0.0, super().evidence())]).evidence
