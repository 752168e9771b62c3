"""Poisson subsampling against deterministic batches over one epoch (Chua et al. 2024, Theorem 4.2).

With T steps at rate 1/T the tight pair is (A^T, B^T), A = (1 - 1/T) N(0, sigma^2) + (1/T) N(1, sigma^2)
and B = N(0, sigma^2). Neither scheme is better than the other:

(a) for small epsilon Poisson is better. Total variation obeys TV(A^T, B^T) <= 1 - (1 - TV(A, B))^T
    (Proposition C.2) and TV(A, B) = delta_D(0) / T, so delta_P(eps) <= delta_P(0) <= U with
    U = 1 - (1 - delta_D(0)/T)^T < delta_D(0): Poisson wins wherever delta_D(eps) > U.

(b) for large epsilon Poisson is worse. On the halfspace {sum_t w_t > C} with
    C = (eps + ln 2 + T ln T) sigma^2 + T/2 the likelihood ratio exceeds 2 e^eps, because
    ln(1 - 1/T + e^x/T) >= x - ln T. Hence delta_P(eps) >= P(E)/2 >= Phi(-C / (sigma sqrt T)) / 2,
    whose exponent falls like -eps^2 sigma^2 / (2T) while that of delta_D falls like -eps^2 sigma^2 / 2.

The halfspace is a test like any other: under P the sum is a binomial mixture of Gaussians, so its
value P(E) - e^eps Q(E) is available at every C, and the best C is a better bound than the closed
form.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

from calipers.citations import implements
from calipers.errors import CertificationError, ConditionError
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_epsilon_bounds
from calipers.numerics.types import FloatArray
from calipers.theorems.registry import theorem
from calipers.theorems.samplers_gap import EventBound, best_threshold, deterministic_delta, event_value

# A record that is drawn more often than this is left out of P(E), which only lowers the bound.
_MOST_DRAWS = 100


@theorem("chua-prop-c.1")
def halfspace_mass(mean: float, threshold: float, noise_multiplier: float) -> float:
    """Phi((a.mu - b)/(sigma |a|)), whatever the dimension."""
    return float(ndtr((mean - threshold) / noise_multiplier))


@theorem("chua-prop-c.3")
def delta_at_smaller_epsilon(delta: float, epsilon: float, smaller_epsilon: float) -> float:
    """min{delta + e^epsilon - e^smaller_epsilon, 1}, rounded up."""
    if smaller_epsilon > epsilon:
        raise ConditionError(f"Expected smaller_epsilon <= epsilon, got {smaller_epsilon:g} > {epsilon:g}.")
    if epsilon > 1.0 and smaller_epsilon < epsilon - 1.0:
        return 1.0  # e^epsilon - e^smaller_epsilon alone exceeds 1
    return min((delta + math.exp(smaller_epsilon) * math.expm1(epsilon - smaller_epsilon)) * (1.0 + 1e-14), 1.0)


@theorem("chua-prop-c.2")
def poisson_total_variation_upper(noise_multiplier: float, rounds: int) -> float:
    """1 - (1 - delta_D(0)/T)^T, rounded up: at least delta_P(0), and below delta_D(0) for T > 1."""
    one_step = deterministic_delta(0.0, noise_multiplier) * (1.0 + GAUSSIAN_RELATIVE_ERROR) / rounds
    return -math.expm1(rounds * math.log1p(-one_step))


@theorem("chua-thm-4.2a")
def poisson_better_below(noise_multiplier: float, rounds: int) -> float:
    """An epsilon_0 > 0 below which Poisson batches leak less than deterministic ones.

    The solution of delta_D(eps) = U with U of `poisson_total_variation_upper`: below it,
    delta_D(eps) > U >= delta_P(0) >= delta_P(eps). Rounded down.
    """
    bound = poisson_total_variation_upper(noise_multiplier, rounds)
    return gaussian_epsilon_bounds(1.0 / noise_multiplier, bound, 2.0**-52)[0]


@implements("chua2024:thm4.2b")
def poisson_halfspace_log_delta(epsilon: float, noise_multiplier: float, rounds: int) -> float:
    """ln of the closed form of Theorem 4.2(b): ln delta_P(eps) >= this number."""
    root = math.sqrt(rounds)
    argument = (epsilon + rounds * math.log(rounds) + math.log(2.0)) * noise_multiplier / root
    argument += root / (2.0 * noise_multiplier)
    return float(log_ndtr(-argument)) - math.log(2.0)


@theorem("chua-thm-4.2b")
def poisson_halfspace_delta(epsilon: float, noise_multiplier: float, rounds: int) -> float:
    """Phi(-eps sigma/sqrt T - (T ln T + ln 2) sigma/sqrt T - sqrt T/(2 sigma)) / 2 <= delta_P(eps)."""
    return math.exp(poisson_halfspace_log_delta(epsilon, noise_multiplier, rounds))


_LARGEST = 1e15
"""Epsilons beyond are not looked at: one more would not move them."""


@theorem("chua-thm-4.2b-beyond")
def poisson_worse_beyond(noise_multiplier: float, rounds: int) -> float:
    """An epsilon_1 beyond which Poisson batches leak more than deterministic ones.

    Solves Phi(-x1)/2 = Phi(-x2), x1 of the closed form and x2 = eps sigma - 1/(2 sigma), from
    above; delta_D <= Phi(-x2). There is one solution: while x2 <= x1 the left side is the
    smaller; once x2 > x1 the hazard phi/Phi(-.) is larger at x2, x2 grows faster than x1, and so
    the quotient of the two sides grows for good.
    """

    def exceeds(epsilon: float) -> bool:
        above = float(log_ndtr(0.5 / noise_multiplier - epsilon * noise_multiplier))
        return poisson_halfspace_log_delta(epsilon, noise_multiplier, rounds) > above

    high = 1.0
    while not exceeds(high):
        high *= 2.0
        if high > _LARGEST:
            raise CertificationError(
                f"No such epsilon up to {_LARGEST:g} is found at noise_multiplier={noise_multiplier:g} in double "
                "precision; choose a less extreme one."
            )
    return bisect(0.0, high, lambda at: not exceeds(at), 60)[1] * (1.0 + 1e-9)


def _log_draws(rounds: int) -> FloatArray:
    """ln P(k draws in T rounds at rate 1/T) for k = 0 .. min(T, 100), by the ratio of neighbors.

    The ratio (T - k) / ((k + 1) (T - 1)) has no large terms, unlike a quotient of factorials.
    """
    k = np.arange(min(rounds, _MOST_DRAWS), dtype=float)
    ratios = np.log((rounds - k) / ((k + 1.0) * (rounds - 1.0)))
    return rounds * math.log1p(-1.0 / rounds) + np.concatenate(([0.0], np.cumsum(ratios)))


@theorem("chua-thm-4.2b-event")
def poisson_halfspace_best(epsilon: float, noise_multiplier: float, rounds: int) -> EventBound:
    """max over C of P(sum w > C) - e^eps Q(sum w > C), with the best C.

    Post-condition: delta_P(epsilon) >= the returned delta, which is at least the closed form
    wherever that is above 1e-290. 0 (the empty event) where no halfspace attacks.
    """
    spread = noise_multiplier * math.sqrt(rounds)
    draws = _log_draws(rounds)
    k = np.arange(draws.size, dtype=float)

    def value(grid: FloatArray) -> FloatArray:
        hit = np.exp(logsumexp(draws + log_ndtr((k - grid[:, None]) / spread), axis=1))
        return event_value(epsilon, hit, ndtr(-grid / spread))

    return best_threshold(value, -8.0 * spread, min(float(rounds), 40.0) + 36.0 * spread)
