"""From (epsilon, delta) to error rates and back (Wang et al. 2026, Equations 1 to 3).

(epsilon, delta)-DP in both orders means beta >= 1 - delta - e^epsilon alpha and alpha >= 1 - delta - e^epsilon beta for
every test; solved for beta this is the curve f_(epsilon, delta). An audit runs it backwards: one test whose rates are
known to be at most (fpr, fnr) refutes every (epsilon, delta) that would forbid it.
"""

from __future__ import annotations

import math

from calipers.domains import POSITIVE_PROBABILITY
from calipers.theorems.parameters import Described
from calipers.theorems.registry import theorem

_MOST_FPR: Described = (POSITIVE_PROBABILITY, "upper confidence limit of the test's false positive rate")
_MOST_FNR: Described = (POSITIVE_PROBABILITY, "upper confidence limit of the test's false negative rate")
_ROUNDOFF = 1e-15


@theorem("wang-eq-1")
def private_fnr(fpr: float, epsilon: float, delta: float) -> float:
    """max(0, 1 - delta - e^epsilon fpr, e^-epsilon (1 - delta - fpr)), rounded down."""
    room = 1.0 - delta
    cost = math.exp(min(epsilon, 700.0)) * fpr
    steep, flat = room - cost, math.exp(-epsilon) * (room - fpr)
    return max(0.0, steep - _ROUNDOFF * (1.0 + cost), flat - _ROUNDOFF)


@theorem("wang-eq-2", fpr=_MOST_FPR, fnr=_MOST_FNR)
def audited_epsilon(fpr: float, fnr: float, delta: float) -> float:
    """max(0, log((1 - delta - fpr)/fnr), log((1 - delta - fnr)/fpr)), rounded down."""
    room = 1.0 - delta
    best = 0.0
    for own, other in ((fpr, fnr), (fnr, fpr)):
        left = room - own - _ROUNDOFF
        if left > 0.0:
            value = math.log(left) - math.log(other)
            best = max(best, value - _ROUNDOFF * (1.0 + abs(math.log(left)) + abs(math.log(other))))
    return best


@theorem("wang-eq-3", fpr=_MOST_FPR, fnr=_MOST_FNR)
def audited_delta(fpr: float, fnr: float, epsilon: float) -> float:
    """max(0, 1 - fpr - e^epsilon fnr, 1 - fnr - e^epsilon fpr), rounded down."""
    odds = math.exp(min(epsilon, 700.0))
    values = (1.0 - own - odds * other - _ROUNDOFF * (1.0 + odds * other) for own, other in ((fpr, fnr), (fnr, fpr)))
    return max(0.0, *values)
