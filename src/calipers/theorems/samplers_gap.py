"""Deterministic and shuffled batches over one epoch (Chua et al. 2024).

*Deterministic* batches show the differing record to one fixed batch: the tight pair is
N(1, sigma^2) against N(0, sigma^2), a Gaussian mechanism with mu = 1/sigma (Proposition 3.1).

*Shuffled* batches cannot be worse: their output is a mixture over permutations of outputs with
deterministic batches, and the hockey-stick divergence is jointly convex (Theorem 4.1).

How much better they are is bounded from below by one dataset: every other record pulls by -1, so
the batch of the differing record stands out by 2 (record present) or by 1 (record zeroed out),

    P_S = (1/T) sum_t N(2 e_t, sigma^2 I),    Q_S = (1/T) sum_t N(e_t, sigma^2 I).

Every event E then proves delta_S(eps) >= P_S(E) - e^eps Q_S(E). The paper uses
E_C = {max_t w_t >= C} (Equation (3)):

    P_S(E_C) = 1 - Phi((C-2)/sigma) Phi(C/sigma)^(T-1),   Q_S likewise with C - 1.

delta_S is also at least the divergence in the other direction, for which the complement of E_C
is the natural event; for small T and large sigma that one is the better of the two.

Some numbers of the paper are not what its formulas give. "delta_S(1) >= 0.004" for sigma = 1,
T = 1000 (Appendix A.2) and the two numbers next to it fit epsilon = 1/2: at epsilon = 1 the
best E_C gives 0.000999, and the best test of all about 0.00101. The caption of its Figure 4 says
T = 10,000; the numbers quoted for it are those of T = 100,000, as the text says. (14.45 at
sigma = 0.4 holds for both; 0.029 at sigma = 1.3 for the latter only: T = 10,000 gives 0.262.)
Three more are rounded up, the wrong way for a lower bound: 0.018 for 0.01795 and 1.6e-4 for
1.596e-4 (both sigma = 0.8, T = 1000; true all the same, by a better test), and 7.5e-5 for 7.473e-5
(sigma = 0.4, T = 10,000, epsilon = 12; Theorem 4.1 gives at most 7.4744e-5).
The paper's grid of C in steps of 0.01 costs the fourth digit at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from calipers.errors import CertificationError
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_delta, gaussian_epsilon
from calipers.numerics.types import FloatArray
from calipers.theorems.registry import theorem

# Logarithms of probabilities down to 1e-290 are below 668 in size; each of the three that enter
# a test value carries a few units in the last place, so the computed probabilities are within
# 1e-12 of the truth, relatively. The allowance is counted against the lower bound.
ROUNDING_ALLOWANCE = 1e-12
SMALLEST_PROBABILITY = 1e-290

_RECORD_PRESENT, _RECORD_ZEROED = 2.0, 1.0


class EventBound(NamedTuple):
    """delta >= `delta`, as proven by the event with this threshold."""

    delta: float
    threshold: float


@theorem("chua-prop-3.1")
def deterministic_delta(epsilon: float, noise_multiplier: float) -> float:
    """delta_D = Phi(-sigma eps + 1/(2 sigma)) - e^eps Phi(-sigma eps - 1/(2 sigma)), exactly (Balle and Wang 2018)."""
    return float(gaussian_delta(1.0 / noise_multiplier, epsilon))


@theorem("chua-prop-3.1-epsilon")
def deterministic_epsilon(delta: float, noise_multiplier: float) -> float:
    """The smallest epsilon >= 0 with delta_D(epsilon) <= delta, by bisection of Proposition 3.1."""
    return gaussian_epsilon(1.0 / noise_multiplier, delta)


@theorem("chua-thm-4.1")
def shuffle_delta_upper(epsilon: float, noise_multiplier: float, rounds: int) -> float:
    """delta_D(eps), rounded up.

    Post-condition: delta_S(eps) <= this, for adaptive queries and every dataset, at any number of
    batches T >= 1. Values below 1e-300, where doubles thin out, are reported as 1e-300.
    """
    return max(deterministic_delta(epsilon, noise_multiplier), 1e-300) * (1.0 + GAUSSIAN_RELATIVE_ERROR)


def event_value(epsilon: float, hit: FloatArray, false_alarm: FloatArray) -> FloatArray:
    """hit - e^eps false_alarm, less the rounding allowance; -inf where either leaves double precision.

    `hit` and `false_alarm` are the probabilities of one event under the two hypotheses.
    """
    usable = (hit > SMALLEST_PROBABILITY) & (false_alarm > SMALLEST_PROBABILITY)
    with np.errstate(divide="ignore", over="ignore"):
        charged = np.exp(epsilon + np.log(false_alarm))
        value = hit - charged - ROUNDING_ALLOWANCE * (hit + charged)
    return np.where(usable, value, -np.inf)


def _max_values(epsilon: float, sigma: float, rounds: int, threshold: FloatArray, zeroed: bool) -> FloatArray:
    """`event_value` of {max_t w_t >= C}, or of its complement for whoever looks for the record zeroed out."""
    noise = (rounds - 1) * log_ndtr(threshold / sigma)
    present, absent = (log_ndtr((threshold - shift) / sigma) + noise for shift in (_RECORD_PRESENT, _RECORD_ZEROED))
    if zeroed:
        return event_value(epsilon, np.exp(absent), np.exp(present))
    return event_value(epsilon, -np.expm1(present), -np.expm1(absent))


def best_threshold(value: Callable[[FloatArray], FloatArray], low: float, high: float) -> EventBound:
    """The best threshold on a grid that is refined around its best point; the empty event if none is positive.

    Every threshold gives a valid bound, so the search can only cost tightness.
    """
    for points in (4001, 201, 201, 201):
        grid = np.linspace(low, high, points)
        values = value(grid)
        best = int(np.argmax(values))
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, points - 1)])
    if not values[best] > 0.0:
        return EventBound(0.0, math.inf)
    return EventBound(float(values[best]), float(grid[best]))


@theorem("chua-eq-3-event")
def shuffle_event_value(epsilon: float, noise_multiplier: float, rounds: int, threshold: float) -> float:
    """P_S(E_C) - e^eps Q_S(E_C) for the given C, rounded down: delta_S(eps) >= this number."""
    value = float(_max_values(epsilon, noise_multiplier, rounds, np.array([threshold]), False)[0])
    if not math.isfinite(value):
        raise CertificationError(
            f"The event {{max w >= {threshold:g}}} has a probability below 1e-290 or e^epsilon overflows: "
            "its value cannot be distinguished from rounding. Use a smaller threshold or epsilon."
        )
    return value


@theorem("chua-eq-3-reversed")
@theorem("chua-eq-3")
def shuffle_delta_lower(epsilon: float, noise_multiplier: float, rounds: int, zeroed: bool = False) -> EventBound:
    """max over C of P_S(E_C) - e^eps Q_S(E_C), with the best C; or of Q_S(not E_C) - e^eps P_S(not E_C).

    The latter (`zeroed`) is the same attack, with the record zeroed out as the target. At epsilon = 0 it equals
    Equation (3); for few batches and much noise it is larger (sigma = 5, T = 10, epsilon = 0.1: 8.5e-4 to 5.9e-4).

    Post-condition: delta_S(epsilon) >= the returned delta, which is 0 (the empty event) where no threshold attacks.
    """
    # With one coordinate, the likelihood ratio passes e^eps at C = sigma^2 eps + 3/2; with T of them the maximum of the
    # noise, about sigma sqrt(2 ln T), has to be passed as well.
    middle = max(noise_multiplier**2 * epsilon + 1.5, noise_multiplier * math.sqrt(2.0 * math.log(rounds)))
    low, high = -8.0 * noise_multiplier, middle + 2.0 + 8.0 * noise_multiplier
    return best_threshold(lambda grid: _max_values(epsilon, noise_multiplier, rounds, grid, zeroed), low, high)


@theorem("chua-eq-3-epsilon")
def shuffle_epsilon_lower(delta: float, noise_multiplier: float, rounds: int) -> float:
    """The largest epsilon found at which Equation (3) still exceeds delta (0 if it does at none).

    Post-condition: epsilon_S(delta) >= the returned number. Theorem 4.1 brackets the search:
    epsilon_S <= epsilon_D.
    """
    if shuffle_delta_lower(0.0, noise_multiplier, rounds).delta <= delta:
        return 0.0
    most = deterministic_epsilon(delta, noise_multiplier)
    return bisect(0.0, most, lambda at: shuffle_delta_lower(at, noise_multiplier, rounds).delta > delta, 60, 1e-10)[0]
