"""The middle of a curve that hides next to nothing: where delta is almost 1 and the digits are in 1 - delta.

Composed far enough, two datasets are told apart but for errors that no transform at tilt >= 1 resolves: there delta is
1 up to rounding. What is left is

    1 - D_k(P||Q) = E_Q[min(L, k)],

a positive function of L, and tilted by L^t with 0 < t < 1 its mass sits around L = k: the same trick as for tails gives
it with relative accuracy, however small.

- **UPPER.** min(L, k) is concave, so splitting atoms (a mean preserving spread) lowers its mean. Beyond the cells of a
  `Pair` the Q-mass of the upper tail stays at the last ratio, which is below its own, and the P-mass of the lower tail
  at the first, with as much Q-mass as that allows: both lower E_Q[min(a L, b)] for all a, b >= 0. Such bounds
  multiply, E[min(L1 L2, k)] being an average over L2 of the same function of L1, so products need no total mass, and
  relative errors of masses stay relative.
- **LOWER.** Of a test {score > t} both errors are small: Q above t and P up to t are two tails of tilted measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.laws.composed.convolve import LatticePlan, LatticeTooLongError, compose_lower, compose_upper
from calipers.laws.composed.direction import Direction, Jaws
from calipers.laws.composed.lattice import LatticeMeasure
from calipers.laws.composed.saddle import Saddle, saddle_at
from calipers.laws.composed.tails import Charges, decay_norm
from calipers.laws.core.law import Law
from calipers.numerics.elementary import halved
from calipers.numerics.fourier import UNIT_ROUNDOFF, decayed_tail_sums
from calipers.numerics.types import FloatArray

_FAR = 4.0
"""With the untilted total so many deviations above 0, delta(0) has lost its digits."""
_SPACING, _SPARSE, _MANY, _MOST_SADDLES = 2.5, 5.0, 1000, 40
"""Deviations between saddles; of as many steps the sum is a bell, and known further away from its middle."""
_NODES_PER_DEVIATION = 25.6
_DEEPEST = -640.0


@dataclass(frozen=True)
class Kept:
    """Nodes (eps, log of at most 1 - delta), eps increasing: 1 - delta is concave and increasing in e^eps."""

    epsilon: FloatArray
    log_kept: FloatArray

    def at(self, epsilon: FloatArray) -> FloatArray:
        """At most 1 - delta at every epsilon; 0 before the first node."""
        if len(self.epsilon) == 0:
            return np.zeros(len(epsilon))
        j = np.clip(np.searchsorted(self.epsilon, epsilon, side="right") - 1, 0, len(self.epsilon) - 1)
        beyond = np.minimum(j + 1, len(self.epsilon) - 1)
        low, high = np.exp(self.log_kept[j]), np.exp(self.log_kept[beyond])
        gap = np.maximum(self.epsilon[beyond] - self.epsilon[j], 1e-300)
        inside = np.clip(epsilon - self.epsilon[j], 0.0, gap)
        share = np.exp(inside - gap) * -np.expm1(-inside) / -np.expm1(-gap)
        return np.where(epsilon < self.epsilon[0], 0.0, (low + share * np.maximum(high - low, 0.0)) * (1.0 - 1e-14))


@dataclass(frozen=True)
class MiddleTests:
    """Tests by the logs of both errors (upper bounds), and their thresholds."""

    thresholds: FloatArray
    log_alpha: FloatArray
    log_miss: FloatArray


def middle_saddles(direction: Direction, log_tail: float, down_to: float = 0.0) -> list[Saddle]:
    """Tilts between 0 and 1 whose means go from that of the untilted total down to `down_to`; none where delta is
    resolved there.
    """
    pilot = direction.pilot(log_tail)
    last = saddle_at(pilot, 1.0)
    if direction.steps() == 1 or last.mean - down_to < _FAR * last.deviation:
        return []
    found: list[Saddle] = []
    target, spacing = math.inf, _spacing(direction)
    while target > down_to and len(found) < _MOST_SADDLES and last.log_delta > _DEEPEST:
        target = max(down_to, last.mean - spacing * last.deviation)
        last = _with_mean(pilot, target)
        found.append(last)
    return found


def _spacing(direction: Direction) -> float:
    return _SPARSE if direction.steps() >= _MANY else _SPACING


def _plan(direction: Direction, saddle: Saddle, eta: float, log_tail: float) -> LatticePlan:
    """So little escapes that it is a small share of the mass half a spacing away, which decays beside it."""
    half = 0.5 * _spacing(direction)
    return direction.plan(saddle, eta, log_tail, math.log(1e-4 * eta) - 0.5 * (half**2 - (0.5 * _SPACING) ** 2))


def _with_mean(pilot: Sequence[tuple[Law, int]], mean: float) -> Saddle:
    _, high = halved(0.0, 1.0, lambda tilt: saddle_at(pilot, tilt).mean < mean, 20)
    return saddle_at(pilot, high)


def delta_near_one(direction: Direction, epsilon: float, eta: float, log_tail: float) -> Jaws | None:
    """Jaws of D at an epsilon where it is almost 1; None where it is not."""
    pilot = direction.pilot(log_tail)
    untilted = saddle_at(pilot, 1.0)
    if direction.steps() == 1 or untilted.mean - epsilon < _FAR * untilted.deviation:
        return None
    saddles = [_with_mean(pilot, epsilon)]
    upper = 1.0
    if direction.spread:
        kept = kept_nodes(direction, saddles, eta, log_tail)
        upper = min(1.0, (1.0 - float(kept.at(np.array([epsilon]))[0])) * (1.0 + 4.0 * UNIT_ROUNDOFF))
    tests = middle_tests(direction, saddles, eta, log_tail)
    if len(tests.thresholds) == 0:
        return Jaws(0.0, upper, math.inf, direction.reverse)
    errors = np.exp(np.minimum(tests.log_miss, 1.0)) + np.exp(np.minimum(tests.log_alpha + epsilon, 1.0))
    best = int(np.argmin(errors))
    lower = max(0.0, 1.0 - float(errors[best]) - 4.0 * UNIT_ROUNDOFF)
    return Jaws(lower, upper, float(tests.thresholds[best]), direction.reverse)


def kept_nodes(direction: Direction, saddles: Sequence[Saddle], eta: float, log_tail: float) -> Kept:
    """Lower bounds of 1 - delta around the saddles."""
    epsilon, logs = [], []
    for saddle, tilt in _placed(saddles, direction.together(log_tail)):
        laws = direction.upper_laws(eta, log_tail, tilt)
        plan = _plan(direction, saddle, eta, log_tail)
        try:
            measure = compose_upper(laws, plan)
        except LatticeTooLongError:
            continue  # fewer nodes are a weaker bound
        charges = Charges.of(laws, 1.0)
        index = _near(measure, plan.step, saddle, _spacing(direction))
        n, (right, left) = len(measure.weights), _both_sums(measure, plan.step, saddle.tilt, index)
        norm = decay_norm(saddle.tilt * plan.step, n) + decay_norm((1.0 - saddle.tilt) * plan.step, n)
        total = (right + left) * (1.0 - 16.0 * (n + 300) * UNIT_ROUNDOFF) - norm * measure.error - _lost(measure)
        x = (measure.positions[0] + index) * plan.step
        sure = total > 0.0
        log_kept = np.log(total[sure]) + measure.log_norm + (1.0 - saddle.tilt) * x[sure]
        epsilon.append(x[sure])
        logs.append(
            np.minimum(log_kept - charges.log_mass - charges.shift - 1e-13 * (1.0 + abs(measure.log_norm)), 0.0)
        )
    if not epsilon:
        return Kept(np.array([]), np.array([]))
    nodes, values = np.concatenate(epsilon), np.concatenate(logs)
    order = np.argsort(nodes, kind="stable")
    # What is kept increases, so a bound at one node holds at every later one.
    return Kept(nodes[order], np.maximum.accumulate(values[order]))


def middle_tests(direction: Direction, saddles: Sequence[Saddle], eta: float, log_tail: float) -> MiddleTests:
    """Tests with thresholds around the saddles, by both their errors."""
    thresholds, log_alpha, log_miss = [], [], []
    for saddle, tilt in _placed(saddles, direction.together(log_tail)):
        laws = direction.lower_laws(eta, log_tail, tilt)
        plan = _plan(direction, saddle, eta, log_tail)
        try:
            under_p, under_q = compose_lower(laws, plan)
        except LatticeTooLongError:
            continue
        charge = Charges.of(laws, 1.0).log_mass + 1e-13 * (1.0 + abs(under_p.log_norm) + abs(under_q.log_norm))
        index = _near(under_q, plan.step, saddle, _spacing(direction))
        x = (under_q.positions[0] + index) * plan.step
        errors = []
        for measure, rate, side in ((under_q, saddle.tilt, 0), (under_p, 1.0 - saddle.tilt, 1)):
            n, sums = len(measure.weights), _both_sums(measure, plan.step, saddle.tilt, index)[side]
            rounded = sums + 16.0 * (n + 300) * UNIT_ROUNDOFF * np.abs(sums)
            total = rounded + decay_norm(rate * plan.step, n) * measure.error + _lost(measure)
            errors.append(np.log(np.maximum(total, 1e-300)) + measure.log_norm + charge)
        thresholds.append(x)
        log_alpha.append(errors[0] - saddle.tilt * x)
        log_miss.append(errors[1] + (1.0 - saddle.tilt) * x)
    if not thresholds:
        return MiddleTests(np.array([]), np.array([]), np.array([]))
    return MiddleTests(*(np.concatenate(parts) for parts in (thresholds, log_alpha, log_miss)))


def _placed(saddles: Sequence[Saddle], together: Callable[[Saddle, Saddle], bool]) -> Iterator[tuple[Saddle, float]]:
    """Each saddle with the tilt that cells are placed for: that of the first one that it may go `together` with."""
    first = None
    for saddle in saddles:
        first = saddle if first is None or not together(first, saddle) else first
        yield saddle, first.tilt


def _near(measure: LatticeMeasure, step: float, saddle: Saddle, spacing: float) -> FloatArray:
    """Some positions within a spacing of the saddle; none where the window lies elsewhere, as for crude laws."""
    center = saddle.mean / step - float(measure.positions[0])
    reach = (0.5 * spacing + 0.2) * saddle.deviation / step
    low, high = max(0.0, center - reach), min(len(measure.weights) - 1.0, center + reach)
    count = round(_NODES_PER_DEVIATION * spacing)
    return np.unique(np.linspace(low, high, count).round()) if low <= high else np.array([])


def _both_sums(measure: LatticeMeasure, step: float, tilt: float, index: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums of the weights above each position, decaying with the tilt, and up to it, decaying with 1 - tilt."""
    places = index.astype(np.intp)
    above = decayed_tail_sums(measure.weights, tilt * step)[places]
    below = decayed_tail_sums(measure.weights[::-1], (1.0 - tilt) * step)[::-1][places]
    return above, below + measure.weights[places]


def _lost(measure: LatticeMeasure) -> float:
    """At least the mass that left the window, or that came in from beyond it; no weight exceeds 1."""
    assert measure.window is not None
    return measure.escape + 4.0 * math.exp(measure.window.log_escape)
