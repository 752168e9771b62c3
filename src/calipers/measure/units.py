"""Units of several records, where the sampler does not count them: group privacy, and revealing who takes part.

**Group privacy.** What a guarantee for one record says about a unit of g records. Change the records of the unit one
after the other: D_0, D_1, ..., D_g. If every step of the chain has the trade-off curve f, a test of D_0 against D_g
with false positive rate alpha has false negative rate at least f_g(alpha), where

    1 - f_g = (1 - f) o (1 - f) o ... o (1 - f),     g times

(Dong, Roth, Su 2022, Theorem 2.14; the same direction of every step, so a symmetric f serves both orders). On profiles:
D_(k l)(P||R) <= D_k(P||Q) + k D_l(Q||R), and f_g is the best of all ways to split e^epsilon.

From below, all but one of the unit's records do nothing: where they are zeroed out or removed they have gradient zero
before as well, so what is shown is an attack on one record in which all other gradients are zero (others that oppose it
would miss the unit's own). Where records are allocated, another attack adds up the sums of an epoch, which all of the
unit's records move together (`calipers.samplers.allocated.summed_unit`), and another one weighs its batches by how many
of the records each may hold (`calipers.pld.subsampling.equal_unit`).

**Revealed.** A proof that stays finite without noise. Reveal in every step how many of the unit's records (or places)
are in the batch, and which others they displaced. Given that the step is a Gaussian whose mean moves by at most s: by
j/sigma if j records are zeroed out, the same places being taken on both datasets; by 2j/sigma if they are replaced, or
added to a batch of fixed size, where each displaces another; by (k + (k - f)+)/sigma if k are added to a batch with
room for f (`calipers.pld.subsampling`). How many there are has the same PLD on both datasets, whatever earlier steps
showed. So for every t > 1 each step's moment is at most

    E[exp(t (t - 1) s^2 / 2)],

in both orders of the datasets, and moments multiply (`calipers.curves.renyi`). Nothing is hidden, so with much noise
this is far too much; with little noise counting hides nothing, and PLDs on a lattice end before their log ratios do.

Lengths that are rare count as telling the datasets apart: P(any step has one) is added to delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.renyi import delta_from_rdp, epsilon_from_rdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.measure.bounds import Bound, BoundValue, MaximumBound, TradeoffBound
from calipers.memoize import memoize
from calipers.numerics.types import FloatArray
from calipers.pld.composition.convolve import TWO_STAGE_COUNT
from calipers.pld.composition.low_noise import FARTHER, LEAST_NOISE
from calipers.pld.core.allocated_unit import AllocatedUnit
from calipers.pld.core.drawn_shift import Shifts

_DEEPEST, _USUAL = 1e-280, 1e-12
"""How small a delta a curve resolves at most, and for what is usually asked."""
_SLACK = 1.0 + 1e-12
_NODES, _FOR_ALL = 1500, 6000
"""Nodes that a curve keeps at least, and how many all curves of a chain may have together before it is no more."""
_LARGEST = 1e280
_ORDERS = 1.0 + np.geomspace(1e-10, 1e5, 601)
_RARE, _SHARE, _CURVE_NODES = (1e-9, 1e-18, 1e-40), 1e-2, 500
_WIDEST = 1000.0
"""Usual lengths beyond which PLDs take long: their cells are as narrow as Q is steep there."""


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
        text = (
            f"Group privacy: a {self.unit} of up to {self.records} records is changed one record at a time, and the "
            f"trade-off curve of one record is composed {self.records} times. For one record: "
            f"{self.single.evidence().statement}"
        )
        return Evidence.of(Kind.NUMERICAL, "dong2022:thm2.14", text)


@dataclass(frozen=True)
class OneOfUnit(MaximumBound):
    """An attack on one record of a unit whose other records do nothing: `parts` is that attack alone."""

    unit: str

    @memoize
    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Computed once: proofs for the unit ask too."""
        return super().epsilon(delta, tolerance)

    def best(self, found: Sequence[BoundValue]) -> BoundValue:
        """That of one record."""
        value, shown = super().best(found)
        text = f"All records of the {self.unit} but one have gradient zero. {shown.statement}"
        return BoundValue(value, replace(shown, statement=text))

    def evidence(self) -> Evidence:
        """The attack on one record, the others doing nothing."""
        return self.best([BoundValue(0.0, super().evidence())]).evidence


@implements("calipers:told-lengths")
@dataclass(frozen=True)
class RevealedCountsProof(TradeoffBound):
    """So many steps of each distribution of lengths, in units of the noise."""

    steps: tuple[tuple[Shifts | AllocatedUnit, int], ...]
    side = Side.UPPER
    statement: ClassVar[str] = "calipers:told-lengths"
    revealed: ClassVar[str] = (
        "How many of the unit's records take part in each step is revealed: then every step is a Gaussian whose mean "
        "moves by at most as many clipping norms (twice as many where they are replaced or displace others), and its "
        "Renyi divergences, averaged over that number, add up over the steps."
    )

    @property
    def low_noise(self) -> bool:
        """Whether no lattice holds the total of log ratios, N(s^2/2, s^2) or less given the length s of a step; or a
        step is so wide that its PLD has too many cells. Where totals are no bell, PLDs have to do all the same."""
        mean = variance = widest = 0.0
        for shifts, count in self.steps:
            if not isinstance(shifts, Shifts):
                return False
            weights, lengths = np.array(shifts.weights), np.array(shifts.lengths)
            center, usual = 0.5 * float(weights @ np.square(lengths)), float(weights @ lengths)
            widest = max(widest, usual + 8.0 * math.sqrt(float(weights @ np.square(lengths - usual))))
            mean += count * center
            variance += count * float(weights @ (np.square(0.5 * np.square(lengths) - center) + np.square(lengths)))
        many = max(count for _, count in self.steps) >= TWO_STAGE_COUNT
        deviation = math.sqrt(variance)
        return deviation < mean / FARTHER and (widest > _WIDEST or (many and deviation > LEAST_NOISE))

    def _cut(self, rarest: float) -> tuple[FloatArray, float]:
        """Renyi divergences at `_ORDERS` without the rarest lengths, and the probability of these in any step."""
        total = sum(count for _, count in self.steps)
        kept = [(*_without(counts, rarest / total), count) for counts, count in self.steps]
        beyond = math.fsum(count * rare for _, rare, count in kept)
        logs = np.sum([count * log_moments for log_moments, _, count in kept], axis=0)
        return logs / (_ORDERS - 1.0), beyond * (1.0 + 1e-12)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """The best order, and a hundredth of delta for lengths that are rare."""
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
        """Not where some length is so rare that it is not known."""
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
        return Evidence.of(Kind.THEOREM, self.statement, self.revealed)


@dataclass(frozen=True)
class RevealedAllocationProof(RevealedCountsProof):
    """Epochs into which the records of a unit are allocated, the whole allocation being revealed."""

    statement = "calipers:dealt-units"
    revealed = (
        "Which batch gets which of the unit's records is revealed: then every batch is a Gaussian whose mean moves by "
        "at most as many clipping norms as it gets records (twice as many where they are replaced). They mostly get "
        "one; how often records meet is counted."
    )


def _without(counts: Shifts | AllocatedUnit, rarest: float) -> tuple[FloatArray, float]:
    """Logs of moments at `_ORDERS` without what is rarer than `rarest`, and the probability of that."""
    if isinstance(counts, AllocatedUnit):
        crowd, beyond = counts.crowd(rarest)
        return counts.log_moments(_ORDERS, crowd), beyond
    shifts = counts.without(rarest)
    return _log_moments(shifts), shifts.beyond * (1.0 + shifts.rounding)


def _log_moments(shifts: Shifts) -> FloatArray:
    """At least log E[exp(t (t - 1) s^2 / 2)] at `_ORDERS`, over the lengths that are kept.

    The probabilities add up to at most 1, so it is log(1 + E[exp(...) - 1]) at most: high-noise moments keep their
    digits.
    """
    shifts = shifts.grouped(Side.UPPER)
    length, weight = (np.array(part)[np.array(shifts.lengths) > 0.0] for part in (shifts.lengths, shifts.weights))
    exponent = 0.5 * (_ORDERS * (_ORDERS - 1.0))[:, None] * np.square(length)
    logs = exponent + np.log(-np.expm1(-exponent)) + np.log(weight)
    excess = np.logaddexp.reduce(logs, axis=1)
    rounding = shifts.rounding + 1e-14 * len(length) + 1e-15 * np.max(exponent + np.abs(logs), axis=1, initial=0.0)
    return np.asarray(np.logaddexp(0.0, excess + rounding) * (1.0 + 1e-14))
