"""Units of several records whose steps tell how many of them take part: a proof that stays finite without noise.

Reveal in every step how many of the unit's records (or places) are in the batch, and which others they displaced. Given
that the step is a Gaussian whose mean moves by at most s: by j/sigma if j records are zeroed out, the same places being
taken on both datasets; by 2j/sigma if they are replaced, or added to a batch of fixed size, where each displaces
another; by (k + (k - f)+)/sigma if k are added to a batch with room for f (`calipers.laws.drawn`). How many there are
has the same law on both datasets, whatever earlier steps showed. So for every t > 1 each step's moment is at most

    E[exp(t (t - 1) s^2 / 2)],

in both orders of the datasets, and moments multiply (`calipers.curves.renyi`). Nothing is hidden, so with much noise
this is far too much; with little noise counting hides nothing, and laws on a lattice end before their log ratios do.

Lengths that are rare count as telling the datasets apart: P(any step has one) is added to delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.renyi import delta_from_rdp, epsilon_from_rdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.laws.composed.convolve import TWO_STAGE_COUNT
from calipers.laws.composed.loud import FARTHER, LOUDEST
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.laws.core.drawn_shift import Shifts
from calipers.measure.closed import CurveJaw
from calipers.measure.jaw import Found
from calipers.numerics.types import FloatArray

_ORDERS = 1.0 + np.geomspace(1e-10, 1e5, 601)
_RARE, _SHARE, _NODES = (1e-9, 1e-18, 1e-40), 1e-2, 500
_WIDEST = 1000.0
"""Usual lengths beyond which laws take long: their cells are as narrow as Q is steep there."""


@implements("calipers:told-lengths")
@dataclass(frozen=True)
class ToldProof(CurveJaw):
    """So many steps of each law of lengths, in units of the noise."""

    steps: tuple[tuple[Shifts | DealtUnit, int], ...]
    side = Side.UPPER
    statement: ClassVar[str] = "calipers:told-lengths"
    revealed: ClassVar[str] = (
        "How many of the unit's records take part in each step is revealed: then every step is a Gaussian whose mean "
        "moves by at most as many clipping norms (twice as many where they are replaced or displace others), and its "
        "Renyi divergences, averaged over that number, add up over the steps."
    )

    @property
    def loud(self) -> bool:
        """Whether no lattice holds the total of log ratios, N(s^2/2, s^2) or less given the length s of a step; or a
        step is so wide that its law has too many cells. Where totals are no bell, laws have to do all the same."""
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
        return deviation < mean / FARTHER and (widest > _WIDEST or (many and deviation > LOUDEST))

    def _cut(self, rarest: float) -> tuple[FloatArray, float]:
        """Renyi divergences at `_ORDERS` without the rarest lengths, and the probability of these in any step."""
        total = sum(count for _, count in self.steps)
        kept = [(*_without(told, rarest / total), count) for told, count in self.steps]
        beyond = math.fsum(count * rare for _, rare, count in kept)
        logs = np.sum([count * log_moments for log_moments, _, count in kept], axis=0)
        return logs / (_ORDERS - 1.0), beyond * (1.0 + 1e-12)

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """The best order, and a hundredth of delta for lengths that are rare."""
        rdp, beyond = self._cut(_SHARE * delta)
        found = epsilon_from_rdp(_ORDERS, rdp, (delta - beyond) * (1.0 - 1e-15)) if beyond < delta else math.inf
        return Found(found, self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """The best of some choices of what is rare."""
        return Found(float(self._deltas(np.array(epsilon), _RARE)), self.evidence())

    def _deltas(self, epsilon: FloatArray, rare: Sequence[float]) -> FloatArray:
        cuts = [self._cut(rarest) for rarest in rare]
        found = [delta_from_rdp(_ORDERS, rdp, epsilon) + beyond for rdp, beyond in cuts]
        return np.asarray(np.minimum(1.0, np.min(found, axis=0) * (1.0 + 1e-15)))

    def renyi(self, order: float) -> Found:
        """Not where some length is so rare that it is not known."""
        raise UnsupportedError(f"No finite Renyi divergence of order {order:g} is proven; ask for epsilon at delta.")

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The profile at nodes up to where it is `smallest_delta`."""
        far = self.epsilon(smallest_delta, tolerance).value
        nodes = np.linspace(0.0, far, _NODES)
        return TradeoffCurve.from_profile(
            nodes, self._deltas(nodes, (*_RARE, _SHARE * smallest_delta)), Side.UPPER, symmetric=True
        )

    def evidence(self) -> Evidence:
        """What is revealed."""
        return Evidence.of(Kind.THEOREM, self.statement, self.revealed)


@dataclass(frozen=True)
class DealtProof(ToldProof):
    """Epochs into which the records of a unit are dealt, the whole deal being told."""

    statement = "calipers:dealt-units"
    revealed = (
        "Which batch gets which of the unit's records is revealed: then every batch is a Gaussian whose mean moves by "
        "at most as many clipping norms as it gets records (twice as many where they are replaced). They mostly get "
        "one; how often records meet is counted."
    )


def _without(told: Shifts | DealtUnit, rarest: float) -> tuple[FloatArray, float]:
    """Logs of moments at `_ORDERS` without what is rarer than `rarest`, and the probability of that."""
    if isinstance(told, DealtUnit):
        crowd, beyond = told.crowd(rarest)
        return told.log_moments(_ORDERS, crowd), beyond
    shifts = told.without(rarest)
    return _log_moments(shifts), shifts.beyond * (1.0 + shifts.rounding)


def _log_moments(shifts: Shifts) -> FloatArray:
    """At least log E[exp(t (t - 1) s^2 / 2)] at `_ORDERS`, over the lengths that are kept.

    The probabilities add up to at most 1, so it is log(1 + E[exp(...) - 1]) at most: faint moments keep their digits.
    """
    shifts = shifts.grouped(Side.UPPER)
    length, weight = (np.array(part)[np.array(shifts.lengths) > 0.0] for part in (shifts.lengths, shifts.weights))
    exponent = 0.5 * (_ORDERS * (_ORDERS - 1.0))[:, None] * np.square(length)
    logs = exponent + np.log(-np.expm1(-exponent)) + np.log(weight)
    excess = np.logaddexp.reduce(logs, axis=1)
    rounding = shifts.rounding + 1e-14 * len(length) + 1e-15 * np.max(exponent + np.abs(logs), axis=1, initial=0.0)
    return np.asarray(np.logaddexp(0.0, excess + rounding) * (1.0 + 1e-14))
