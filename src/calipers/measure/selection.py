"""The jaws of releasing the best of a random number of runs.

See `calipers.mechanisms.selection` for the lemma above and the test below. The upper jaw is the better of two proofs,
the lemma on profiles and the published bound on Renyi divergences; the lower jaw is the best of many scores, the
likelihood ratio of one run, its reciprocal, and orders that are turned.
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
from calipers.curves.rdp_curve import rdp_tradeoff
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CalipersError
from calipers.kept import kept
from calipers.measure.choice import best_guarantee, profile_nodes
from calipers.measure.closed import CurveJaw
from calipers.measure.jaw import Evaluation, Found, Jaw
from calipers.mechanisms.selection import Trials
from calipers.numerics.elementary import halved
from calipers.numerics.types import BoolArray, FloatArray
from calipers.run import Run
from calipers.stated import Guarantee

_ORDERS = np.concatenate((np.geomspace(1.05, 2.0, 8), np.geomspace(2.2, 40.0, 14)))
_USELESS = 700.0
"""How much larger than at order 2 a divergence is of no use: divergences grow with the order, and a larger one has at
most log(1/delta) + log(mean) + 2, or log(1/gamma)/2 of what hides, to gain over order 2, and a (t - 1)th over t."""
_LOUD = 50.0
"""A divergence of the least order above which it may be useless."""
_BISECTIONS = 60
_COARSE = 5e-3
_TESTS, _FINE, _CLOSE = 1_500, 400, 2e-2
_TURNED = np.concatenate((np.geomspace(1e-9, 0.5, 79), 1.0 - np.geomspace(0.45, 1e-6, 70)))
"""False positive rates of the tests at which orders are turned."""
_DEEPEST, _USUAL, _FINE_ENOUGH = 1e-14, 1e-12, 1e-3
"""The smallest depth of curves of one trial; the depth that reports ask for, and the tolerance with which they do."""
_FAINTEST, _NORMAL = 1e-300, 1e-307
"""Rates that are smaller are raised to the first, and masses they are made of to the second: more than whatever
underflows, lest a test seem never to be wrong."""
_PROFILE, _RENYI = "calipers:selection", "papernot2022:thm2"


@dataclass(frozen=True)
class Selection:
    """The best of a random number of runs: `measure` takes it as it takes a run.

    `mean` is the mean number of trials; `trials` its law: "geometric", "logarithmic", "poisson", or
    "negative-binomial" with a `shape`.
    """

    of: Run | tuple[Run, ...] | Guarantee
    mean: float
    trials: str = "geometric"
    shape: float | None = None

    def __post_init__(self) -> None:
        Trials.of(self.trials, self.mean, self.shape)

    @property
    def law(self) -> Trials:
        """The law of the number of trials."""
        return Trials.of(self.trials, self.mean, self.shape)


@implements("calipers:selection", "papernot2022:thm2")
@dataclass(frozen=True)
class SelectionProof(CurveJaw):
    """The best of a random number of trials, each proven by `one`: the better of two proofs."""

    one: Jaw
    trials: Trials
    side = Side.UPPER

    @functools.cached_property
    def _single(self) -> TradeoffCurve:
        """The guarantee of one trial, as the curve of the usual depth needs it."""
        return self.one.curve(_depth(self.trials, _USUAL), _FINE_ENOUGH)

    @functools.cached_property
    def _shift(self) -> float:
        """The smallest r found: a grows, D(a) falls, and the maximum is least where they meet."""

        def profile(at: float) -> float:
            return float(self._single.delta(at))

        total, shift = profile(0.0), self.trials.log_shift
        low, high = 0.0, 1.0
        while high < 500.0 and shift(profile(high), 0.0, total) > shift(0.0, high, total):
            low, high = high, 2.0 * high

        def above(at: float) -> bool:
            return shift(profile(at), 0.0, total) > shift(0.0, at, total)

        low, high = halved(low, high, above, 0 if self.trials.poisson else _BISECTIONS, share=1e-3)
        return min(shift(profile(at), at, total) for at in (low, high))

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """One trial at delta / m, shifted, or the Renyi bound."""
        shifted = self._shifted(delta, tolerance)
        orders = math.inf if self._by_orders is None else self._by_orders.epsilon(delta)
        return self._better(shifted, orders)

    def _shifted(self, delta: float, tolerance: float) -> float:
        return self._shift + self.one.epsilon(delta / self.trials.mean * (1.0 - 1e-15), tolerance).value

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """As `epsilon`."""
        profile = 1.0
        if epsilon >= self._shift:
            profile = self.trials.mean * self.one.delta(epsilon - self._shift, tolerance).value * (1.0 + 1e-12)
        orders = 1.0 if self._by_orders is None else float(self._by_orders.delta(epsilon))
        return self._better(min(profile, 1.0), min(orders, 1.0))

    def _better(self, profile: float, orders: float) -> Found:
        return Found(min(profile, orders), self._said(_PROFILE if profile <= orders else _RENYI))

    @functools.cached_property
    def _by_orders(self) -> TradeoffCurve | None:
        """What the published Renyi bound implies, where one trial has finite divergences."""
        divergences: list[float] = []
        try:
            for order in _ORDERS:
                divergences.append(self.one.renyi(float(order)).value)
                if len(divergences) == 1 and divergences[0] > _LOUD and divergences[0] > self._shifted(_DEEPEST, 1e-2):
                    return None  # divergences grow with the order, and no epsilon that they imply is less
                fewer = _ORDERS[: len(divergences)]
                if divergences[-1] > np.min(np.array(divergences) + 2.0 * _USELESS / (fewer - 1.0)):
                    break
        except CalipersError:
            return None
        base, orders = np.array(divergences), _ORDERS[: len(divergences)]
        if not np.all(np.isfinite(base)):
            return None
        found = []
        for order in orders:
            near = float(self._single.delta(_nearness(order))) if self.trials.poisson else 0.0
            found.append(self.trials.renyi(float(order), base, orders, near))
        return rdp_tradeoff(orders, np.array(found), 100)

    def curve(self, smallest_delta: float, tolerance: float) -> TradeoffCurve:
        """The nodes of one trial's profile, shifted, and the Renyi bound."""
        return self._curve(_depth(self.trials, smallest_delta), tolerance)

    @kept
    def _curve(self, depth: float, tolerance: float) -> TradeoffCurve:
        single, renyi = self.one.curve(depth, tolerance), self._by_orders
        nodes = profile_nodes(single.odds)
        deltas = np.minimum(self.trials.mean * single.delta(nodes) * (1.0 + 1e-12), 1.0)
        proven = TradeoffCurve.from_profile(nodes + self._shift, deltas, side=Side.UPPER, symmetric=True)
        return proven if renyi is None else best_guarantee([proven, renyi])

    def renyi(self, order: float) -> Found:
        """The published bound."""
        orders = np.array([order, *_ORDERS])
        base = np.array([self.one.renyi(float(t)).value for t in orders])
        near = self.one.delta(_nearness(order), 1e-2).value if self.trials.poisson else 0.0
        return Found(self.trials.renyi(order, base, orders, near), self._said(_RENYI))

    def evidence(self) -> Evidence:
        """The lemma."""
        return self._said(_PROFILE)

    def _said(self, statement: str) -> Evidence:
        how = (
            "the profile of one trial, times the mean number of trials and shifted"
            if statement == _PROFILE
            else "the Renyi divergences of one trial at a few dozen orders"
        )
        one = self.one.evidence().statement
        text = f"What is released is {self.trials.words}: bounded by {how}. One trial: {one}"
        return Evidence.of(Kind.NUMERICAL, statement, text)


def _depth(trials: Trials, smallest_delta: float) -> float:
    """How deep curves of one trial must be, so that the best of all is known down to the smallest delta."""
    return min(_DEEPEST, smallest_delta / trials.mean)


def _nearness(order: float) -> float:
    """The epsilon at which the bound for a Poisson number of trials asks for delta."""
    return math.log1p(1.0 / (order - 1.0))


@dataclass(frozen=True)
class SelectionAttack(Jaw):
    """The best of a random number of trials, each attacked by `one`: the best of many scores."""

    one: Jaw
    trials: Trials
    side = Side.LOWER

    @kept
    def _attack(self, depth: float, turned: bool) -> Envelope:
        """The directed curves of both scores, on every pair of one trial; and of turned orders.

        Every point of a turned curve has an order of its own: each shows an epsilon and a delta, but no attack attains
        the rates between two of them, so curves and rates do without.
        """
        single, made = self.one.envelope(depth, _COARSE), _turned_orders if turned else _scored
        return Envelope(tuple(found for curve in single.absent for found in made(_some(curve.points), self.trials)))

    @property
    def _points(self) -> TradeoffCurve:
        """Turned orders included."""
        return self._attack(_depth(self.trials, _USUAL), True).hull()

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """Read off the attack."""
        return Found(self._points.epsilon(delta), self.evidence())

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """Read off the attack."""
        return Found(float(self._points.delta(epsilon)), self.evidence())

    def renyi(self, order: float) -> Found:
        """No attack is claimed."""
        return Found(0.0, self.evidence())

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """Both scores."""
        return self._attack(_depth(self.trials, smallest_delta), False)

    def evidence(self) -> Evidence:
        """The likelihood-ordered test."""
        text = (
            "Every trial is scored by its likelihood ratio, by its reciprocal, or in a turned order (unlikely outcomes "
            "first, then the most telling ones, then the rest), whichever shows most; claim the record when what is "
            f"released is one of the telling outcomes. One trial: {self.one.evidence().statement}"
        )
        return Evidence.of(Kind.TEST, _PROFILE, text)


def selected(one: Evaluation, trials: Trials) -> Evaluation:
    """The best of a random number of trials of `one`."""
    return Evaluation(SelectionProof(one.above.alone, trials), SelectionAttack(one.below.alone, trials))


def _some(points: Points) -> Points:
    """A few hundred of the tests: a curve with more of them shows next to nothing more."""
    places = np.unique(np.linspace(0, len(points.alpha) - 1, _TESTS).astype(np.int64))
    return points if len(points.alpha) <= _TESTS else points.take(places)


def _turned_orders(tests: Points, trials: Trials) -> tuple[TradeoffCurve, ...]:
    """The LOWER curves of both scores, and the points of turned orders in both directions."""
    alpha, miss, alpha_c, power = _tests_of(tests)
    worth = _worth(tests)
    turned = _turned(trials, (alpha, alpha_c), (power, miss), worth)
    mirrored = _turned(trials, (miss, power), (alpha_c, alpha), worth)
    return *_scored(tests, trials), TradeoffCurve.from_tests(*turned, side=Side.LOWER), _mirrored(*mirrored)


def _scored(tests: Points, trials: Trials) -> tuple[TradeoffCurve, ...]:
    """The LOWER curves when trials are scored by the likelihood ratio, and by its reciprocal."""
    alpha, miss, alpha_c, power = _tests_of(tests)
    down = 1.0 - 1e-11
    # 1 - f(1 - a) is the chance that one of the trials exceeds the threshold; f(x) = 1 - missed(1 - x).
    fp, tp = _wrongly(trials, 0.0, alpha), trials.missed(power) * down
    ratio = TradeoffCurve.from_tests(fp, tp, side=Side.LOWER)
    # The mirrored test claims "absent" where the least ratio is below a threshold: errors change places.
    least_miss, least_true = _wrongly(trials, 0.0, miss), trials.missed(alpha_c) * down
    return ratio, _mirrored(least_miss, least_true)


def _mirrored(misses: FloatArray, true: FloatArray) -> TradeoffCurve:
    """The LOWER curve of tests that claim "absent", by their errors in the roles that they have seen from there."""
    return TradeoffCurve.from_tests(1.0 - true, 1.0 - misses, true, misses, side=Side.LOWER)


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
    """At least the chance that the best trial is one of a set of this mass, above outcomes of mass 1 - `below`."""
    found = np.minimum(trials.within(below, mass) * (1.0 + 1e-11), 1.0)
    return np.asarray(np.where(mass > 0.0, np.maximum(found, _FAINTEST), found))


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
