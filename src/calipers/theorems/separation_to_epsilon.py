"""What a separation says about epsilon, and what the Gaussian limit predicts for it (Ertan and van Dijk 2026, E and F).

Separation, sep(f) = max_a (1 - a - f(a))/sqrt 2, is a number every description of a mechanism has:

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

from scipy.special import erf

from calipers.domains import NON_NEGATIVE, POSITIVE, Domain
from calipers.errors import ConditionError
from calipers.theorems.gaussian_limits import positive_part_variance
from calipers.theorems.registry import theorem

_ROOT_2 = math.sqrt(2.0)


@theorem("ertan-lemma-5.3", fixed_point=(Domain(0.0, 0.5), "the a with f(a) = a"))
def symmetric_separation(fixed_point: float) -> float:
    """(1 - 2a)/sqrt 2; `calipers.curves.separation` serves every curve."""
    return (1.0 - 2.0 * fixed_point) / _ROOT_2


@theorem("ertan-lemma-e.1", mu=NON_NEGATIVE)
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
        raise ConditionError(
            f"{place} needs rounds^(1/s^2) >= {least:g}, got {math.exp(log_power):.6g} "
            f"at rounds={rounds}, s={s:g}. Use more rounds or a smaller s."
        )
    return log_rounds, log_power


@theorem("ertan-eq-51", s=(POSITIVE, "noise_multiplier * sqrt(ln rounds)"))
def scaled_noise_mu_lower(rounds: int, s: float) -> float:
    """sqrt((M^(1/s^2) - 4)/M), for M^(1/s^2) >= 4: from Phi(1.5/sigma) >= 1/2 and Phi(-0.5/sigma) >= 0."""
    log_rounds, log_power = _power_of_rounds(rounds, s, 4.0, "Equation (51)")
    # Above e^600 the 4 is far below the last digit; M^(1/s^2 - 1) alone may still be representable.
    if log_power > 600.0:
        return _exponential_from_below(0.5 * (log_power - log_rounds))
    return math.sqrt((math.exp(log_power) - 4.0) * math.exp(-log_rounds))


@theorem("ertan-eq-52", s=(POSITIVE, "noise_multiplier * sqrt(ln rounds)"))
def scaled_noise_separation_lower(rounds: int, s: float) -> float:
    """Equation (48) at mu = M^((1/s^2 - 1)/2)/sqrt 2, which Equation (51) exceeds once M^(1/s^2) >= 8."""
    log_rounds, log_power = _power_of_rounds(rounds, s, 8.0, "Equation (52)")
    return gdp_separation_lower(_exponential_from_below(0.5 * (log_power - log_rounds)) / _ROOT_2)


def _exponential_from_below(exponent: float) -> float:
    """e^exponent, or e^300 where that is smaller: a lower bound either way."""
    return math.exp(min(exponent, 300.0))
