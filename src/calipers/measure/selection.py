"""The jaws of releasing the best of a random number of runs.

See `calipers.mechanisms.selection` for the lemma above and the test below. The upper jaw is the better of two proofs,
the lemma on profiles and the published bound on Renyi divergences; the lower jaw is the best of many scores, the
likelihood ratio of one run, its reciprocal, and orders that are turned.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import gdp_mu
from calipers.curves.rdp_curve import rdp_tradeoff
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CalipersError, UnsupportedError
from calipers.laws.composed.direction import Jaws
from calipers.measure.backends import Backend, UpperJaw, depth_for
from calipers.measure.proven import best_guarantee, upper_half
from calipers.mechanisms.selection import Trials
from calipers.numerics.types import FloatArray
from calipers.run import Run
from calipers.stated import Guarantee

_ORDERS = np.concatenate((np.geomspace(1.05, 2.0, 8), np.geomspace(2.2, 40.0, 14)))
_BISECTIONS = 60
_COARSE = 5e-3
_FINE = 400
_TURNED = np.concatenate((np.geomspace(1e-9, 0.5, 40), 1.0 - np.geomspace(0.45, 1e-6, 24)))
"""False positive rates of the tests at which orders are turned."""
_DEEPEST = 1e-14
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
class SelectionBackend:
    """The best of a random number of trials of `one`."""

    one: Backend
    trials: Trials
    closes: ClassVar[bool] = False
    _kept: dict[object, object] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def _proof(self) -> UpperJaw:
        """What proves one trial."""
        return upper_half(self.one)

    def _above_one(self) -> TradeoffCurve:
        """The guarantee of one trial, as fine as brackets need that never close."""
        return self._proof.curves(_DEEPEST, _COARSE)[Side.UPPER]

    def _shift(self) -> float:
        """The smallest r found: a grows, D(a) falls, and the maximum is least where they meet."""
        if "shift" not in self._kept:
            curve = self._above_one()

            def profile(at: float) -> float:
                return float(curve.delta(at))

            total = profile(0.0)
            low, high = 0.0, 1.0
            shift = self.trials.log_shift
            while high < 500.0 and shift(profile(high), 0.0, total) > shift(0.0, high, total):
                low, high = high, 2.0 * high
            for _ in range(_BISECTIONS if self.trials.shape != math.inf else 0):
                middle = 0.5 * (low + high)
                above = shift(profile(middle), 0.0, total) > shift(0.0, middle, total)
                low, high = (middle, high) if above else (low, middle)
                if high - low < 1e-3 * high:
                    break
            self._kept["shift"] = min(shift(profile(at), at, total) for at in (low, high))
        found = self._kept["shift"]
        assert isinstance(found, float)
        return found

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """Above: one trial at delta / m, shifted, or the Renyi bound. Below: read off the attack."""
        low = self._attack(tolerance).hull().epsilon(delta)
        wanted = delta / self.trials.mean * (1.0 - 1e-15)
        shifted = self._shift() + self._proof.epsilon(wanted, tolerance).upper
        renyi = self._renyi_curve()
        orders = math.inf if renyi is None else renyi.epsilon(delta)
        return Jaws(low, min(shifted, orders), math.inf, False, _PROFILE if shifted <= orders else _RENYI)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """As `epsilon`."""
        low = float(self._attack(tolerance).hull().delta(epsilon))
        shift, renyi = self._shift(), self._renyi_curve()
        profile = 1.0
        if epsilon >= shift:
            profile = self.trials.mean * self._proof.delta(epsilon - shift, tolerance).upper * (1.0 + 1e-12)
        orders = 1.0 if renyi is None else float(renyi.delta(epsilon))
        return Jaws(low, min(profile, orders, 1.0), math.inf, False, _PROFILE if profile <= orders else _RENYI)

    def _renyi_curve(self) -> TradeoffCurve | None:
        """What the published Renyi bound implies, where one trial has finite divergences."""
        if "renyi" not in self._kept:
            try:
                base = np.array([self._proof.renyi(float(order)).upper for order in _ORDERS])
                if not np.all(np.isfinite(base)):
                    raise UnsupportedError("An order without a finite divergence.")
            except CalipersError:
                self._kept["renyi"] = None
                return None
            found = []
            for order in _ORDERS:
                near = 0.0
                if self._poisson:
                    near = float(self._above_one().delta(math.log1p(1.0 / (order - 1.0))))
                found.append(self.trials.renyi(float(order), base, _ORDERS, near))
            self._kept["renyi"] = rdp_tradeoff(_ORDERS, np.array(found), 100)
        curve = self._kept["renyi"]
        assert curve is None or isinstance(curve, TradeoffCurve)
        return curve

    @property
    def _poisson(self) -> bool:
        return self.trials.shape == math.inf

    def _attack(self, tolerance: float, depth: float = _DEEPEST, turned: bool = True) -> Envelope:
        """The directed curves of both scores, on every pair of one trial; and of turned orders.

        Every point of a turned curve has an order of its own: each shows an epsilon and a delta, but no attack attains
        the rates between two of them, so curves and rates do without.
        """
        key = ("attack", depth, turned)
        if key not in self._kept:
            single = self.one.envelopes(depth, _COARSE)[Side.LOWER]
            made = _turned_orders if turned else _scored
            self._kept[key] = Envelope(tuple(found for curve in single.absent for found in made(curve, self.trials)))
        found = self._kept[key]
        assert isinstance(found, Envelope)
        return found

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The symmetric hulls."""
        return {side: found.hull() for side, found in self.envelopes(smallest_delta, tolerance).items()}

    def envelopes(self, smallest_delta: float, tolerance: float) -> dict[Side, Envelope]:
        """Above: the nodes of one trial's profile, shifted, and the Renyi bound. Below: both scores."""
        depth = min(_DEEPEST, smallest_delta / self.trials.mean)
        key = ("above", depth)
        if key not in self._kept:
            curve, shift = self._proof.curves(depth, tolerance)[Side.UPPER], self._shift()
            odds = curve.odds
            nodes = np.unique(np.append(np.log(odds[(odds >= 1.0) & np.isfinite(odds)]), 0.0))
            deltas = np.minimum(self.trials.mean * curve.delta(nodes) * (1.0 + 1e-12), 1.0)
            proven = TradeoffCurve.from_profile(nodes + shift, deltas, side=Side.UPPER, symmetric=True)
            renyi = self._renyi_curve()
            self._kept[key] = proven if renyi is None else best_guarantee([proven, renyi])
        above = self._kept[key]
        assert isinstance(above, TradeoffCurve)
        return {Side.UPPER: Envelope((above,)), Side.LOWER: self._attack(tolerance, depth, turned=False)}

    def renyi(self, order: float) -> Jaws:
        """The published bound; no attack is claimed."""
        base = np.array([self._proof.renyi(float(t)).upper for t in (order, *_ORDERS)])
        orders = np.array([order, *_ORDERS])
        near = self._proof.delta(math.log1p(1.0 / (order - 1.0)), 1e-2).upper if self._poisson else 0.0
        return Jaws(0.0, self.trials.renyi(order, base, orders, near), math.inf, False)

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the two curves."""
        found = self.curves(depth_for(delta0), tolerance)
        return gdp_mu(found[Side.LOWER], delta0), gdp_mu(found[Side.UPPER], delta0)

    def upper_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The lemma or the published bound, on top of what proves one trial."""
        statement = jaws.proof if jaws is not None and jaws.proof else _PROFILE
        how = (
            "the profile of one trial, times the mean number of trials and shifted"
            if statement == _PROFILE
            else "the Renyi divergences of one trial at a few dozen orders"
        )
        one = self.one.upper_evidence(None)
        text = f"What is released is {self.trials.words}: bounded by {how}. One trial: {one.statement}"
        return Evidence.of(Kind.NUMERICAL, statement, text)

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The likelihood-ordered test."""
        del jaws
        one = self.one.lower_evidence(None)
        text = (
            "Every trial is scored by its likelihood ratio, by its reciprocal, or in a turned order (unlikely outcomes "
            "first, then the most telling ones, then the rest), whichever shows most; claim the record when what is "
            f"released is one of the telling outcomes. One trial: {one.statement}"
        )
        return Evidence.of(Kind.TEST, _PROFILE, text)


def _turned_orders(curve: TradeoffCurve, trials: Trials) -> tuple[TradeoffCurve, ...]:
    """The LOWER curves of both scores, and the points of turned orders in both directions."""
    alpha, miss, alpha_c, power = (_between(column) for column in curve.points)
    turned = _turned(trials, (alpha, alpha_c), (power, miss))
    mirrored = _turned(trials, (miss, power), (alpha_c, alpha))
    return *_scored(curve, trials), turned, mirrored.inverse()


def _scored(curve: TradeoffCurve, trials: Trials) -> tuple[TradeoffCurve, ...]:
    """The LOWER curves when trials are scored by the likelihood ratio, and by its reciprocal."""
    alpha, miss, alpha_c, power = (_between(column) for column in curve.points)
    up, down = 1.0 + 1e-11, 1.0 - 1e-11
    # 1 - f(1 - a) is the chance that one of the trials exceeds the threshold; f(x) = 1 - missed(1 - x).
    fp, tp = np.minimum(trials.missed(alpha) * up, 1.0), trials.missed(power) * down
    ratio = TradeoffCurve.from_tests(fp, tp, side=Side.LOWER)
    # The mirrored test claims "absent" where the least ratio is below a threshold: errors change places.
    least_miss, least_true = np.minimum(trials.missed(miss) * up, 1.0), trials.missed(alpha_c) * down
    reciprocal = TradeoffCurve.from_tests(least_miss, least_true, side=Side.LOWER).inverse()
    return ratio, reciprocal


def _turned(
    trials: Trials, wrong: tuple[FloatArray, FloatArray], right: tuple[FloatArray, FloatArray]
) -> TradeoffCurve:
    """The tests of orders that are turned; `wrong` and `right` are both errors' tests with their complements.

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
        inner = (fp <= fp[place]) & (tp <= tp[place])
        rates.append(np.minimum(trials.within(np.full(inner.sum(), unclaimed[place] * down), fp[inner]) * up, 1.0))
        powers.append(trials.within(np.full(inner.sum(), missed[place] * up), tp[inner]) * down)
    return TradeoffCurve.from_tests(np.concatenate(rates), np.concatenate(powers), side=Side.LOWER)


def _between(column: FloatArray) -> FloatArray:
    """The breakpoints and points between them: outcomes of equal ratio may be scored at random, which helps."""
    count = max(2, _FINE // len(column))
    share = np.unique(np.concatenate((np.geomspace(1e-6, 0.5, count), 1.0 - np.geomspace(1e-6, 0.5, count), [0.0])))
    inner = column[:-1, None] * (1.0 - share) + column[1:, None] * share
    return np.append(inner.ravel(), column[-1])
