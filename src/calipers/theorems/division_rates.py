"""From (epsilon, delta) to error rates and back (Wang et al. 2026, Equations 1 to 3).

(epsilon, delta)-DP in both orders means beta >= 1 - delta - e^epsilon alpha and alpha >= 1 - delta - e^epsilon beta for
every test; solved for beta this is the curve f_(epsilon, delta). An audit runs it backwards: one test whose rates are
known to be at most (fpr, fnr) refutes every (epsilon, delta) that would forbid it.
"""

from __future__ import annotations

import math

from calipers.citations import add_statement
from calipers.domains import NON_NEGATIVE, POSITIVE_PROBABILITY, PROBABILITY
from calipers.theorems.parameters import EPSILON, FPR, Described
from calipers.theorems.registry import Relation, theorem

add_statement("wang2026:eq1", "Equation (1)", "The trade-off curve that (epsilon, delta)-DP guarantees.")
add_statement("wang2026:eq2", "Equation (2)", "The epsilon at delta that a test's error rates prove.")
add_statement("wang2026:eq3", "Equation (3)", "The delta at epsilon that a test's error rates prove.")

_DELTA: Described = (PROBABILITY, "delta of (epsilon, delta)-DP")
_MOST_FPR: Described = (POSITIVE_PROBABILITY, "upper confidence limit of the test's false positive rate")
_MOST_FNR: Described = (POSITIVE_PROBABILITY, "upper confidence limit of the test's false negative rate")
_ROUNDOFF = 1e-15


@theorem(
    "wang-eq-1",
    statement="wang2026:eq1",
    direction=Relation.LOWER_BOUND,
    reads="every (epsilon, delta)-DP mechanism has T(M(D), M(D'))(fpr) >= value",
    parameters={"fpr": FPR, "epsilon": EPSILON, "delta": _DELTA},
)
def private_fnr(fpr: float, epsilon: float, delta: float) -> float:
    """max(0, 1 - delta - e^epsilon fpr, e^-epsilon (1 - delta - fpr)), rounded down."""
    alpha, level = PROBABILITY.check("fpr", fpr), NON_NEGATIVE.check("epsilon", epsilon)
    room = 1.0 - PROBABILITY.check("delta", delta)
    cost = math.exp(min(level, 700.0)) * alpha
    steep, flat = room - cost, math.exp(-level) * (room - alpha)
    return max(0.0, steep - _ROUNDOFF * (1.0 + cost), flat - _ROUNDOFF)


@theorem(
    "wang-eq-2",
    statement="wang2026:eq2",
    direction=Relation.LOWER_BOUND,
    reads="a mechanism with a test of these rates is not (epsilon, delta)-DP at any epsilon < value",
    parameters={"fpr": _MOST_FPR, "fnr": _MOST_FNR, "delta": _DELTA},
)
def audited_epsilon(fpr: float, fnr: float, delta: float) -> float:
    """max(0, log((1 - delta - fpr)/fnr), log((1 - delta - fnr)/fpr)), rounded down."""
    alpha, beta = POSITIVE_PROBABILITY.check("fpr", fpr), POSITIVE_PROBABILITY.check("fnr", fnr)
    room = 1.0 - PROBABILITY.check("delta", delta)
    best = 0.0
    for own, other in ((alpha, beta), (beta, alpha)):
        left = room - own - _ROUNDOFF
        if left > 0.0:
            value = math.log(left) - math.log(other)
            best = max(best, value - _ROUNDOFF * (1.0 + abs(math.log(left)) + abs(math.log(other))))
    return best


@theorem(
    "wang-eq-3",
    statement="wang2026:eq3",
    direction=Relation.LOWER_BOUND,
    reads="a mechanism with a test of these rates is not (epsilon, delta)-DP at any delta < value",
    parameters={"fpr": _MOST_FPR, "fnr": _MOST_FNR, "epsilon": EPSILON},
)
def audited_delta(fpr: float, fnr: float, epsilon: float) -> float:
    """max(0, 1 - fpr - e^epsilon fnr, 1 - fnr - e^epsilon fpr), rounded down."""
    alpha, beta = POSITIVE_PROBABILITY.check("fpr", fpr), POSITIVE_PROBABILITY.check("fnr", fnr)
    odds = math.exp(min(NON_NEGATIVE.check("epsilon", epsilon), 700.0))
    values = (
        1.0 - own - odds * other - _ROUNDOFF * (1.0 + odds * other) for own, other in ((alpha, beta), (beta, alpha))
    )
    return max(0.0, *values)
