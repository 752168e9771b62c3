"""How far shuffled and Poisson DP-SGD must stay from perfect privacy (Ertan and van Dijk 2026, Section 6).

The separation of a trade-off curve is its largest Euclidean distance from the line 1 - a,

    sep(f) = max_a (1 - a - f(a)) / sqrt 2,

which is total variation over sqrt 2, for any curve, symmetric or not.

One epoch of M rounds shows M standard normals, one of which is shifted by 1/sigma if the record
is present. Rejecting when the largest exceeds h has errors 1 - Phi(h)^M and
Phi(h - 1/sigma) Phi(h)^(M-1): the curve f_sub of Equation (17), above the true one. At
h = 1/sigma the false negative rate is half of Phi(h)^(M-1), and for sigma <= 1/sqrt(2 ln M) the
false positive rate a* is below 1/sqrt(4 pi ln M) (Lemma 6.2): this gives Theorem 6.1.

On the statement of Theorem 6.1. The proof gives the bound with a factor 1 - e_M,
e_M = 2/(M sqrt(4 pi ln M)), which the statement leaves out "since it tends to 1". The statement
holds without it all the same: 1 - a* - (1 - a*)^((M-1)/M)/2 decreases in a*, and at the largest
a*, that of sigma = 1/sqrt(2 ln M), it exceeds the stated bound for every M >= 2, because
Phi(-t) is below the tail bound used for it by a factor about 1 - 1/t^2 (for M = 2,
0.2369 against 0.2338; the two approach each other as M grows). Both are offered; M = 1, which the paper admits,
divides by ln 1 = 0.

All bounds here are lower bounds on separation. The shifted coordinate is what the outputs are
when all other records contribute nothing, so they hold for the worst case over datasets too.

Poisson sampling at rate q is the mixture "never drawn" (p = (1-q)^M) and "drawn at least once";
drawn twice is easier to detect than drawn once by every test that is increasing in the
coordinates, and the best test is, so f_pois <= p (1 - a) + (1 - p) f_shuf (Lemma 6.4).
(1 - 1/M)^M < 1/e makes Theorem 6.3's constant 1 - 1/e a valid one, not an approximation.

**What a separation says about epsilon**, and what the Gaussian limit predicts for it (Appendices E and F). It is a
number every description of a mechanism has:

- of mu-GDP, (2 Phi(mu/2) - 1)/sqrt 2 (Lemma E.1);
- of (epsilon, delta)-DP, (e^eps - 1 + 2 delta)/((1 + e^eps) sqrt 2) (Lemma E.2).

A mechanism whose separation is at least kappa can be (epsilon, delta)-DP only if its curve is
above f_{epsilon,delta}, hence only if kappa <= the second number; solved for epsilon this is
Lemma E.3. With Theorems 6.1 and 6.3 for kappa and delta = 1e-8 it gives the paper's Table 10.

A symmetric curve is farthest from the line at its fixed point (Lemma 5.3, Equation (10)). Equation (11) adds
0 < kappa < 1/sqrt 2 for every curve other than the line; the curve f = 0 of disjoint distributions is symmetric
too and has kappa = 1/sqrt 2, so the second inequality is not strict.

Appendix F puts the limit of Dong et al., Corollary 5.4, in place of the mechanism. Its numbers
are statements about that limit, with its symmetrized Poisson curve, and bound no finite run.
(Equation (50) is printed with one square root nested in the other; its second line is meant.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erf, log_ndtr, ndtr, ndtri, ndtri_exp

from calipers.errors import ConditionError
from calipers.numerics.types import FloatArray
from calipers.theorems.lognormal_ratio import positive_part_variance
from calipers.theorems.registry import theorem, unmet
from calipers.theorems.samplers_gap import best_threshold


class TractablePoint(NamedTuple):
    """a* of Lemma 6.2, f_sub there, the distance of that point from the line, and the bound on a*."""

    fpr: float
    fnr: float
    separation: float
    fpr_bound: float


@theorem("ertan-eq-17")
def max_test_tradeoff(fpr: float, noise_multiplier: float, rounds: int) -> float:
    """f_sub(a) = Phi(Phi^-1((1-a)^(1/M)) - 1/sigma) (1-a)^((M-1)/M).

    Post-condition: f_shuf(a) <= this. 1 - (1-a)^(1/M), the chance that one coordinate exceeds the
    threshold, is formed without cancellation, so M = 1e10 and a = 1e-12 keep their digits.
    """
    if fpr in (0.0, 1.0):
        return 1.0 - fpr
    log_below = math.log1p(-fpr) / rounds
    exceed = -math.expm1(log_below)
    threshold = -float(ndtri(exceed)) if exceed < 0.5 else float(ndtri_exp(log_below))
    return math.exp(float(log_ndtr(threshold - 1.0 / noise_multiplier)) + (rounds - 1) * log_below)


@theorem("ertan-eq-21")
def max_test_separation(noise_multiplier: float, rounds: int) -> float:
    """max over h of Phi(h)^(M-1) (Phi(h) - Phi(h - 1/sigma)) / sqrt 2, the separation of f_sub.

    Post-condition: the separation of the shuffled curve is at least this, without a condition on
    sigma. Any h gives a valid bound; the search costs tightness only. Rounded down by 1e-12.
    """
    shift = 1.0 / noise_multiplier
    low, high = -9.0, math.sqrt(2.0 * math.log(rounds)) + shift + 9.0

    def gain(grid: FloatArray) -> FloatArray:
        # Differences of upper tails on the right, of lower tails on the left: no cancellation near 1.
        inside = np.where(grid > 0.5 * shift, ndtr(shift - grid) - ndtr(-grid), ndtr(grid) - ndtr(grid - shift))
        return np.asarray(np.exp((rounds - 1) * log_ndtr(grid)) * inside)

    return best_threshold(gain, low, high).delta / math.sqrt(2.0) * (1.0 - 1e-12)


@theorem("ertan-noise-threshold")
def noise_threshold(rounds: int) -> float:
    """1 / sqrt(2 ln M): 0.24 for ImageNet in batches of 256 (M = 5,000), 0.17 for LAION-5B (M = 2.3e7)."""
    return 1.0 / math.sqrt(2.0 * math.log(rounds))


def _require_low_noise(noise_multiplier: float, rounds: int) -> None:
    threshold = noise_threshold(rounds)
    if noise_multiplier > threshold:
        raise unmet("little-noise", threshold=threshold, noise=noise_multiplier)


@theorem("ertan-lemma-6.2")
def tractable_point(noise_multiplier: float, rounds: int) -> TractablePoint:
    """a* = 1 - Phi(1/sigma)^M, exactly; f_sub(a*); and x' = (1 - a* - f_sub(a*))/sqrt 2 of Equation (20)."""
    _require_low_noise(noise_multiplier, rounds)
    log_below = rounds * float(log_ndtr(1.0 / noise_multiplier))
    missed = 0.5 * math.exp(log_below * (rounds - 1) / rounds)
    distance = (math.exp(log_below) - missed) / math.sqrt(2.0)
    return TractablePoint(-math.expm1(log_below), missed, distance, 1.0 / math.sqrt(4.0 * math.pi * math.log(rounds)))


@theorem("ertan-thm-6.1")
def shuffle_separation_lower(noise_multiplier: float, rounds: int) -> float:
    """(1 - 1/sqrt(4 pi ln M)) / sqrt 8. Post-condition: the separation is at least this (see the module text)."""
    _require_low_noise(noise_multiplier, rounds)
    return (1.0 - 1.0 / math.sqrt(4.0 * math.pi * math.log(rounds))) / math.sqrt(8.0)


@theorem("ertan-eq-30")
def shuffle_separation_lower_corrected(noise_multiplier: float, rounds: int) -> float:
    """Theorem 6.1 times 1 - 2/(M sqrt(4 pi ln M)): the inequality as its proof ends."""
    correction = 2.0 / (rounds * math.sqrt(4.0 * math.pi * math.log(rounds)))
    return shuffle_separation_lower(noise_multiplier, rounds) * (1.0 - correction)


@theorem("ertan-lemma-6.4")
def poisson_tradeoff_upper(fpr: float, shuffle_fnr: float, sample_rate: float, rounds: int) -> float:
    """p (1 - a) + (1 - p) f'(a) with p = (1 - q)^M, for f' above the shuffled curve at the same a."""
    if shuffle_fnr > 1.0 - fpr:
        raise ConditionError(f"A trade-off curve is at most 1 - fpr = {1.0 - fpr:g}, got shuffle_fnr={shuffle_fnr:g}.")
    never = math.exp(rounds * math.log1p(-sample_rate))
    return never * (1.0 - fpr) + (1.0 - never) * shuffle_fnr


@theorem("ertan-poisson-transfer")
def poisson_separation_from_shuffle(separation: float, rounds: int) -> float:
    """(1 - (1 - 1/M)^M) kappa_shuf, for any lower bound kappa_shuf on the shuffled separation."""
    return -math.expm1(rounds * math.log1p(-1.0 / rounds)) * separation


@theorem("ertan-thm-6.3")
def poisson_separation_lower(noise_multiplier: float, rounds: int) -> float:
    """(1 - 1/e) (1 - 1/sqrt(4 pi ln M)) / sqrt 8."""
    return -math.expm1(-1.0) * shuffle_separation_lower(noise_multiplier, rounds)


_ROOT_2 = math.sqrt(2.0)


@theorem("ertan-lemma-5.3")
def symmetric_separation(fixed_point: float) -> float:
    """(1 - 2a)/sqrt 2; `calipers.curves.separation` serves every curve."""
    return (1.0 - 2.0 * fixed_point) / _ROOT_2


@theorem("ertan-lemma-e.1")
def gdp_separation(mu: float) -> float:
    """(2 Phi(mu/2) - 1)/sqrt 2 = erf(mu/sqrt 8)/sqrt 2: exact, and accurate for small mu."""
    return float(erf(mu / math.sqrt(8.0))) / _ROOT_2


@theorem("ertan-lemma-e.2")
def dp_separation(epsilon: float, delta: float) -> float:
    """(e^eps - 1 + 2 delta)/((1 + e^eps) sqrt 2), written as tanh(eps/2) + 2 delta/(1 + e^eps) so as not to overflow.

    Post-condition: every (eps, delta)-DP mechanism has at most this separation, and some have it.
    """
    return (math.tanh(0.5 * epsilon) + 2.0 * delta * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))) / _ROOT_2


@theorem("ertan-lemma-e.3")
def epsilon_from_separation(separation: float, delta: float) -> float:
    """ln((1 + kappa sqrt 2 - 2 delta)/(1 - kappa sqrt 2)), and 0 where kappa sqrt 2 <= delta.

    In the second case (0, delta)-DP allows the separation, so that no epsilon is excluded; the
    formula would be negative or undefined there. At delta = 1e-8 the paper's Table 10, with
    Theorems 6.1 and 6.3 for kappa: M = 1,000 gives 0.960 and 0.580, M = 5,000,000 1.005 and 0.604.
    """
    advantage = separation * _ROOT_2
    if advantage <= delta:
        return 0.0
    return math.log1p(2.0 * (advantage - delta) / (1.0 - advantage))


@theorem("ertan-eq-46")
def poisson_limit_mu(rounds: int, epochs: int, noise_multiplier: float) -> float:
    """sqrt(2 E/M) sqrt(e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2): c = sqrt(E/M) in Equation (46)."""
    return math.sqrt(2.0 * epochs / rounds * positive_part_variance(noise_multiplier))


@theorem("ertan-eq-47")
def poisson_limit_separation(rounds: int, epochs: int, noise_multiplier: float) -> float:
    """Lemma E.1 at the mu of Equation (46)."""
    return gdp_separation(poisson_limit_mu(rounds, epochs, noise_multiplier))


@theorem("ertan-eq-48")
def gdp_separation_lower(mu: float) -> float:
    """1/sqrt 2 - (2/sqrt pi) e^(-mu^2/8)/mu <= sep(G_mu), and increasing in mu."""
    return 1.0 / _ROOT_2 - 2.0 / math.sqrt(math.pi) * math.exp(-mu * mu / 8.0) / mu


def _power_of_rounds(rounds: int, s: float, least: float, place: str) -> tuple[float, float]:
    """ln M and ln of M^(1/s^2), required to be at least `least`."""
    log_rounds = math.log(rounds)
    log_power = log_rounds / s**2
    if log_power < math.log(least) * (1.0 - 1e-15):
        raise unmet("many-rounds", place=place, least=least, power=math.exp(log_power), rounds=rounds, s=s)
    return log_rounds, log_power


@theorem("ertan-eq-51")
def scaled_noise_mu_lower(rounds: int, s: float) -> float:
    """sqrt((M^(1/s^2) - 4)/M), for M^(1/s^2) >= 4: from Phi(1.5/sigma) >= 1/2 and Phi(-0.5/sigma) >= 0."""
    log_rounds, log_power = _power_of_rounds(rounds, s, 4.0, "Equation (51)")
    # Above e^600 the 4 is far below the last digit; M^(1/s^2 - 1) alone may still be representable.
    if log_power > 600.0:
        return math.exp(min(0.5 * (log_power - log_rounds), 300.0))  # a lower bound either way
    return math.sqrt((math.exp(log_power) - 4.0) * math.exp(-log_rounds))


@theorem("ertan-eq-52")
def scaled_noise_separation_lower(rounds: int, s: float) -> float:
    """Equation (48) at mu = M^((1/s^2 - 1)/2)/sqrt 2, which Equation (51) exceeds once M^(1/s^2) >= 8."""
    log_rounds, log_power = _power_of_rounds(rounds, s, 8.0, "Equation (52)")
    # e^300 where that is smaller: a lower bound either way.
    return gdp_separation_lower(math.exp(min(0.5 * (log_power - log_rounds), 300.0)) / _ROOT_2)
