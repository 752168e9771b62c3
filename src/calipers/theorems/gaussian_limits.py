"""Gaussian limits of subsampled composition, and the Gaussian guarantee of a pure one.

One step of Poisson-subsampled DP-SGD replaces the likelihood ratio L of two unit Gaussians,
1/sigma apart, by 1 - q + qL. Over T steps with q sqrt(T) -> c the log-likelihood ratio becomes
Gaussian, so the composition tends to G_mu. Which mu depends on what is composed:

- the pair itself (one direction of add/remove): mu^2 = c^2 E[(L-1)^2] = c^2 (e^(1/sigma^2) - 1);
- the symmetrized curve min(f, f^-1)** that Dong, Roth and Su compose so as to cover both
  directions at once: mu^2 = 2 c^2 E[(L-1)_+^2]. The larger half of the variance is counted twice,
  so this mu is the larger one; the ratio runs from sqrt(2) (sigma -> 0) to 1 (sigma -> infinity).

Neither is a bound. At finite T the true curve crosses G_mu, and in the tail it leaks more.
"""

from __future__ import annotations

import math

from scipy.special import erf, erfinv, log_expit, ndtr, ndtri_exp

from calipers.domains import OPEN_UNIT
from calipers.theorems.parameters import ratio_variance
from calipers.theorems.registry import theorem


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


@theorem("bu-clt-mu", sample_rate=OPEN_UNIT)
def noisy_sgd_mu(sample_rate: float, steps: int, noise_multiplier: float) -> float:
    """mu = q sqrt(T (e^(1/sigma^2) - 1)), the limit for one direction of add/remove adjacency.

    Post-condition: an asymptotic value, neither an upper nor a lower bound on any finite run.
    """
    return sample_rate * math.sqrt(steps * ratio_variance(noise_multiplier))


@theorem("dong-cor-5.4", sample_rate=OPEN_UNIT)
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
