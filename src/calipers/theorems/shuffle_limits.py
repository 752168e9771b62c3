"""Random allocation in the limit of many rounds (van Dijk and Ertan 2026, Section 5).

*Edgeworth.* For a standardized sum of n independent terms with third and fourth moments,
F_n(x) = Phi(p_n(x)) + o(1/n) uniformly on |x| <= o(n^(1/16)), where

    p_n(x) = x + c (1 - x^2) + d (3x - x^3) + c^2 (4x^3 - 7x),
    c = mu_3 / (6 mu_2^(3/2) sqrt n),   d = (mu_4 - 3 mu_2^2) / (24 mu_2^2 n).

*The curve.* Applied to the likelihood ratio of one epoch of M rounds it gives
f -> G_mu with mu = sqrt((e^(1/sigma^2) - 1)/(M - 1)), and E = c^2 M epochs compose to a curve
that is asymptotically at least G_{c sqrt(e^(1/sigma^2) - 1)} (Theorem 5.2). No rate is known:
everything here is a limit, nothing a bound. (Theorem 5.2 goes through Lemma G.5, which is stated
for symmetric curves; this one is symmetric in the limit only.)

*Against Poisson.* The paper sets its coefficient sqrt(e^(1/sigma^2) - 1) next to that of Dong et
al., Corollary 5.4, and finds shuffling up to sqrt(2) closer to perfect privacy. That coefficient
belongs to the *symmetrized* Poisson curve. With c = q sqrt(T) the Poisson pair itself has the
limit c sqrt(e^(1/sigma^2) - 1) (`noisy_sgd_mu`), the same as shuffling: in this regime the two
samplers are equally private, and the factor is the price of symmetrizing.

*From one epoch to many* (Section 4.1, Theorem 5.2 and Lemma G.5). Suppose a symmetric curve f of one epoch is known
near the middle only up to a shift: f(a) >= g(a + t) - t with g = G_mu. Composing that is awkward, composing G_mu
tensor f_(0, d) is not (mu grows by sqrt(E), d by 1 - (1 - d)^E). Lemma G.5 says which d is enough: with a* the fixed
point of g,

    d = max{t/a*, 1 - g(t) + t},     f >= (1 - d) g(. / (1 - d)) everywhere.

The maximum is always its second term: 1 - g is concave, so 1 - g(t) >= (t/a*)(1 - g(a*)) = t/a* - t for t <= a*.

Proposition G.6 gives a* = Phi(-mu/2). Its first part says 1 - G_mu(a) = O(a) whenever a = O(1/M) and mu = O(1/sqrt(M)).
That is false as printed: 1 - G_mu(a) is about a e^(mu sqrt(2 ln(1/a))), and for a = e^(-M^2) the factor grows like
e^sqrt(2 M). It needs a >= e^(-cM). What Theorem 5.2 takes from it, that 1 - G_mu(a) is o(1/M) when a is, holds all the
same, because 1 - G_mu grows with a.

The limit of Section 4.1, (1 - d)^E - a with d = r M^-R and E = s M^R, tends to e^(-r s) - a from below: no bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import erf, ndtr

from calipers.citations import implements
from calipers.domains import COUNT
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_power, gaussian_tradeoff
from calipers.theorems.lognormal_ratio import positive_part_variance, ratio_variance
from calipers.theorems.registry import theorem, unmet
from calipers.theorems.shuffle_one_epoch import shuffle_delta


class EdgeworthMap(NamedTuple):
    """The cubic p_n of Theorem 5.1, given by its two coefficients c_n and d_n."""

    c: float
    d: float

    def __call__(self, x: float) -> float:
        """p_n(x), with F_n(x) = Phi(p_n(x)) + o(1/n).

        Raises `ConditionError` if p_n is not increasing on [-|x|, |x|]: the theorem promises that
        for n large enough, and a map that folds back is no distribution function.
        """
        self._require_increasing(abs(x))
        return x + self.c * (1.0 - x**2) + self.d * (3.0 * x - x**3) + self.c**2 * (4.0 * x**3 - 7.0 * x)

    def slope(self, x: float) -> float:
        """p_n'(x)."""
        return 1.0 - 2.0 * self.c * x + self.d * (3.0 - 3.0 * x**2) + self.c**2 * (12.0 * x**2 - 7.0)

    def _require_increasing(self, reach: float) -> None:
        """p' is a quadratic: its minimum on the interval is at an end or at its vertex."""
        curvature = 12.0 * self.c**2 - 3.0 * self.d
        places = [-reach, reach]
        if curvature > 0.0 and abs(self.c / curvature) < reach:
            places.append(self.c / curvature)
        if min(self.slope(place) for place in places) <= 0.0:
            raise unmet("increasing-map", reach=reach, edgeworth=self)


@implements("vandijk2026:thm5.1")
def ratio_edgeworth_map(noise_multiplier: float, rounds: int) -> EdgeworthMap:
    """The map for the mean of n likelihood ratios.

    c = (x + 2) sqrt(w) / (6 sqrt n) and d = w (x^3 + 3x^2 + 6x + 6) / (24 n) with w = e^(1/sigma^2) - 1
    and x = 1 + w; the factored d has no cancellation at large sigma.
    """
    n = COUNT.check_int("rounds", rounds)
    w = ratio_variance(noise_multiplier, power=4)
    x = 1.0 + w
    d = w * (x**3 + 3.0 * x**2 + 6.0 * x + 6.0) / (24.0 * n)
    return EdgeworthMap((w + 3.0) * math.sqrt(w) / (6.0 * math.sqrt(n)), d)


@theorem("vandijk-thm-5.1")
def edgeworth_point(noise_multiplier: float, rounds: int, x: float) -> float:
    """p_n(x) for the likelihood ratio of random allocation."""
    return ratio_edgeworth_map(noise_multiplier, rounds)(x)


class OneEpochLimit(NamedTuple):
    """mu of Theorem 5.2 and the term s_M(a) its upper side adds at a >= 1/2."""

    mu: float
    upper_side_excess: float


@theorem("vandijk-thm-5.2")
def shuffle_limit(noise_multiplier: float, rounds: int) -> OneEpochLimit:
    """mu = sqrt((e^(1/sigma^2) - 1)/(M - 1)) and s_M = e^(2/sigma^2) / (sqrt(8 pi e) (M - 1)).

    G_{mu + g}(a + t) - t <= f(a) <= G_{mu - g}(a - t) + t + s_M 1{a >= 1/2 + t} with unknown
    sequences t = o(1/M), g = O(sqrt(ln M)/M).
    """
    w = ratio_variance(noise_multiplier, power=2)
    excess = (1.0 + w) ** 2 / (math.sqrt(8.0 * math.pi * math.e) * (rounds - 1))
    return OneEpochLimit(math.sqrt(w / (rounds - 1)), excess)


class GdpCoefficients(NamedTuple):
    """mu per unit of c, for E = c^2 M epochs of M rounds: random allocation, symmetrized Poisson, their ratio."""

    shuffle: float
    symmetrized_poisson: float
    ratio: float


@theorem("vandijk-thm-5.2-coefficients")
def gdp_coefficients(noise_multiplier: float) -> GdpCoefficients:
    """sqrt(e^(1/sigma^2) - 1), sqrt(2 (e^(1/sigma^2) Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2)), and their ratio.

    The ratio falls from sqrt(2) at sigma = 0 to 1 at infinity, and is (1 + sqrt 2)/2 at sigma = 1.668.
    """
    shuffle = math.sqrt(ratio_variance(noise_multiplier))
    poisson = math.sqrt(2.0 * positive_part_variance(noise_multiplier))
    return GdpCoefficients(shuffle, poisson, poisson / shuffle)


@theorem("vandijk-thm-5.2-epochs")
def shuffle_epochs_mu(noise_multiplier: float, c: float) -> float:
    """c sqrt(e^(1/sigma^2) - 1); 0, perfect privacy in the limit, for c = 0."""
    return c * math.sqrt(ratio_variance(noise_multiplier))


@theorem("vandijk-cor-5.3")
def shuffle_separation_limit(noise_multiplier: float, rounds: int, epochs: int) -> float:
    """(1 - 2 Phi(-mu sqrt(E)/2)) / sqrt 2 with mu of Theorem 5.2: grows like mu sqrt(E)."""
    mu = shuffle_limit(noise_multiplier, rounds).mu * math.sqrt(epochs)
    return float(erf(mu / math.sqrt(8.0))) / math.sqrt(2.0)


@theorem("vandijk-cor-5.3-proven")
def shuffle_separation_upper(noise_multiplier: float, rounds: int, epochs: int) -> float:
    """(1 - (1 - delta)^E) / sqrt 2 with delta of Theorem 4.1: an upper bound on the separation, isolated view."""
    delta = shuffle_delta(noise_multiplier, rounds).delta
    return -math.expm1(epochs * math.log1p(-delta)) / math.sqrt(2.0)


class FixedPoint(NamedTuple):
    """a* = G_mu(a*), and the two leading terms of its expansion."""

    fixed_point: float
    two_terms: float


@theorem("vandijk-prop-g.6")
def gaussian_fixed_point(mu: float) -> FixedPoint:
    """Phi(-mu/2), and 1/2 - mu/sqrt(8 pi)."""
    return FixedPoint(float(ndtr(-0.5 * mu)), 0.5 - mu / math.sqrt(8.0 * math.pi))


@theorem("vandijk-thm-5.2-delta-hat")
def failure_probability(mu: float, shift: float) -> float:
    """1 - G_mu(t) + t, rounded up (the other term of the maximum is never larger); `ConditionError` unless t < a*."""
    middle = gaussian_fixed_point(mu).fixed_point * (1.0 - GAUSSIAN_RELATIVE_ERROR)
    if shift >= middle:
        raise unmet("small-shift", middle=middle, shift=shift)
    return (float(gaussian_power(mu, shift)) + shift) * (1.0 + 4.0 * GAUSSIAN_RELATIVE_ERROR)


@theorem("vandijk-lemma-g.5")
def shifted_curve_fnr(fpr: float, mu: float, shift: float) -> float:
    """(1 - d) G_mu(a/(1 - d)) with d of `failure_probability`, rounded down; 0 from a = 1 - d on."""
    kept = 1.0 - failure_probability(mu, shift)
    if fpr >= kept:
        return 0.0
    share = min(fpr / kept * (1.0 + 1e-15), 1.0)
    return kept * float(gaussian_tradeoff(mu, share)) * (1.0 - 4.0 * GAUSSIAN_RELATIVE_ERROR)


@theorem("vandijk-sec-4.1-limit")
def epochs_tradeoff_limit(fpr: float, delta_factor: float, epochs_factor: float) -> float:
    """max{e^(-r s) - a, 0}."""
    return max(math.exp(-delta_factor * epochs_factor) - fpr, 0.0)
