"""What a trade-off curve means for an attacker: advantage, separation, true positive rate, Bayes error.

All four are read off breakpoints, because each is a linear function of (alpha, beta) optimized over the curve. They
inherit the side of the curve: from an UPPER curve come upper bounds of the attacker's success (and lower bounds of the
attacker's error), from a LOWER curve the reverse.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves.points import UNIT
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import PROBABILITY
from calipers.errors import InputError
from calipers.numerics.types import FloatArray


def _rounded(curve: TradeoffCurve, value: float) -> float:
    """A success probability moved outward by its rounding, up for UPPER and down for LOWER."""
    slack = 8.0 * UNIT if curve.side is Side.UPPER else -8.0 * UNIT
    return min(value * (1.0 + slack), 1.0)


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
    return _rounded(curve, advantage(curve) / math.sqrt(2.0))


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
    priors = np.asarray(prior, dtype=np.float64)
    complements = 1.0 - priors if prior_c is None else np.asarray(prior_c, dtype=np.float64)
    if not np.all((priors >= 0.0) & (priors <= 1.0) & (complements >= 0.0) & (complements <= 1.0)):
        raise InputError(f"Expected prior in {PROBABILITY}, got prior={prior!r}.")
    # The segment from (0, 1) down to (0, f(0)) and the one beyond the last breakpoint are never better.
    errors = np.multiply.outer(priors, curve.alpha) + np.multiply.outer(complements, curve.beta)
    slack = -8.0 * UNIT if curve.side is Side.UPPER else 8.0 * UNIT
    return np.asarray(np.min(errors, axis=-1) * (1.0 + slack), dtype=np.float64)
