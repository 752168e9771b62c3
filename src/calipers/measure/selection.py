"""The bounds of releasing the best of a random number of runs.

See `calipers.mechanisms.selection` for the lemmas above and the test below. The upper bound is the better of the two
(`calipers.measure.selected_profile`); the lower bound is the best of three scores: the likelihood ratio of one run, its
reciprocal, and the best one that ranks both extremes of the ratio first (`calipers.measure.selection_order`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.envelope import Envelope
from calipers.curves.points import Points
from calipers.curves.tradeoff import TradeoffCurve
from calipers.guarantee import Guarantee, GuaranteeSubject
from calipers.measure.bounds import Bound, Bounds, BoundValue, TradeoffBound, applied_to
from calipers.measure.guarantees import described, stated_measurement
from calipers.measure.measurement import Measurement
from calipers.measure.routes import measure
from calipers.measure.selected_profile import SelectedProfile
from calipers.measure.selection_order import OrderRates, best_order
from calipers.mechanisms.selection import Trials
from calipers.memoize import memoize
from calipers.numerics.types import FloatArray
from calipers.run import Run
from calipers.scope import shared_neighbors

_ORDERS = np.concatenate((np.geomspace(1.05, 2.0, 8), np.geomspace(2.2, 40.0, 14)))
_COARSE = 5e-3
_TESTS, _FINE = 1_500, 400
_DEEPEST, _USUAL, _FINE_ENOUGH = 1e-14, 1e-12, 1e-3
"""The smallest depth of curves of one trial; the depth that reports ask for, and the tolerance with which they do."""
_MOST_NOISE, _NORMAL = 1e-300, 1e-307
"""Rates that are smaller are raised to the first, and masses they are made of to the second: more than whatever
underflows, lest a test seem never to be wrong."""
_ORDERS_TRIED, _LARGEST = 12, 600.0
"""How many orders an epsilon is looked for with; beyond the second no order is."""
_PROFILE = "calipers:selection"
_RENYI = ("papernot2022:thm2", "the Renyi divergences of one trial at a few dozen orders")


@dataclass(frozen=True)
class Selection:
    """The best of a random number of runs: `measure` takes it as it takes a run.

    `mean` is the mean number of trials; `trials` its PLD: "geometric", "logarithmic", "poisson", or
    "negative-binomial" with a `shape`.
    """

    of: Run | tuple[Run, ...] | Guarantee
    mean: float
    trials: str = "geometric"
    shape: float | None = None

    def __post_init__(self) -> None:
        Trials.of(self.trials, self.mean, self.shape)

    @property
    def pmf(self) -> Trials:
        """The distribution of the number of trials."""
        return Trials.of(self.trials, self.mean, self.shape)

    def measured(self, tolerance: float) -> Measurement:
        """The bracket of what is released; the claim is its own upper bound.

        Args:
            tolerance: The relative width aimed for.

        Returns:
            Brackets of the best of all trials, for the adjacency of one trial.

        Raises:
            UnsupportedError: Nothing is proven for one trial.
        """
        one = measure(self.of, tolerance=tolerance)
        words = f"{self.pmf.words[0].upper()}{self.pmf.words[1:]}, each of them: {described(one)}"
        keys: tuple[tuple[str, object], ...] = (("trials", self.trials), ("mean", self.mean))
        keys += () if self.shape is None else (("shape", self.shape),)
        adjacency = one.runs[0].adjacency if one.runs else one.stated.adjacency if one.stated is not None else "its own"
        found = selected(one.evaluation, self.pmf)
        neighbors = shared_neighbors(one.runs) if one.runs else ""
        subject = GuaranteeSubject(words, keys, adjacency, "selection", neighbors=neighbors, runs=one.runs)
        return stated_measurement(subject, found, tolerance, one.conditions)


@implements("calipers:selection", "papernot2022:thm2")
@dataclass(frozen=True)
class SelectionProof(TradeoffBound):
    """The best of a random number of trials, each proven by `one`."""

    one: Bound
    trials: Trials
    side = Side.UPPER

    @memoize
    def _selected(self, depth: float, tolerance: float) -> SelectedProfile:
        return SelectedProfile(self.trials, self.one.curve(depth, tolerance))

    @property
    def _usual(self) -> SelectedProfile:
        """By the curve that reports ask for."""
        return self._selected(_depth(self.trials, _USUAL), _FINE_ENOUGH)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Of the whole curve of one trial, or of its own epsilon at delta / m, where that may be less."""
        usual, shared = self._usual, self.one.epsilon(delta / self.trials.mean * (1.0 - 1e-15), tolerance)
        return BoundValue(min(usual.epsilon(delta), usual.shift + shared.value), self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """As `epsilon`."""
        found, room = self._usual.delta(epsilon), epsilon - self._usual.shift
        if room >= 0.0:
            found = min(found, self.trials.mean * self.one.delta(room, tolerance).value * (1.0 + 1e-12))
        return BoundValue(found, self.evidence())

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """What follows from the curve of one trial."""
        return self._curve(_depth(self.trials, smallest_delta), tolerance)

    @memoize
    def _curve(self, depth: float, tolerance: float) -> TradeoffCurve:
        return self._selected(depth, tolerance).curve

    def renyi(self, order: float) -> BoundValue:
        """The published bound."""
        near = self.one.delta(_near(order), 1e-2).value if self.trials.poisson else 0.0
        return BoundValue(self._divergence(order, near), self._explained(*_RENYI))

    def _divergence(self, order: float, near: float) -> float:
        orders = np.array([order, *_ORDERS])
        return self.trials.renyi(order, np.array([self._of_one(t) for t in orders.tolist()]), orders, near)

    @memoize
    def _of_one(self, order: float) -> float:
        return self.one.renyi(order).value

    def evidence(self) -> Evidence:
        """The lemmas."""
        return self._explained(_PROFILE, "the profile of one trial, times the mean number of trials, and shifted")

    def _explained(self, statement: str, how: str) -> Evidence:
        one = self.one.evidence()
        text = f"What is released is {self.trials.words}: bounded by {how}. One trial: {one.statement}"
        return applied_to(Evidence.of(Kind.NUMERICAL, statement, text), one)


def _depth(trials: Trials, smallest_delta: float) -> float:
    """How deep curves of one trial must be, so that the best of all is known down to the smallest delta."""
    return min(_DEEPEST, smallest_delta / trials.mean)


def _near(order: float) -> float:
    """The epsilon at which the bound for a Poisson number of trials asks for delta."""
    return math.log1p(1.0 / (order - 1.0))


@dataclass(frozen=True)
class SelectionAttack(Bound):
    """The best of a random number of trials, each attacked by `one`: the best of many scores."""

    one: Bound
    trials: Trials
    side = Side.LOWER

    @memoize
    def _attack(self, depth: float) -> Envelope:
        """The directed curves of both scores, on every pair of one trial."""
        return Envelope(tuple(found for tests in self._tests(depth) for found in _both_scores(tests, self.trials)))

    def _tests(self, depth: float) -> list[Points]:
        return [_some(curve.points) for curve in self.one.envelope(depth, _COARSE).absent]

    @property
    def _scored(self) -> TradeoffCurve:
        return self._attack(_depth(self.trials, _USUAL)).hull()

    @functools.cached_property
    def _directed(self) -> list[Points]:
        """The tests of one trial, and those that claim "absent", with points between their breakpoints."""
        if self.trials.single:
            return []
        found = [Points(*_tests_of(tests)) for tests in self._tests(_depth(self.trials, _USUAL))]
        return [*found, *(tests.swapped() for tests in found)]

    @memoize
    def _ordered(self, epsilon: float) -> tuple[OrderRates, ...]:
        """By the orders that show most at epsilon, in both directions."""
        return tuple(best_order(tests, self.trials, epsilon) for tests in self._directed)

    def epsilon(self, delta: float, tolerance: float) -> BoundValue:
        """Read off the attack; every order shows an epsilon, and its delta tells where to look for the next one."""
        found = at = self._scored.epsilon(delta)
        for _ in range(_ORDERS_TRIED):
            if not at < _LARGEST:
                break
            orders = self._ordered(at)
            found = max([found, *(shown.epsilon(delta) for shown in orders)])
            further = max((at + shown.step(at, delta) for shown in orders), default=0.0)
            before, at = at, further if further > found else 0.5 * (found + at)
            if abs(at - before) <= 0.1 * tolerance * at:
                break
        return BoundValue(found, self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """Read off the attack."""
        shown = [shown.delta(epsilon) for shown in self._ordered(epsilon)] if epsilon < _LARGEST else []
        return BoundValue(max([float(self._scored.delta(epsilon)), *shown]), self.evidence())

    def renyi(self, order: float) -> BoundValue:
        """No attack is claimed."""
        return BoundValue(0.0, self.evidence())

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """Both scores."""
        return self._attack(_depth(self.trials, smallest_delta))

    def evidence(self) -> Evidence:
        """The likelihood-ordered test."""
        one = self.one.evidence()
        text = (
            "Every trial is scored by its likelihood ratio, by its reciprocal, or in an order that ranks outcomes of "
            "large and of small ratio before those between, whichever shows most; claim the record when the released "
            f"outcome is one of large ratio. One trial: {one.statement}"
        )
        return applied_to(Evidence.of(Kind.TEST, _PROFILE, text), one)


def selected(one: Bounds, trials: Trials) -> Bounds:
    """The bounds of releasing the best of a random number of trials.

    Args:
        one: bounds of one trial.
        trials: how many are run.

    Returns:
        Proof and attack of what is released, for the neighbors of one trial.
    """
    return Bounds(SelectionProof(one.upper.alone, trials), SelectionAttack(one.lower.alone, trials))


def _some(points: Points) -> Points:
    """A few hundred of the tests: a curve with more of them shows next to nothing more."""
    places = np.unique(np.linspace(0, len(points.alpha) - 1, _TESTS).astype(np.intp))
    return points if len(points.alpha) <= _TESTS else points.take(places)


def _both_scores(tests: Points, trials: Trials) -> tuple[TradeoffCurve, ...]:
    """The LOWER curves when trials are scored by the likelihood ratio, and by its reciprocal."""
    alpha, miss, alpha_c, power = _tests_of(tests)
    down = 1.0 - 1e-11
    # 1 - f(1 - a) is the chance that one of the trials exceeds the threshold; f(x) = 1 - missed(1 - x).
    fp, tp = _wrongly(trials, alpha), trials.missed(power) * down
    # The mirrored test claims "absent" where the least ratio is below a threshold: errors change places.
    least_miss, least_true = _wrongly(trials, miss), trials.missed(alpha_c) * down
    return _shown(fp, tp), _mirrored(least_miss, least_true)


def _shown(wrong: FloatArray, right: FloatArray) -> TradeoffCurve:
    """The LOWER curve of tests with these false positive rates and powers."""
    return _curve_of(Points(wrong, 1.0 - right, 1.0 - wrong, right))


def _mirrored(misses: FloatArray, true: FloatArray) -> TradeoffCurve:
    """The LOWER curve of tests that claim "absent", by their errors in the roles that they have seen from there."""
    return _curve_of(Points(1.0 - true, misses, true, 1.0 - misses))


def _curve_of(tests: Points) -> TradeoffCurve:
    """The LOWER curve of many tests."""
    alpha, miss, alpha_c, power = tests
    return TradeoffCurve.from_tests(alpha, power, alpha_c, miss, side=Side.LOWER)


def _wrongly(trials: Trials, mass: FloatArray) -> FloatArray:
    """At least the chance that one of the trials is in a set of this mass."""
    found = np.minimum(trials.missed(mass) * (1.0 + 1e-11), 1.0)
    return np.asarray(np.where(mass > 0.0, np.maximum(found, _MOST_NOISE), found))


def _tests_of(tests: Points) -> tuple[FloatArray, ...]:
    """Both errors and their complements, `_between` the breakpoints too; errors do not vanish by underflow."""
    alpha, miss, alpha_c, power = tests
    return _between(alpha, _NORMAL), _between(miss, _NORMAL), _between(alpha_c), _between(power)


def _between(column: FloatArray, least: float = 0.0) -> FloatArray:
    """The breakpoints and points between them: outcomes of equal ratio may be scored at random, which helps."""
    share = _shares(len(column))
    inner = column[:-1, None] * (1.0 - share) + column[1:, None] * share
    inner = np.where((share > 0.0) & (column[:-1, None] + column[1:, None] > 0.0), np.maximum(inner, least), inner)
    return np.append(inner.ravel(), column[-1])


def _shares(breakpoints: int) -> FloatArray:
    """Where, between two breakpoints, the points of `_between` lie; the first is a breakpoint itself."""
    count = max(2, _FINE // breakpoints)
    return np.unique(np.concatenate((np.geomspace(1e-6, 0.5, count), 1.0 - np.geomspace(1e-6, 0.5, count), [0.0])))
