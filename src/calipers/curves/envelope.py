"""What an attack can do that picks, before it starts, which pair of neighbors to tell apart and in which order.

A guarantee holds for every ordered pair at once, so it is one convex symmetric curve: the hull of all directed curves
(`TradeoffCurve.symmetrized`). An attack has no such freedom. Its null hypothesis is either "the record is absent" or
"the record is present", on one pair of datasets, and no test randomizes between two of these: a false positive rate
is a probability under *one* null. So the best true positive rate at a false positive rate is the **maximum over
directed curves**, which may lie well below the hull, and the smallest false negative rate is their minimum, which need
not be convex. Both bounds are read this way: the maximum of directed attacks is attained, that of directed proofs
proven.

**Of one curve**: advantage, separation, true positive rate, Bayes error. All four are read off breakpoints, because
each is a linear function of (alpha, beta) optimized over the curve. They inherit the side of the curve: from an UPPER
curve come upper bounds of the attacker's success (and lower bounds of the attacker's error), from a LOWER curve the
reverse.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves.points import UNIT
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import PROBABILITY
from calipers.errors import InputError
from calipers.numerics.elementary import checked
from calipers.numerics.types import FloatArray


@dataclass(frozen=True, eq=False)
class Envelope:
    """The lowest of several directed trade-off curves of one side, their null "record absent", and their inverses.

    UPPER: nothing any attack does, in either order, on any of the pairs, goes below. LOWER: attained, at every alpha.
    """

    absent: tuple[TradeoffCurve, ...]

    def __post_init__(self) -> None:
        if not self.absent:
            raise InputError("Expected at least one directed curve, got none.")
        for curve in self.absent[1:]:
            self.side.same(curve.side)

    @property
    def side(self) -> Side:
        """The common side of the curves."""
        return self.absent[0].side

    @cached_property
    def directed(self) -> tuple[TradeoffCurve, ...]:
        """The curves with the null "record absent" and those with the null "record present"."""
        return (*self.absent, *(curve.inverse() for curve in self.absent))

    def hull(self) -> TradeoffCurve:
        """The symmetric convex curve below all of them: what a guarantee, and mu, are about."""
        if len(self.absent) == 1:
            return self.absent[0].symmetrized()
        tests = [np.concatenate(column) for column in zip(*(curve.points for curve in self.absent), strict=True)]
        alpha, miss, alpha_c, power = tests
        return TradeoffCurve.from_tests(alpha, power, alpha_c, miss, side=self.side).symmetrized()

    def rates(self, alpha: ArrayLike, alpha_c: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """(smallest false negative rate, largest true positive rate) at false positive rates, rounded to the side."""
        found = [curve.rates(alpha, alpha_c) for curve in self.directed]
        return np.min([miss for miss, _ in found], axis=0), np.max([power for _, power in found], axis=0)

    def finds_present(self, alpha: float) -> bool:
        """Whether the largest true positive rate at this false positive rate has the null "record absent"."""
        power = [float(curve.rates(alpha)[1]) for curve in self.directed]
        return power.index(max(power)) < len(self.absent)

    def __call__(self, alpha: ArrayLike, alpha_c: ArrayLike | None = None) -> FloatArray:
        """The smallest false negative rate; UPPER: at most the true one, LOWER: at least."""
        return self.rates(alpha, alpha_c)[0]

    def bayes_error(self, prior: ArrayLike) -> FloatArray:
        """The smallest prior-weighted error, `prior` being the probability that the record is absent.

        Post-condition: at most that of every adversary (UPPER), at least that of the best one (LOWER).
        """
        return np.asarray(np.min([bayes_error(curve, prior) for curve in self.absent], axis=0), dtype=np.float64)

    def breakpoints(self) -> tuple[FloatArray, FloatArray]:
        """(alpha, beta) between which the envelope is linear: breakpoints of the curves and their crossings."""
        alpha = np.unique(np.concatenate([curve.alpha for curve in self.directed]))
        values = [curve(alpha) for curve in self.directed]
        crossings = [alpha]
        for first, second in itertools.combinations(values, 2):
            gap = first - second
            left, right = gap[:-1], gap[1:]
            i = np.flatnonzero(left * right < 0.0)
            share = left[i] / (left[i] - right[i])
            crossings.append(alpha[i] + share * (alpha[i + 1] - alpha[i]))
        places = np.unique(np.concatenate(crossings))
        return places, self(places)


def advantage(curve: TradeoffCurve) -> float:
    """max over alpha of 1 - alpha - f(alpha): the total variation distance, the best accuracy above guessing.

    Post-condition: at least that of the true pair (UPPER), at most (LOWER).
    """
    # 1 - alpha - beta = (1 - beta) - alpha = (1 - alpha) - beta; take the form with the smaller terms.
    gain = np.where(curve.alpha <= 0.5, curve.beta_c - curve.alpha, curve.alpha_c - curve.beta)
    best = int(np.argmax(gain))
    slack = 4.0 * UNIT * min(float(curve.beta_c[best]), float(curve.alpha_c[best]))
    value = float(gain[best]) + (slack if curve.side is Side.UPPER else -slack)
    return min(max(value, 0.0), 1.0)


def separation(curve: TradeoffCurve) -> float:
    """The Euclidean distance of the curve from the line of perfect privacy: advantage / sqrt 2.

    Post-condition: at least that of the true pair (UPPER), at most (LOWER).
    """
    slack = 8.0 * UNIT if curve.side is Side.UPPER else -8.0 * UNIT
    return min(advantage(curve) / math.sqrt(2.0) * (1.0 + slack), 1.0)


def tpr(curve: TradeoffCurve, fpr: ArrayLike) -> FloatArray:
    """1 - f(fpr), the true positive rate at a false positive rate, with relative accuracy for tiny fpr.

    Post-condition: at least the best attack's (UPPER); at most it, and achieved by an explicit test (LOWER).
    """
    return curve.rates(fpr)[1]


@implements("gomez2025:eq28")
def bayes_error(curve: TradeoffCurve, prior: ArrayLike, prior_c: ArrayLike | None = None) -> FloatArray:
    """min over alpha of prior alpha + (1 - prior) f(alpha), `prior` being the probability of the null (Eq. 27).

    Post-condition: at most the error of every adversary (UPPER), at least that of the best one (LOWER).
    """
    priors = checked(PROBABILITY, "prior", prior)
    complements = 1.0 - priors if prior_c is None else checked(PROBABILITY, "prior_c", prior_c)
    # The segment from (0, 1) down to (0, f(0)) and the one beyond the last breakpoint are never better.
    errors = np.multiply.outer(priors, curve.alpha) + np.multiply.outer(complements, curve.beta)
    slack = -8.0 * UNIT if curve.side is Side.UPPER else 8.0 * UNIT
    return np.asarray(np.min(errors, axis=-1) * (1.0 + slack), dtype=np.float64)


def best_guarantee(curves: Sequence[TradeoffCurve]) -> TradeoffCurve:
    """The directed guarantee whose profile, either way, is at every node of any of the curves the least of theirs."""
    if len(curves) == 1:
        return curves[0]
    forward, backward = (_minimum_profile(way) for way in (curves, [curve.inverse() for curve in curves]))
    return TradeoffCurve.from_profile(*forward, side=Side.UPPER, reverse=backward)


def profile_nodes(odds: FloatArray) -> FloatArray:
    """The epsilons >= 0 at which a profile of segments with these odds has its kinks, 0 among them."""
    return np.unique(np.append(np.log(odds[(odds >= 1.0) & np.isfinite(odds)]), 0.0))


def _minimum_profile(curves: Sequence[TradeoffCurve]) -> tuple[FloatArray, FloatArray]:
    nodes = profile_nodes(np.unique(np.concatenate([curve.odds for curve in curves])))
    return nodes, np.min([curve.delta(nodes) for curve in curves], axis=0)
