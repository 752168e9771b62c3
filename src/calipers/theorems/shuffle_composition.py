"""From one epoch to many (van Dijk and Ertan 2026, Section 4.1, Theorem 5.2 and Lemma G.5).

Suppose a symmetric curve f of one epoch is known near the middle only up to a shift: f(a) >= g(a + t) - t with
g = G_mu. Composing that is awkward, composing G_mu tensor f_(0, d) is not (mu grows by sqrt(E), d by 1 - (1 - d)^E).
Lemma G.5 says which d is enough: with a* the fixed point of g,

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
from dataclasses import dataclass

from scipy.special import ndtr

from calipers.domains import NON_NEGATIVE, OPEN_UNIT
from calipers.errors import ConditionError
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_power, gaussian_tradeoff
from calipers.theorems.parameters import Described
from calipers.theorems.registry import theorem

_SHIFT: Described = (OPEN_UNIT, "shift t with f(a) >= G_mu(a + t) - t")


@dataclass(frozen=True)
class FixedPoint:
    """a* = G_mu(a*), and the two leading terms of its expansion."""

    fixed_point: float
    two_terms: float


@theorem("vandijk-prop-g.6")
def gaussian_fixed_point(mu: float) -> FixedPoint:
    """Phi(-mu/2), and 1/2 - mu/sqrt(8 pi)."""
    return FixedPoint(float(ndtr(-0.5 * mu)), 0.5 - mu / math.sqrt(8.0 * math.pi))


@theorem("vandijk-thm-5.2-delta-hat", shift=_SHIFT)
def failure_probability(mu: float, shift: float) -> float:
    """1 - G_mu(t) + t, rounded up (the other term of the maximum is never larger); `ConditionError` unless t < a*."""
    middle = gaussian_fixed_point(mu).fixed_point * (1.0 - GAUSSIAN_RELATIVE_ERROR)
    if shift >= middle:
        raise ConditionError(
            f"Lemma G.5 needs shift < a* = Phi(-mu/2) = {middle:.6g}, got shift={shift:g}. "
            "A curve known so roughly guarantees nothing; use more rounds."
        )
    return (float(gaussian_power(mu, shift)) + shift) * (1.0 + 4.0 * GAUSSIAN_RELATIVE_ERROR)


@theorem("vandijk-lemma-g.5", shift=_SHIFT)
def shifted_curve_fnr(fpr: float, mu: float, shift: float) -> float:
    """(1 - d) G_mu(a/(1 - d)) with d of `failure_probability`, rounded down; 0 from a = 1 - d on."""
    kept = 1.0 - failure_probability(mu, shift)
    if fpr >= kept:
        return 0.0
    share = min(fpr / kept * (1.0 + 1e-15), 1.0)
    return kept * float(gaussian_tradeoff(mu, share)) * (1.0 - 4.0 * GAUSSIAN_RELATIVE_ERROR)


@theorem(
    "vandijk-sec-4.1-limit",
    delta_factor=(NON_NEGATIVE, "limit of delta M^R"),
    epochs_factor=(NON_NEGATIVE, "limit of epochs / M^R"),
)
def epochs_tradeoff_limit(fpr: float, delta_factor: float, epochs_factor: float) -> float:
    """max{e^(-r s) - a, 0}."""
    product = delta_factor * epochs_factor
    return max(math.exp(-product) - fpr, 0.0)
