"""Binomial confidence bounds, and what a pair of error rates says about privacy.

**Clopper-Pearson.** k successes in n independent trials with success probability p. The upper bound at error level a is
the p at which P[Bin(n, p) <= k] = a; the lower bound the p at which P[Bin(n, p) >= k] = a. Both tails are incomplete
beta functions,

    P[Bin(n, p) <= k] = 1 - I_p(k + 1, n - k),        P[Bin(n, p) >= k] = I_p(k, n - k + 1),

so each bound is one inversion. An inversion is only as good as its iteration (some have been wrong by orders of
magnitude), so nothing here is believed because it was inverted: the tail is evaluated at the inverted point, charged
with its own relative error, and the point is moved outward until the tail is truly at most a.

**Error rates and privacy.** A test with false positive rate alpha and false negative rate beta shows, for an
(epsilon, delta)-private pair, alpha + e^epsilon beta >= 1 - delta and the same with the two exchanged. Turned round,
these are Equations (2) and (3) of Wang et al. (2026). Both are decreasing in alpha and in beta, so upper confidence
bounds on the rates give lower confidence bounds on leakage. The paper takes each rate from a 95 % interval of its
own; the pair then holds with 90 % only. Here the two rates share one error budget (`calipers.auditing.bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calipers.citations import implements
from calipers.domains import OPEN_UNIT, PROBABILITY, Domain
from calipers.errors import CertificationError, InputError
from calipers.numerics.elementary import checked
from calipers.numerics.types import FloatArray

TAIL_RELATIVE_ERROR = 1e-10
"""Relative error of the binomial tails wherever they exceed 1e-250 (checked against mpmath; typically 1e-15)."""

MOST_TRIALS = 100_000_000
"""The largest number of trials for which the accuracy above has been checked."""

TRIALS = Domain(1, MOST_TRIALS, integer=True)
EPSILON = Domain(0.0, 700.0)
"""Where e^epsilon is a double; a larger epsilon forbids nothing that a test could show."""
_LEVEL = Domain(1e-200, 1.0, high_open=True)
_ROUNDOFF = 8.0 * 2.0**-53
_MOST_STEPS = 200


def _counts(successes: ArrayLike, trials: int) -> tuple[FloatArray, int]:
    trials = TRIALS.check_int("trials", trials)
    if np.asarray(successes).dtype.kind not in "iuf":
        raise InputError(f"Expected successes as whole numbers, got successes={successes!r}.")
    return checked(Domain(0, trials, integer=True), "successes", successes), trials


def at_most(successes: ArrayLike, trials: int, probability: ArrayLike) -> FloatArray:
    """P[Bin(trials, probability) <= successes], within TAIL_RELATIVE_ERROR."""
    counts, trials = _counts(successes, trials)
    p = checked(PROBABILITY, "probability", probability)
    inside = np.minimum(counts, trials - 1)  # the tail of all counts is 1, whatever betaincc would say
    tail = special.betaincc(inside + 1.0, trials - inside, p)
    return np.asarray(np.where(counts == trials, 1.0, tail), dtype=np.float64)


def at_least(successes: ArrayLike, trials: int, probability: ArrayLike) -> FloatArray:
    """P[Bin(trials, probability) >= successes], within TAIL_RELATIVE_ERROR."""
    counts, trials = _counts(successes, trials)
    p = checked(PROBABILITY, "probability", probability)
    inside = np.maximum(counts, 1.0)
    tail = special.betainc(inside, trials - inside + 1.0, p)
    return np.asarray(np.where(counts == 0, 1.0, tail), dtype=np.float64)


@implements("clopper1934:limits")
def upper_rate(successes: ArrayLike, trials: int, error: ArrayLike) -> FloatArray:
    """The one-sided Clopper-Pearson upper bound at error level `error`; arrays broadcast.

    Post-condition: P[Bin(trials, p) <= successes] <= error at every p >= the returned one (or the returned one is 1),
    so the bound falls below the true rate with probability at most `error`. Verified, rounding included.
    """
    return _limit(successes, trials, error, up=True)


@implements("clopper1934:limits")
def lower_rate(successes: ArrayLike, trials: int, error: ArrayLike) -> FloatArray:
    """The one-sided Clopper-Pearson lower bound at error level `error`; arrays broadcast.

    Post-condition: P[Bin(trials, p) >= successes] <= error at every p <= the returned one (or the returned one is 0),
    so the bound exceeds the true rate with probability at most `error`. Verified, rounding included.
    """
    return _limit(successes, trials, error, up=False)


def _limit(successes: ArrayLike, trials: int, error: ArrayLike, *, up: bool) -> FloatArray:
    counts, trials = _counts(successes, trials)
    counts, level = np.broadcast_arrays(counts, checked(_LEVEL, "error", error))
    shape = counts.shape
    counts, level = counts.ravel(), level.ravel()
    bound = np.full(counts.size, float(up))
    open_ = counts < trials if up else counts > 0
    k, a = counts[open_], level[open_]
    tail = at_most if up else at_least
    quantile = special.betainccinv(k + 1.0, trials - k, a) if up else special.betaincinv(k, trials - k + 1.0, a)
    start = np.where(np.isfinite(quantile), quantile, (k + up) / (trials + 1.0))
    bound[open_] = _pushed(start, lambda p: tail(k, trials, p) * (1.0 + TAIL_RELATIVE_ERROR) <= a, up=up)
    return bound.reshape(shape)


def wilson_upper(rate: FloatArray, trials: int, z: ArrayLike) -> FloatArray:
    """Wilson's upper limit of a proportion, `z` deviations up: an estimate, to plan and choose, never to conclude."""
    z = np.asarray(z, dtype=np.float64)
    width = z * np.sqrt(rate * (1.0 - rate) / trials + z * z / (4.0 * trials * trials))
    limit = (rate + z * z / (2.0 * trials) + width) / (1.0 + z * z / trials)
    return np.asarray(np.minimum(limit, 1.0), dtype=np.float64)


def error_level(confidence: float) -> float:
    """1 - confidence, rounded down: the error probability that all parts of one statement share."""
    return (1.0 - OPEN_UNIT.check("confidence", confidence)) * (1.0 - _ROUNDOFF)


def gains(fpr: ArrayLike, fnr: ArrayLike, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """(power - e^epsilon fpr, the same with the hypotheses exchanged); negative where nothing is gained.

    Post-condition: both are at most the exact values, and the larger of them and 0 is Equation (3).
    """
    alpha, beta = checked(PROBABILITY, "fpr", fpr), checked(PROBABILITY, "fnr", fnr)
    odds = math.exp(EPSILON.check("epsilon", epsilon)) * (1.0 + _ROUNDOFF)
    forward, backward = (
        (1.0 - own) - odds * other * (1.0 + _ROUNDOFF) for own, other in ((beta, alpha), (alpha, beta))
    )
    return np.asarray(forward - _ROUNDOFF, dtype=np.float64), np.asarray(backward - _ROUNDOFF, dtype=np.float64)


def _pushed(start: FloatArray, holds: Callable[[FloatArray], NDArray[np.bool_]], up: bool) -> FloatArray:
    """The start, moved outward in growing steps until `holds`; a bound pushed to the end of [0, 1] needs no proof.

    The first step is a relative 2^-30 of the nearer end: larger than the error of a good inversion, far below the
    width of any interval.
    """
    end, sign = (1.0, 1.0) if up else (0.0, -1.0)
    point = np.asarray(start, dtype=np.float64)
    pending = np.ones(point.shape, dtype=np.bool_)
    step = 2.0**-30
    for _ in range(_MOST_STEPS):
        moved = np.nextafter(point + sign * step * np.minimum(point, 1.0 - point), end)
        point = np.where(pending, moved, point)
        pending &= ~holds(point) & (point != end)
        if not pending.any():
            return point
        step = min(4.0 * step, 0.5)
    raise CertificationError("A binomial confidence bound could not be verified; please report the counts.")
