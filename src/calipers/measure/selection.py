"""The bounds of releasing the best of a random number of runs.

See `calipers.mechanisms.selection` for the lemmas above and the test below. The upper bound is the better of the two
(`calipers.measure.selected_profile`); the lower bound is the best of many scores, the likelihood ratio of one run, its
reciprocal, orders that are turned, and the best one that ranks both extremes of the ratio first
(`calipers.measure.selection_order`).
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
from calipers.curves.renyi import delta_from_rdp
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CalipersError
from calipers.guarantee import Guarantee, GuaranteeSubject
from calipers.measure.bounds import Bound, Bounds, BoundValue, TradeoffBound
from calipers.measure.guarantees import described, stated_measurement
from calipers.measure.measurement import Measurement
from calipers.measure.routes import measure
from calipers.measure.selected_profile import SelectedProfile
from calipers.measure.selection_order import OrderRates, best_order
from calipers.mechanisms.selection import Trials
from calipers.memoize import memoize
from calipers.numerics.types import BoolArray, FloatArray
from calipers.run import Run

_ORDERS = np.concatenate((np.geomspace(1.05, 2.0, 8), np.geomspace(2.2, 40.0, 14)))
_COARSER = 1e-2
"""By how much, at most, whole curves are revealed with larger epsilons than those that are asked for."""
_COARSE = 5e-3
_TESTS, _FINE, _CLOSE = 1_500, 400, 2e-2
_EVERY = 16
"""Of many tests one in so many is among the few by which others are left out."""
_TURNED = np.concatenate((np.geomspace(1e-9, 0.5, 79), 1.0 - np.geomspace(0.45, 1e-6, 70)))
"""False positive rates of the tests at which orders are turned."""
_HIGH_NOISE = 1e-21
"""Deltas that are smaller may be what composed PLDs leave out."""
_DEEPEST, _USUAL, _FINE_ENOUGH = 1e-14, 1e-12, 1e-3
"""The smallest depth of curves of one trial; the depth that reports ask for, and the tolerance with which they do."""
_MOST_NOISE, _NORMAL = 1e-300, 1e-307
"""Rates that are smaller are raised to the first, and masses they are made of to the second: more than whatever
underflows, lest a test seem never to be wrong."""
_ORDERS_TRIED, _LARGEST = 8, 600.0
"""How often an epsilon is looked for with the best order at the one before; beyond the second no order is."""
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
        return stated_measurement(
            GuaranteeSubject(words, keys, adjacency, "selection"), found, tolerance, one.conditions
        )


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
        usual, share = self._usual, delta / self.trials.mean * (1.0 - 1e-15)
        found = usual.epsilon(delta)
        if not found < usual.shift + _at_least(usual.one, share):
            found = min(found, usual.shift + self.one.epsilon(share, tolerance).value)
        return BoundValue(found, self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """As `epsilon`."""
        usual, room = self._usual, epsilon - self._usual.shift
        found = usual.delta(epsilon)
        if room >= 0.0 and not (0.0 < found < 1.0 and room < _at_least(usual.one, found / self.trials.mean)):
            found = min(found, self.trials.mean * self.one.delta(room, tolerance).value * (1.0 + 1e-12))
        # PLDs that are composed end somewhere, and what lies beyond is no less than this; divergences do not.
        return self._by_orders(epsilon, found) if 0.0 < found < _HIGH_NOISE else BoundValue(found, self.evidence())

    def _by_orders(self, epsilon: float, found: float) -> BoundValue:
        """What the published bound implies, if that is less and one trial has finite divergences."""
        try:
            divergences = [self._divergence(t, float(self._usual.one.delta(_near(t)))) for t in _ORDERS.tolist()]
        except CalipersError:
            return BoundValue(found, self.evidence())
        implied = float(delta_from_rdp(_ORDERS, divergences, epsilon))
        return BoundValue(implied, self._explained(*_RENYI)) if implied < found else BoundValue(found, self.evidence())

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
        one = self.one.evidence().statement
        text = f"What is released is {self.trials.words}: bounded by {how}. One trial: {one}"
        return Evidence.of(Kind.NUMERICAL, statement, text)


def _depth(trials: Trials, smallest_delta: float) -> float:
    """How deep curves of one trial must be, so that the best of all is known down to the smallest delta."""
    return min(_DEEPEST, smallest_delta / trials.mean)


def _near(order: float) -> float:
    """The epsilon at which the bound for a Poisson number of trials asks for delta."""
    return math.log1p(1.0 / (order - 1.0))


def _at_least(one: TradeoffCurve, delta: float) -> float:
    """About the least epsilon at delta that one trial may have, whose curve is this: whether it is worth asking for.

    A profile is convex: where a curve has been revealed it only here and there, it may bend in between, but not below
    the lines on either side of the one that is best here. And whatever was revealed is a little more than could be.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        revealed = np.log(one.beta_c - delta) - np.log(one.alpha)
    revealed = revealed[np.isfinite(revealed)]
    return (1.0 - _COARSER) * float(np.partition(revealed, -2)[-2]) if len(revealed) > 1 else 0.0


@dataclass(frozen=True)
class SelectionAttack(Bound):
    """The best of a random number of trials, each attacked by `one`: the best of many scores."""

    one: Bound
    trials: Trials
    side = Side.LOWER

    @memoize
    def _attack(self, depth: float) -> Envelope:
        """The directed curves of both scores, on every pair of one trial."""
        return Envelope(tuple(found for tests in self._tests(depth) for found in _scored(tests, self.trials)))

    def _tests(self, depth: float) -> list[Points]:
        return [_some(curve.points) for curve in self.one.envelope(depth, _COARSE).absent]

    @functools.cached_property
    def _points(self) -> TradeoffCurve:
        """Those of turned orders included.

        Every point of a turned curve has an order of its own: each shows an epsilon and a delta, but no attack attains
        the rates between two of them, so curves and rates do without.
        """
        depth = _depth(self.trials, _USUAL)
        turned = [found for tests in self._tests(depth) for found in _turned_orders(tests, self.trials)]
        return Envelope((*self._attack(depth).absent, *turned)).hull()

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
        """Read off the attack; the order that shows most at one epsilon shows a larger one, until it is the best."""
        found = self._points.epsilon(delta)
        for _ in range(_ORDERS_TRIED):
            before = found
            if math.isfinite(found):
                found = max([found, *(shown.epsilon(delta) for shown in self._ordered(found))])
            if not found > before * (1.0 + 0.01 * tolerance):
                break
        return BoundValue(found, self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> BoundValue:
        """Read off the attack."""
        shown = [shown.delta(epsilon) for shown in self._ordered(epsilon)] if epsilon < _LARGEST else []
        return BoundValue(max([float(self._points.delta(epsilon)), *shown]), self.evidence())

    def renyi(self, order: float) -> BoundValue:
        """No attack is claimed."""
        return BoundValue(0.0, self.evidence())

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """Both scores."""
        return self._attack(_depth(self.trials, smallest_delta))

    def evidence(self) -> Evidence:
        """The likelihood-ordered test."""
        text = (
            "Every trial is scored by its likelihood ratio, by its reciprocal, or in an order that ranks outcomes of "
            "large and of small ratio before those between, whichever shows most; claim the record when the released "
            f"outcome is one of large ratio. One trial: {self.one.evidence().statement}"
        )
        return Evidence.of(Kind.TEST, _PROFILE, text)


def selected(one: Bounds, trials: Trials) -> Bounds:
    """The best of a random number of trials of `one`."""
    return Bounds(SelectionProof(one.upper.alone, trials), SelectionAttack(one.lower.alone, trials))


def _some(points: Points) -> Points:
    """A few hundred of the tests: a curve with more of them shows next to nothing more."""
    places = np.unique(np.linspace(0, len(points.alpha) - 1, _TESTS).astype(np.intp))
    return points if len(points.alpha) <= _TESTS else points.take(places)


def _turned_orders(tests: Points, trials: Trials) -> tuple[TradeoffCurve, ...]:
    """LOWER curves through the points of turned orders, in both directions."""
    alpha, miss, alpha_c, power = _tests_of(tests)
    worth = _worth(tests)
    turned = _turned(trials, (alpha, alpha_c), (power, miss), worth)
    mirrored = _turned(trials, (miss, power), (alpha_c, alpha), worth)
    return _shown(*turned), _mirrored(*mirrored)


def _scored(tests: Points, trials: Trials) -> tuple[TradeoffCurve, ...]:
    """The LOWER curves when trials are scored by the likelihood ratio, and by its reciprocal."""
    alpha, miss, alpha_c, power = _tests_of(tests)
    down = 1.0 - 1e-11
    # 1 - f(1 - a) is the chance that one of the trials exceeds the threshold; f(x) = 1 - missed(1 - x).
    fp, tp = _wrongly(trials, 0.0, alpha), trials.missed(power) * down
    # The mirrored test claims "absent" where the least ratio is below a threshold: errors change places.
    least_miss, least_true = _wrongly(trials, 0.0, miss), trials.missed(alpha_c) * down
    return _shown(fp, tp), _mirrored(least_miss, least_true)


def _shown(wrong: FloatArray, right: FloatArray) -> TradeoffCurve:
    """The LOWER curve of tests with these false positive rates and powers."""
    return _hull(Points(wrong, 1.0 - right, 1.0 - wrong, right))


def _mirrored(misses: FloatArray, true: FloatArray) -> TradeoffCurve:
    """The LOWER curve of tests that claim "absent", by their errors in the roles that they have seen from there."""
    return _hull(Points(1.0 - true, misses, true, 1.0 - misses))


def _hull(tests: Points) -> TradeoffCurve:
    """The LOWER curve of many tests: of those that the curve of a few of them does not beat, and of these few."""
    few = np.zeros(len(tests.alpha), dtype=np.bool_)
    few[::_EVERY] = True
    rough = _through(tests, few)
    # The smaller of both rates has all digits; leaving out a test too many shows less, never more.
    most = np.interp(tests.alpha, rough.alpha, rough.beta_c) * (1.0 - 1e-12)
    least = np.interp(tests.alpha_c, rough.alpha_c[::-1], rough.beta[::-1]) * (1.0 + 1e-12)
    return _through(tests, few | np.where(tests.beta > 0.5, tests.beta_c > most, tests.beta < least))


def _through(tests: Points, some: BoolArray) -> TradeoffCurve:
    alpha, miss, alpha_c, power = tests.take(np.flatnonzero(some))
    return TradeoffCurve.from_tests(alpha, power, alpha_c, miss, side=Side.LOWER)


def _turned(
    trials: Trials, wrong: tuple[FloatArray, FloatArray], right: tuple[FloatArray, FloatArray], worth: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """False positive rates and powers of orders that are turned.

    `wrong` and `right` are both errors' tests with their complements; `worth`: which may be S.

    Outcomes that some test A does not claim come first; those that A claims and a smaller test S does not, last; what
    is claimed is S, between them. The tests of a curve may be taken as those of one statistic, which lie in each other:
    whatever leaks at least as much as the curve can be mapped at random to atoms that have exactly this curve
    (Blackwell; Dong, Roth and Su 2022, Theorem 2.10), and a trial may be scored by its atom.
    """
    up, down = 1.0 + 1e-11, 1.0 - 1e-11
    (fp, unclaimed), (tp, missed) = wrong, right
    order = np.argsort(fp, kind="stable")
    places = np.unique(order[np.minimum(np.searchsorted(fp[order], _TURNED), len(order) - 1)])
    rates, powers = [], []
    for place in places:
        inner = worth & (fp <= fp[place]) & (tp <= tp[place])
        rates.append(_wrongly(trials, float(unclaimed[place]) * down, fp[inner]))
        powers.append(trials.within(missed[place] * up, tp[inner]) * down)
    return np.concatenate(rates), np.concatenate(powers)


def _wrongly(trials: Trials, below: float, mass: FloatArray) -> FloatArray:
    """At least the chance that the best trial is one of a set of this mass, above outcomes of mass 1 - `lower`."""
    found = np.minimum(trials.within(below, mass) * (1.0 + 1e-11), 1.0)
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


def _worth(points: Points) -> BoolArray:
    """Which points of `_between` gain something: breakpoints, and those between two that are apart in some column.

    A rate e^-x shows an epsilon of about x, so the larger x is, the less a share of the rate matters.
    """
    columns = np.stack(points)
    larger = np.maximum(columns[:, :-1], columns[:, 1:])
    close = _CLOSE * (1.0 - np.log(np.maximum(larger, 1e-300)) / 30.0) * larger
    apart = np.any(np.abs(np.diff(columns)) > close, axis=0)
    return np.append((apart[:, None] | (_shares(columns.shape[1]) == 0.0)).ravel(), True)
