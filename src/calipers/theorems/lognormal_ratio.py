"""Moments of the likelihood ratio of one Gaussian round, and how fast its mean becomes normal.

Under the null hypothesis a round shows X ~ N(0, 1), and the likelihood ratio for "the record is in
this round" is the lognormal Y = exp(X/sigma - 1/(2 sigma^2)) with mean 1 (van Dijk and Ertan 2026,
Appendix C). The ratio of one epoch of M rounds is the mean of M independent copies, so its PLD
is within Berry-Esseen distance

    B E|Y-1|^3 / (sqrt(M) Var(Y)^(3/2)),      B <= 0.4748 (Shevtsova 2011),

of a normal PLD. E[Y^k] = e^(k(k-1)/(2 sigma^2)) gives the central moments; the third absolute
one needs the partial moments on both sides of Y = 1, that is of X = 1/(2 sigma).

**Gaussian limits** of subsampled composition, and the Gaussian guarantee of a pure one. One step of
Poisson-subsampled DP-SGD replaces the likelihood ratio L of two unit Gaussians, 1/sigma apart, by 1 - q + qL. Over T
steps with q sqrt(T) -> c the log-likelihood ratio becomes Gaussian, so the composition tends to G_mu. Which mu
depends on what is composed:

- the pair itself (one direction of add/remove): mu^2 = c^2 E[(L-1)^2] = c^2 (e^(1/sigma^2) - 1);
- the symmetrized curve min(f, f^-1)** that Dong, Roth and Su compose so as to cover both
  directions at once: mu^2 = 2 c^2 E[(L-1)_+^2]. The larger half of the variance is counted twice,
  so this mu is the larger one; the ratio runs from sqrt(2) (sigma -> 0) to 1 (sigma -> infinity).

Neither is a bound. At finite T the true curve crosses G_mu, and in the tail it leaks more.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import erf, erfinv, log_expit, ndtr, ndtri_exp

from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE
from calipers.theorems.registry import theorem, unmet

# The proven constant of the Berry-Esseen theorem for identically distributed terms. The least valid
# one is not known; it is at least 0.4097 (Esseen 1956).
SHEVTSOVA = 0.4748

# E|Y-1|^3 = sum of weight * erf(a u / sqrt 2) * e^(b u^2) over these (weight, a, b), u = 1/sigma.
_THIRD_MOMENT_TERMS = ((1.0, 2.5, 3.0), (-3.0, 1.5, 1.0), (4.0, 0.5, 0.0))


class RatioMoments(NamedTuple):
    """Variance, third and fourth central moment, and third absolute central moment of Y."""

    variance: float
    third: float
    fourth: float
    absolute_third: float


def ratio_variance(noise_multiplier: float, power: int = 1) -> float:
    """e^(1/sigma^2) - 1: the variance of the likelihood ratio of N(1/sigma, 1) to N(0, 1) under the latter.

    Raises `ConditionError` if `power` times the exponent leaves double precision, where `power`
    is the highest power of e^(1/sigma^2) the caller is going to form.
    """
    sigma = POSITIVE.check("noise_multiplier", noise_multiplier)
    exponent = (1.0 / sigma) ** 2
    if power * exponent > 700.0:
        raise unmet("representable", power=power, noise=sigma, enough=math.sqrt(power / 700.0))
    return math.expm1(exponent)


def absolute_third_moment(noise_multiplier: float) -> float:
    """E|Y-1|^3 = erf(2.5u/r) e^(3u^2) - 3 erf(1.5u/r) e^(u^2) + 4 erf(0.5u/r), u = 1/sigma, r = sqrt 2.

    (Proposition C.2, with 1 - 2 Phi(-x) = erf(x / sqrt 2).) The sum is of order u^3 while its
    terms are of order u, so for u < 1/2 the power series is summed instead, from which the
    cancelling first order is absent: relative error near 1e-15 at every sigma.
    """
    ratio_variance(noise_multiplier, power=3)
    u = 1.0 / noise_multiplier
    if u >= 0.5:
        return sum(w * float(erf(a * u / math.sqrt(2.0))) * math.exp(b * u * u) for w, a, b in _THIRD_MOMENT_TERMS)
    return math.sqrt(2.0 / math.pi) * math.fsum(_third_moment_coefficient(k) * u ** (2 * k + 1) for k in range(1, 30))


def _third_moment_coefficient(k: int) -> float:
    """The coefficient of u^(2k+1) in E|Y-1|^3 sqrt(pi/2).

    From erf(x/sqrt 2) sqrt(pi/2) = sum_i (-1)^i x^(2i+1) / (2^i i! (2i+1)) and the series of e^(b u^2).
    """

    def erf_coefficient(a: float, i: int) -> float:
        return (-1.0) ** i * a ** (2 * i + 1) / (2.0**i * math.factorial(i) * (2 * i + 1))

    return math.fsum(
        weight * erf_coefficient(a, i) * b ** (k - i) / math.factorial(k - i)
        for weight, a, b in _THIRD_MOMENT_TERMS
        for i in range(k + 1)
    )


@theorem("vandijk-prop-c.2")
def ratio_moments(noise_multiplier: float) -> RatioMoments:
    """mu_2 = w, mu_3 = (x+2) w^2, mu_4 = (x^4 + 2x^3 + 3x^2 - 3) w^2, x = e^(1/sigma^2) = 1 + w, and E|Y-1|^3.

    Exact up to rounding. Raises `ConditionError` where a moment leaves double precision.
    """
    w = ratio_variance(noise_multiplier, power=6)
    x = 1.0 + w
    fourth = (x**4 + 2.0 * x**3 + 3.0 * x**2 - 3.0) * w**2
    return RatioMoments(w, (x + 2.0) * w**2, fourth, absolute_third_moment(noise_multiplier))


@theorem("vandijk-prop-c.3")
def berry_esseen_distance(noise_multiplier: float, rounds: int) -> float:
    """Equation (19): B E|Y-1|^3 / (sqrt(n) Var^(3/2)), the sharpest of the three forms."""
    skewness = absolute_third_moment(noise_multiplier) / math.pow(ratio_variance(noise_multiplier), 1.5)
    return SHEVTSOVA * skewness / math.sqrt(rounds)


@implements("vandijk2026:propC.3")
def berry_esseen_distance_low_noise(noise_multiplier: float, rounds: int) -> float:
    """Equation (21): B e^(3v/2) (1 + 4 e^(-3v)) / (sqrt(n) (1 - e^(-v))^(3/2)), v = 1/sigma^2.

    At least Equation (19). Close to it for small sigma; for large sigma it grows like 5 sigma^3
    where (19) tends to sqrt(8/pi).
    """
    count = COUNT.check_int("rounds", rounds)
    ratio_variance(noise_multiplier, power=3)
    v = (1.0 / noise_multiplier) ** 2
    growth = math.exp(1.5 * v) * (1.0 + 4.0 * math.exp(-3.0 * v)) / math.pow(-math.expm1(-v), 1.5)
    return SHEVTSOVA * growth / math.sqrt(count)


@implements("vandijk2026:propC.3")
def berry_esseen_distance_high_noise(noise_multiplier: float, rounds: int) -> float:
    """Equation (20): B sqrt(8/(pi n)) (1 + (46.115 + 0.375 e^v + 5.625 e^(3v)) v), v = 1/sigma^2.

    At least Equation (19), and equal to it in the limit of large sigma.
    """
    count = COUNT.check_int("rounds", rounds)
    ratio_variance(noise_multiplier, power=3)
    v = (1.0 / noise_multiplier) ** 2
    excess = (46.115 + 0.375 * math.exp(v) + 5.625 * math.exp(3.0 * v)) * v
    return SHEVTSOVA * math.sqrt(8.0 / (math.pi * count)) * (1.0 + excess)


def positive_part_variance(noise_multiplier: float) -> float:
    """E[(L-1)_+^2] for L the likelihood ratio of N(1/sigma, 1) to N(0, 1), under the latter.

    Equals e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2, the expression under the root of
    Dong et al., Corollary 5.4. Written there as a difference of numbers near 2; with
    Phi(x) = 1/2 + erf(x / sqrt 2) / 2 the constants cancel exactly and only a difference of order
    1/sigma remains, so the relative error is about 1e-16 sigma.
    """
    variance = ratio_variance(noise_multiplier)
    shift = 1.0 / noise_multiplier
    odd = 0.5 * float(erf(1.5 * shift / math.sqrt(2.0))) - 1.5 * float(erf(0.5 * shift / math.sqrt(2.0)))
    return variance * float(ndtr(1.5 * shift)) + odd


@theorem("bu-clt-mu")
def noisy_sgd_mu(sample_rate: float, steps: int, noise_multiplier: float) -> float:
    """mu = q sqrt(T (e^(1/sigma^2) - 1)), the limit for one direction of add/remove adjacency.

    Post-condition: an asymptotic value, neither an upper nor a lower bound on any finite run.
    """
    return sample_rate * math.sqrt(steps * ratio_variance(noise_multiplier))


@theorem("dong-cor-5.4")
def symmetrized_noisy_sgd_mu(sample_rate: float, steps: int, noise_multiplier: float) -> float:
    """mu = sqrt(2) c sqrt(e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2) with c = q sqrt(T).

    Post-condition: an asymptotic value, not a bound; at least `noisy_sgd_mu` of the same run.
    """
    return sample_rate * math.sqrt(2.0 * steps * positive_part_variance(noise_multiplier))


@theorem("gomez-prop-6.1")
def gdp_of_pure_dp(epsilon: float) -> float:
    """mu = -2 Phi^-1(1 / (e^epsilon + 1)).

    Post-condition: every epsilon-DP mechanism is mu-GDP; no smaller mu serves all of them (at
    alpha = 1/(e^epsilon + 1) the curve of randomized response touches G_mu).

    Below epsilon = 1 the argument of Phi^-1 is near 1/2, and mu = 2 sqrt(2) erfinv(tanh(epsilon/2))
    keeps all digits; above it the logarithm of the argument is exact where the argument is tiny.
    """
    if epsilon < 1.0:
        return 2.0 * math.sqrt(2.0) * float(erfinv(math.tanh(0.5 * epsilon)))
    return -2.0 * float(ndtri_exp(log_expit(-epsilon)))
